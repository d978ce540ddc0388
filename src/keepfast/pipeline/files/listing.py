"""Listing of places that are not on the local disk.

Where pyarrow or fsspec knows the file system they are asked; they also read the files later. Where
they do not, Spark lists through Hadoop, which knows every file system that Spark reads, and brings
the files here (`staging`).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from keepfast.pipeline.files.access import arrow_system, is_of_arrow
from keepfast.pipeline.files.layout import (
    Directory,
    PlaceError,
    is_remote,
    list_entries,
    list_local,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_place(place: str) -> Directory:
    """A place on any file system that Python can reach; raises PlaceError."""
    if not is_remote(place):
        return list_local(place)
    try:
        entries = _list_arrow(place) if is_of_arrow(place) else _list_fsspec(place)
    except FileNotFoundError as error:
        raise PlaceError(place, "there is no such directory") from error
    except OSError as error:
        raise PlaceError(place, f"cannot be listed: {error.strerror or error}") from error
    return list_entries(place, entries)


def _list_arrow(place: str) -> list[tuple[str, int, float]]:
    from pyarrow import fs

    system, inner = arrow_system(place)
    infos = system.get_file_info(fs.FileSelector(inner, recursive=True))
    base = place.rstrip("/")
    return [
        (base + info.path[len(inner.rstrip("/")) :], info.size, _seconds(info.mtime))
        for info in infos
        if info.is_file
    ]


def _list_fsspec(place: str) -> list[tuple[str, int, float]]:
    try:
        import fsspec
    except ImportError as error:
        scheme = place.partition("://")[0]
        reason = f"no reader for {scheme}:// files; install fsspec and the package for {scheme}"
        raise OSError(errno.EPROTONOSUPPORT, reason, place) from error
    try:
        system, inner = fsspec.core.url_to_fs(place)
        found = system.find(inner, detail=True)
    except (ImportError, ValueError) as error:
        raise OSError(errno.EIO, str(error), place) from error
    base, inner = place.rstrip("/"), inner.rstrip("/")
    return [
        (
            base + path[len(inner) :],
            int(info.get("size") or 0),
            _seconds(info.get("mtime") or info.get("LastModified") or info.get("created")),
        )
        for path, info in found.items()
    ]


def _seconds(moment: Any) -> float:
    """A time as file systems give it: a datetime, a number, or nothing."""
    if moment is None:
        return 0.0
    return float(moment.timestamp()) if hasattr(moment, "timestamp") else float(moment)


def list_with_spark(spark: SparkSession, place: str) -> Directory:
    """A place as Hadoop lists it; no file is opened."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        files = (
            spark.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(place)
            .select("path", "length", "modificationTime")
        )
        rows = files.collect()
    except AnalysisException as error:
        raise PlaceError(place, "there is no such directory") from error
    except (PySparkException, Py4JJavaError) as error:
        java = getattr(error, "java_exception", None)
        reason = str(error if java is None else java.getMessage()).strip().partition("\n")[0]
        raise PlaceError(place, f"Spark cannot list it: {reason}") from error
    return list_entries(
        place, [(row.path, row.length, row.modificationTime.timestamp()) for row in rows]
    )
