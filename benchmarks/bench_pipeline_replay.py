"""What does an audit cost in which every digest and every snapshot is checked?

    python -m benchmarks.bench_pipeline_replay [--records N...] [--snapshots N] [--fuzzy RECORDS]
                                               [--data DIR] [--former SRC]

Audits in one process each, its start included, on ensembles whose digests are true (`true_data`):
CPU time is what counts, and it is the same work as on Spark, without a JVM. `--former` is a folder
with the sources of another version, for a comparison in the same run; `--data` keeps the files and
reuses them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.common import print_table, scratch
from benchmarks.pipeline_work import Cost, cost_of, work_command
from benchmarks.true_data import write_true_ensemble


def main(arguments: list[str]) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--snapshots", type=int, default=42)
    parser.add_argument("--fuzzy", type=int, default=200, help="records in a snapshot's window")
    parser.add_argument("--data", type=Path, help="a directory for the files, which stay")
    parser.add_argument("--former", help="PYTHONPATH of another version")
    options = parser.parse_args(arguments)
    rows = []
    with scratch() as temporary:
        for records in options.records:
            root = (options.data or temporary) / str(records)
            if not root.exists():
                write_true_ensemble(root, records, options.snapshots, options.fuzzy)
            cost = _audit(root)
            rows.append([f"audit of {records:,}", *_figures(cost, records), ""])
            if options.former:
                former = _audit(root, PYTHONPATH=options.former)
                ratio = f"{former.cpu / cost.cpu:.1f} x CPU"
                rows.append(["the same, former version", *_figures(former, records), ratio])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"3 servers, {options.snapshots} snapshots, everything checked; load {load}"
    print_table(title, ["", "CPU s", "wall s", "CPU us a record", "former : this"], rows)


def _figures(cost: Cost, records: int) -> list[str]:
    return [f"{cost.cpu:.1f}", f"{cost.wall:.1f}", f"{cost.cpu / records * 1e6:.1f}"]


def _audit(root: Path, **environment: str) -> Cost:
    return cost_of(work_command("audit-here", str(root)), **environment)


if __name__ == "__main__":
    main(sys.argv[1:])
