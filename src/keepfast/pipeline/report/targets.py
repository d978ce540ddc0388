"""Where results are written: a directory here, or a place on any file system that is known.

Nothing is ever written into what is audited. A file is complete when it has its name, as far as its
file system allows: local ones are renamed, objects appear when they are closed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keepfast.pipeline.files.access import arrow_system, is_of_arrow
from keepfast.pipeline.files.layout import PlaceError, discover, is_remote, local_path, split_place

if TYPE_CHECKING:
    from keepfast.pipeline.engine.connect import Spark


def check_out(out: str, places: Sequence[str]) -> None:
    """Refuse a target inside what is audited, by whatever name: nothing is ever written there."""
    for place in places:
        for part in split_place(place):
            if part is None:
                continue
            if is_remote(part) or is_remote(out):
                is_inside = f"{out.rstrip('/')}/".startswith(f"{part.rstrip('/')}/")
            else:
                is_inside = _lies_in(out, local_path(part))
            if is_inside:
                raise PlaceError(out, f"lies in {part}, which is audited; name a directory outside")
    if is_remote(out):
        return
    for ensemble in discover([place for place in places if not is_remote(place)] or []):
        for server in ensemble.servers:
            for directory in (server.snapshots_dir, server.logs_dir):
                if _lies_in(out, directory):
                    raise PlaceError(out, f"lies in {directory}, which is audited")


def _lies_in(out: str, directory: str) -> bool:
    # Links lead there as well as names do.
    target, place = os.path.realpath(local_path(out)), os.path.realpath(directory)
    return os.path.commonpath([target, place]) == place


def write_file(out: str, name: str, text: str, spark: Spark | None = None) -> None:
    """Write a text as one file of a target; raises PlaceError if that cannot be done.

    A file system that only Hadoop knows is written through the session, if there is one.
    """
    data = text.encode("utf-8", "backslashreplace")
    if not is_remote(out):
        path = os.path.join(local_path(out), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write_local(path, data)
        return
    address = f"{out.rstrip('/')}/{name}"
    try:
        if is_of_arrow(address):
            system, inner = arrow_system(address)
            with system.open_output_stream(inner) as stream:
                stream.write(data)
        elif not _write_with_fsspec(address, data):
            _write_with_hadoop(address, data, spark)
    except OSError as error:
        raise PlaceError(address, f"cannot be written: {error.strerror or error}") from error


def _write_local(path: str, data: bytes) -> None:
    """Whole, or not at all; a disk that is full is not left fuller than it was."""
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        # A write does not know the name.
        raise OSError(error.errno, error.strerror, path) from error


def _write_with_fsspec(address: str, data: bytes) -> bool:
    """Write through fsspec; False if it does not know the file system."""
    try:
        import fsspec

        system, inner = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError):
        return False
    with system.open(inner, "wb") as file:
        file.write(data)
    return True


def _write_with_hadoop(address: str, data: bytes, spark: Spark | None) -> None:
    from py4j.protocol import Py4JJavaError

    from keepfast.pipeline.engine.connect import context_of

    if spark is None:
        raise OSError("only Spark knows this file system; leave --engine out, or write elsewhere")
    # Spark has no public way to Hadoop's files.
    context: Any = context_of(spark)
    if context is None:
        raise OSError("only Spark knows this file system, not through Connect; write elsewhere")
    path = context._jvm.org.apache.hadoop.fs.Path(address)
    try:
        system = path.getFileSystem(context._jsc.hadoopConfiguration())
        stream = system.create(path, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise OSError(str(error.java_exception.getMessage())) from error
