"""The same rows and findings on a cluster as here, the package shipped, executors killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import keepfast
from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.files.layout import discover
from tests.cases import CASES_DIR
from tests.pipeline.cluster import loopback_names, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_PROGRAM = """
import json, sys, threading, time
from keepfast.pipeline.engine.jobs import SparkRunner
from keepfast.pipeline.engine.session import SessionOptions, spark_session
from keepfast.pipeline.engine.stages import AuditOptions, audit_with
from keepfast.pipeline.files.layout import discover

class Telling(SparkRunner):
    def sum_up(self, works):
        if not works:
            return []
        found = []
        work = threading.Thread(target=lambda: found.extend(super(Telling, self).sum_up(works)))
        tracker = self._spark.sparkContext.statusTracker()
        work.start()
        while work.is_alive():
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if any(stage and stage.numCompletedTasks for stage in stages):
                break
            time.sleep(0.01)
        print("half-way", flush=True)
        work.join()
        return found

settings = (("spark.executor.memory", "500m"), ("spark.driver.host", "127.0.0.1"),
            ("spark.driver.bindAddress", "127.0.0.1"), ("spark.default.parallelism", "4"),
            ("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"))
with spark_session(SessionOptions(sys.argv[1], settings=settings)) as spark:
    rows = spark.read.format("zktxnlog").schema("zxid long, problem string").load(sys.argv[2])
    print(rows.count(), flush=True)
    found = audit_with(Telling(spark), discover([sys.argv[2]]), AuditOptions(tree_records=0))
    print(json.dumps([one.to_json() for one in found]), flush=True)
"""
# Workers that find the package only where Spark shipped it.
_WITHOUT_PACKAGE = """
import sys
sys.path[:] = [path for path in sys.path if path != {source!r}]
"""


def executors(directory: Path) -> list[int]:
    """The processes that run tasks, by their working directories."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            place = os.readlink(process / "cwd")
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and place.startswith(str(directory)):
            found.append(int(process.name))
    return found


@pytest.mark.timeout(900)
def test_standalone_cluster__findings_equal_though_an_executor_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("healthy-elections-3.9.5", "trunc-misses-record-3.4.14"):
        (root / name).symlink_to(CASES_DIR / name)
    rows = spark.read.format("zktxnlog").load(str(root)).count()
    # In steps, as large ensembles are, and by sums: facts, records, events by path, states.
    options = AuditOptions(tree_records=0)
    alone = json.dumps([e.to_json() for e in audit_with(run_here, discover([str(root)]), options)])
    with running_cluster(tmp_path) as cluster:
        environment = {
            **loopback_names(tmp_path),
            "PYSPARK_PYTHON": str(python_without_package(tmp_path)),
        }
        process = start(cluster.master, root, environment)
        try:
            assert process.stdout is not None
            counted = process.stdout.readline()
            assert process.stdout.readline() == "half-way\n", process.communicate()[1]
            # In the middle of a job that shuffles: what one of the two holds of it goes with it.
            victims = executors(tmp_path)
            assert victims, "no executor runs"
            os.kill(victims[0], signal.SIGKILL)
            found, errors = process.communicate(timeout=400)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, errors) == (0, "")
    assert int(counted) == rows
    assert found == alone + "\n"


def python_without_package(directory: Path) -> Path:
    """An interpreter that finds the package only where Spark shipped it."""
    hidden = directory / "hidden"
    hidden.mkdir()
    source = str(Path(keepfast.__file__).parents[1])
    (hidden / "sitecustomize.py").write_text(_WITHOUT_PACKAGE.format(source=source))
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


def start(master: str, place: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, master, str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
