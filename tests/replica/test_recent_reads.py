"""Replies that are kept: never shown once their znode has changed, and never too many."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from keepfast.replica.reads import get_data, plain_data_reply
from keepfast.replica.recent_reads import RecentReads
from keepfast.wire import (
    OPEN_ACL,
    READ_ACL,
    CreateRequest,
    DeleteRequest,
    GetDataRequest,
    KeeperError,
    OpCode,
    SetACLRequest,
    SetDataRequest,
    encode,
    encode_int,
    encode_reply,
)
from tests.replica.machine import Client, Machine

PATHS = ("/a", "/b", "/a/c", "/a/d", "/b/e", "/none")


def _change(random: Random) -> tuple[OpCode, Any]:
    path, data = random.choice(PATHS[:-1]), random.randbytes(3)
    return random.choice(
        (
            (OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, 0)),
            (OpCode.DELETE, DeleteRequest(path, -1)),
            (OpCode.SET_DATA, SetDataRequest(path, data, -1)),
            (OpCode.SET_ACL, SetACLRequest(path, random.choice((OPEN_ACL, READ_ACL)), -1)),
        )
    )


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_any_changes__a_kept_reply_is_that_of_the_general_way(seed: int, is_frozen: bool) -> None:
    machine = Machine()
    client = Client(machine)
    client.connect()
    replica, random = machine.replica, Random(seed)
    again = 0
    for xid in range(1, 600):
        if is_frozen and xid == 200:
            frozen = replica.tree.freeze()
        if is_frozen and xid == 400:
            frozen.close()
        client.send(xid, *_change(random))
        machine.settle()
        client.take()
        for path in PATHS:
            payload = (
                encode_int(xid) + encode_int(OpCode.GET_DATA) + encode(GetDataRequest(path, False))
            )
            had = payload[4:] in replica.service.recent_reads.replies
            found = plain_data_reply(replica.service, xid, payload)
            if found is None:
                continue
            again += had
            body = get_data(replica.service, client.connection, payload)
            assert found == encode_reply(xid, replica.service.last_zxid, 0, body), (xid, path)
        with pytest.raises(KeeperError):
            get_data(replica.service, client.connection, payload)
    assert again > 200


def test_all_places_taken__what_comes_is_kept_a_second_later() -> None:
    recent = RecentReads()
    for number in range(5000):
        recent.keep(b"/%d" % number, f"/{number}", b"z", b"reply", 1000)
    assert len(recent.replies) == 4096
    recent.keep(b"/new", "/new", b"z", b"reply", 1999)
    assert b"/new" not in recent.replies
    recent.keep(b"/new", "/new", b"z", b"reply", 2000)
    assert list(recent.replies) == [b"/new"]


def test_long_reply__is_not_kept() -> None:
    recent = RecentReads()
    recent.keep(b"/long", "/long", b"z", bytes(1025), 0)
    assert not recent.replies
