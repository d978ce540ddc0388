"""What records and snapshots say about sessions, as rows: which begin and end, and which are open.

A snapshot's table names the sessions that were open when it was begun, with their timeouts; records
begin and end them.  `replay.session_tables` holds one against the other.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keepfast.pipeline.decode.frames import FRAME_HEADER_SIZE, Frames
from keepfast.pipeline.decode.hashing import Hashes, mixed
from keepfast.pipeline.decode.snapshots import SnapshotReader
from keepfast.pipeline.decode.txns import FileOrigin
from keepfast.storage import ReadFile
from keepfast.wire import OpCode

_HEADER_SIZE = 32


class SessionSaid(IntEnum):
    """What a row says about its session."""

    BEGUN = 0
    ENDED = 1
    LISTED = 2  # in the table of a snapshot


# `at`: the zxid of a record, the number of a snapshot.
SESSION = np.dtype([("session", "i8"), ("at", "i8"), ("timeout", "i4"), ("said", "u1")])


def logged_sessions(frames: Frames) -> np.ndarray:
    """The sessions that sound records begin and end."""
    types = frames.header("type")
    wanted = np.flatnonzero((types == OpCode.CREATE_SESSION) | (types == OpCode.CLOSE_SESSION))
    rows = np.zeros(len(wanted), SESSION)
    rows["session"] = frames.header("session_id")[wanted]
    rows["at"] = frames.header("zxid")[wanted]
    is_begun = types[wanted] == OpCode.CREATE_SESSION
    rows["said"] = np.where(is_begun, SessionSaid.BEGUN, SessionSaid.ENDED)
    bodies = frames.offsets[wanted] + FRAME_HEADER_SIZE + _HEADER_SIZE
    rows["timeout"] = np.where(is_begun, frames.view.ints(bodies), 0)
    return rows


def listed_sessions(file: ReadFile, path: str, number: int) -> np.ndarray:
    """The table of a snapshot, of which no more is read; raises CorruptSnapshot."""
    found = SnapshotReader(file, FileOrigin(file=path)).read_sessions()
    rows = np.zeros(len(found), SESSION)
    rows["session"] = np.fromiter(found, np.int64, len(found))
    rows["timeout"] = np.fromiter(found.values(), np.int32, len(found))
    rows["at"], rows["said"] = number, SessionSaid.LISTED
    return rows


def session_keys(rows: np.ndarray) -> Hashes:
    """Numbers by which sessions are spread over buckets."""
    return mixed(rows["session"].view(np.uint64))
