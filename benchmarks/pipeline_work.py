"""What the benchmarks of the pipeline measure, as programs: their start is part of the figure.

python -m benchmarks.pipeline_work decode|scan|znodes|compare FILE...
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of a process and all that it started, and wall time, in seconds."""

    cpu: float
    wall: float


_SET_CHILD_SUBREAPER = 36


def cost_of(command: list[str], **environment: str) -> Cost:
    """Run a program with its output thrown away; it must succeed.

    What it leaves running, such as the JVM of Spark, counts until its end.
    """
    # Orphans become our children, so that their CPU can be waited for.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    wall = time.perf_counter() - start
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall)


def least(measure: Callable[[], Cost], rounds: int) -> Cost:
    """The cheapest of several rounds: other load can only add."""
    return min((measure() for _ in range(rounds)), key=lambda cost: cost.cpu)


def work_command(*arguments: str) -> list[str]:
    """The command for one of the programs below."""
    return [sys.executable, "-m", "benchmarks.pipeline_work", *arguments]


def _decode(path: str) -> int:
    from keepfast.pipeline.decode import FileOrigin, decode_log, open_file

    with open_file(path) as file:
        return sum(batch.num_rows for batch in decode_log(file, FileOrigin("e", "s", path)))


def _scan(path: str) -> int:
    from keepfast.pipeline.decode import open_file
    from keepfast.pipeline.scan.summaries import summarize

    with open_file(path) as file:
        return sum(row.records for row in summarize(file))


def _znodes(path: str) -> int:
    from keepfast.pipeline.decode import FileOrigin, SnapshotReader, open_file

    with open_file(path) as file:
        return sum(
            batch.num_rows for batch in SnapshotReader(file, FileOrigin("e", "s", path)).batches()
        )


def _plain_audit(*places: str) -> int:
    """The audit in a session with Spark's own defaults."""
    from pyspark.sql import SparkSession

    from keepfast.pipeline.engine.auditing import audit_places

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").getOrCreate()
    found = audit_places(spark, list(places))
    spark.stop()
    return len(found.ensembles)


def _audit_here(*places: str) -> int:
    """The audit in this process, without Spark."""
    from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
    from keepfast.pipeline.files.layout import discover

    results = audit_with(run_here, discover(list(places)), AuditOptions())
    if any(result.unchecked for result in results):
        sys.exit(f"not everything was checked: {results[0].unchecked[0]}")
    return sum(result.records for result in results)


def _bound(*paths: str) -> int:
    """Read files and compute their Adler-32, one per processor at a time."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor() as pool:
        return sum(pool.map(_adler, paths))


def _adler(path: str) -> int:
    import zlib

    done, value = 0, 1
    with open(path, "rb", buffering=0) as file:
        end = _used(file.fileno())
        while done < end and (piece := file.read(min(8 << 20, end - done))):
            value = zlib.adler32(piece, value)
            done += len(piece)
    return done


def _used(descriptor: int) -> int:
    """Where the hole at the end of a preallocated log begins."""
    end = os.lseek(descriptor, 0, os.SEEK_HOLE)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return end


_WORK: dict[str, Callable[..., int]] = {
    "decode": _decode,
    "scan": _scan,
    "znodes": _znodes,
    "bound": _bound,
    "plain-audit": _plain_audit,
    "audit-here": _audit_here,
}


if __name__ == "__main__":
    print(_WORK[sys.argv[1]](*sys.argv[2:]))
