"""One Spark session for all tests of the pipeline.

A session takes seconds to start and half a gigabyte, and every process of a parallel run that gets
a file with such tests starts its own: so there are few such files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from keepfast.pipeline.session import SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session on two cores with our data sources; nothing of it reaches the terminal."""
    options = SessionOptions("local[2]", settings=(("spark.sql.shuffle.partitions", "2"),))
    with spark_session(options) as session:
        yield session
