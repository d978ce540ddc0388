"""A tree as it was at one point in time, for a snapshot (rule R6).

    record of a znode: path:ustring  data:buffer  acl:long  StatPersisted(60 bytes)

The root's path is "". Parents come before children; otherwise there is no order.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from struct import Struct
from types import TracebackType
from typing import Final, Self

from keepfast.tree.node import Node
from keepfast.tree.node_bytes import TAIL_SIZE, packed_node
from keepfast.tree.paths import ROOT
from keepfast.wire import AclList, Zxid, encode_text, invariant

_LENGTH: Final = Struct(">i")

# The limits of one chunk, about a millisecond of work: the event loop waits for it.
CHUNK_NODES: Final = 1000
CHUNK_BYTES: Final = 1 << 20


class FrozenTree:
    """The tree at `zxid`. Close it when the walk is over, or nothing is ever thawed."""

    __slots__ = (
        "_items",
        "_on_close",
        "acls",
        "digest",
        "node_count",
        "sessions",
        "state_digest",
        "zxid",
    )

    def __init__(
        self,
        *,
        zxid: Zxid,
        digest: int,
        state_digest: int,
        sessions: dict[int, int],
        acls: dict[int, AclList],
        items: ItemsView[str, Node],
        on_close: Callable[[], None],
    ) -> None:
        self.zxid = zxid
        self.digest = digest
        self.state_digest = state_digest
        self.sessions = sessions
        # Key -> list, for the keys that the znodes carry; -1, the open ACL, is not in it.
        self.acls = acls
        self.node_count = len(items)
        self._items = items
        self._on_close: Callable[[], None] | None = on_close

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """All znodes, parents first; neither they nor the map may be changed."""
        invariant(self._on_close is not None, "a closed FrozenTree has no znodes")
        return iter(self._items)

    def node_chunks(
        self, max_nodes: int = CHUNK_NODES, max_bytes: int = CHUNK_BYTES
    ) -> Iterator[bytes]:
        """The records of all znodes, parents first, in pieces of bounded work.

        A piece ends after `max_nodes` records, or after the one that reaches `max_bytes`.
        """
        parts: list[bytes] = []
        room = max_bytes
        for path, node in self.nodes():
            record = encode_node(path, node)
            parts.append(record)
            room -= len(record)
            if room <= 0 or len(parts) >= max_nodes:
                yield b"".join(parts)
                invariant(self._on_close is not None, "a FrozenTree was closed during its walk")
                parts.clear()
                room = max_bytes
        if parts:
            yield b"".join(parts)

    def close(self) -> None:
        """Let the tree thaw. Idempotent."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def encode_node(path: str, node: Node) -> bytes:
    """The record of a znode in a snapshot."""
    raw = encode_text(path) if path != ROOT else b""
    packed = node.packed
    size = len(packed) - TAIL_SIZE
    if not size and node.data is None:
        return b"".join((_LENGTH.pack(len(raw)), raw, _NULL, packed_node(b"", node.acl, node.stat)))
    return b"".join((_LENGTH.pack(len(raw)), raw, _LENGTH.pack(size), packed))


_NULL: Final = _LENGTH.pack(-1)
