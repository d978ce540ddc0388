"""A server on a full disk: it starts, serves reads, refuses writes, and recovers by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keepfast.client import OperationFailed
from keepfast.sim import MemoryDisk
from keepfast.testing.fillable_disk import FullableDisk
from tests.server.live import ADMIN, TIMEOUT, live


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_start_on_a_full_disk__reads_are_served_and_writes_once_there_is_space() -> None:
    disk, place = MemoryDisk(), Path("/data")
    with live(place, disk=disk) as first:
        client = first.client().start()
        client.wait_connected()
        client.create("/a", b"kept")
        port = first.port
    disk.capacity = disk.used_bytes()
    with live(place, disk=disk, port=port, admin=ADMIN) as second:
        # Its session is in the tree; a new one would be a write.
        client.wait_connected(TIMEOUT, is_patient=True)
        assert client.get_data("/a").data == b"kept"
        with pytest.raises(OperationFailed):
            client.create("/b")
        assert "space" in second.http("/readyz?verbose").text
        disk.capacity = None
        wait_until(lambda: second.call(lambda server: server.running.replica.service.is_writable))
        client.create("/b", b"new")
        client.close()
    with live(place, disk=disk) as third, third.client() as other:
        assert (other.get_data("/a").data, other.get_data("/b").data) == (b"kept", b"new")


def test_stop_on_a_full_disk__is_clean_also_while_a_write_waits(tmp_path: Path) -> None:
    disk = FullableDisk()
    with ThreadPoolExecutor() as pool:
        with live(tmp_path, disk=disk) as first:
            client = first.client().start()
            client.create("/a", b"kept")
            disk.is_full = True
            # Accepted before the disk is asked for space, and more than the log has room for.
            waiting = pool.submit(client.set_data, "/a", b"x" * 300_000)
            wait_until(lambda: not first.call(lambda server: server.running.driver.disk.has_space))
        with pytest.raises(OperationFailed):
            waiting.result(TIMEOUT)
        client.close()
    with live(tmp_path, disk=disk):
        pass
    disk.is_full = False
    with live(tmp_path, disk=disk) as third, third.client() as other:
        assert other.get_data("/a").data == b"kept"
