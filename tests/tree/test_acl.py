"""The ACL table: each list once, as long as it is used."""

from __future__ import annotations

import pytest

from keepfast.tree import OPEN_KEY, AclTable, TreeError, acl_weight
from keepfast.wire import ACL, OPEN_ACL, READ_ACL, Id

BOB = (ACL(31, Id("digest", "bob:x")),)


def test_same_list__same_key_until_the_last_use_is_gone() -> None:
    table = AclTable()
    first = table.acquire(READ_ACL)
    assert table.acquire(READ_ACL) == first
    table.release(first)
    assert table.lists[first] == READ_ACL
    table.release(first)
    assert first not in table.lists
    assert len(table) == 0


def test_null__is_the_open_acl_without_an_entry() -> None:
    table = AclTable()
    assert table.acquire(None) == OPEN_KEY
    table.release(OPEN_KEY)
    assert table.entries() == {}
    assert table.lists[OPEN_KEY] == OPEN_ACL


def test_explicit_open_acl__has_an_entry_of_its_own() -> None:
    table = AclTable()
    key = table.acquire(OPEN_ACL)
    assert key != OPEN_KEY
    assert table.weights[key] == table.weights[OPEN_KEY]


def test_one_list_under_two_keys__both_live() -> None:
    table = AclTable()
    for key in (3, 8):
        table.load(key, BOB)
        table.acquire_key(key)
    assert table.acquire(BOB) == 8
    table.release(3)
    assert table.acquire(BOB) == 8
    for _ in range(3):
        table.release(8)
    assert table.entries() == {}
    assert table.acquire(BOB) == 9


def test_unknown_list__is_given_to_nobody() -> None:
    table = AclTable()
    table.load_unknown(4)
    table.acquire_key(4)
    assert table.acquire(table.lists[4]) != 4
    with pytest.raises(TreeError):
        table.load_unknown(4)


def test_weight__depends_on_all_of_the_list_and_its_order() -> None:
    lists = (OPEN_ACL, READ_ACL, BOB, BOB + READ_ACL, READ_ACL + BOB, ())
    weights = {acl_weight(acl) for acl in lists}
    assert len(weights) == len(lists)
    assert all(weight % 2 == 1 and weight < 1 << 64 for weight in weights)
