"""The fast path of setData beside the general one: same digests, whatever came in between."""

from random import Random

import pytest

from keepfast.tree import Caller, Preparer, Tree
from keepfast.tree.pending import LARGE_BYTES
from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    CreateSessionTxn,
    DeleteRequest,
    OpCode,
    SessionId,
    SetDataRequest,
    Zxid,
    decode_entry,
    encode,
)

CALLER = Caller(SessionId(0x1000))


class Leader:
    """Applies each txn right after it was prepared, and beside it on a tree from its record."""

    def __init__(self) -> None:
        self.tree, self.twin = Tree(), Tree()
        self.preparer = Preparer(self.tree)
        self.zxid = Zxid(0)
        self.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000))

    def ask(self, type_: int, request: object) -> None:
        """Take the general path."""
        self.zxid = Zxid(self.zxid + 1)
        entry = self.preparer.prepare(CALLER, 0, self.zxid, 1000, type_, request)
        self.preparer.apply(entry)
        self.twin.apply(entry.header, entry.body)
        self.compare(self.preparer.digest)

    def set_plainly(self, path: str, data: bytes) -> None:
        """Take the fast path."""
        self.zxid = Zxid(self.zxid + 1)
        sets, request = self.preparer.plain_sets, encode(SetDataRequest(path, data, -1))
        plain = sets.prepare(CALLER, 0, self.zxid, 1000, b"head" + request, 4)
        assert plain is not None
        record, _, new, before, delta, digest = plain
        self.tree.take_data(self.zxid, path, data, new.stat, before, delta, digest)
        sets.installed(path, new)
        entry = decode_entry(record)
        self.twin.apply(entry.header, entry.body)
        self.compare(digest)

    def compare(self, digest: int) -> None:
        """Both trees and the record have to agree."""
        assert self.tree.digest == self.twin.digest == digest
        assert self.tree.state_digest == self.twin.state_digest


@pytest.mark.parametrize("seed", range(20))
def test_large_values__their_crcs_are_those_of_the_present_moment(seed: int) -> None:
    random, leader = Random(seed), Leader()
    paths = ("/a", "/b")
    for path in paths:
        leader.ask(OpCode.CREATE, CreateRequest(path, b"first", OPEN_ACL, 0))
    children: list[str] = []
    for number in range(60):
        path = random.choice(paths)
        data = random.randbytes(random.choice((1, LARGE_BYTES, LARGE_BYTES + 1, 5000)))
        step = random.randrange(6)
        if step < 3:
            leader.set_plainly(path, data)
        elif step == 3:
            leader.ask(OpCode.SET_DATA, SetDataRequest(path, data, -1))
        elif step == 4 or not children:
            children.append(f"{path}/{number}")
            leader.ask(OpCode.CREATE, CreateRequest(children[-1], data, OPEN_ACL, 0))
        else:
            leader.ask(OpCode.DELETE, DeleteRequest(children.pop(), -1))
