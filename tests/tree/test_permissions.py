"""Who may do what, also with long lists on both sides: the same answer, without their product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.tree import AclTable, PrepareOptions, fixed_acl, is_allowed
from keepfast.tree.permissions import LargeAcl
from keepfast.wire import ACL, ANYONE, Id
from tests.costs import calls_of

SCHEMES = frozenset(("digest", "sasl", "x509", "ip"))


def naive(acl: tuple[ACL, ...], perm: int, ids: tuple[Id, ...]) -> bool:
    """The rules of the module's text, pair by pair."""
    return not acl or any(
        is_allowed((entry,), perm, (held,)) for entry in acl for held in (*ids, Id("ip", "none"))
    )


_addresses = st.sampled_from(
    ("10.0.0.1", "10.0.0.2", "10.1.0.1", "::1", "fe80::1", "not an address")
)
_networks = st.sampled_from(
    ("10.0.0.1", "10.0.0.0/24", "10.0.0.7/8", "0.0.0.0/0", "::1", "fe80::/10", "::/0", "x", "1/x")
)
_names = st.sampled_from(("a:1", "b:2", "c", "super"))
_held = st.one_of(
    st.builds(Id, st.sampled_from(("digest", "sasl", "x509", "auth", "world")), _names),
    st.builds(Id, st.just("ip"), _addresses),
    st.builds(Id, st.just("super"), st.just("")),
)
_wanted = st.one_of(
    st.builds(Id, st.sampled_from(("digest", "sasl", "x509")), _names),
    st.builds(Id, st.just("ip"), _networks),
    st.just(ANYONE),
)
_FILLER = tuple(ACL(0, Id("digest", f"filler{number}:x")) for number in range(20))
_STRANGERS = tuple(Id("digest", f"stranger{number}:x") for number in range(20))


@given(
    st.lists(st.builds(ACL, st.integers(0, 31), _wanted), min_size=1, max_size=6).map(tuple),
    st.sampled_from((1, 2, 4, 8, 16, 5)),
    st.lists(_held, max_size=5).map(tuple),
)
def test_long_lists__give_the_same_answer_as_short_ones(
    acl: tuple[ACL, ...], perm: int, ids: tuple[Id, ...]
) -> None:
    expected = naive(acl, perm, ids)
    assert is_allowed(acl, perm, ids) == expected
    table = AclTable()
    long = table.lists[table.acquire(acl + _FILLER)]
    assert isinstance(long, LargeAcl)
    assert is_allowed(long, perm, ids) == expected
    assert is_allowed(acl, perm, ids + _STRANGERS) == expected
    assert is_allowed(long, perm, ids + _STRANGERS) == expected
    # And again, from what is remembered.
    assert is_allowed(long, perm, ids) == expected


@pytest.mark.parametrize("scheme", ["digest", "ip"])
def test_many_ids_and_a_long_acl__cost_no_product(scheme: str) -> None:
    entries = 5000
    wanted = [
        Id("digest", f"user{number}:x")
        if scheme == "digest"
        else Id("ip", f"10.9.{number % 250}.{number // 250}")
        for number in range(entries)
    ]
    acl = fixed_acl(tuple(ACL(1, who) for who in wanted), (), PrepareOptions(schemes=SCHEMES))
    ids = (Id("ip", "127.0.0.1"), *(Id("digest", f"other{number}:x") for number in range(1000)))
    assert not is_allowed(acl, 1, ids)
    # Another connection with as many ids: nothing that was remembered helps.
    others = (*ids[:1], *reversed(ids[1:]))
    assert calls_of(lambda: is_allowed(acl, 1, others)) < 3 * len(ids)
    # The same one again: one lookup.
    assert calls_of(lambda: is_allowed(acl, 1, others)) < 10


def test_many_ids_and_short_acls__cost_one_look_up_for_each_entry() -> None:
    ids = (Id("ip", "127.0.0.1"), *(Id("digest", f"other{number}:x") for number in range(1000)))
    acls = [(ACL(1, Id("digest", f"user{number}:x")),) for number in range(100)]
    assert not is_allowed(acls[0], 1, ids)
    cost = calls_of(lambda: [is_allowed(acl, 1, ids) for acl in acls])
    assert cost < 20 * len(acls)
