"""Builds a tree from the parts of a snapshot, checking it on the way.

Snapshots have millions of znodes, so their records are decoded and added in one loop. It exploits
their order: neighbours mostly share a parent and an ACL, so both are kept from one record to the
next, and their sums are added when they change.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is caught under this name
from typing import Final
from zlib import crc32

from keepfast.tree.acl import OPEN_KEY, AclTable
from keepfast.tree.digest import MASK, counted_crc
from keepfast.tree.errors import TreeError
from keepfast.tree.node import Node
from keepfast.tree.node_bytes import owner_of, packed_node
from keepfast.tree.nodemap import NodeMap
from keepfast.tree.paths import CONFIG, RESERVED_PREFIX, ROOT
from keepfast.tree.quota import limited_path
from keepfast.tree.tree import Tree
from keepfast.wire import (
    AclList,
    MalformedRecord,
    Zxid,
)

_LENGTH: Final = Struct(">i")
# Key of the ACL; then the stat: czxid, mzxid, ctime to aversion, ephemeralOwner, pzxid.
_TAIL: Final = Struct(">q8s8s28s8s8s")
_TAIL_SIZE: Final = _TAIL.size
_NO_OWNER: Final = bytes(8)
# Servers can be configured to allow large znodes, but none comes near this.
MAX_FIELD: Final = 1 << 30


class TreeBuilder:
    """Collects sessions, ACLs, then znodes with parents before children; `finish` returns a tree.

    Input that does not form a tree raises TreeError; the builder is unusable afterwards.
    """

    def __init__(self, *, allow_unknown_acls: bool = False, max_field: int = MAX_FIELD) -> None:
        """Begin with nothing.

        `allow_unknown_acls`: for a snapshot of Apache's, which writes its ACL table first and then
        znodes that may have been created later, with ACLs that the table lacks. The txns after
        the snapshot bring them; once they are applied, `tree.acls.unknown_keys` must be empty.
        `max_field`: the longest path or data in bytes; a longer one is treated as damage.
        """
        self._allow_unknown_acls = allow_unknown_acls
        self._max_field = max_field
        self._nodes: dict[str, Node] = {}
        self._acls = AclTable()
        # For each ACL: how many znodes use it, and the sum of their CRCs.
        self._uses: dict[int, int] = {OPEN_KEY: 0}
        self._crcs: dict[int, int] = {OPEN_KEY: 0}
        # CRCs of znodes that Apache's digest leaves out.
        self._reserved_crcs = 0
        self._data_size = 0
        self._greatest = bytes(8)
        # Znodes with children, each before those below it.
        self._parents: list[str] = []
        # Znodes with an ephemeralOwner, and paths with a quota.
        self._owned: list[str] = []
        self._quotas: list[str] = []
        self._sessions: dict[int, int] = {}
        # Whether the record that ends the znodes was met.
        self.is_complete = False

    @property
    def node_count(self) -> int:
        return len(self._nodes)

    @property
    def max_zxid_seen(self) -> Zxid:
        """The greatest czxid, mzxid or pzxid of all znodes but /zookeeper/config.

        A snapshot that was copied while txns continued holds txns at least up to there. (The
        mzxid of /zookeeper/config is the version of a configuration.)
        """
        return Zxid(int.from_bytes(self._greatest, "big", signed=True))

    def add_session(self, session_id: int, timeout_ms: int) -> None:
        """Add a session."""
        if session_id in self._sessions:
            raise TreeError(f"session {session_id:#x} is there twice")
        self._sessions[session_id] = timeout_ms

    def add_acl(self, key: int, acl: AclList) -> None:
        """Add an entry of the ACL table."""
        self._acls.load(key, acl)
        self._uses[key] = 0
        self._crcs[key] = 0

    def add_encoded(self, records: bytes, offset: int = 0) -> int:
        """Add the znodes whose records are in `records` from `offset` on, as many as are complete.

        Gives the offset after the last of them. Stops after the record that ends the znodes, a
        path "/" and nothing else, and sets `is_complete`. Raises MalformedRecord for what is not a
        record, with its offset in `records`.
        """
        enter = self._nodes.setdefault
        unpack_length, unpack_tail = _LENGTH.unpack_from, _TAIL.unpack_from
        limit, greatest, group = self._max_field, self._greatest, _Group()
        parent_path: str | None = None
        key = count = crcs = sizes = 0
        try:
            while True:
                start = offset + 4
                middle = start + unpack_length(records, offset)[0]
                raw = records[start:middle]
                # The length too: the records may end after the first byte of a longer path.
                if raw == b"/" and middle == start + 1:
                    self.is_complete = True
                    offset = middle
                    break
                size = unpack_length(records, middle)[0]
                if not (start <= middle <= start + limit and -1 <= size <= limit):
                    raise MalformedRecord("a znode with an impossible length", offset)
                tail = middle + 4 + size if size > 0 else middle + 4
                acl, czxid, mzxid, times, owner, pzxid = unpack_tail(records, tail)
                packed = records[middle + 4 : tail + _TAIL_SIZE]
                path = raw.decode()
                above = path[: path.rfind("/")]
                if above != parent_path or acl != key or not raw:
                    self._close_group(group, count, crcs)
                    group = self._open_group(path, above, acl)
                    # The root has no siblings: the next znode starts a new group.
                    parent_path, key, count, crcs = above if raw else None, acl, 0, 0
                node = Node(packed if size >= 0 else packed_node(None, acl, packed[8:]))
                if group.is_reserved:
                    crcs += self._note_reserved(path, node)
                else:
                    data = records[middle + 4 : tail]
                    crcs += crc32(b"".join((raw, data, czxid, mzxid, pzxid, times, owner)))
                    if pzxid > greatest or mzxid > greatest:
                        greatest = max(pzxid, mzxid)
                if owner != _NO_OWNER:
                    self._owned.append(path)
                if enter(path or ROOT, node) is not node:
                    raise TreeError("the znode is there twice", path)
                group.siblings.append(path)
                count += 1
                sizes += len(path) + tail - middle - 4
                offset = tail + _TAIL_SIZE
        except StructError:
            self._check_incomplete(records, offset)
        except UnicodeDecodeError as error:
            raise MalformedRecord("a path that is not UTF-8", offset) from error
        self._close_group(group, count, crcs)
        # Both: the znodes below /zookeeper are handled elsewhere.
        self._greatest = max(self._greatest, greatest)
        self._data_size += sizes
        return offset

    def finish(self, zxid: Zxid) -> Tree:
        """The tree, declared to be at `zxid`; missing built-in znodes are created.

        Quotas are recounted, as Apache does.
        """
        root = self._nodes.get(ROOT)
        if root is None:
            raise TreeError("there is no root")
        acls = self._acls
        for key, uses in self._uses.items():
            acls.acquire_key(key, uses)
        acls.drop_unused()
        tree = Tree(NodeMap(self._nodes), acls)
        tree.descendants.load(self._parents, self._nodes)
        tree.last_zxid = zxid
        tree.digest = (sum(self._crcs.values()) - self._reserved_crcs) & MASK
        tree.state_digest = (
            sum(
                (crcs + self._uses[key]) * acls.weights[key]
                for key, crcs in self._crcs.items()
                if self._uses[key]
            )
            & MASK
        )
        tree.node_count = len(self._nodes)
        tree.data_size = self._data_size + len(ROOT)
        for session_id, timeout_ms in self._sessions.items():
            tree.open_session(session_id, timeout_ms)
        for path in self._owned:
            tree.own_path(owner_of(self._nodes[path].stat), path)
        tree.quotas.update(self._quotas)
        tree.add_builtin_nodes()
        for path in self._quotas:
            tree.recount(path)
        return tree

    def _open_group(self, path: str, above: str, acl: int) -> _Group:
        """Start a run of znodes with one parent and one ACL; `path` is the first of them."""
        if acl not in self._uses:
            if not self._allow_unknown_acls:
                raise TreeError(f"ACL {acl} is not in the table", path)
            self._acls.load_unknown(acl)
            self._uses[acl] = self._crcs[acl] = 0
        if not path:
            return _Group(acl)
        if path[0] != "/" or path[-1] == "/":
            raise TreeError("not a path", path)
        parent = self._nodes.get(above or ROOT)
        if parent is None:
            raise TreeError("the parent is not there", path)
        siblings = parent.children
        if not isinstance(siblings, list):
            siblings = parent.children = []
            self._parents.append(above or ROOT)
        return _Group(acl, siblings, path.startswith(RESERVED_PREFIX))

    def _close_group(self, group: _Group, count: int, crcs: int) -> None:
        self._uses[group.acl] += count
        self._crcs[group.acl] += crcs
        if group.is_reserved:
            self._reserved_crcs += crcs

    def _note_reserved(self, path: str, node: Node) -> int:
        """Record a znode below /zookeeper; returns its CRC."""
        stat = node.stat
        quota = limited_path(path)
        if quota is not None:
            self._quotas.append(quota)
        if path != CONFIG:
            self._greatest = max(self._greatest, stat[8:16], stat[52:])
        return counted_crc(path, node.data, stat)

    def _check_incomplete(self, records: bytes, offset: int) -> None:
        """Refuse a record that no more bytes can complete: one of its lengths is impossible."""
        at = offset
        for least in (0, -1):
            if at + _LENGTH.size > len(records):
                return
            length = _LENGTH.unpack_from(records, at)[0]
            if not least <= length <= self._max_field:
                raise MalformedRecord(f"a znode with an impossible length, {length}", at)
            at += _LENGTH.size + max(length, 0)


class _Group:
    """A run of znodes with one parent and one ACL."""

    __slots__ = ("acl", "is_reserved", "siblings")

    def __init__(
        self, acl: int = OPEN_KEY, siblings: list[str] | None = None, is_reserved: bool = False
    ) -> None:
        self.acl = acl
        self.siblings = [] if siblings is None else siblings
        self.is_reserved = is_reserved
