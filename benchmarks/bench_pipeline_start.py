"""Does a cold `keepfast audit` of a small case take at most 0.4 of the CPU of a plain session?

The same audit of the same directories in both; CPU of all processes, the JVM and the Python workers
included. The archive of classes exists, as it does from the second use on.
"""

from __future__ import annotations

import sys

from benchmarks.common import ROOT, print_table
from benchmarks.pipeline_work import cost_of, work_command

CASE = str(ROOT / "tests" / "data" / "cases" / "healthy-plain-3.9.5")


def main(rounds: int = 3) -> None:
    """Print one table."""
    audit = [sys.executable, "-m", "keepfast", "audit", CASE]
    cost_of(audit)  # the first use makes the archive
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(cost_of(audit))
        plain.append(cost_of(work_command("plain-audit", CASE)))
    best, theirs = min(ours, key=lambda c: c.cpu), min(plain, key=lambda c: c.cpu)
    rows = [
        ["plain session, same audit", f"{theirs.cpu:.1f}", f"{theirs.wall:.1f}", "1", ""],
        [
            "keepfast audit",
            f"{best.cpu:.1f}",
            f"{best.wall:.1f}",
            f"{best.cpu / theirs.cpu:.2f}",
            "0.4; wall < 15 s",
        ],
    ]
    title = "Cold start and an audit of one small ensemble"
    print_table(title, ["way", "CPU s", "wall s", "CPU ratio", "goal"], rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
