"""Is decoding a log 8 times, and the verifying scan 12 times, cheaper than Apache's TxnLogToolkit?

CPU time on the same file in one run, process start included, output thrown away.
"""

from __future__ import annotations

import sys

from benchmarks.common import apache_command, print_table, scratch
from benchmarks.pipeline_data import write_one_log
from benchmarks.pipeline_work import Cost, cost_of, least, work_command

TOOLKIT = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
GOALS = {"decode": 8.0, "scan": 12.0}


def main(count: int = 1_000_000, rounds: int = 3) -> None:
    """Print one table."""
    with scratch() as directory:
        path = directory / "log.100000001"
        write_one_log(path, count)
        apache = least(
            lambda: cost_of(apache_command(TOOLKIT, "-d", str(path), heap_mb=1024)), rounds
        )
        rows = [["TxnLogToolkit -d", *_cells(apache), "1", ""]]
        for name, words in (("decode", "all columns to Arrow"), ("scan", "verifying scan")):
            command = work_command(name, str(path))
            ours = least(lambda command=command: cost_of(command), rounds)  # type: ignore[misc]
            rows.append(
                [words, *_cells(ours), f"{apache.cpu / ours.cpu:.1f}", f"{GOALS[name]:.0f}"]
            )
        size_mb = path.stat().st_size / 1e6
    title = f"A log of {count:,} records, {size_mb:.0f} MB"
    print_table(title, ["reader", "CPU s", "wall s", "times cheaper (CPU)", "goal"], rows)


def _cells(cost: Cost) -> list[str]:
    return [f"{cost.cpu:.2f}", f"{cost.wall:.2f}"]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
