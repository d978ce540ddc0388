"""A tree as it was at one point in time, for a snapshot (rule R6).

    record of a znode: path:ustring  data:buffer  acl:long  StatPersisted(60 bytes)

The root's path is "". Parents come before children; otherwise there is no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from struct import Struct
from types import TracebackType
from typing import Final, Self

from keepfast.tree.node import Node
from keepfast.tree.node_bytes import TAIL_SIZE, packed_node
from keepfast.tree.paths import ROOT
from keepfast.wire import AclList, Zxid, encode_text, invariant

_LENGTH: Final = Struct(">i")
# Most lengths of paths and data, as they stand before them.
_LENGTHS: Final = tuple(map(_LENGTH.pack, range(4096)))
_packed: Final[Callable[[Node], bytes]] = attrgetter("packed")

# The limits of one chunk, about a millisecond of work: the event loop waits for it.
CHUNK_NODES: Final = 2000
CHUNK_BYTES: Final = 1 << 20


class FrozenTree:
    """The tree at `zxid`. Close it when the walk is over, or nothing is ever thawed."""

    __slots__ = (
        "_nodes",
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
        nodes: Mapping[str, Node],
        on_close: Callable[[], None],
    ) -> None:
        self.zxid = zxid
        self.digest = digest
        self.state_digest = state_digest
        self.sessions = sessions
        # Key -> list, for the keys that the znodes carry; -1, the open ACL, is not in it.
        self.acls = acls
        self.node_count = len(nodes)
        self._nodes = nodes
        self._on_close: Callable[[], None] | None = on_close

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """All znodes, parents first; neither they nor the map may be changed."""
        invariant(self._on_close is not None, "a closed FrozenTree has no znodes")
        return iter(self._nodes.items())

    def node_chunks(
        self, max_nodes: int = CHUNK_NODES, max_bytes: int = CHUNK_BYTES
    ) -> Iterator[bytes]:
        """The records of all znodes, parents first, in pieces of bounded work.

        A piece ends after `max_nodes` records, or after the one that reaches `max_bytes`.
        """
        invariant(self._on_close is not None, "a closed FrozenTree has no znodes")
        all_paths, all_nodes = iter(self._nodes), iter(self._nodes.values())
        while paths := list(islice(all_paths, max_nodes)):
            nodes = list(islice(all_nodes, max_nodes))
            for piece in _encode_nodes(paths, nodes, max_bytes):
                yield piece
                invariant(self._on_close is not None, "a FrozenTree was closed during its walk")

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


def _encode_nodes(paths: list[str], nodes: list[Node], max_bytes: int) -> Iterator[bytes]:
    """The records of these znodes, in pieces that end when they reach `max_bytes`."""
    all_packed = list(map(_packed, nodes))
    sizes = list(map(len, all_packed))
    longest = max(map(len, paths))
    if (
        paths[0] != ROOT
        and min(sizes) > TAIL_SIZE  # otherwise the data may be null
        and max(longest, max(sizes) - TAIL_SIZE) < len(_LENGTHS)
        and sum(sizes) + len(paths) * (longest + 2 * _LENGTH.size) <= max_bytes
        and all(map(str.isascii, paths))
    ):
        # As nearly always: loops in C, which touch the memory of each znode once and in order.
        path_sizes = map(_LENGTHS.__getitem__, map(len, paths))
        data_sizes = [_LENGTHS[size - TAIL_SIZE] for size in sizes]
        records = zip(path_sizes, map(str.encode, paths), data_sizes, all_packed, strict=True)
        yield b"".join(chain.from_iterable(records))
        return
    parts: list[bytes] = []
    room = max_bytes
    for path, node in zip(paths, nodes, strict=True):
        record = encode_node(path, node)
        parts.append(record)
        room -= len(record)
        if room <= 0:
            yield b"".join(parts)
            parts.clear()
            room = max_bytes
    if parts:
        yield b"".join(parts)


def encode_node(path: str, node: Node) -> bytes:
    """The record of a znode in a snapshot."""
    raw = encode_text(path) if path != ROOT else b""
    packed = node.packed
    size = len(packed) - TAIL_SIZE
    if not size and node.data is None:
        return b"".join((_LENGTH.pack(len(raw)), raw, _NULL, packed_node(b"", node.acl, node.stat)))
    return b"".join((_LENGTH.pack(len(raw)), raw, _LENGTH.pack(size), packed))


_NULL: Final = _LENGTH.pack(-1)
