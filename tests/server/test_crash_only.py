"""Whatever raises, wherever it does, ends the server with its reason (R14)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.client import OperationFailed
from keepfast.driver import Failure
from keepfast.server import ListeningServer
from keepfast.server.tasks import spawn
from keepfast.storage import RealDisk, RealWriteFile
from tests.compiled import is_compiled
from tests.server.live import Live, server_options

TICK_MS = 100


class _FailingFile(RealWriteFile):
    """A file whose fsync fails while its disk says so."""

    __slots__ = ("_disk",)

    def __init__(self, disk: FailingDisk, file: RealWriteFile, path: str) -> None:
        super().__init__(os.dup(file.fileno()), path)
        file.close()
        self._disk = disk

    def datasync(self) -> None:
        self._disk.check(self._path)
        super().datasync()


class FailingDisk(RealDisk):
    """The real disk, until files whose names hold `broken` cannot be made durable any more."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = ""
        self.error: Callable[[str], Exception] = lambda path: OSError(errno.EIO, "EIO", path)
        self.space_error: OSError | None = None

    def check(self, path: str) -> None:
        if self.broken and self.broken in path:
            raise self.error(path)

    def create(self, path: str) -> RealWriteFile:
        return _FailingFile(self, super().create(path), path)

    def free_bytes(self, path: str) -> int:
        if self.space_error is not None:
            raise self.space_error
        return super().free_bytes(path)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


def started(tmp_path: Path, disk: FailingDisk) -> Live:
    options = server_options(tmp_path)
    timing = replace(options.replica, tick_ms=TICK_MS, min_session_timeout_ms=2 * TICK_MS)
    live = Live(replace(options, replica=timing), disk)
    live.wait(live.server.start())
    return live


def failure_of(live: Live, cause: Callable[[ListeningServer], object]) -> Failure:
    """Let something happen; gives why the server ended, which it must."""
    try:
        live.call(cause)
        return live.wait(live.server.wait_failed())
    finally:
        assert not live.server.running.is_serving
        live.wait(live.server.stop())
        live.end_loop()


def test_idle_fsync_fails__the_server_ends(tmp_path: Path, disk: FailingDisk) -> None:
    live = started(tmp_path, disk)
    with live.client() as client:
        disk.broken = "witness"
        # The idle moment may come before the answer.
        with contextlib.suppress(OperationFailed):
            client.create("/a", b"")
    failure = failure_of(live, lambda _server: None)
    assert failure.is_disk
    assert "witness" in str(failure)


def test_space_cannot_be_asked_for__the_server_ends(tmp_path: Path, disk: FailingDisk) -> None:
    live = started(tmp_path, disk)
    disk.space_error = OSError(errno.EIO, "Input/output error")
    failure = failure_of(live, lambda _server: None)
    assert failure.is_disk


def test_bug_on_the_disk_thread__is_not_called_a_disk_failure(
    tmp_path: Path, disk: FailingDisk
) -> None:
    live = started(tmp_path, disk)

    def fail(server: ListeningServer) -> None:
        server.running.driver.disk.order(lambda: 1 // 0, lambda _result: None)

    failure = failure_of(live, fail)
    assert not failure.is_disk
    assert str(failure).startswith("a bug in keepfast: ZeroDivisionError")


def test_bug_in_a_task__ends_the_server(tmp_path: Path, disk: FailingDisk) -> None:
    live = started(tmp_path, disk)

    async def work() -> None:
        raise LookupError("planted")

    failure = failure_of(live, lambda _server: spawn(work()))
    assert "planted" in str(failure)


@pytest.mark.parametrize("place", ["timer", "client", "aside"])
def test_bug_in_an_event__ends_the_server(tmp_path: Path, disk: FailingDisk, place: str) -> None:
    if place != "aside" and is_compiled("keepfast.replica.core"):
        pytest.skip("a bug is planted in a source, and keepfast.replica.core is compiled")
    live = started(tmp_path, disk)

    def fail(*_arguments: object) -> None:
        raise LookupError("planted")

    def plant(server: ListeningServer) -> None:
        if place == "timer":
            server.running.core.tick = fail  # type: ignore[method-assign]
        elif place == "client":
            server.running.core.receive = fail  # type: ignore[method-assign, assignment]
            connection = server.running.driver.connect("127.0.0.1", 1)
            assert connection is not None
            server.running.driver.client_bytes(connection, b"x")
        else:
            server.running.driver.guard.aside(fail, lambda _result: None)

    failure = failure_of(live, plant)
    assert "LookupError: planted" in str(failure)
