"""How much of the disk's speed the store keeps: append and fsync in groups, against a bare loop.

The bare loop writes the same bytes, framed beforehand, in the same groups to a fresh file: write,
fdatasync, repeat. The store frames and checks each record as well.
"""

import os
import time
from pathlib import Path

from benchmarks.common import median_pair, print_table, scratch, set_data_entry
from keepfast.storage import RealDisk, Store, StoreOptions, data_directory, frame
from keepfast.wire import make_zxid

RECORDS = {1: 2_000, 8: 8_000, 64: 32_000, 500: 100_000}


def bare(path: Path, group: int, frames: list[bytes]) -> float:
    """Records per second of write + fdatasync."""
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    start = time.perf_counter()
    for index in range(0, len(frames), group):
        os.write(descriptor, b"".join(frames[index : index + group]))
        os.fdatasync(descriptor)
    elapsed = time.perf_counter() - start
    os.close(descriptor)
    path.unlink()
    return len(frames) / elapsed


def stored(path: Path, group: int, entries: list[bytes]) -> float:
    """Records per second of Store.append and Store.sync."""
    disk = RealDisk()
    store, _ = Store.open(disk, data_directory(disk, str(path)), StoreOptions(reserve_bytes=0))
    store.initialise()
    zxids = [make_zxid(1, counter) for counter in range(1, len(entries) + 1)]
    start = time.perf_counter()
    for index in range(0, len(entries), group):
        for zxid, entry in zip(
            zxids[index : index + group], entries[index : index + group], strict=True
        ):
            store.append(zxid, entry)
        store.sync()
    elapsed = time.perf_counter() - start
    store.close()
    return len(entries) / elapsed


def compare(place: Path, group: int, count: int) -> list[str]:
    """One row of the table."""
    entries = [set_data_entry(c, b"v" * 100) for c in range(1, count + 1)]
    frames = [frame(entry) for entry in entries]
    runs = iter(range(100))
    ours, loop = median_pair(
        lambda: stored(place / f"data-{group}-{next(runs)}", group, entries),
        lambda: bare(place / "bare", group, frames),
    )
    return [str(group), f"{loop:,.0f}", f"{ours:,.0f}", f"{ours / loop:.2f}"]


def main() -> None:
    with scratch() as place:
        rows = [compare(place, group, count) for group, count in RECORDS.items()]
    print_table(
        "append + fsync, 100-byte values",
        ["records a group", "bare loop, records/s", "store, records/s", "ratio"],
        rows,
    )


if __name__ == "__main__":
    main()
