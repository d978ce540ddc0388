"""Is a snapshot in Arrow 10 times cheaper than SnapshotFormatter, a comparison of two by content 3
times cheaper than SnapshotComparer, which compares sizes?

CPU time on the same files in one run, process start included, output thrown away.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.common import apache_command, large_tree, print_table, scratch
from benchmarks.pipeline_work import Cost, cost_of, least, work_command
from keepfast.storage import snapshot_pieces
from keepfast.tree import Tree
from keepfast.wire import SessionId, SetDataTxn, TxnHeader, make_zxid

FORMATTER = "org.apache.zookeeper.server.SnapshotFormatter"
COMPARER = "org.apache.zookeeper.server.SnapshotComparer"


def main(count: int = 1_000_000, rounds: int = 2) -> None:
    """Print one table."""
    with scratch() as directory:
        left, right = _two_snapshots(directory, count)
        size_mb = left.stat().st_size / 1e6
        formatter = _cost(apache_command(FORMATTER, str(left), heap_mb=4096), rounds)
        znodes = _cost(work_command("znodes", str(left)), rounds)
        arguments = ["-l", str(left), "-r", str(right), "-b", "1", "-n", "1"]
        comparer = _cost(apache_command(COMPARER, *arguments, heap_mb=6144), rounds)
        compare = _cost(work_command("compare", str(left), str(right)), rounds)
    print_table(
        f"Snapshots of {count:,} znodes, {size_mb:.0f} MB",
        ["program", "CPU s", "wall s", "times cheaper (CPU)", "goal"],
        [
            ["SnapshotFormatter", *_cells(formatter), "1", ""],
            ["all columns to Arrow", *_cells(znodes), _times(formatter, znodes), "10"],
            ["SnapshotComparer (sizes)", *_cells(comparer), "1", ""],
            ["comparison by content", *_cells(compare), _times(comparer, compare), "3"],
        ],
    )


def _cost(command: list[str], rounds: int) -> Cost:
    return least(lambda: cost_of(command), rounds)


def _times(theirs: Cost, ours: Cost) -> str:
    return f"{theirs.cpu / ours.cpu:.1f}"


def _cells(cost: Cost) -> list[str]:
    return [f"{cost.cpu:.2f}", f"{cost.wall:.2f}"]


def _two_snapshots(directory: Path, count: int) -> tuple[Path, Path]:
    tree = large_tree(count)
    left = _write(directory / "left", tree)
    header = TxnHeader(SessionId(1), 0, make_zxid(0, count * 2), 1_790_000_000_000, 5)
    tree.apply(header, SetDataTxn("/parent-000000/child-00000007", b"x" * 100, 1))
    return left, _write(directory / "right", tree)


def _write(directory: Path, tree: Tree) -> Path:
    directory.mkdir()
    path = directory / f"snapshot.{tree.last_zxid:x}"
    with path.open("wb") as file, tree.freeze() as frozen:
        for piece in snapshot_pieces(frozen):
            file.write(piece)
    return path


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
