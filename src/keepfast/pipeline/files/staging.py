"""Files of other file systems, brought to this machine.

The audit needs that for those that only Spark can read. State and history are replayed by what
reads local files, so they have all places brought here (`here`).

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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from keepfast.pipeline.files.layout import (
    Directory,
    PlaceError,
    is_remote,
    kind_of,
    list_local,
    split_place,
)
from keepfast.pipeline.files.listing import list_place, list_with_spark
from keepfast.pipeline.findings.document import AuditResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from keepfast.pipeline.engine.connect import Spark

_NEEDED = ("keepfast.manifest", "keepfast.witness")
_PIECE_BYTES = 8 << 20


@functools.cache
def _root() -> str:
    """The directory for all copies of this process."""
    path = tempfile.mkdtemp(prefix="keepfast-staging-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# Directories of all copies that this process made, and what they are copies of.
_copies: dict[str, str] = {}


def as_named(text: str) -> str:
    """A sentence with the names that files have where they lie."""
    for copy, place in _copies.items():
        text = text.replace(copy, place)
    return text


def local_places(places: Sequence[str], spark: SparkSession | None = None) -> list[str]:
    """The places as directories of this machine; raises PlaceError for one that cannot be had."""
    staging = Staging(spark)
    found = []
    for place in places:
        try:
            found.append(staging.here(place))
        except ImportError as error:
            raise PlaceError(
                place,
                'is not on this machine; pip install "keepfast[pipeline]" reads other file '
                "systems, or copy the directories here",
            ) from error
    return found


class Staging:
    """Lists places, and brings here what workers could not read; then puts the names right."""

    def __init__(self, spark: Spark | None = None) -> None:
        """Without Spark, the running one is used, or one is started when it is needed."""
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
            return self._copied(list_with_spark(self._session, place), place)

    @property
    def _session(self) -> SparkSession:
        from keepfast.pipeline.engine.connect import session_of

        if self._spark is None:
            from keepfast.pipeline.engine.session import open_session

            self._spark = open_session()
        return session_of(self._spark)

    def here(self, place: str) -> str:
        """A place, or two with a colon between them, as directories of this machine."""
        data, logs = split_place(place)
        parts = [data] if logs is None else [data, logs]
        return ":".join(self._here(part) if is_remote(part) else part for part in parts)

    def _here(self, place: str) -> str:
        place = place.rstrip("/")
        for copy, known in self._places.items():
            if known == place:
                return copy
        try:
            listed = list_place(place)
        except PlaceError:
            return self._copied(list_with_spark(self._session, place), place).path
        target = self._target(place)
        _fetch(listed, target)
        self._places[target] = _copies[target] = place
        return target

    def _target(self, place: str) -> str:
        """Where a copy goes."""
        # The last part of the name stays: ensembles and servers are named after directories.
        parent = tempfile.mkdtemp(dir=_root())
        return os.path.join(parent, place.rpartition("/")[2] or "root")

    def _copied(self, listed: Directory, place: str) -> Directory:
        from keepfast.pipeline.engine.connect import is_embedded

        if not is_embedded(self._session):
            raise PlaceError(
                place,
                "only Spark itself can read this file system, and its tasks run elsewhere; leave "
                "--master out, or copy the directories to a place that all of them see",
            )
        target = self._target(place)
        # Spark has no public way to Hadoop's files.
        context: Any = self._session.sparkContext
        system: Any = context._jvm
        configuration: Any = context._jsc.hadoopConfiguration()
        self._copy_directory(system, configuration, listed, target)
        self._places[target] = _copies[target] = place
        return list_local(target)

    def _copy_directory(self, jvm: Any, configuration: Any, source: Directory, target: str) -> None:
        from py4j.protocol import Py4JJavaError

        os.makedirs(target)
        for name, (_, mtime) in source.files.items():
            if not _is_wanted(name):
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

    def read_at(self, path: str) -> str:
        """Where a file of a result can be read: the other way round."""
        for copy, place in self._places.items():
            if path.startswith(place):
                return copy + path[len(place) :]
        return path

    def named_rows(self, frame: DataFrame) -> DataFrame:
        """Rows with the names that files have where they lie."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

        for copy, place in self._places.items():
            if "file" in frame.columns:
                name = F.replace(F.col("file"), F.lit(copy), F.lit(place))
                frame = frame.withColumn("file", name)
        return frame


def _is_wanted(name: str) -> bool:
    return kind_of(name)[0] != "other" or name in _NEEDED or name.endswith(".tmp")


def _fetch(source: Directory, target: str) -> None:
    """Copy what Python itself can read, with its times."""
    from keepfast.pipeline.files.access import open_file

    os.makedirs(target)
    for name, (_, mtime) in source.files.items():
        if not _is_wanted(name):
            continue
        path, copy = f"{source.path}/{name}", os.path.join(target, name)
        try:
            with open_file(path) as file, open(copy, "wb") as written:
                for offset in range(0, file.size(), _PIECE_BYTES):
                    written.write(file.read_at(offset, _PIECE_BYTES))
        except FileNotFoundError:
            continue  # purged by its server a moment ago
        except OSError as error:
            raise PlaceError(path, f"cannot be read: {error.strerror or error}") from error
        os.utime(copy, (mtime, mtime))
    for name, below in source.directories.items():
        _fetch(below, os.path.join(target, name))
