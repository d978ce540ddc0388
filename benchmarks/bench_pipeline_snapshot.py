"""Is a snapshot in Arrow 10 times cheaper than SnapshotFormatter?

CPU time on the same files in one run, process start included, output thrown away.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.common import apache_command, large_tree, print_table, scratch
from benchmarks.pipeline_work import Cost, cost_of, least, work_command
from keepfast.storage import snapshot_pieces
from keepfast.tree import Tree

FORMATTER = "org.apache.zookeeper.server.SnapshotFormatter"


def main(count: int = 1_000_000, rounds: int = 2) -> None:
    """Print one table."""
    with scratch() as directory:
        path = _write(directory, large_tree(count))
        size_mb = path.stat().st_size / 1e6
        formatter = _cost(apache_command(FORMATTER, str(path), heap_mb=4096), rounds)
        znodes = _cost(work_command("znodes", str(path)), rounds)
    print_table(
        f"Snapshots of {count:,} znodes, {size_mb:.0f} MB",
        ["program", "CPU s", "wall s", "times cheaper (CPU)", "goal"],
        [
            ["SnapshotFormatter", *_cells(formatter), "1", ""],
            ["all columns to Arrow", *_cells(znodes), _times(formatter, znodes), "10"],
        ],
    )


def _cost(command: list[str], rounds: int) -> Cost:
    return least(lambda: cost_of(command), rounds)


def _times(theirs: Cost, ours: Cost) -> str:
    return f"{theirs.cpu / ours.cpu:.1f}"


def _cells(cost: Cost) -> list[str]:
    return [f"{cost.cpu:.2f}", f"{cost.wall:.2f}"]


def _write(directory: Path, tree: Tree) -> Path:
    path = directory / f"snapshot.{tree.last_zxid:x}"
    with path.open("wb") as file, tree.freeze() as frozen:
        for piece in snapshot_pieces(frozen):
            file.write(piece)
    return path


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
