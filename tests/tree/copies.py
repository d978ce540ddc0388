"""Reading snapshots' records back, by words of the format alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from keepfast.tree import FrozenTree, TreeBuilder
from keepfast.wire import OPEN_ACL, AclList, StatPersisted
from tests.tree.model import Model


class Record(NamedTuple):
    path: str
    data: bytes | None
    acl_key: int
    stat: StatPersisted


def read_records(chunks: Iterable[bytes]) -> list[Record]:
    """The znode records of a snapshot, in their order."""
    raw = b"".join(chunks)
    records = []
    position = 0

    def take_buffer() -> bytes | None:
        nonlocal position
        (length,) = struct.unpack_from(">i", raw, position)
        start = position + 4
        position = start + max(length, 0)
        return None if length == -1 else raw[start:position]

    while position < len(raw):
        path = take_buffer()
        assert path is not None
        data = take_buffer()
        key, *numbers = struct.unpack_from(">qqqqqiiiqq", raw, position)
        position += 68
        records.append(Record(path.decode(), data, key, StatPersisted(*numbers)))
    return records


def assert_copy(frozen: FrozenTree, records: list[Record], model: Model) -> None:
    """The records and the frozen tree's own fields are exactly the model's state."""
    seen: set[str] = set()
    for record in records:
        if record.path:
            assert record.path.rpartition("/")[0] in seen, "a child before its parent"
        assert record.path not in seen
        seen.add(record.path)
        expected = model.nodes[record.path or "/"]
        assert (record.data, record.stat) == (expected.data, expected.stat())
        acl: AclList = OPEN_ACL if record.acl_key == -1 else frozen.acls[record.acl_key]
        assert acl == expected.acl
    assert len(seen) == len(model.nodes) == frozen.node_count
    assert frozen.sessions == model.sessions
    assert frozen.digest == model.digest()
    assert frozen.state_digest == model.state_digest()


def builder_for(frozen: FrozenTree) -> TreeBuilder:
    """A builder with a frozen tree's sessions and ACLs, and no znodes yet."""
    builder = TreeBuilder()
    for session in frozen.sessions.items():
        builder.add_session(*session)
    for key, acl in frozen.acls.items():
        builder.add_acl(key, acl)
    return builder
