"""Bytes in, Arrow out: logs and snapshots as columns, checked, without Spark.

What may live here: decoding of whole files at the speed of numpy and Arrow, and the hashes by which
files are compared. What may not: Spark, and any judgement about what a difference means. The record
by record decoders of `wire` and `storage` are the authority: what the quick way cannot
decode is handed to them, and tests compare the two on every kind of record.
"""

from keepfast.pipeline.columns.access import LocalFile, open_file
from keepfast.pipeline.columns.compare import SnapshotDifference, compare_snapshots
from keepfast.pipeline.columns.frames import Damage, Frames, read_frames
from keepfast.pipeline.columns.hashing import content_hashes
from keepfast.pipeline.columns.snapshots import SnapshotReader
from keepfast.pipeline.columns.txns import Origin, decode_frames, decode_log

__all__ = [
    "Damage",
    "Frames",
    "LocalFile",
    "Origin",
    "SnapshotDifference",
    "SnapshotReader",
    "compare_snapshots",
    "content_hashes",
    "decode_frames",
    "decode_log",
    "open_file",
    "read_frames",
]
