"""The records of pieces of logs, decoded, and what one record means for a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keepfast.pipeline.replay.plan import Piece
from keepfast.storage import Disk, Frame, LogReader
from keepfast.tree import ReplayConflict, Tree
from keepfast.wire import (
    LogEntry,
    MalformedRecord,
    MultiTxn,
    OpCode,
    TxnBody,
    TxnHeader,
    decode_entry,
    decode_txn_body,
    format_zxid,
)


def apply_leniently(tree: Tree, entry: LogEntry) -> None:
    """Apply as Apache does at a start: what does not fit is passed over."""
    try:
        tree.apply_fuzzy(entry.header, entry.body)
    except ReplayConflict:
        # Not even idempotently: a path that is none, an unknown type. Apache skips it too.
        return


def frames_of(disk: Disk, piece: Piece) -> Iterator[Frame]:
    """The records of a piece; ends early where the file changed since it was looked at."""
    with disk.open_read(piece.path) as file:
        for frame in LogReader(file, piece.start, piece.end):
            if piece.first <= frame.zxid <= piece.last:
                yield frame


@dataclass(slots=True)
class Unread:
    """What was left out of a replay, a sentence each.

    `gone`: records that were there when the files were looked at. What was made without them is
    good for no comparison. `undecodable`: no server can apply such either.
    """

    gone: list[str] = field(default_factory=list)
    undecodable: list[str] = field(default_factory=list)


def entries_of(
    disk: Disk, pieces: tuple[Piece, ...], unread: Unread
) -> Iterator[tuple[LogEntry, Piece, int]]:
    """The records of pieces, decoded, each zxid once; what is left out goes to `unread`."""
    for piece in pieces:
        last = -1
        try:
            for frame in frames_of(disk, piece):
                if frame.zxid == last:
                    continue
                last = frame.zxid
                try:
                    yield decode_entry(frame.entry), piece, frame.offset
                except MalformedRecord:
                    text = f"{piece.path} at {frame.offset}: no transaction, it was not replayed"
                    unread.undecodable.append(text)
        except OSError as error:
            unread.gone.append(f"{piece.path} can no longer be read: {error.strerror or error}")
            continue
        if last < piece.last:
            first = format_zxid(max(last + 1, piece.first))
            text = f"{piece.path} no longer holds {first} to {format_zxid(piece.last)}"
            unread.gone.append(text)


def touched_paths(body: TxnBody | None, header: TxnHeader | None = None) -> list[str]:
    """The znodes that a record names, each once; with its header also a session that it closes.

    The session is in hex.  Before 3.6 such a record does not name the znodes that go with it.
    """
    if header is not None and header.type == OpCode.CLOSE_SESSION:
        return [f"{header.session_id:#x}", *touched_paths(body)]
    if isinstance(body, MultiTxn):
        found: list[str] = []
        for sub in body.txns or ():
            try:
                found += touched_paths(decode_txn_body(sub.type, sub.data))
            except MalformedRecord:
                continue
        # A multi may create a znode and set it, too.
        return list(dict.fromkeys(found))
    path = getattr(body, "path", None)
    if isinstance(path, str):
        return [path or "/"]
    paths = getattr(body, "paths", None) or ()
    return list(dict.fromkeys(one for one in paths if isinstance(one, str)))
