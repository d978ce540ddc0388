"""Bytes in, Arrow out: logs and snapshots as columns, checked, without Spark.

What may live here: decoding of whole files at the speed of numpy and Arrow, and the hashes by which
files are compared. What may not: Spark, and any judgement about what a difference means. The record
by record decoders of `wire` and `storage` are the authority: what the fast path cannot
decode is handed to them, and tests compare the two on every kind of record.
"""

from keepfast.pipeline.decode.frames import Damage, Frames, read_frames
from keepfast.pipeline.decode.hashing import content_hashes
from keepfast.pipeline.decode.snapshots import SnapshotReader
from keepfast.pipeline.decode.txns import FileOrigin, decode_frames, decode_log
from keepfast.pipeline.files.access import LocalFile, open_file

__all__ = [
    "Damage",
    "FileOrigin",
    "Frames",
    "LocalFile",
    "SnapshotReader",
    "content_hashes",
    "decode_frames",
    "decode_log",
    "open_file",
    "read_frames",
]
