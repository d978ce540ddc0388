"""The fast path of a plain setData, from the bytes of the request to the changed znode.

Most writes are of one kind, and valid: a setData on a world-writable znode, by an existing session,
with a matching version. Prepared and applied like all others, such a write is decoded into records,
encoded again, and computed twice, on the pending tree and on the tree. Here each byte and each
digest is computed once:

    prepare           request -> the entry for the log, and the znode as it will be, as a change
                      that is pending
    Tree.take_data    once it is committed: data and stat of that znode go into the tree
    apply_plain_set   the same on a learner, from the entry of the log

Whatever is not plain, or not obviously so, is declined by `prepare` without side effects and left
to `Preparer`; so no client error is decided here. That a change fits the tree (R12) is checked as
strictly as in `Tree.apply`: the znode must be the very one that it was prepared on, byte for byte
of its stat, and the tree's digest must become the one that was logged.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from keepfast.tree.digest import DIGEST_VERSION, MASK, node_crc
from keepfast.tree.paths import RESERVED_PREFIX
from keepfast.tree.pending import LARGE_BYTES, PendingChanges
from keepfast.tree.pending_node import PendingNode, PlainStat
from keepfast.tree.permissions import is_allowed
from keepfast.wire import OpCode, Perms, Zxid

if TYPE_CHECKING:
    from keepfast.tree.caller import Caller
    from keepfast.tree.node import Node
    from keepfast.tree.tree import Tree

_SET_DATA: Final = OpCode.SET_DATA.value
_WRITE: Final = Perms.WRITE
_ANY_VERSION: Final = -1
# How many znodes already in the tree stay pending; none with large data does.
_MAX_KEPT: Final = 4096
# After it versions wrap.
_LAST_VERSION: Final = (1 << 31) - 2

# Bound once: each attribute lookup shows here.
_int_at: Final = Struct(">i").unpack_from
_key_at: Final = Struct(">q").unpack_from
# A request after its header: length and path, length and data, version.
_MIN_REQUEST: Final = 14
# czxid, mzxid, ctime, mtime and version, cversion to ephemeralOwner, pzxid.
_stat_pieces: Final = Struct(">8s8s8s12s16s8s").unpack
_pack_zxid: Final = Struct(">q").pack
_pack_mtime_version: Final = Struct(">qi").pack
# Of an entry: the header before the body; the version, which ends the body, and the digest.
_HEADER: Final = Struct(">qiqqi")
_HEADER_SIZE: Final = 32
_PATH_AT: Final = 36
_END: Final = Struct(">iiQ")
_END_SIZE: Final = 16
_MIN_ENTRY: Final = _PATH_AT + 2 + 4 + _END_SIZE
_pack_header, _header_at = _HEADER.pack, _HEADER.unpack_from
_pack_end, _end_at = _END.pack, _END.unpack_from
_VERSION_AT: Final = 32


# A setData that was prepared: the entry for the log, the znode's path, the znode after the txn,
# its stat before, what the txn adds to the sum of the CRCs, and the digest after it. A plain
# tuple: there is one for each write.
PlainSet = tuple[bytes, str, PendingNode, bytes, int, int]


class PlainSets:
    """Checks and installs plain setData requests. Shares the pending changes of a Preparer."""

    __slots__ = ("_changed", "_pending", "_sessions", "_tree")

    def __init__(
        self, tree: Tree, pending: PendingChanges, sessions: dict[int, tuple[int, bool]]
    ) -> None:
        """`sessions`: those that prepared txns open or close."""
        self._tree = tree
        self._pending = pending
        self._changed = pending.nodes
        self._sessions = sessions

    def prepare(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, request: bytes, offset: int
    ) -> PlainSet | None:
        """The txn for a request whose body begins at `offset`; None: it is not plain."""
        end = len(request)
        start = offset + 4
        if end - offset < _MIN_REQUEST:
            return None
        data_at = start + _int_at(request, offset)[0]
        if not start + 1 < data_at <= end - 8:
            return None
        raw = request[start:data_at]
        # ASCII encodes back to the same bytes, and a request with nothing after its version
        # differs from the body of its txn in that version alone.
        if not raw.isascii() or data_at + 8 + _int_at(request, data_at)[0] != end:
            return None
        path, session_id = raw.decode(), caller.session_id
        if session_id not in self._tree.sessions or session_id in self._sessions or caller.is_moved:
            return None
        found = self._changed.get(path)
        plain = None if found is None else found.plain
        if found is None or plain is None:
            looked = self._look_at(path)
            if looked is None:
                return None
            found, plain = looked
        czxid, ctime, rest, pzxid, version = plain
        expected = _int_at(request, end - 4)[0]
        if (expected not in (_ANY_VERSION, version)) or version > _LAST_VERSION:
            return None
        version += 1
        data = request[data_at + 4 : end - 4]
        plain = (czxid, ctime, rest, pzxid, version)
        stat, crc = _changed(raw, data, plain, zxid, time_ms)
        self._changed[path] = new = PendingNode(
            data, found.acl, stat, found.child_count, crc, plain
        )
        pending, delta = self._pending, crc - found.crc
        pending.digest = digest = (pending.digest + delta) & MASK
        body: bytes | memoryview = request
        if end > LARGE_BYTES:
            body = memoryview(request)  # cut without a copy
        entry = b"".join(
            (
                _pack_header(session_id, cxid, zxid, time_ms, _SET_DATA),
                body[offset : end - 4],
                _pack_end(version, DIGEST_VERSION, digest),
            )
        )
        return entry, path, new, found.stat, delta, digest

    def _look_at(self, path: str) -> tuple[PendingNode, PlainStat] | None:
        """The znode as it is pending or in the tree, if its data is changed on the fast path."""
        found = self._pending.find(path)
        # Below /zookeeper, digests and quotas have rules of their own.
        if found is None or path.startswith(RESERVED_PREFIX):
            return None
        if not is_allowed(found.acl, _WRITE, ()):
            return None
        stat = found.stat
        if found.crc < 0:
            found.crc = node_crc(path, found.data, stat)
        version = _int_at(stat, _VERSION_AT)[0]
        if version < 0:
            return None
        czxid, _, ctime, _, rest, pzxid = _stat_pieces(stat)
        return found, (czxid, ctime, rest, pzxid, version)

    def installed(self, path: str, new: PendingNode) -> None:
        """Note that the tree holds the change now (`Tree.take_data`).

        Some stay: a znode that was changed is likely to be changed again.
        """
        changed, owned = self._changed, self._pending.owned
        is_large = len(new.data or b"") > LARGE_BYTES
        if owned or len(changed) > _MAX_KEPT or is_large:
            if changed.get(path) is new:
                del changed[path]
                if is_large:
                    self._pending.remember(path, new)
            if owned:
                self._pending.disown(path, new)


def apply_plain_set(tree: Tree, entry: bytes) -> tuple[Zxid, int, int, str, Node] | None:
    """Apply an entry of the log that is a plain setData; None: nothing was done, use `Tree.apply`.

    For a learner, whose leader prepared the txn: its version must directly follow ours, and the
    digest after it must be the one that it carries; if anything differs, the slow path reports
    what. Returns zxid, session id, cxid, path and the changed znode. Raises ReplayConflict.
    """
    end = len(entry)
    if end < _MIN_ENTRY:
        return None
    session_id, cxid, zxid, time_ms, type_ = _header_at(entry)
    data_at = _PATH_AT + _int_at(entry, _HEADER_SIZE)[0]
    data_end = end - _END_SIZE
    if type_ != _SET_DATA or not _PATH_AT + 1 < data_at <= data_end - 4:
        return None
    raw = entry[_PATH_AT:data_at]
    if not raw.isascii() or data_at + 4 + _int_at(entry, data_at)[0] != data_end:
        return None
    version, digest_version, digest = _end_at(entry, data_end)
    path = raw.decode()
    node = tree.find(path)
    if node is None or path.startswith(RESERVED_PREFIX) or digest_version != DIGEST_VERSION:
        return None
    before, data = node.stat, entry[data_at + 4 : data_end]
    if version <= 0 or version != _int_at(before, _VERSION_AT)[0] + 1:
        return None
    czxid, _, ctime, _, rest, pzxid = _stat_pieces(before)
    stat, crc = _changed(raw, data, (czxid, ctime, rest, pzxid, version), zxid, time_ms)
    delta = crc - node_crc(path, node.data, before)
    if (tree.digest + delta) & MASK != digest:
        return None
    node = tree.take_data(zxid, path, data, stat, before, delta, digest)
    return zxid, session_id, cxid, path, node


def _changed(
    path: bytes, data: bytes, plain: PlainStat, zxid: int, time_ms: int
) -> tuple[bytes, int]:
    """The stat after a setData, and the CRC that the znode adds to Apache's digest then."""
    czxid, ctime, rest, pzxid, version = plain
    mzxid, changed = _pack_zxid(zxid), _pack_mtime_version(time_ms, version)
    if len(data) > LARGE_BYTES:
        numbers = b"".join((czxid, mzxid, pzxid, ctime, changed, rest))
        crc = crc32(numbers, crc32(data, crc32(path)))  # without a copy of the data
    else:
        crc = crc32(b"".join((path, data, czxid, mzxid, pzxid, ctime, changed, rest)))
    return b"".join((czxid, mzxid, ctime, changed, rest, pzxid)), crc
