"""What hard limits count, asked of Apache 3.9.5 and of us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import QuotaExceededError

from tests.apache.server import ApacheServer
from tests.keepfast_server import KeepfastServer

pytestmark = pytest.mark.conformance

QUOTA = "/zookeeper/quota/p"
LIMITS = f"{QUOTA}/zookeeper_limits"
STATS = f"{QUOTA}/zookeeper_stats"
AT_MOST_FOUR = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4"


def used(client: Any) -> bytes:
    data: bytes = client.get(STATS)[0]
    return data


def made(client: Any, prefix: str) -> list[str]:
    """The znodes below /p that are taken before one is refused."""
    names: list[str] = []
    try:
        while len(names) < 20:
            names.append(client.create(f"/p/{prefix}{len(names)}"))
    except QuotaExceededError:
        return names
    raise AssertionError("nothing was refused")


def story(server: ApacheServer) -> list[object]:
    """Limits that are deleted and made again, with the statistics and without."""
    told: list[object] = []
    with server.connect() as client:
        for path, data in (("/p", b""), (QUOTA, b""), (LIMITS, AT_MOST_FOUR), (STATS, b"")):
            client.create(path, data)
        told += [made(client, "a"), used(client)]
        client.delete("/p/a0")
        client.delete(LIMITS)
        for number in range(10):
            client.create(f"/p/free{number}")
        told.append(used(client))
        client.create(LIMITS, AT_MOST_FOUR)
        told += [used(client), made(client, "b"), used(client)]
        client.delete(STATS)
        client.create(STATS, b"")
        told += [made(client, "c"), used(client)]
    # A start loads a snapshot, which has all of them counted, and the log behind it.
    server.stop()
    server.start()
    with server.connect() as client:
        told += [made(client, "d"), used(client)]
    return told


def test_limits_made_again_while_the_statistics_stay__are_not_counted_anew(tmp_path: Path) -> None:
    properties = {"zookeeper.enforceQuota": "true"}
    with ApacheServer(tmp_path / "apache", properties=properties) as apache:
        expected = story(apache)
    # 10 were made while nobody counted, and still one more is taken.
    assert expected[2:5] == [b"count=3,bytes=0", b"count=3,bytes=0", ["/p/b0"]]
    with KeepfastServer(tmp_path / "keepfast", properties=properties) as ours:
        assert story(ours) == expected
