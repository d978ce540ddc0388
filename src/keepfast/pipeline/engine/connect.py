"""Spark Connect: a session on a server elsewhere, through PySpark's own client."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from keepfast.pipeline.engine.failures import JobFailed, cause_of
from keepfast.pipeline.engine.shipping import package_zip
from keepfast.pipeline.engine.spark_home import SparkNotUsable

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# What runs tasks. A context that was started here has no session until somebody wants queries
# (`session_of`): that start is a fifth of a small audit.
Spark: TypeAlias = "SparkContext | SparkSession"

_SCHEME = "sc://"
# What PySpark's client imports.
_NEEDED = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")


def is_connect(master: str | None) -> bool:
    """Whether an address, or without one the environment, asks for Spark Connect."""
    return (master or os.environ.get("SPARK_REMOTE", "")).startswith(_SCHEME)


def context_of(spark: Spark) -> SparkContext | None:
    """The context, with its JVM; None on Spark Connect, where there is none."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    if isinstance(spark, SparkContext):
        return spark
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def session_of(spark: Spark) -> SparkSession:
    """The session, for queries."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if isinstance(spark, SparkContext) else spark


def is_embedded(spark: Spark) -> bool:
    """Whether tasks run on this machine, and see its files."""
    context = context_of(spark)
    return context is not None and (context.master or "").startswith("local")


def connect(address: str, settings: dict[str, str]) -> SparkSession:
    """A session on the server at `address`, with this package on its executors."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        # Before PySpark looks for them: in `python -c` and its like it ends the process with the
        # exit code 0 if one is missing, which would read as a pass.
        for name in _NEEDED:
            import_module(name)
        builder = SparkSession.builder.remote(address or os.environ["SPARK_REMOTE"])
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        with tempfile.TemporaryDirectory(prefix="keepfast-package-") as directory:
            spark.addArtifacts(package_zip(Path(directory)), pyfile=True)
    except ImportError as error:
        raise SparkNotUsable(
            f"Spark Connect needs packages that are not installed: {cause_of(error)}; "
            'pip install "pyspark[connect]"'
        ) from error
    except PySparkException as error:
        raise JobFailed(cause_of(error), None) from error
    return spark
