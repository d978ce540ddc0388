"""Files that only Spark can read, brought to this machine through Hadoop.

Workers are Python processes without a JVM: they open local files, and what pyarrow or fsspec can.
Whatever else Spark reads (`hdfs://` without libhdfs, `viewfs://`, a vendor's own scheme) is copied
here by Hadoop's own FileSystem first, file by file, never through Python's memory, with its times.
That is right for an embedded Spark. The executors of a cluster would not find the copies, so there
it is refused with a sentence.

The copies are removed when the process ends. In what is said about them, files have the names that
they have where they lie.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import msgspec

from keepfast.pipeline.findings import AuditResult
from keepfast.pipeline.layout import (
    Directory,
    PlaceError,
    is_remote,
    kind_of,
    list_local,
)
from keepfast.pipeline.listing import list_place, list_with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEEDED = ("keepfast.manifest", "keepfast.witness")


@functools.cache
def _root() -> str:
    """The directory for all copies of this process."""
    path = tempfile.mkdtemp(prefix="keepfast-staging-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Staging:
    """Lists places, and brings here what workers could not read; then puts the names right."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._places: dict[str, str] = {}  # directory of a copy -> the place

    def list_any(self, place: str) -> Directory:
        """A place on any file system that Spark reads, as local files if need be."""
        if not is_remote(place):
            return list_local(place)
        place = place.rstrip("/")
        for copy, known in self._places.items():
            if known == place:
                return list_local(copy)
        try:
            return list_place(place)
        except PlaceError:
            return self._copied(list_with_spark(self._spark, place), place)

    def _copied(self, listed: Directory, place: str) -> Directory:
        context = self._spark.sparkContext
        if not (context.master or "").startswith("local"):
            raise PlaceError(
                place,
                "only Spark itself can read this file system, and its tasks run elsewhere; leave "
                "--master out, or copy the directories to a place that all of them see",
            )
        # The last part of the name stays: ensembles and servers are named after directories.
        parent = tempfile.mkdtemp(dir=_root())
        target = os.path.join(parent, place.rpartition("/")[2] or "root")
        # Spark has no public way to Hadoop's files.
        system: Any = context._jvm
        configuration: Any = context._jsc.hadoopConfiguration()
        self._copy_directory(system, configuration, listed, target)
        self._places[target] = place
        return list_local(target)

    def _copy_directory(self, jvm: Any, configuration: Any, source: Directory, target: str) -> None:
        from py4j.protocol import Py4JJavaError

        os.makedirs(target)
        for name, (_, mtime) in source.files.items():
            if kind_of(name)[0] == "other" and name not in _NEEDED and not name.endswith(".tmp"):
                continue
            path = jvm.org.apache.hadoop.fs.Path(f"{source.path}/{name}")
            copy = os.path.join(target, name)
            local = jvm.org.apache.hadoop.fs.Path(f"file://{copy}")
            try:
                # Keep the source, and write no checksum file beside the copy.
                path.getFileSystem(configuration).copyToLocalFile(False, path, local, True)
            except Py4JJavaError as error:
                reason = str(error.java_exception.getMessage())
                raise PlaceError(f"{source.path}/{name}", f"cannot be read: {reason}") from error
            os.utime(copy, (mtime, mtime))
        for name, below in source.directories.items():
            self._copy_directory(jvm, configuration, below, os.path.join(target, name))

    def named(self, result: AuditResult) -> AuditResult:
        """A result with the names that files have where they lie."""
        text = msgspec.json.encode(result)
        for copy, place in self._places.items():
            text = text.replace(copy.encode(), place.encode())
        return msgspec.json.decode(text, type=AuditResult) if self._places else result

    def named_rows(self, frame: DataFrame) -> DataFrame:
        """Rows with the names that files have where they lie."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

        for copy, place in self._places.items():
            if "file" in frame.columns:
                name = F.replace(F.col("file"), F.lit(copy), F.lit(place))
                frame = frame.withColumn("file", name)
        return frame
