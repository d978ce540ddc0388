"""Settings of a store."""

from dataclasses import dataclass

from keepfast.storage.layout import Compression


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
