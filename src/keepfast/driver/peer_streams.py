"""What is sent to one peer: bytes, and streams that are read from the disk in their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from keepfast.driver.guard import Guard
from keepfast.driver.server_world import ServerWorld
from keepfast.driver.snapshot_taker import SnapshotTaker
from keepfast.quorum import Link, PrepareTree, RecordStream, TreeStream
from keepfast.storage import (
    SnapshotEntry,
    Store,
    fitting_snapshot,
    is_recent,
    record_packets,
    tree_packets,
)
from keepfast.tree import Tree
from keepfast.wire import CorruptSnapshot, StorageError

Pieces = Iterator[bytes]


class StreamSource:
    """Opens streams on what the store has."""

    def __init__(self, store: Store, snapshots: SnapshotTaker) -> None:
        self._store = store
        self._snapshots = snapshots

    def prepare(self, tree: Tree | None, wanted: PrepareTree) -> None:
        """See that there is a snapshot to send: one that begins later may be too new."""
        history = self._store.history
        entry = fitting_snapshot(history, wanted.up_to, wanted.beyond)
        if tree is not None and (entry is None or not is_recent(history, entry)):
            self._snapshots.begin(tree)

    def open(self, item: RecordStream | TreeStream, ready: Callable[[Pieces | None], None]) -> None:
        """Have `ready` called with the packets of a stream; None: it cannot be sent."""
        if isinstance(item, RecordStream):
            piece_bytes = self._store.options.stream_bytes
            ready(record_packets(self._store.history, item, piece_bytes))
            return
        entry = fitting_snapshot(self._store.history, item.up_to, item.beyond)
        if entry is not None and is_recent(self._store.history, entry):
            ready(self._packets(entry, item))
        else:
            # One that fits better was begun in time (`prepare`), unless that failed.
            self._snapshots.when_idle(lambda: ready(self._tree_pieces(item)))

    def _tree_pieces(self, item: TreeStream) -> Pieces | None:
        entry = fitting_snapshot(self._store.history, item.up_to, item.beyond)
        return None if entry is None else self._packets(entry, item)

    def _packets(self, entry: SnapshotEntry, item: TreeStream) -> Pieces:
        store = self._store
        return tree_packets(store.history, entry, item, store.options.stream_bytes)


class PeerSender:
    """Sends what a link has for its peer. Streams and bytes leave in their order."""

    def __init__(
        self,
        link: Link,
        world: ServerWorld,
        guard: Guard,
        source: StreamSource,
        on_failed: Callable[[Link, object], None],
        max_waiting_bytes: int,
    ) -> None:
        """`on_failed` is called where a stream cannot be read to its end, or too much waits."""
        self._link = link
        self._world = world
        self._guard = guard
        self._source = source
        self._on_failed = on_failed
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._waiting: deque[bytes | RecordStream | TreeStream] = deque()
        # For the end of a stream, or for the peer to read.
        self._must_wait = False
        self._is_closed = False
        # What to do when the peer has read what is pending; None: nothing is waiting for that.
        self._resume: Callable[[], None] | None = None

    def send(self, items: list[bytes | RecordStream | TreeStream]) -> None:
        """Send these after all that was given before."""
        if self._is_closed:
            return
        self._waiting.extend(items)
        self._waiting_bytes += sum(len(item) for item in items if isinstance(item, bytes))
        if not self._must_wait:
            self._pump()
        elif self._waiting_bytes > self._max_waiting_bytes:
            self.close()
            self._on_failed(self._link, f"it does not read: {self._waiting_bytes} bytes wait")

    def drained(self) -> None:
        """The peer has taken most of what was sent to it."""
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._waiting.clear()

    def _pump(self) -> None:
        """Send all up to the next stream."""
        ready: list[bytes] = []
        stream: RecordStream | TreeStream | None = None
        while self._waiting and stream is None:
            item = self._waiting.popleft()
            if isinstance(item, bytes):
                ready.append(item)
            else:
                stream = item
        packets = ready[0] if len(ready) == 1 else b"".join(ready)
        self._waiting_bytes -= len(packets)
        is_full = bool(packets) and not self._world.send_peer(self._link, packets)
        self._must_wait = is_full or stream is not None
        if is_full:
            self._waiting.extendleft([] if stream is None else [stream])
            self._resume = self._pump
        elif stream is not None and not self._is_closed:
            self._source.open(stream, self._opened)

    def _opened(self, pieces: Pieces | None) -> None:
        if self._is_closed:
            return
        if pieces is None:
            missing = CorruptSnapshot("there is no snapshot that a tree could be sent from")
            self._on_failed(self._link, missing)
        else:
            self._read(pieces)

    def _read(self, pieces: Pieces) -> None:
        if not self._is_closed:
            self._guard.aside(lambda: next(pieces, None), lambda piece: self._take(pieces, piece))

    def _take(self, pieces: Pieces, piece: bytes | StorageError | None) -> None:
        if self._is_closed:
            return
        if isinstance(piece, StorageError):
            # What the peer has received so far is valid; it reconnects and is served again.
            self._on_failed(self._link, piece)
        elif piece is None:
            self._pump()
        elif self._world.stream_peer(self._link, piece):
            self._read(pieces)
        else:
            self._resume = lambda: self._read(pieces)
