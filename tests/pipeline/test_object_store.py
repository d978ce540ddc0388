"""An S3-compatible store on loopback, read and written by the executors of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_here
from tests.cases import CASES_DIR
from tests.pipeline.cluster import loopback_names, running_cluster
from tests.pipeline.store_process import running_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_CASE = CASES_DIR / "trunc-misses-record-3.4.14"
_FILL = """
import sys
from pyarrow import fs
store, _ = fs.FileSystem.from_uri("s3://bucket?allow_bucket_creation=true")
store.create_dir("bucket")
fs.copy_files(sys.argv[1], "bucket/zk/" + sys.argv[2], destination_filesystem=store)
"""
_READ = """
import sys
from pyarrow import fs, parquet
store, _ = fs.FileSystem.from_uri("s3://bucket")
found = parquet.read_table("bucket/report/tables/transactions", filesystem=store)
print(found.num_rows, flush=True)
sys.stdout.buffer.write(store.open_input_stream("bucket/report/findings.json").read())
"""


@pytest.fixture
def store() -> Iterator[dict[str, str]]:
    """The variables by which everybody finds a store that is empty."""
    with running_store() as running:
        yield running.variables


def run(environment: dict[str, str], *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, **environment},
    )
    # PyArrow says on standard error what it tries again.
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_input_and_output_on_an_object_store__by_the_executors_of_a_cluster(
    store: dict[str, str], tmp_path: Path
) -> None:
    run(store, "-c", _FILL, str(_CASE), _CASE.name)
    with running_cluster(tmp_path, environment=store) as cluster:
        place, out = f"s3://bucket/zk/{_CASE.name}", "s3://bucket/report"
        where = ("--master", cluster.master, "--out", out)
        settings = ("spark.executor.memory=500m", "spark.driver.host=127.0.0.1")
        more = [part for setting in settings for part in ("--conf", setting)]
        driver = {**store, **loopback_names(tmp_path)}
        run(driver, "-m", "keepfast", "audit", place, *where, *more, code=1)
    rows, _, document = run(store, "-c", _READ).partition("\n")
    local = audit_here([str(_CASE)])
    expected = json.dumps(local.to_json()).replace(str(_CASE), place)
    assert json.dumps(json.loads(document)) == expected
    once = sum(one.last - one.first + 1 for one in local.ensembles[0].sources)
    assert int(rows) == once < local.ensembles[0].records
    assert not list(tmp_path.glob("s3:*"))
