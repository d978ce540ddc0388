"""Crash-only: whatever raises, on whichever thread, task or timer, ends the server (R14).

An exception means that a step was not finished: what is in memory may be anything, and a server
that continues serves, votes and acknowledges on that. So no exception is swallowed. The
process ends with its reason, and the next start reads the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from keepfast.driver.server_world import Action, ServerWorld, Timer
from keepfast.driver.turn_times import TurnTimes
from keepfast.wire import DiskFailed, StorageError

T = TypeVar("T")


class Failure:
    """Why a server ended."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        # A failure of the disk or the data; everything else is our bug.
        self.is_disk = isinstance(error, StorageError)

    def __str__(self) -> str:
        if self.is_disk:
            return f"the disk failed: {self.error}"
        return f"a bug in keepfast: {type(self.error).__name__}: {self.error}"


class Job(Generic[T]):
    """Work for another thread: it keeps the result, or the exception."""

    __slots__ = ("_error", "_result", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Do it; never raises an Exception."""
        try:
            self._result = self._work()
        except Exception as error:  # noqa: BLE001 - `outcome` raises it where it is heard
            self._error = error

    def outcome(self) -> T | StorageError:
        """The result, or a StorageError that leaves the server unaffected. Raises all others."""
        error = self._error
        if isinstance(error, StorageError) and not isinstance(error, DiskFailed):
            return error
        if error is not None:
            raise error
        return self._result  # type: ignore[return-value]  # it was set, as there was no error


class Guard:
    """Wraps every call from the world into the server, and ends the server if one raises."""

    def __init__(self, world: ServerWorld, turns: TurnTimes) -> None:
        """`turns` records how long each call from outside took."""
        self._world = world
        self._turns = turns
        # When the call from outside began that is under way; None: there is none.
        self._began_ns: int | None = None
        # Nothing may be done or passed in any more.
        self.is_over = False

    def run(self, action: Action) -> None:
        """Call it, unless the server has ended."""
        if self.is_over:
            return
        is_outermost = self._began_ns is None
        if is_outermost:
            self._began_ns = self._world.now_ns()
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the outermost loop
            self.fail(error)
        if is_outermost:
            if self._began_ns is not None:
                self._turns.add(self._world.now_ns() - self._began_ns)
            self._began_ns = None

    def began(self, at_ns: int) -> None:
        """The call that is under way ends a turn that began earlier."""
        self._began_ns = at_ns

    def fail(self, error: Exception) -> None:
        """End the server."""
        if not self.is_over:
            self.is_over = True
            self._world.failed(error)

    def soon(self, action: Action) -> None:
        """See ServerWorld.call_soon."""
        self._world.call_soon(lambda: self.run(action))

    def after_others(self, action: Action) -> None:
        """See ServerWorld.call_after_others."""
        self._world.call_after_others(lambda: self.run(action))

    def later(self, seconds: float, action: Action) -> Timer:
        """See ServerWorld.call_later."""
        return self._world.call_later(seconds, lambda: self.run(action))

    def on_disk_thread(self, work: Callable[[], T], done: Callable[[Job[T], float], None]) -> None:
        """See ServerWorld.on_disk_thread; `done` asks the job for its outcome."""
        job = Job(work)
        self._world.on_disk_thread(job.run, lambda seconds: self.run(lambda: done(job, seconds)))

    def aside(self, work: Callable[[], T], done: Callable[[T | StorageError], None]) -> None:
        """See ServerWorld.aside."""
        job = Job(work)
        self._world.aside(job.run, lambda: self.run(lambda: done(job.outcome())))
