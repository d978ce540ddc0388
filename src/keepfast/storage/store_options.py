"""Settings of a store."""

from dataclasses import dataclass

from keepfast.storage.layout import Compression
from keepfast.tree import CHUNK_NODES


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store writes; the defaults suit a server with its own disk."""

    # Zeros written ahead of the records. Small: more stops for growth. Large: a new segment
    # takes longer to begin, and more of a small disk is spoken for.
    grow_bytes: int = 4 << 20
    # A segment is rolled when it has grown beyond this. Small: many files. Large: a purge frees
    # space late, and a lookup in the log reads more.
    segment_bytes: int = 64 << 20
    # With less free space than this, no new record is accepted. Small: the last bytes may be needed
    # for a snapshot or the manifest. Large: writes are refused on a disk that still has space.
    reserve_bytes: int = 32 << 20
    compression: Compression = Compression.NONE
    # Records that a learner is sent in one turn; of a tree, sixteen times as much, which is read
    # and not computed. Low: a turn costs more than its work. High: a leader's clients wait while it
    # is sent, and a learner's while it is received.
    stream_bytes: int = 1 << 16
    # Znodes that a snapshot takes in one turn. Low and high as above.
    chunk_nodes: int = CHUNK_NODES


DEFAULTS = StoreOptions()
