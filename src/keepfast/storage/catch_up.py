"""What a learner is sent, read from the disk: trees and records, as packets.

A tree comes from an exact snapshot file that is checked while it is sent: the final signature is
sent only if every seal was valid, so a learner never accepts a tree that has rotted here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from keepfast.quorum import (
    ALWAYS_RECORDS_BYTES,
    TREE_SIGNATURE,
    RecordStream,
    TreeStream,
    encode_commit,
    encode_packet,
    encode_proposal,
    encode_snap,
)
from keepfast.storage.compression import unpacked
from keepfast.storage.history import History
from keepfast.storage.layout import Compression, parse_snapshot_name
from keepfast.storage.manifest import SnapshotEntry
from keepfast.storage.snapshot_file import SEAL_SIZE, SEALS_SIZE, SNAPSHOT_HEADER
from keepfast.storage.store_options import DEFAULTS
from keepfast.wire import (
    CorruptLog,
    CorruptSnapshot,
    Zxid,
    invariant,
)

# Of a tree is read at once so many times what of records is sent at once.
_TREE_PIECE = 16
_ANY = Zxid(-1)


def fitting_snapshot(history: History, up_to: Zxid, beyond: Zxid = _ANY) -> SnapshotEntry | None:
    """The newest exact snapshot that a tree can be sent from; None: take one first.

    It must be later than `beyond`, see TreeStream.
    """
    for entry in reversed(history.manifest.snapshots):
        is_fit = entry.exact and entry.name not in history.doubts.snapshots
        if is_fit and beyond < entry.zxid <= up_to and history.serves_after(entry.zxid):
            return entry
    return None


def is_recent(history: History, entry: SnapshotEntry) -> bool:
    """Whether the records after a snapshot are less than a new snapshot would be."""
    return history.bytes_after(entry.zxid) <= max(entry.size, ALWAYS_RECORDS_BYTES)


def record_packets(
    history: History, stream: RecordStream, piece_bytes: int = DEFAULTS.stream_bytes
) -> Iterator[bytes]:
    """The PROPOSAL of each record, and COMMITs, in pieces.

    Raises CorruptLog where a record cannot be read: what was sent before it is valid.
    """
    records = history.records_after(stream.after)
    if records is None:
        raise CorruptLog("the log no longer reaches back to the learner", None, None, stream.after)
    parts: list[bytes] = []
    size, last = 0, stream.after
    for zxid, entry in records:
        if zxid > stream.up_to:
            break
        parts.append(encode_proposal(zxid, entry))
        size += len(entry)
        last = zxid
        if size >= piece_bytes or stream.commits_each:
            parts.append(encode_commit(zxid))
        if size >= piece_bytes:
            yield b"".join(parts)
            parts.clear()
            size = 0
    if parts:
        if not stream.commits_each:
            parts.append(encode_commit(last))
        yield b"".join(parts)


def tree_packets(
    history: History,
    entry: SnapshotEntry,
    stream: TreeStream,
    piece_bytes: int = DEFAULTS.stream_bytes,
) -> Iterator[bytes]:
    """SNAP, the tree of an exact snapshot, its signature, and the records after it, in pieces.

    Raises CorruptSnapshot or CorruptLog: hang up, the learner keeps what it had.
    """
    path = history.directory.in_snapshots(entry.name)
    invariant(entry.digest is not None and entry.state_digest is not None, "it is exact")
    yield encode_packet(encode_snap(entry.zxid, entry.digest or 0, entry.state_digest or 0))
    parsed = parse_snapshot_name(entry.name)
    compression = Compression.NONE if parsed is None else parsed[1]
    try:
        with history.disk.open_read(path) as file:
            pieces = unpacked(file, compression, path, _TREE_PIECE * piece_bytes)
            yield from _body(pieces, path)
    except CorruptSnapshot:
        history.doubts.snapshots.add(entry.name)
        raise
    except OSError as error:
        history.doubts.snapshots.add(entry.name)
        raise CorruptSnapshot(f"cannot be read: {error.strerror}", path) from error
    yield TREE_SIGNATURE
    if entry.zxid < stream.up_to:
        rest = RecordStream(entry.zxid, stream.up_to, stream.commits_each)
        yield from record_packets(history, rest, piece_bytes)


def _body(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    """The bytes between the header and the seals; the last seal covers all of them."""
    adler, held, is_begun = 1, b"", False
    for piece in pieces:
        held += piece
        if not is_begun:
            if len(held) < len(SNAPSHOT_HEADER):
                continue
            is_begun = True
            adler = zlib.adler32(SNAPSHOT_HEADER)
            held = held[len(SNAPSHOT_HEADER) :]
        if len(held) > SEALS_SIZE:
            body, held = held[:-SEALS_SIZE], held[-SEALS_SIZE:]
            adler = zlib.adler32(body, adler)
            yield body
    adler = zlib.adler32(held[:-SEAL_SIZE], adler)
    if len(held) != SEALS_SIZE or adler != int.from_bytes(held[-SEAL_SIZE : -SEAL_SIZE + 8], "big"):
        raise CorruptSnapshot("fails its last seal (Adler-32)", path)
