"""What does a look of `keepfast watch` cost, beside servers that log 1,000 transactions a second?

    python -m benchmarks.bench_watch [LOOKS]

A look every ten seconds, so 10,000 records of each of three servers in each; a log rolls, and a
snapshot is taken, every 100,000 records. Nobody waits: the figure is the CPU time of looks.
"""

from __future__ import annotations

import sys
from statistics import mean
from threading import Event

from benchmarks.common import print_table, scratch
from benchmarks.true_data import write_true_ensemble
from keepfast.pipeline.watch.watching import Watching, WatchOptions

_PER_SECOND = 1000
_EVERY_S = 10


def main(looks: int = 40) -> None:
    """Print one table."""
    costs: list[float] = []
    with scratch() as directory:
        watching: Watching | None = None

        def look(number: int) -> None:
            nonlocal watching
            if watching is None:
                places = tuple(str(directory / "e" / str(server)) for server in (1, 2, 3))
                watching = Watching(WatchOptions(places, str(directory / "checkpoint")))
            looked = watching.look(Event())
            if looked is None or looked.open:
                sys.exit(f"after {number} records: {looked and looked.open}")
            costs.append(looked.cpu_seconds)

        records = looks * _PER_SECOND * _EVERY_S
        snapshots = max(1, records // 100_000)
        write_true_ensemble(
            directory / "e", records, snapshots, 200, every=_PER_SECOND * _EVERY_S, look=look
        )
        if watching is not None:
            watching.close()
    # The first one has to read and prove what is there.
    later = sorted(costs[1:])
    rows = [
        ["mean", f"{mean(later) * 1e3:.0f}", f"{mean(later) / _EVERY_S:.1%}"],
        [
            "median",
            f"{later[len(later) // 2] * 1e3:.0f}",
            f"{later[len(later) // 2] / _EVERY_S:.1%}",
        ],
        ["dearest", f"{later[-1] * 1e3:.0f}", f"{later[-1] / _EVERY_S:.1%}"],
    ]
    print_table(
        f"{len(later)} looks, 3 x 10,000 new records each",
        ["look", "CPU ms", "of a core; goal: 10 %"],
        rows,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
