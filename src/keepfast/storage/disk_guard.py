"""What an error of the disk means for whoever writes to it (rule R7)."""

from collections.abc import Callable
from typing import TypeVar

from keepfast.storage.layout import DataDirectory
from keepfast.storage.snapshot_writer import storage_error
from keepfast.wire import DiskFailed, DiskFull, StorageError

T = TypeVar("T")


class DiskGuard:
    """Tells a full disk, which is ordinary, from a failed one, which ends the claim to the data."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._has_space = True
        self._failure: StorageError | None = None

    def _ordinary_if_full(self, action: Callable[[], T]) -> T:
        """Run what leaves nothing behind when the disk is full."""
        try:
            return action()
        except OSError as error:
            failure = storage_error(error, error.filename or self.directory.logs)
            if isinstance(failure, DiskFull):
                self._has_space = False
            raise failure from error

    def _guard(self, action: Callable[..., T], *arguments: object) -> T:
        """Run a change of the disk; an error of the disk ends this store's claim to it (R7)."""
        if self._failure is not None:
            raise self._failure
        try:
            return action(*arguments)
        except DiskFailed as error:
            self._fail(error)
            raise
        except OSError as error:
            failure = DiskFailed(f"the disk failed: {error.strerror or error}", error.filename)
            self._fail(failure)
            raise failure from error

    def disown(self) -> None:
        """Write nothing more, not even at the end: as if the process had been killed here."""
        self._fail(StorageError("the store is disowned", self.directory.logs))

    def _fail(self, failure: StorageError) -> None:
        self._failure = failure
        self._has_space = False  # so that append() looks
