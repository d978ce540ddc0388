"""What does the audit of a large ensemble cost on Spark?

Three servers with one history, in one session that is warm:

- at most 6 times the wall time of reading the used bytes and their Adler-32 on the same cores;
- at least 8 times less CPU than grouping all records by zxid, as one would write it first;
- a shuffle of at most 0.1 % of that one's;
- ten times the data costs at most ten times; the JVM stays below 0.6 GB.

    python -m benchmarks.bench_pipeline_audit [RECORDS] [naive RECORDS]

10 million records a server are 6 GB. The grouping is run on a tenth of them, where it costs less in
proportion, since at full size it spills.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import print_table, scratch
from benchmarks.pipeline_data import write_ensemble
from benchmarks.pipeline_work import cost_of, least, work_command
from keepfast.pipeline.auditing import audit_places
from keepfast.pipeline.session import SessionOptions, spark_session
from keepfast.pipeline.stages import AuditOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Figures:
    """One job: seconds, and bytes of its shuffle."""

    cpu: float
    wall: float
    shuffle: int


def main(count: int = 10_000_000, small: int = 1_000_000) -> None:
    """Print one table."""
    with scratch() as directory:
        large_root, small_root = directory / "large", directory / "small"
        write_ensemble(small_root, small)
        write_ensemble(large_root, count)
        logs = sorted(map(str, large_root.glob("*/version-2/log.*")))
        used_gb = sum(os.stat(path).st_blocks * 512 for path in logs) / 1e9
        bound = least(lambda: cost_of(work_command("bound", *logs)), 3)
        with spark_session(SessionOptions("local[*]")) as spark:
            _audit(spark, small_root)  # warm
            summary_small = _measured(spark, lambda: _audit(spark, small_root))
            summary = _measured(spark, lambda: _audit(spark, large_root))
            scan = _measured(spark, lambda: _scan(spark, large_root))
            jvm_gb = _peak_memory_gb(_jvm(spark))
        with spark_session(SessionOptions("local[*]", is_quick=False, memory_mb=4096)) as spark:
            _naive(spark, small_root)
            naive = _measured(spark, lambda: _naive(spark, small_root))
    rows = [
        ["read + Adler-32", f"{bound.cpu:.1f}", f"{bound.wall:.1f}", "", "1", ""],
        _row("zksummary alone", scan, f"{scan.wall / bound.wall:.1f} x wall", ""),
        _row("audit", summary, f"{summary.wall / bound.wall:.1f} x wall", "<= 6"),
        _row(f"audit of {small:,}", summary_small, _growth(summary, summary_small), "<= 10"),
        _row(
            f"group by zxid, {small:,}",
            naive,
            f"{naive.cpu / summary_small.cpu:.1f} x CPU of the audit",
            ">= 8",
        ),
        [
            "shuffle against grouping",
            "",
            "",
            "",
            f"{summary_small.shuffle / max(1, naive.shuffle):.2%}",
            "<= 0.1 %",
        ],
        ["JVM at its peak", "", "", "", f"{jvm_gb:.2f} GB", "<= 0.6"],
    ]
    title = f"3 servers x {count:,} records, {used_gb:.2f} GB used"
    print_table(title, ["job", "CPU s", "wall s", "shuffle bytes", "ratio", "goal"], rows)


def _row(name: str, figures: Figures, ratio: str, goal: str) -> list[str]:
    shuffle = f"{figures.shuffle:,}"
    return [name, f"{figures.cpu:.1f}", f"{figures.wall:.1f}", shuffle, ratio, goal]


def _growth(large: Figures, small: Figures) -> str:
    return f"large : small = {large.cpu / small.cpu:.1f} x CPU"


def _audit(spark: SparkSession, root: Path) -> object:
    # Histories of this length are not replayed in full by default; small ones would be.
    return audit_places(spark, [str(root)], AuditOptions(replay_limit=0))


def _scan(spark: SparkSession, root: Path) -> object:
    return spark.read.format("zksummary").load(str(root)).collect()


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
    main(*map(int, sys.argv[1:]))
