"""What a disk error means for the writer (rule R7)."""

from collections.abc import Callable
from typing import TypeVar

from keepfast.storage.layout import DataDirectory
from keepfast.storage.snapshot_writer import disk_failure, storage_error
from keepfast.wire import DiskFailed, DiskFull, StorageError

T = TypeVar("T")


class DiskGuard:
    """Distinguishes a full disk, an ordinary condition, from a failed one, which is final."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._has_space = True
        self._failure: StorageError | None = None
        # What must be done before any other change, and could not be done on a full disk.
        self._beginning: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the last look at the disk, or the last change of it, found no space."""
        return not self._has_space

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
        """Run a change of the disk; a disk error ends this store's claim to it (R7)."""
        if self._failure is not None:
            raise self._failure
        try:
            return action(*arguments)
        except DiskFailed as error:
            self._fail(error)
            raise
        except OSError as error:
            failure = disk_failure(error, error.filename)
            self._fail(failure)
            raise failure from error

    def _begin_with(self, action: Callable[[], None]) -> None:
        """Do what every later change relies on, now or, on a full disk, before the next one.

        Raises DiskFull where it has to wait; nothing of it is relied on by whoever only reads.
        """
        self._beginning = action
        self._change(lambda: None)

    def _begin(self) -> None:
        if self._beginning is not None:
            self._beginning()
            self._beginning = None

    def _change(self, action: Callable[..., T], *arguments: object) -> T:
        """Run a change of what the directory holds, as `_guard` does."""

        def change() -> T:
            self._begin()
            return action(*arguments)

        try:
            return self._guard(change)
        finally:
            self._changed()

    def _changed(self) -> None:
        """The directory may hold something else now; for who shows it to others."""

    def disown(self) -> None:
        """Write nothing more, not even at the end: as if the process had been killed here."""
        self._fail(StorageError("the store is disowned", self.directory.logs))

    def _fail(self, failure: StorageError) -> None:
        self._failure = failure
        self._has_space = False  # so that append() looks
