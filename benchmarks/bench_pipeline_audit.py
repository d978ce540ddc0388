"""What does the audit of a large ensemble cost on Spark?

Three servers with one history, in one session that is warm:

- at most 6 times the wall time of reading the used bytes and their Adler-32 on the same cores;
- at least 8 times less CPU than grouping all records by zxid, as one would write it first;
- a shuffle of at most 0.1 % of its shuffle;
- ten times the data costs at most ten times; the JVM stays below 0.6 GB.

    python -m benchmarks.bench_pipeline_audit [--records N] [--small N] [--data DIR] [--group small]

10 million records per server are 6 GB. Bound and audit alternate, three times, and the best of each
counts: other load can only add. `--data` keeps the files and reuses them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import print_table, scratch, timed
from benchmarks.pipeline_data import write_ensemble
from benchmarks.pipeline_work import work_command
from keepfast.pipeline.engine.auditing import audit_places
from keepfast.pipeline.engine.session import SessionOptions, spark_session
from keepfast.pipeline.engine.stages import AuditOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Figures:
    """One job: seconds, and bytes of its shuffle."""

    cpu: float
    wall: float
    shuffle: int


def main(arguments: list[str]) -> None:
    """Print one table."""
    options = _options(arguments)
    with _data(options.data) as directory:
        large_root = _written(directory, options.records)
        small_root = _written(directory, options.small)
        logs = sorted(map(str, large_root.glob("*/version-2/log.*")))
        used_gb = sum(os.stat(path).st_blocks * 512 for path in logs) / 1e9
        bounds, audits, small_audits = [], [], []
        with spark_session(SessionOptions("local[*]")) as spark:
            _audit(spark, small_root)  # warm
            for _ in range(3):
                bounds.append(_bound(logs))
                audits.append(_measured(spark, lambda: _audit(spark, large_root)))
                small_audits.append(_measured(spark, lambda: _audit(spark, small_root)))
            jvm_gb = _peak_memory_gb(_jvm(spark))
        group_root = small_root if options.group == "small" else large_root
        with spark_session(SessionOptions("local[*]", is_quick=False, memory_mb=4096)) as spark:
            _naive(spark, small_root)
            naive = _measured(spark, lambda: _naive(spark, group_root))
    bound, audit, small = map(_best, (bounds, audits, small_audits))
    compared = small if options.group == "small" else audit
    rows = [
        _row("read + Adler-32", bound, "1", ""),
        _row("audit", audit, f"{audit.wall / bound.wall:.1f} x wall", "<= 6"),
        ["", "", "", "", f"{audit.cpu / bound.cpu:.1f} x CPU", ""],
        _row(f"audit of {options.small:,}", small, _growth(audit, small), "<= 10"),
        _row(
            f"group by zxid, {options.group}",
            naive,
            f"{naive.cpu / compared.cpu:.1f} x CPU of the audit",
            ">= 8",
        ),
        [
            *("shuffle against grouping", "", "", ""),
            f"{compared.shuffle / max(1, naive.shuffle):.2%}",
            "<= 0.1 %",
        ],
        ["JVM at its peak", "", "", "", f"{jvm_gb:.2f} GB", "<= 0.6"],
    ]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"3 servers x {options.records:,} records, {used_gb:.2f} GB used; load {load}"
    print_table(title, ["job", "CPU s", "wall s", "shuffle bytes", "ratio", "goal"], rows)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="of each server")
    parser.add_argument("--small", type=int, default=1_000_000, help="for the growth of the cost")
    parser.add_argument("--data", type=Path, help="a directory for the files, which stay")
    parser.add_argument("--group", choices=["small", "large"], default="large")
    return parser.parse_args(arguments)


@contextmanager
def _data(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        yield directory
        return
    with scratch() as temporary:
        yield temporary


def _written(directory: Path, count: int) -> Path:
    root = directory / str(count)
    if not root.exists():
        unfinished = directory / f"{count}.unfinished"
        write_ensemble(unfinished, count)
        unfinished.rename(root)
    return root


def _bound(logs: list[str]) -> Figures:
    """Reading all used bytes and their Adler-32, on all cores; its start does not count."""
    whole, start = _child(work_command("bound", *logs)), _child(work_command("bound"))
    return Figures(whole.cpu - start.cpu, whole.wall - start.wall, 0)


def _child(command: list[str]) -> Figures:
    # Not cost_of: that waits for all children, and the JVM of the session is one.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Figures(cpu, wall, 0)


def _best(figures: list[Figures]) -> Figures:
    return min(figures, key=lambda one: one.wall)


def _row(name: str, figures: Figures, ratio: str, goal: str) -> list[str]:
    shuffle = f"{figures.shuffle:,}"
    return [name, f"{figures.cpu:.1f}", f"{figures.wall:.1f}", shuffle, ratio, goal]


def _growth(large: Figures, small: Figures) -> str:
    return f"large : small = {large.cpu / small.cpu:.1f} x CPU"


def _audit(spark: SparkSession, root: Path) -> object:
    # By default histories of this length are not replayed in full, while small ones are.
    return audit_places(spark, [str(root)], AuditOptions(is_replayed=False))


def _naive(spark: SparkSession, root: Path) -> object:
    """The audit as one would write it first: every record through the shuffle."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    log = (
        spark.read.format("zktxnlog")
        .schema("server string, zxid long, checksum long, problem string")
        .load(str(root))
    )
    groups = log.groupBy("zxid").agg(
        F.count("*").alias("servers"), F.count_distinct("checksum").alias("versions")
    )
    differing = groups.where("servers <> 3 or versions <> 1").count()
    window = Window.partitionBy("server").orderBy("zxid")
    steps = log.withColumn("before", F.lag("zxid").over(window))
    return differing, steps.where("zxid <> before + 1").count()


def _measured(spark: SparkSession, job: Callable[[], object]) -> Figures:
    shuffle, cpu = _shuffled(spark), _tree_cpu()
    start = time.perf_counter()
    job()
    wall = time.perf_counter() - start
    return Figures(_tree_cpu() - cpu, wall, _shuffled(spark) - shuffle)


def _shuffled(spark: SparkSession) -> int:
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(True)
    return sum(executors.apply(index).totalShuffleWrite() for index in range(executors.size()))


def _tree_cpu() -> float:
    """CPU of this process and of all below it, those that have ended included."""
    ticks = 0
    for process in _below(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, pending = [], [root]
    while pending:
        process = pending.pop()
        found.append(process)
        pending += children.get(process, [])
    return found


def _jvm(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _peak_memory_gb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e6
    return 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
