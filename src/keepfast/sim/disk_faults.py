"""Faults that can be injected into a `MemoryDisk`: errors, silent rot, and power loss."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

# What changes the disk: a crash before any other call leaves what the call before it left.
CHANGING_CALLS = frozenset(
    {
        "make_directory",
        "create",
        "rename",
        "remove",
        "remove_directory",
        "fsync_directory",
        "write_at",
        "allocate",
        "truncate",
        "fsync",
        "datasync",
    }
)


class PowerLoss(BaseException):
    """The machine stopped.  Not an Exception: no error handling of the code under test may run."""


class MishapError(Exception):
    """An exception that no code expects from a disk, as a bug elsewhere would raise."""


class DiskCall(NamedTuple):
    """One call as `MemoryDisk.on_call` sees it; `number` counts from 1, `path` is normalised.

    Every call is shown before it did anything, and those that change the disk (`CHANGING_CALLS`)
    also after they have succeeded.
    """

    number: int
    operation: str
    path: str
    is_after: bool


CallHook: TypeAlias = Callable[[DiskCall], None]


@dataclass(slots=True)
class Fault:
    """What happens to a call that matches.

    code: the errno raised; None damages a write and says nothing.
    kept: how much was done first: bytes of a write, pending operations of an fsync.
    times: how many calls it strikes; None for all from now on.
    exception: raised itself instead of an error made from `code`.
    """

    operation: str
    pattern: str
    code: int | None
    kept: int
    times: int | None
    exception: OSError | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the call continues as if nothing had happened."""
        return self.code is None and self.exception is None

    def error(self, path: str) -> OSError:
        """The error that the call ends with."""
        if self.exception is not None:
            return self.exception
        code = errno.EIO if self.code is None else self.code
        return OSError(code, os.strerror(code), path)


class FaultTable:
    """The faults in force, and the calls at which to stop."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._stops: dict[tuple[int, bool], BaseException] = {}

    def __bool__(self) -> bool:
        return bool(self.faults or self._stops)

    def stop_at(self, number: int, is_after: bool, error: BaseException) -> None:
        """Raise `error` around the given call, once."""
        self._stops[number, is_after] = error

    def stop(self, number: int, is_after: bool) -> BaseException | None:
        """The error to raise around this call, if any."""
        return self._stops.pop((number, is_after), None)

    def strike(self, operation: str, path: str) -> Fault | None:
        """The first fault that matches this call, which uses up one of its times."""
        for fault in self.faults:
            if fault.operation == operation and fnmatchcase(path, fault.pattern):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self.faults.remove(fault)
                return fault
        return None
