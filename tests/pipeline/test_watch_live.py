"""`keepfast watch` beside live ensembles: silent through kills, rolls and purges; a byte is found.

The watch is a process of its own, and is killed as power is cut.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.apache import wait_until
from tests.cli.runs import JsonLinesProcess
from tests.mixed.load import Load
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("KEEPFAST_WATCH") != "live",
        reason="minutes of live ensembles: make watch-live runs it",
    ),
]

PATIENCE = 200
IDS = (1, 2, 3)


class WatchProcess:
    """`keepfast watch` and what it said so far."""

    def __init__(self, places: list[str], checkpoint: Path, *more: str) -> None:
        self.said: list[dict[str, Any]] = []
        self._checkpoint = checkpoint
        self._command = JsonLinesProcess(
            *("watch", *places, "--checkpoint", str(checkpoint)),
            *("--every", "1s", "--json", "--metrics", "127.0.0.1:0", *more),
            errors=checkpoint.with_suffix(".stderr"),
            take=self.said.append,
        )

    @property
    def is_running(self) -> bool:
        return self._command.process.poll() is None

    def wait_for(self, event: str) -> list[dict[str, Any]]:
        """What opened or closed, as soon as something did."""

        def is_there() -> bool:
            assert self.is_running, self._command.errors()
            return any(one["event"] == event for one in self.said)

        wait_until(is_there, f"something {event}", timeout=PATIENCE)
        return [one for one in self.said if one["event"] == event]

    def wait_for_looks(self, number: int = 3) -> None:
        """Wait until it has looked so often."""
        for _ in range(number):
            before = times_of(self._checkpoint)

            def is_written(before: list[int] = before) -> bool:
                assert self.is_running, self._command.errors()
                return times_of(self._checkpoint) != before

            wait_until(is_written, "a look", timeout=PATIENCE)

    def end(self, *, is_killed: bool) -> int:
        return self._command.end(signal.SIGKILL if is_killed else signal.SIGTERM, PATIENCE).code


@contextmanager
def watched(places: list[str], checkpoint: Path, *more: str) -> Iterator[WatchProcess]:
    process = WatchProcess(places, checkpoint, *more)
    try:
        yield process
    finally:
        if process.is_running:
            process.end(is_killed=True)


def times_of(checkpoint: Path) -> list[int]:
    """When the checkpoint was written to: with each look."""
    names = (checkpoint, checkpoint.with_name(f"{checkpoint.name}-wal"))
    return [name.stat().st_mtime_ns for name in names if name.exists()]


def newest_log(folder: Path) -> Path:
    """The newest log with some records in it."""
    held = [one for one in folder.glob("log.*") if len(one.read_bytes().rstrip(b"\0")) > 600]
    return max(held, key=lambda path: int(path.name[4:], 16))


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("kind", [APACHE, KEEPFAST])
def test_live_ensemble__is_watched_in_silence_until_a_byte_changes(
    kind: str, tmp_path: Path
) -> None:
    # Logs roll and are purged all the time.
    properties = {"zookeeper.snapCount": "60"}
    configuration = {"autopurge.snapRetainCount": "3", "autopurge.purgeInterval": "1"}
    checkpoint = tmp_path / "watch.sqlite"
    ensemble = MixedEnsemble(
        tmp_path / "e",
        dict.fromkeys(IDS, kind),
        properties=properties,
        configuration=configuration,
    )
    with ensemble, webhook() as (url, told):
        ensemble.start()
        places = [str(server.data_dir) for server in ensemble.servers.values()]
        with Load(ensemble.hosts) as load:
            load.wait_for_writes(50)
            for number, is_killed in enumerate((True, True, True, False)):
                with watched(places, checkpoint, "--webhook", url) as watch:
                    watch.wait_for_looks()
                    victim = ensemble.wait_leader() if number % 2 else IDS[number % 3]
                    ensemble.servers[victim].kill()
                    ensemble.wait_serving()
                    load.wait_for_writes(60)
                    watch.wait_for_looks()
                    ensemble.start()
                    load.wait_for_writes(60)
                    watch.wait_for_looks()
                    code = watch.end(is_killed=is_killed)
                    assert watch.said == []
                    assert is_killed or code == 0
        ensemble.settle()
        with watched(places, checkpoint, "--webhook", url) as watch:
            watch.wait_for_looks()
            assert watch.said == []
            log = newest_log(ensemble.servers[2].version_dir)
            content = log.read_bytes()
            with open(log, "r+b") as file:
                file.seek(150)
                file.write(bytes([content[150] ^ 1]))
            opened = watch.wait_for("opened")
            assert {(one["finding"]["server"], one["finding"]["file"]) for one in opened} >= {
                ("2", str(log))
            }
            with open(log, "r+b") as file:
                file.seek(150)
                file.write(content[150:151])
            closed = watch.wait_for("closed")
            wait_until(lambda: len(told) >= 2, "the webhook", timeout=PATIENCE)
            assert told[0] == opened[0]
            assert closed[0]["finding"]["kind"] == opened[0]["finding"]["kind"]
            assert watch.end(is_killed=False) == 0
