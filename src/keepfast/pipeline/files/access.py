"""Opening files for reading, wherever they lie; nothing here can write.

Local files are read with plain reads, not mapped: a file that its server cuts short while it is
read must end early, not end this process. Other file systems come through pyarrow (s3, gs, abfs,
hdfs where its library is there) or, for any other scheme, through fsspec if it is installed.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from keepfast.pipeline.files.layout import is_remote, local_path
from keepfast.storage import ClosedOnExit, ReadFile, RealReadFile, open_regular

if TYPE_CHECKING:
    from pyarrow import fs

_ARROW_SCHEMES = {"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock"}


class LocalFile(RealReadFile):
    """A file of the local disk, and where it is a hole."""

    __slots__ = ()

    def data_end(self, offset: int) -> int:
        """The end of the first stretch at or after `offset` that is not a hole; -1 if none is.

        Preallocated logs are mostly holes: nobody has to read those to know that they are zeros.
        """
        try:
            start = os.lseek(self._descriptor, offset, os.SEEK_DATA)
            return os.lseek(self._descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return -1
            return self.size()

    def data_start(self, offset: int) -> int:
        """The start of the first stretch at or after `offset` that is not a hole."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError:
            return offset


class _RemoteFile(ClosedOnExit):
    """A file of another file system, as a seekable object."""

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._size = size

    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        size = min(size, max(0, self._size - offset))
        if size == 0:
            return b""
        self._file.seek(offset)
        return bytes(self._file.read(size))

    def close(self) -> None:
        self._file.close()


def open_file(path: str) -> ReadFile:
    """Open a local path or an address; every failure is an OSError."""
    if not is_remote(path):
        place = local_path(path)
        return LocalFile(open_regular(place, os.O_RDONLY), place)
    if is_of_arrow(path):
        system, inner = arrow_system(path)
        file = system.open_input_file(inner)
        return _RemoteFile(file, file.size())
    return _open_with_fsspec(path, path.partition("://")[0].lower())


def is_of_arrow(path: str) -> bool:
    """Whether pyarrow knows the file system of an address."""
    return path.partition("://")[0].lower() in _ARROW_SCHEMES


def arrow_system(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, and the path inside it; every failure is an OSError."""
    import pyarrow as pa
    from pyarrow import fs

    scheme, _, rest = path.partition("://")
    # Hadoop's names of the same store.
    address = f"s3://{rest}" if scheme in ("s3a", "s3n") else path
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(address)
    except (pa.ArrowException, ValueError) as error:
        raise OSError(errno.EIO, f"cannot be opened: {error}", path) from error
    return found


def _open_with_fsspec(path: str, scheme: str) -> ReadFile:
    try:
        import fsspec
    except ImportError as error:
        reason = f"no reader for {scheme}:// files; install fsspec and the package for {scheme}"
        raise OSError(errno.EPROTONOSUPPORT, reason, path) from error
    try:
        system, inner = fsspec.core.url_to_fs(path)
        return _RemoteFile(system.open(inner, "rb"), int(system.size(inner)))
    except (ImportError, ValueError) as error:
        raise OSError(errno.EIO, f"cannot be opened: {error}", path) from error
