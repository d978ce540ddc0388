"""A server on a full disk: it starts, serves reads, refuses writes, and recovers by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.client import OperationFailed
from keepfast.sim import MemoryDisk
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
