"""One Spark session for all tests of the pipeline, and a server with its admin server.

A session takes seconds to start and half a gigabyte, and every process of a parallel run that gets
a file with such tests starts its own: so there are few such files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepfast.harness import LocalProcess
from keepfast.pipeline.engine.session import SessionOptions, spark_session
from tests.apache import words
from tests.apache.server import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session on two cores with our data sources; nothing of it reaches the terminal."""
    options = SessionOptions("local[2]", settings=(("spark.sql.shuffle.partitions", "2"),))
    with spark_session(options) as session:
        yield session


@pytest.fixture
def with_admin(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A server of ours as a process; gives its client port and the port of its admin server."""
    port, admin_port = free_ports(2)
    configuration = tmp_path / "zoo.cfg"
    configuration.write_text(
        f"dataDir={tmp_path / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"admin.serverAddress=127.0.0.1\nadmin.serverPort={admin_port}\n"
        "4lw.commands.whitelist=*\nadmin.rateLimiterIntervalInMS=0\n"
    )
    process = LocalProcess(tmp_path / "output")
    process.launch([sys.executable, "-m", "keepfast", "serve", str(configuration)])
    try:
        words.wait_until(lambda: words.serving_mode(port) is not None, "the server", timeout=60)
        yield port, admin_port
    finally:
        process.kill()
