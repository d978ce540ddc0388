"""The quick way of a plain setData, from the bytes of the request to the changed znode.

Most writes are of one kind, and nothing is wrong with them: a setData of a znode that everybody may
write, by a session that is there, with a version that fits. Prepared and applied as all others are,
such a write is decoded into records, encoded again, and worked out twice, on the pending tree and
on the tree. Here each byte and each digest is computed once:

    prepare   request -> the entry for the log, and the znode as it will be, as a pending change
    install   once it is committed: that znode takes the place of the one in the tree

Whatever is not plain, or cannot be seen to be at once, is refused by `prepare` without a trace and
left to `Preparer`; so no error of a client is decided here. That a change fits the tree (R12) is
checked as strictly as in `Tree.apply`: the znode must be the very one that it was prepared on, byte
for byte of its stat, and the tree's digest must become the one that was logged.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from keepfast.tree.digest import DIGEST_VERSION, MASK, node_crc
from keepfast.tree.paths import RESERVED_PREFIX
from keepfast.tree.pending import PendingChanges, PendingNode
from keepfast.tree.permissions import is_allowed
from keepfast.wire import OpCode, Perms, Zxid

if TYPE_CHECKING:
    from keepfast.tree.node import Node
    from keepfast.tree.prepare import Caller
    from keepfast.tree.tree import Tree

_SET_DATA: Final = OpCode.SET_DATA.value
_WRITE: Final = Perms.WRITE
_ANY_VERSION: Final = -1
_MAX_VERSION: Final = (1 << 31) - 2

# Bound once: each look-up of an attribute shows here.
_int_at: Final = Struct(">i").unpack_from
# A request behind its header: length and path, length and data, version.
_LEAST_REQUEST: Final = 14
# czxid, mzxid, ctime, mtime and version, cversion to ephemeralOwner, pzxid.
_stat_pieces: Final = Struct(">8s8s8s12s16s8s").unpack
_pack_zxid: Final = Struct(">q").pack
_pack_mtime_version: Final = Struct(">qi").pack
_pack_header: Final = Struct(">qiqqi").pack
_pack_end: Final = Struct(">iiQ").pack


class PlainSet(msgspec.Struct, gc=False, eq=False):
    """A setData that was prepared the quick way."""

    zxid: Zxid
    # The entry for the log, and the digest behind it.
    entry: bytes
    digest: int
    path: str
    # The znode behind the txn, and its stat before; what changes in the sum of the CRCs.
    node: PendingNode
    before: bytes
    delta: int


class PlainSets:
    """See the module. Shares the pending changes of a Preparer."""

    __slots__ = ("_pending", "_sessions", "_tree")

    def __init__(
        self, tree: Tree, pending: PendingChanges, sessions: dict[int, tuple[int, bool]]
    ) -> None:
        """`sessions`: those that prepared txns open or close."""
        self._tree = tree
        self._pending = pending
        self._sessions = sessions

    def prepare(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, request: bytes, offset: int
    ) -> PlainSet | None:
        """The txn for a request whose body begins at `offset`; None: it is not plain."""
        end = len(request)
        start = offset + 4
        if end - offset < _LEAST_REQUEST:
            return None
        data_at = start + _int_at(request, offset)[0]
        if not start + 1 < data_at <= end - 8:
            return None
        raw = request[start:data_at]
        # ASCII encodes back to the same bytes, and a request with nothing behind its version
        # differs from the body of its txn in that version alone.
        if not raw.isascii() or data_at + 8 + _int_at(request, data_at)[0] != end:
            return None
        path, pending = raw.decode(), self._pending
        found = pending.latest(path) or self._found(path)
        session_id = caller.session_id
        if (
            found is None
            or session_id not in self._tree.sessions
            or session_id in self._sessions
            or caller.is_moved
        ):
            return None
        before, acl = found.stat, found.acl
        if not before or not is_allowed(acl, _WRITE, ()):
            return None
        current = _int_at(before, 32)[0]
        if _int_at(request, end - 4)[0] not in (_ANY_VERSION, current):
            return None
        if not 0 <= current <= _MAX_VERSION:
            return None
        version = current + 1
        data = request[data_at + 4 : end - 4]
        czxid, _, ctime, _, rest, pzxid = _stat_pieces(before)
        mzxid, mtime_version = _pack_zxid(zxid), _pack_mtime_version(time_ms, version)
        crc = crc32(b"".join((raw, data, czxid, mzxid, pzxid, ctime, mtime_version, rest)))
        stat = b"".join((czxid, mzxid, ctime, mtime_version, rest, pzxid))
        node = PendingNode(data, acl, stat, found.child_count, crc)
        delta = crc - found.crc
        pending.replace(path, node, delta)
        digest = pending.digest
        entry = b"".join(
            (
                _pack_header(session_id, cxid, zxid, time_ms, _SET_DATA),
                request[offset : end - 4],
                _pack_end(version, DIGEST_VERSION, digest),
            )
        )
        return PlainSet(zxid, entry, digest, path, node, before, delta)
