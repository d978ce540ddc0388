"""One snapshot as bytes: parsing into a sink, and writing from a frozen tree.

    size  field
    16    "ZKSN", version 2, database id -1
    4     number of sessions; then each: id (8), timeout in ms (4)
    4     number of ACL lists; then each: key (8), vector of ACL
    ...   znodes, parents first: path, data, ACL key (8), StatPersisted (60); the root's path is ""
    5     "/", the end of the znodes
    13    seal: Adler-32 of everything before it (8), "/"
    20    3.6 and later: zxid (8), digest version (4), tree digest (8); then a seal
    8     3.9 and later: last processed zxid; then a seal

Each seal covers all bytes from the start of the (unpacked) file, earlier seals included.
"""

import gc
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from keepfast.storage.compression import unpacked
from keepfast.storage.disk import Disk
from keepfast.storage.layout import Compression, parse_snapshot_name
from keepfast.storage.log_file import MAX_ENTRY_SIZE
from keepfast.tree import CHUNK_NODES, FrozenTree, Tree, TreeBuilder, TreeError
from keepfast.wire import (
    ACL,
    AclList,
    CorruptSnapshot,
    MalformedRecord,
    Reader,
    Zxid,
    counter_of,
    exact_codec_of,
    follows_in_epoch,
    format_zxid,
)

SNAPSHOT_MAGIC = b"ZKSN"
SNAPSHOT_HEADER = SNAPSHOT_MAGIC + struct.pack(">iq", 2, -1)
DIGEST_VERSION = 2

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SESSION = struct.Struct(">qi")
_DIGEST = struct.Struct(">qiQ")
_SEAL = struct.Struct(">qic")
_SEAL_TEXT = (1, b"/")
SEAL_SIZE = _SEAL.size
# What stands after the znodes in a snapshot of ours: three seals, digest and last zxid.
SEALS_SIZE = 3 * SEAL_SIZE + _DIGEST.size + _LONG.size
_TERMINATOR = b"\0\0\0\1/"
_SESSION_CHUNK = 10_000
_WINDOW_SIZE = 1 << 20
_ACL_MINIMUM = 12  # perms and two empty strings
_ACL_LIMIT = 1 << 26
_ACL_CODEC = exact_codec_of(ACL)


class SnapshotSink(Protocol):
    """Receives what a snapshot holds, in the order of the file."""

    def add_session(self, session_id: int, timeout_ms: int) -> None: ...

    def add_acl(self, key: int, acl: AclList) -> None: ...

    def add_encoded(self, records: bytes, offset: int = 0) -> int:
        """Add the complete znodes in `records` from `offset` on; returns where they end."""

    @property
    def is_complete(self) -> bool:
        """Whether the end of the znodes was met."""


class SnapshotInfo(msgspec.Struct, frozen=True):
    """What a sound snapshot says about itself."""

    zxid: Zxid  # of the file's name
    session_count: int
    digest_zxid: Zxid | None = None
    digest_version: int | None = None
    digest: int | None = None
    last_processed: Zxid | None = None


class SnapshotCursor:
    """Reads the unpacked stream in order and keeps the running Adler-32 of what was read.

    A stream that begins inside a file begins at `offset`, with the Adler-32 of what is before it.
    """

    def __init__(self, pieces: Iterator[bytes], name: str, offset: int = 0, adler: int = 1) -> None:
        self._pieces = pieces
        self.name = name
        self.buffer = b""
        self.position = 0
        self._base = offset  # offset in the stream of buffer[0]
        self._adler = adler  # of everything before buffer[_summed]
        self._summed = 0

    @property
    def offset(self) -> int:
        return self._base + self.position

    @property
    def adler(self) -> int:
        """The Adler-32 of everything before the position, which never moves back."""
        fresh = memoryview(self.buffer)[self._summed : self.position]
        self._adler, self._summed = zlib.adler32(fresh, self._adler), self.position
        return self._adler

    def fill(self, size: int, wanted: int = 0) -> bool:
        """Have `size` bytes ready at the position, or `wanted`; False where the stream ends."""
        if len(self.buffer) - self.position >= size:
            return True
        self._adler, self._summed = self.adler, 0
        parts = [self.buffer[self.position :]]
        ready = len(parts[0])
        for piece in self._pieces:
            parts.append(piece)
            ready += len(piece)
            if ready >= max(size, wanted):
                break
        self._base += self.position
        self.buffer = b"".join(parts)
        self.position = 0
        return ready >= size

    def take(self, size: int, what: str) -> bytes:
        if not self.fill(size):
            raise CorruptSnapshot(f"ends inside {what}", self.name, self.offset)
        start = self.position
        self.position += size
        return self.buffer[start : self.position]

    def take_int(self, what: str) -> int:
        value: int = _INT.unpack(self.take(_INT.size, what))[0]
        return value

    def check_seal(self) -> None:
        """Take a seal and hold it against all bytes before it; raises CorruptSnapshot."""
        offset = self.offset
        expected = self.adler
        adler, *text = _SEAL.unpack(self.take(_SEAL.size, "a seal"))
        if (adler, *text) != (expected, *_SEAL_TEXT):
            raise CorruptSnapshot("fails its seal (Adler-32)", self.name, offset)

    def at_end(self) -> bool:
        return not self.fill(1)


def parse_snapshot(
    disk: Disk, path: str, sink: SnapshotSink, name: str | None = None
) -> SnapshotInfo:
    """Read a snapshot in full into `sink`; raises CorruptSnapshot at the first thing wrong.

    What the sink received before an error must not be used: the seal comes last.  Zxid and packing
    are in the file's name; `name` is that name while the file still has a temporary one.
    """
    parsed = parse_snapshot_name(name or path.rpartition("/")[2])
    zxid, compression = parsed if parsed is not None else (Zxid(0), Compression.NONE)
    try:
        with disk.open_read(path) as file:
            if file.size() == 0:
                raise CorruptSnapshot("is empty", path, 0)
            cursor = SnapshotCursor(unpacked(file, compression, path), path)
            return _parse(cursor, zxid, sink)
    except OSError as error:
        raise CorruptSnapshot(f"cannot be read: {error.strerror}", path) from error


def load_tree(
    disk: Disk, path: str, name: str | None = None, *, is_fuzzy: bool = False
) -> tuple[Tree, SnapshotInfo, Zxid]:
    """The tree in a snapshot, what the file says about itself, and the greatest zxid seen in it.

    The tree holds the state at the zxid of the file's name only if the snapshot is exact.  For
    `name` see `parse_snapshot`.  With `is_fuzzy` znodes may have ACLs that are not in the table:
    the records after the snapshot have to bring them (`Replay.finish`).
    """
    builder = TreeBuilder(allow_unknown_acls=is_fuzzy, max_field=MAX_ENTRY_SIZE)
    with _collector_paused():
        info = parse_snapshot(disk, path, builder, name)
    check_snapshot_name(info, path)
    try:
        tree = builder.finish(info.zxid)
    except TreeError as error:
        raise CorruptSnapshot(str(error), path) from error
    return tree, info, Zxid(builder.max_zxid_seen)


def check_snapshot_name(info: SnapshotInfo, path: str) -> None:
    """Refuse a file that holds less than its name says: the name is another file's.

    It is chosen before the content is written, so the content can only be ahead.  The digest may be
    one record older: Apache applies a txn, moves its zxid, and notes the digest last, and a
    snapshot may begin in between.  The start of an epoch moves the zxid without a record at all.
    Whether the record of the name is in the file is then shown by the first digest after it.
    """
    last = info.last_processed
    is_certain = last is not None
    if last is None:
        last = info.digest_zxid
    if last is None or last >= info.zxid:
        return
    is_late_digest = follows_in_epoch(info.zxid, last) or counter_of(info.zxid) <= 1
    if is_certain or not is_late_digest:
        raise CorruptSnapshot(
            f"is named {format_zxid(info.zxid)}, but holds the state at {format_zxid(last)}",
            path,
            None,
            info.zxid,
        )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector away from a load.

    It would walk over the millions of new objects again and again, a third of the time, and find
    nothing: znodes form no cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _parse(cursor: SnapshotCursor, zxid: Zxid, sink: SnapshotSink) -> SnapshotInfo:
    if cursor.take(len(SNAPSHOT_HEADER), "the header")[:4] != SNAPSHOT_MAGIC:
        raise CorruptSnapshot("does not begin with ZKSN: not a snapshot", cursor.name, 0)
    try:
        session_count = _parse_sessions(cursor, sink)
        _parse_acls(cursor, sink)
        _parse_nodes(cursor, sink)
    except TreeError as error:
        raise CorruptSnapshot(str(error), cursor.name, cursor.offset) from error
    cursor.check_seal()
    info = SnapshotInfo(zxid, session_count)
    if cursor.at_end():
        return info
    digest_zxid, version, digest = _DIGEST.unpack(cursor.take(_DIGEST.size, "the digest"))
    cursor.check_seal()
    last: Zxid | None = None
    if not cursor.at_end():
        last = Zxid(_LONG.unpack(cursor.take(_LONG.size, "the last processed zxid"))[0])
        cursor.check_seal()
        if not cursor.at_end():
            raise CorruptSnapshot("has bytes after its last seal", cursor.name, cursor.offset)
    # Zxid 0 with digest 0: nothing had been applied yet, so there was no digest to write.
    known = digest_zxid != 0
    return SnapshotInfo(
        zxid,
        session_count,
        Zxid(digest_zxid) if known else None,
        version if known else None,
        digest if known else None,
        last,
    )


def _parse_sessions(cursor: SnapshotCursor, sink: SnapshotSink) -> int:
    count = cursor.take_int("the number of sessions")
    if count < 0:
        raise CorruptSnapshot(f"claims {count} sessions", cursor.name, cursor.offset)
    left = count
    while left:
        # In portions: a damaged count must not ask for gigabytes before the end is noticed.
        portion = min(left, _SESSION_CHUNK)
        data = cursor.take(portion * _SESSION.size, "the sessions")
        for session_id, timeout_ms in _SESSION.iter_unpack(data):
            sink.add_session(session_id, timeout_ms)
        left -= portion
    return count


def _parse_acls(cursor: SnapshotCursor, sink: SnapshotSink) -> None:
    for _ in range(cursor.take_int("the number of ACL lists")):
        key: int = _LONG.unpack(cursor.take(_LONG.size, "an ACL key"))[0]
        size = 4096
        while True:
            ready = cursor.fill(size)
            reader = Reader(cursor.buffer, cursor.position)
            try:
                acl = _read_acl_list(reader)
                break
            except MalformedRecord as error:
                # The list may continue after the window: look again with more of the stream.
                if not ready or size >= _ACL_LIMIT:
                    raise CorruptSnapshot(
                        f"an ACL list cannot be read: {error.reason}", cursor.name, cursor.offset
                    ) from error
                size *= 4
        cursor.position = reader.offset
        sink.add_acl(key, acl)


def _read_acl_list(reader: Reader) -> AclList:
    count = reader.read_count(_ACL_MINIMUM, "ACL list") or 0
    return tuple(_ACL_CODEC.read(reader) for _ in range(count))


def _encode_acl_list(acl: AclList) -> bytes:
    return _INT.pack(len(acl)) + b"".join(_ACL_CODEC.encode(entry) for entry in acl)


def _parse_nodes(cursor: SnapshotCursor, sink: SnapshotSink) -> None:
    while True:
        try:
            cursor.position = sink.add_encoded(cursor.buffer, cursor.position)
        except MalformedRecord as error:
            offset = cursor.offset - cursor.position + error.offset
            raise CorruptSnapshot(error.reason, cursor.name, offset) from error
        if sink.is_complete:
            return
        # Twice as much each time: a znode larger than the window must not be joined forever.
        left = len(cursor.buffer) - cursor.position
        if not cursor.fill(left + 1, max(2 * left, _WINDOW_SIZE)):
            raise CorruptSnapshot("ends inside the znodes", cursor.name, cursor.offset + left)


def snapshot_pieces(frozen: FrozenTree, chunk_nodes: int = CHUNK_NODES) -> Iterator[bytes]:
    """The unpacked bytes of an exact snapshot, in pieces of bounded work."""
    adler = 1
    for piece in _sealed_part(frozen, chunk_nodes):
        adler = zlib.adler32(piece, adler)
        yield piece
    tails = (
        _DIGEST.pack(frozen.zxid, DIGEST_VERSION, frozen.digest),
        _LONG.pack(frozen.zxid),
        b"",
    )
    for tail in tails:
        piece = _SEAL.pack(adler, *_SEAL_TEXT) + tail
        adler = zlib.adler32(piece, adler)
        yield piece


def _sealed_part(frozen: FrozenTree, chunk_nodes: int) -> Iterator[bytes]:
    yield SNAPSHOT_HEADER
    yield _INT.pack(len(frozen.sessions))
    sessions = list(frozen.sessions.items())
    for start in range(0, len(sessions), _SESSION_CHUNK):
        yield b"".join(_SESSION.pack(*s) for s in sessions[start : start + _SESSION_CHUNK])
    yield _INT.pack(len(frozen.acls))
    for key, acl in frozen.acls.items():
        yield _LONG.pack(key) + _encode_acl_list(acl)
    yield from frozen.node_chunks(chunk_nodes)
    yield _TERMINATOR
