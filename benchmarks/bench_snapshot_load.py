"""Loading a snapshot of a million znodes, against an Apache server that starts on the same file.

Apache's time is the one that its own metric states (startup_snap_load_time): its JVM and the rest
of its start are not counted. Ours is the wall time of the load inside a fresh process.
"""

import json
import resource
import sys
import time
from pathlib import Path

from benchmarks.common import (
    apache_server,
    large_tree,
    median_pair,
    print_table,
    run_python,
    scratch,
    write_directory,
)
from keepfast.storage import RealDisk, load_tree
from tests.apache import words

ZNODES = 1_000_000
DATA_BYTES = 100


def load(path: str) -> None:
    """Load one snapshot and say how long it took and what it costs to keep."""
    before = resident_bytes()
    start = time.perf_counter()
    tree = load_tree(RealDisk(), path)[0]
    elapsed = time.perf_counter() - start
    print(json.dumps([elapsed, (resident_bytes() - before) / tree.node_count]))


def resident_bytes() -> int:
    """What this process keeps in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    per_znode: list[float] = []

    with scratch() as place:
        tree = large_tree(ZNODES, DATA_BYTES)
        write_directory(place, tree)
        snapshot = next((place / "version-2").glob("snapshot.*"))
        size = snapshot.stat().st_size
        del tree

        def ours() -> float:
            output = run_python("-m", "benchmarks.bench_snapshot_load", str(snapshot)).stdout
            elapsed, each = json.loads(output)
            per_znode.append(each)
            return float(elapsed)

        def apache() -> float:
            with apache_server(place, heap_mb=6144) as (port, _):
                return float(words.monitor(port)["max_startup_snap_load_time"]) / 1000

        mine, theirs = median_pair(ours, apache)
    rows = [
        ["Apache 3.9.5", f"{theirs:.2f}", "1.00"],
        ["keepfast", f"{mine:.2f}", f"{mine / theirs:.2f}"],
    ]
    print_table(
        f"loading {ZNODES:,} znodes of {DATA_BYTES} bytes ({size / 1e6:.0f} MB)",
        ["server", "wall s", "times Apache's"],
        rows,
    )
    print(f"memory: {min(per_znode):.0f} bytes per znode, its {DATA_BYTES} bytes of data included")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1])
    else:
        main()
