"""A live ensemble is followed while its servers are killed and their logs roll.

The feed is a process of its own and is killed too, in the middle of its work. What it wrote is
judged by the files that the servers leave: every transaction that a majority holds, once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from keepfast.pipeline.replay.history import EnsembleHistory
from keepfast.pipeline.replay.state import one_ensemble, read_only_disk
from tests.apache import ApacheEnsemble, connect, wait_until
from tests.cli.runs import JsonLinesProcess
from tests.conformance.waiting import wait_zxid

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]

# Seconds; the machine may be busy with other things, and a JVM starts in each of them.
PATIENCE = 300


class Feed:
    """`keepfast history --follow` as a process, and the last zxid that it told of."""

    def __init__(self, places: list[str], out: Path) -> None:
        self.last = 0
        self.batches = 0
        self._command = JsonLinesProcess(
            *("history", *places, "--out", str(out), "--follow", "--json"),
            errors=out.with_suffix(".stderr"),
            take=self._take,
        )

    @property
    def is_running(self) -> bool:
        return self._command.process.poll() is None

    def _take(self, document: dict[str, Any]) -> None:
        self.batches += 1
        self.last = max(self.last, int(document["last_zxid"], 16))

    def wait_for(self, zxid: int) -> None:
        def is_there() -> bool:
            if not self.is_running:
                pytest.fail(f"the feed ended: {self._command.errors()}")
            return self.last >= zxid

        wait_until(is_there, f"{zxid:#x} in the feed", timeout=PATIENCE)

    def kill(self) -> None:
        """As a loss of power would."""
        self._command.end(signal.SIGKILL, PATIENCE)

    def stop(self) -> tuple[int, str]:
        """As a person would; gives the exit code and what it complained of."""
        ended = self._command.end(signal.SIGINT, PATIENCE)
        return ended.code, ended.err


@contextmanager
def following(places: list[str], out: Path) -> Iterator[Feed]:
    feed = Feed(places, out)
    try:
        yield feed
    finally:
        if feed.is_running:
            feed.kill()


def write(hosts: str, name: str, count: int) -> None:
    with connect(hosts) as client:
        client.create(f"/{name}", b"")
        for number in range(count):
            client.create(f"/{name}/n", b"x" * 50, sequence=True, ephemeral=number % 7 == 0)
            client.set(f"/{name}", str(number).encode())


def written(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / "changes").to_pylist()
    return sorted(rows, key=lambda row: (row["zxid"], row["operation"]))


def test_servers_and_feed_are_killed__every_transaction_once(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    properties = {"zookeeper.snapCount": "60"}  # so that logs roll all the time
    out = tmp_path / "feed"
    with ApacheEnsemble(tmp_path / "e", properties=properties) as ensemble:
        places = [str(server.data_dir) for server in ensemble.servers.values()]
        write(ensemble.hosts, "first", 60)
        with following(places, out) as feed:
            feed.wait_for(ensemble.settle())
            ensemble.servers[ensemble.wait_for_leader()].kill()
            ensemble.wait_for_leader()
            write(ensemble.hosts, "without-the-leader", 60)
            feed.wait_for(max(wait_zxid(s) for s in ensemble.servers.values() if s.is_running))
            feed.kill()
        ensemble.start(timeout=PATIENCE)
        write(ensemble.hosts, "nobody-follows", 80)
        with following(places, out) as feed:
            leader = ensemble.wait_for_leader()
            follower = next(id for id in ensemble.servers if id != leader)
            ensemble.servers[follower].kill()
            write(ensemble.hosts, "without-a-follower", 60)
            ensemble.start(timeout=PATIENCE)
            feed.wait_for(ensemble.settle())
            assert feed.stop() == (0, "")
    expected = []
    history = EnsembleHistory(read_only_disk(), one_ensemble(places))
    for rows in history.read():
        expected += [(row.zxid, row.operation, row.path, row.new_data) for row in rows]
    found = [(r["zxid"], r["operation"], r["path"], r["new_data"]) for r in written(out)]
    # Servers close their sessions when they stop; that came behind the feed.
    assert found == expected[: len(found)]
    assert len(found) > 500
    logs = [len(list(server.version_dir.glob("log.*"))) for server in ensemble.servers.values()]
    tell(f"{len({row[0] for row in found})} transactions, each once; logs a server: {logs}")
