"""A tree that a leader sends after SNAP, read as its bytes arrive.

4     number of sessions; then each: id (8), timeout in ms (4)
4     number of ACL lists; then each: key (8), vector of ACL
...   znodes, as in a snapshot, and the "/" that ends them
14    "BenWasHere", as a string
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from keepfast.quorum import TREE_SIGNATURE
from keepfast.tree import Tree, TreeBuilder, TreeError
from keepfast.wire import (
    ACL,
    MalformedRecord,
    PeerProtocolError,
    Reader,
    Zxid,
    exact_codec_of,
)

_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_SESSION: Final = Struct(">qi")
_ACL_CODEC: Final = exact_codec_of(ACL)
_ACL_MINIMUM: Final = 12
# No list of ACLs comes near this; a longer one is not waited for.
_ACL_LIMIT: Final = 1 << 26


class TreeReceiver:
    """Receives bytes until the tree is complete. Raises PeerProtocolError for invalid input."""

    def __init__(self, zxid: Zxid) -> None:
        self.zxid = zxid
        self.received = 0
        self._builder = TreeBuilder(allow_unknown_acls=True)
        self._buffer = b""
        self._left = 0
        self._part: Callable[[], bool] = self._begin_sessions
        self._is_signed = False

    def feed(self, data: bytes) -> bytes | None:
        """Take more; returns what stands after the tree once it is complete, None until then."""
        self.received += len(data)
        self._buffer = self._buffer + data if self._buffer else data
        try:
            while not self._is_signed and self._part():
                pass
        except (MalformedRecord, TreeError) as error:
            raise PeerProtocolError(f"the leader sent what is no tree: {error}") from error
        if not self._is_signed:
            return None
        rest, self._buffer = self._buffer, b""
        return rest

    def finish(self) -> Tree:
        """The tree, once it is complete."""
        try:
            return self._builder.finish(self.zxid)
        except TreeError as error:
            raise PeerProtocolError(f"the leader sent what is no tree: {error}") from error

    def _take(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _count(self, then: Callable[[], bool]) -> bool:
        taken = self._take(_INT.size)
        if taken is None:
            return False
        (self._left,) = _INT.unpack(taken)
        if self._left < 0:
            raise MalformedRecord(f"a count of {self._left}", self.received)
        self._part = then
        return True

    def _begin_sessions(self) -> bool:
        return self._count(self._sessions)

    def _sessions(self) -> bool:
        whole = min(self._left, len(self._buffer) // _SESSION.size)
        taken = self._take(whole * _SESSION.size) or b""
        for session_id, timeout_ms in _SESSION.iter_unpack(taken):
            self._builder.add_session(session_id, timeout_ms)
        self._left -= whole
        if self._left:
            return False
        self._part = self._begin_acls
        return True

    def _begin_acls(self) -> bool:
        return self._count(self._acls)

    def _acls(self) -> bool:
        while self._left:
            if len(self._buffer) < _LONG.size:
                return False
            reader = Reader(self._buffer, _LONG.size)
            try:
                count = reader.read_count(_ACL_MINIMUM, "ACL list") or 0
                acl = tuple(_ACL_CODEC.read(reader) for _ in range(count))
            except MalformedRecord:
                if len(self._buffer) > _ACL_LIMIT:
                    raise
                return False  # the list may continue in bytes that are still to come
            self._builder.add_acl(_LONG.unpack_from(self._buffer)[0], acl)
            self._buffer = self._buffer[reader.offset :]
            self._left -= 1
        self._part = self._nodes
        return True

    def _nodes(self) -> bool:
        stop = self._builder.add_encoded(self._buffer)
        self._buffer = self._buffer[stop:]
        if not self._builder.is_complete:
            return False
        self._part = self._signature
        return True

    def _signature(self) -> bool:
        taken = self._take(len(TREE_SIGNATURE))
        if taken is None:
            return False
        if taken != TREE_SIGNATURE:
            raise MalformedRecord("no signature after the tree", self.received)
        self._is_signed = True
        return True
