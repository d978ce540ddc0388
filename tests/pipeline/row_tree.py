"""A tree made of nothing but the rows of a change feed: the judge of whether a feed is complete."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keepfast.pipeline.replay.changes import ZnodeChange
from keepfast.tree import CONTAINER_OWNER, Tree, TreeBuilder, ttl_owner
from keepfast.wire import AclList, Zxid
from tests.tree.znode_records import add_node

_STAT = struct.Struct(">qqqqiiiqq")


@dataclass(slots=True)
class Znode:
    """What the rows say about one znode."""

    data: bytes | None
    acl: AclList
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    owner: int
    pzxid: int
    version: int = 0
    cversion: int = 0
    aversion: int = 0

    @property
    def stat(self) -> bytes:
        return _STAT.pack(
            *(self.czxid, self.mzxid, self.ctime, self.mtime, self.version, self.cversion),
            *(self.aversion, self.owner, self.pzxid),
        )


class RowTree:
    """Applies rows, and checks what each says about the value before it."""

    def __init__(self) -> None:
        # Apache's empty tree, from a snapshot of which every feed in these tests begins.
        empty = Tree()
        self.znodes: dict[str, Znode] = {}
        for path in empty.paths():
            node = empty.find(path)
            assert node is not None
            values = _STAT.unpack(node.stat)
            self.znodes[path] = Znode(
                *(node.data, empty.acl_of(node)),
                *(values[0], values[1], values[2], values[3], values[7], values[8]),
                *(values[4], values[5], values[6]),
            )
        self.sessions: dict[int, int] = {}
        self.last_zxid = 0

    def apply(self, rows: Iterable[ZnodeChange]) -> None:
        for row in rows:
            self.last_zxid = row.zxid
            match row.change:
                case "created":
                    self._create(row)
                case "deleted":
                    self._delete(row)
                case "data set":
                    self._set_data(row)
                case "ACL set":
                    self._set_acl(row)
                case "session opened":
                    assert row.timeout_ms is not None
                    self.sessions[row.session_id] = row.timeout_ms
                case "session closed":
                    self.sessions.pop(row.session_id, None)
                case _:
                    assert row.change in ("failed", "checked"), row

    def _create(self, row: ZnodeChange) -> None:
        assert row.path is not None
        assert row.parent_cversion is not None
        assert row.path not in self.znodes
        owners: Mapping[str | None, int] = {
            "persistent": 0,
            "ephemeral": row.session_id,
            "container": CONTAINER_OWNER,
            "ttl": ttl_owner(row.ttl_ms or 0),
        }
        times = (row.zxid, row.zxid, row.time_ms, row.time_ms)
        self.znodes[row.path] = Znode(
            row.new_data, row.acl or (), *times, owners[row.kind], row.zxid
        )
        parent = self.znodes[row.path.rpartition("/")[0] or "/"]
        if row.parent_cversion > parent.cversion:
            parent.cversion, parent.pzxid = row.parent_cversion, row.zxid

    def _delete(self, row: ZnodeChange) -> None:
        assert row.path is not None
        gone = self.znodes.pop(row.path)
        assert (row.old_data, row.old_version) == (gone.data, gone.version)
        parent = self.znodes[row.path.rpartition("/")[0] or "/"]
        parent.pzxid = max(parent.pzxid, row.zxid)

    def _set_data(self, row: ZnodeChange) -> None:
        assert row.path is not None
        assert row.new_version is not None
        znode = self.znodes[row.path]
        assert (row.old_data, row.old_version) == (znode.data, znode.version)
        znode.data, znode.version = row.new_data, row.new_version
        znode.mzxid, znode.mtime = row.zxid, row.time_ms

    def _set_acl(self, row: ZnodeChange) -> None:
        assert row.path is not None
        assert row.new_version is not None
        znode = self.znodes[row.path]
        assert row.old_version == znode.aversion
        assert row.old_data == row.new_data == znode.data
        znode.acl, znode.aversion = row.acl or (), row.new_version

    def build(self) -> Tree:
        """The tree, with the digests that follow from it."""
        builder = TreeBuilder()
        for session_id, timeout_ms in self.sessions.items():
            builder.add_session(session_id, timeout_ms)
        keys: dict[Any, int] = {}
        for znode in self.znodes.values():
            if znode.acl not in keys:
                keys[znode.acl] = len(keys) + 1
                builder.add_acl(keys[znode.acl], znode.acl)
        for path in sorted(
            self.znodes, key=lambda path: (path.count("/") if path != "/" else 0, path)
        ):
            znode = self.znodes[path]
            add_node(builder, path, znode.data, keys[znode.acl], znode.stat)
        return builder.finish(Zxid(self.last_zxid))
