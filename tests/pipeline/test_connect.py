"""Spark Connect: the same findings by a session elsewhere, or a sentence that says what is missing.

The packages of ``pyspark[connect]`` are no part of the extras; where they are installed, an audit
runs on a server of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from keepfast.harness import free_ports
from tests.apache import wait_until
from tests.cases import CASES_DIR
from tests.cli.runs import call

_CASE = CASES_DIR / "trunc-misses-record-3.4.14"
_PACKAGES = ("pandas", "grpc", "grpc_status", "zstandard")
_WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = sys.modules["pandas"] = None
from keepfast.cli import main
sys.exit(main())
"""
# In steps, as large ensembles are, by sums, and with snapshots in parts.
_PROGRAM = """
import sys
from keepfast.pipeline.engine.jobs import SparkRunner, tasks_of
from keepfast.pipeline.engine.session import SessionOptions, spark_session
from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.feeds.feed import seen_by_tasks
from keepfast.pipeline.files.layout import PlaceError, discover
from keepfast.pipeline.report.targets import write_file
from keepfast.pipeline.scan import split_snapshots

split_snapshots.WHOLE_BYTES, split_snapshots._CUT_BYTES = 0, 3000
ensembles, options = discover([sys.argv[2]]), AuditOptions(tree_records=0)
with spark_session(SessionOptions(sys.argv[1])) as spark:
    found = audit_with(SparkRunner(spark), ensembles, options)
    # What needs a JVM of our own is refused in a sentence.
    assert tasks_of(spark) == (0, 0)
    for refused in (
        lambda: seen_by_tasks(spark, ["s3://bucket/place"]),
        lambda: write_file("viewfs://host/out", "name", "", spark),
    ):
        try:
            refused()
        except PlaceError:
            continue
        sys.exit("not refused")
assert found == audit_with(run_here, ensembles, options)
"""


def test_packages_missing__the_sentence_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_GRPC, "audit", "--master", "sc://127.0.0.1:1", str(_CASE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert done.stderr.startswith("keepfast: Spark Connect needs packages that are not installed")
    assert 'pip install "pyspark[connect]"' in done.stderr


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Spark Connect server; gives its address."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    (port,) = free_ports(1)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=log,
            stderr=log,
            env={**os.environ, **environment, "SPARK_HOME": str(home)},
        )
        try:
            wait_until(
                lambda: b"Spark Connect server started" in (directory / "server.log").read_bytes(),
                "the server listens",
            )
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    any(find_spec(name) is None for name in _PACKAGES),
    reason='pip install "pyspark[connect]" for it',
)
def test_on_a_server__findings_equal_as_one_item_and_in_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = call(capsys, "audit", "--engine", "local", "--json", _CASE).out
    with connect_server(tmp_path) as address:
        audit = [sys.executable, "-m", "keepfast", "audit", "--json", "--no-tables"]
        done = subprocess.run(
            [*audit, "--master", address, str(_CASE)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (1, alone)
        subprocess.run([sys.executable, "-c", _PROGRAM, address, str(_CASE)], check=True)
