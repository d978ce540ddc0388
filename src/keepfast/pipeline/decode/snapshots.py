"""A snapshot as Arrow batches of ZNODE_SCHEMA, or of the columns of it that are wanted.

The layout is drawn in `storage.snapshot_file`. All of it is checked, seals included. But the last
seal comes last: whoever uses rows before the end was reached must look at `problem` when it was.

A large one can be entered in the middle, where something looks like the start of a znode. That is
a guess: it is right if the reader of the part before arrives exactly there. Whoever puts the parts
together has to see to that (`scan.split_snapshots`), and to the seals.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from keepfast.pipeline.decode.gather import Ints, View, as_text, take_bytes
from keepfast.pipeline.decode.slow_txns import acl_rows
from keepfast.pipeline.decode.txns import BATCH_ROWS, FileOrigin, times
from keepfast.pipeline.decode.walk import follow
from keepfast.pipeline.schemas import ACL_LIST, ZNODE_SCHEMA, pruned
from keepfast.storage import (
    Compression,
    ReadFile,
    SnapshotCursor,
    SnapshotInfo,
    compression,
    parse_snapshot_name,
)
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    CorruptSnapshot,
    MalformedRecord,
    Reader,
    Zxid,
    decode_text,
    exact_codec_of,
)

_MAGIC = b"ZKSN"
_HEADER_SIZE = 16
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DIGEST = struct.Struct(">qiQ")
_TERMINATOR = b"\0\0\0\1/"
_SESSION = np.dtype([("id", ">i8"), ("timeout", ">i4")])
_SESSION_CHUNK = 10_000
_STAT_SIZE = 60
_TAIL_SIZE = 8 + _STAT_SIZE
_OPEN_KEY = -1
_MIN_ACL = 12
_ACL_LIMIT = 1 << 26
_ACL_CODEC = exact_codec_of(ACL)
# As in storage: no request comes near this.
_MAX_FIELD = 128 << 20
_WINDOW_SIZE = 8 << 20
# Where no more than the head of a file is wanted: mostly all of it at once.
_HEAD_SIZE = 256 << 10
_GUESS_DISTANCE = 16 << 10
# Whoever follows this many records, or this many bytes of them, has not begun inside of one.
_SURE_RECORDS, _SURE_BYTES = 64, _WINDOW_SIZE // 2
# More than all seals take.
_TAIL_LIMIT = 4096
# The length of a path, and the "/" that it begins with.
_PATH_START = re.compile(rb"\0\0\0[\2-\xff]/[^\0]")
# The same for long paths too; more of these are none.
_ANY_PATH_START = re.compile(rb"\0\0[\0-\x0f]./[^\0]", re.DOTALL)


class Nodes:
    """Some znodes in a buffer, and where their parts lie."""

    def __init__(self, view: View, base: int, offsets: Ints) -> None:
        self.view = view
        self.base = base  # offset in the unpacked file of the view's first byte
        self.offsets = offsets
        self.path_lengths = view.ints(offsets)
        self.data_at = offsets + 4 + self.path_lengths  # its length; the data follows
        self.data_lengths = view.ints(self.data_at)
        # The key of the ACL, and the 60 bytes of the stat.
        self.tail = self.data_at + 4 + np.maximum(self.data_lengths, 0)

    def paths(self) -> pa.Array:
        """The paths as text; the root is "/"."""
        raw = take_bytes(self.view, self.offsets + 4, self.path_lengths)
        text, _ = as_text(raw)
        if text is not None and self.path_lengths.all():
            return text
        # The root is stored as an empty path; and a path may be no UTF-8 after all.
        return pa.array([decode_text(value) or "/" for value in raw.to_pylist()], pa.string())


class SnapshotReader:
    """Reads one snapshot from its first byte to its last seal.

    After `batches` was consumed: `info` is what the file says about itself, or None and `problem`
    says what is wrong with it, at `problem_offset` of the unpacked bytes.
    """

    def __init__(self, file: ReadFile, origin: FileOrigin) -> None:
        parsed = parse_snapshot_name(origin.file.rpartition("/")[2])
        self.zxid, packing = parsed if parsed is not None else (Zxid(0), Compression.NONE)
        self._file = file
        self._origin = origin
        self._packing = packing
        self.sessions: dict[int, int] = {}
        self.acls: dict[int, AclList] = {}
        self.node_count = 0
        # Of a part: where its first znode begins, where it ends, and the Adler-32 of all between;
        # of the last one, what comes after the znodes.
        self.first = self.reach = 0
        self.adler = 1
        self.tail: bytes | None = None
        self.info: SnapshotInfo | None = None
        self.problem: str | None = None
        self.problem_offset: int | None = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The znodes as rows; if the file is damaged, a last row says so. Never fails on content.

        An OSError of the file passes.
        """
        wanted = ZNODE_SCHEMA.names if columns is None else list(columns)
        try:
            for nodes in self.nodes():
                yield self._batch(nodes, wanted)
        except CorruptSnapshot:
            yield self._problem_row(wanted)

    def nodes(self) -> Iterator[Nodes]:
        """The znodes where they lie; raises CorruptSnapshot at the first thing wrong."""
        stream = SnapshotCursor(
            _pieces(self._file, self._packing, self._origin.file), self._origin.file
        )
        try:
            self._read_head(stream)
            yield from self._in_batches(stream, None)
            self.info = read_seals(stream, self.zxid, len(self.sessions))
        except CorruptSnapshot as error:
            self.problem, self.problem_offset = error.reason, error.offset
            raise

    def read_sessions(self) -> dict[int, int]:
        """The table of sessions, and no more of the file; raises CorruptSnapshot."""
        name = self._origin.file
        pieces = _pieces(self._file, self._packing, name, size=_HEAD_SIZE)
        self._open(SnapshotCursor(pieces, name))
        return self.sessions

    def part(self, start: int, stop: int | None, *, is_guess: bool) -> Iterator[Nodes]:
        """The znodes that begin in a range of bytes of a file that is not packed.

        With `is_guess` the first one is looked for after `start`; else it begins there. The part
        at 0 begins with the file. Raises CorruptSnapshot, also where no znode begins.
        """
        name = self._origin.file
        stream = SnapshotCursor(_pieces(self._file, Compression.NONE, name), name)
        self._read_head(stream)
        if start:
            start = self._guess(start) if is_guess else start
            pieces = _pieces(self._file, Compression.NONE, name, start)
            stream = SnapshotCursor(pieces, name, start)
        self.first = start
        yield from self._in_batches(stream, stop)
        self.reach, self.adler = stream.offset, stream.adler
        if stop is None:
            stream.fill(_TAIL_LIMIT)
            self.tail = stream.buffer[stream.position :]

    def _guess(self, start: int) -> int:
        view = View(self._file.read_at(start, _WINDOW_SIZE))
        chain = _NodeChain(view)
        for found in _ANY_PATH_START.finditer(view.data):
            position, behind, records = found.start(), found.start(), 0
            while behind >= 0 and records < _SURE_RECORDS and position < _SURE_BYTES:
                position, behind = behind, chain.step_one(behind)
                records += 1
            is_long = behind >= 0 or position >= _SURE_BYTES
            if is_long or view.data.startswith(_TERMINATOR, position):
                return start + found.start()
        raise CorruptSnapshot("no znode begins where one should", self._origin.file, start)

    def _read_head(self, stream: SnapshotCursor) -> None:
        self._open(stream)
        self._read_acls(stream)

    def _open(self, stream: SnapshotCursor) -> None:
        if self._file.size() == 0:
            raise CorruptSnapshot("is empty", self._origin.file, 0)
        if stream.take(_HEADER_SIZE, "the header")[:4] != _MAGIC:
            raise CorruptSnapshot("does not begin with ZKSN: not a snapshot", None, 0)
        self._read_sessions(stream)

    def _in_batches(self, stream: SnapshotCursor, stop: int | None) -> Iterator[Nodes]:
        for view, base, offsets in self._read_nodes(stream, stop):
            self.node_count += len(offsets)
            for first in range(0, len(offsets), BATCH_ROWS):
                yield Nodes(view, base, offsets[first : first + BATCH_ROWS])

    def _problem_row(self, columns: list[str]) -> pa.RecordBatch:
        row = {
            "ensemble": self._origin.ensemble,
            "server": self._origin.server,
            "file": self._origin.file,
            "snapshot_zxid": self.zxid,
            "offset": self.problem_offset,
            "problem": self.problem,
        }
        schema = pruned(ZNODE_SCHEMA, columns)
        arrays = [pa.array([row.get(field.name)], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_sessions(self, stream: SnapshotCursor) -> None:
        count = stream.take_int("the number of sessions")
        if count < 0:
            raise CorruptSnapshot(f"claims {count} sessions", None, stream.offset)
        while count:
            # In portions: a damaged count must not ask for gigabytes before the end is noticed.
            portion = min(count, _SESSION_CHUNK)
            data = stream.take(portion * _SESSION.itemsize, "the sessions")
            table = np.frombuffer(data, _SESSION)
            pairs = zip(table["id"].tolist(), table["timeout"].tolist(), strict=True)
            for session_id, timeout_ms in pairs:
                if session_id in self.sessions:
                    reason = f"session {session_id:#x} is there twice"
                    raise CorruptSnapshot(reason, None, stream.offset)
                self.sessions[session_id] = timeout_ms
            count -= portion

    def _read_acls(self, stream: SnapshotCursor) -> None:
        for _ in range(stream.take_int("the number of ACL lists")):
            key: int = _LONG.unpack(stream.take(_LONG.size, "an ACL key"))[0]
            size = 4096
            while True:
                ready = stream.fill(size)
                reader = Reader(stream.buffer, stream.position)
                try:
                    count = reader.read_count(_MIN_ACL, "ACL list") or 0
                    acl = tuple(_ACL_CODEC.read(reader) for _ in range(count))
                    break
                except MalformedRecord as error:
                    # The list may continue after what is there: look again with more.
                    if not ready or size >= _ACL_LIMIT:
                        reason = f"an ACL list cannot be read: {error.reason}"
                        raise CorruptSnapshot(reason, None, stream.offset) from error
                    size *= 4
            stream.position = reader.offset
            self.acls[key] = acl

    def _read_nodes(
        self, stream: SnapshotCursor, stop: int | None
    ) -> Iterator[tuple[View, int, Ints]]:
        """Chunks of znodes: a buffer, where it begins, and where in it each znode does.

        All of them, or those that begin before the offset `stop`.
        """
        while True:
            data = stream.buffer[stream.position :]
            if data:
                view = View(data)
                offsets, stopped = _follow_nodes(view)
                if stop is not None and stream.offset + stopped >= stop:
                    inside = int(np.searchsorted(offsets, stop - stream.offset))
                    if inside:
                        yield view, stream.offset, offsets[:inside]
                    stream.position += int(offsets[inside]) if inside < len(offsets) else stopped
                    return
                if len(offsets):
                    yield view, stream.offset, offsets
                if data.startswith(_TERMINATOR, stopped):
                    stream.position += stopped + len(_TERMINATOR)
                    return
                _check_lengths(view, stopped, stream.offset)
                stream.position += stopped
            # Twice as much each time: a znode larger than the window must not be joined forever.
            left = len(stream.buffer) - stream.position
            if not stream.fill(left + 1, max(2 * left, _WINDOW_SIZE)):
                raise CorruptSnapshot("ends inside the znodes", None, stream.offset + left)

    def _batch(self, nodes: Nodes, columns: list[str]) -> pa.RecordBatch:
        view, tail = nodes.view, nodes.tail
        count = len(nodes.offsets)

        def long(distance: int) -> Callable[[], pa.Array]:
            return lambda: pa.array(view.longs(tail + distance))

        def int_(distance: int) -> Callable[[], pa.Array]:
            return lambda: pa.array(view.ints(tail + distance).astype(np.int32))

        makers: dict[str, Callable[[], pa.Array]] = {
            **self._origin.columns(count),
            "snapshot_zxid": lambda: pa.repeat(pa.scalar(self.zxid, pa.int64()), count),
            "offset": lambda: pa.array(nodes.offsets + nodes.base),
            "path": nodes.paths,
            "data": lambda: take_bytes(view, nodes.data_at + 4, nodes.data_lengths),
            "acl_key": long(0),
            "acl": lambda: self._acl_column(view.longs(tail)),
            "czxid": long(8),
            "mzxid": long(16),
            "ctime": lambda: times(view.longs(tail + 24)),
            "mtime": lambda: times(view.longs(tail + 32)),
            "version": int_(40),
            "cversion": int_(44),
            "aversion": int_(48),
            "ephemeral_owner": long(52),
            "pzxid": long(60),
            "problem": lambda: pa.nulls(count, pa.string()),
        }
        schema = pruned(ZNODE_SCHEMA, columns)
        return pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)

    def acl(self, key: int) -> AclList | None:
        """The ACL of a key; None for one that is not in the table."""
        return OPEN_ACL if key == _OPEN_KEY else self.acls.get(key)

    def _acl_column(self, keys: Ints) -> pa.Array:
        """The lists of keys; null for a key that is not in the table."""
        distinct, codes = np.unique(keys, return_inverse=True)
        table = pa.array([acl_rows(self.acl(key)) for key in distinct.tolist()], ACL_LIST)
        return table.take(pa.array(codes))


def read_seals(stream: SnapshotCursor, zxid: Zxid, sessions: int) -> SnapshotInfo:
    """Check what comes after the znodes, to the end of the file; raises CorruptSnapshot."""
    stream.check_seal()
    if stream.at_end():
        return SnapshotInfo(zxid, sessions)
    digest_zxid, version, digest = _DIGEST.unpack(stream.take(_DIGEST.size, "the digest"))
    stream.check_seal()
    last: Zxid | None = None
    if not stream.at_end():
        last = Zxid(_LONG.unpack(stream.take(_LONG.size, "the last processed zxid"))[0])
        stream.check_seal()
        if not stream.at_end():
            raise CorruptSnapshot("has bytes after its last seal", None, stream.offset)
    if digest_zxid == 0:
        # Nothing had been applied yet, so there was no digest to write.
        return SnapshotInfo(zxid, sessions, last_processed=last)
    return SnapshotInfo(zxid, sessions, Zxid(digest_zxid), version, digest, last)


def _pieces(
    file: ReadFile, packing: Compression, name: str, offset: int = 0, size: int = _WINDOW_SIZE
) -> Iterator[bytes]:
    if packing is not Compression.NONE:
        yield from compression.unpacked(file, packing, name)
        return
    while piece := file.read_at(offset, size):
        yield piece
        offset += len(piece)


class _NodeChain:
    """The records of znodes in a buffer."""

    def __init__(self, view: View) -> None:
        self._view = view

    def step(self, offsets: Ints) -> Ints:
        view = self._view
        paths = view.ints(offsets)
        data_at = offsets + 4 + paths
        whole = (paths >= 0) & (paths <= _MAX_FIELD) & (data_at + 4 <= view.size)
        # The end of the znodes looks like a path "/".
        whole &= ~((paths == 1) & (view.octets(offsets + 4) == ord("/")))
        lengths = view.ints(np.where(whole, data_at, 0))
        behind = data_at + 4 + np.maximum(lengths, 0) + _TAIL_SIZE
        whole &= (lengths >= -1) & (lengths <= _MAX_FIELD) & (behind <= view.size)
        return np.where(whole, behind, -1)

    def step_one(self, offset: int) -> int:
        data, size = self._view.data, self._view.size
        if offset + _INT.size > size or data.startswith(_TERMINATOR, offset):
            return -1
        path: int = _INT.unpack_from(data, offset)[0]
        data_at = offset + 4 + path
        if not 0 <= path <= _MAX_FIELD or data_at + _INT.size > size:
            return -1
        length: int = _INT.unpack_from(data, data_at)[0]
        behind = data_at + 4 + max(length, 0) + _TAIL_SIZE
        return behind if -1 <= length <= _MAX_FIELD and behind <= size else -1


def _follow_nodes(view: View) -> tuple[Ints, int]:
    """Offsets of the whole znodes at the start of the buffer, and where they stop."""
    chain = _NodeChain(view)
    guesses = _guesses(view)
    # A guess whose own record makes no sense would cost a walk record by record.
    sound = chain.step(guesses) >= 0
    sound[0] = True
    return follow(guesses[sound], view.size - len(_TERMINATOR) + 1, chain)


def _guesses(view: View) -> Ints:
    starts = [0]
    for border in range(_GUESS_DISTANCE, view.size, _GUESS_DISTANCE):
        found = _PATH_START.search(view.data, max(border, starts[-1] + 1), border + _GUESS_DISTANCE)
        if found is not None:
            starts.append(found.start())
    return np.array(starts, np.int64)


def _check_lengths(view: View, offset: int, base: int) -> None:
    """Refuse a record that no more bytes can complete: one of its lengths is impossible."""
    at = offset
    for least in (0, -1):
        if at + _INT.size > view.size:
            return
        length: int = _INT.unpack_from(view.data, at)[0]
        if not least <= length <= _MAX_FIELD:
            reason = f"a znode with an impossible length, {length}"
            raise CorruptSnapshot(reason, None, base + at)
        at += _INT.size + max(length, 0)
