"""Looking at a directory that a server writes to: never a false alarm, and never a repair."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from keepfast.storage import RealDisk, data_directory, use_of
from tests.apache import ApacheServer
from tests.cli.runs import call, fingerprint
from tests.keepfast_server import KeepfastServer

# How often a directory is judged while it is written; more with KEEPFAST_LIVE_LOOKS.
LOOKS = int(os.environ.get("KEEPFAST_LIVE_LOOKS", "8"))
_PAUSE_SECONDS = 0.01
_CONFIGURATION = {"snapCount": "200", "autopurge.snapRetainCount": "3"}
KINDS = {"apache": ApacheServer, "keepfast": KeepfastServer}


@contextmanager
def written(server: ApacheServer) -> Iterator[KazooClient]:
    """A server that a client writes to about a hundred times a second."""
    client = KazooClient(server.hosts, timeout=60)
    client.start(60)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            number = 0
            while not is_over.wait(_PAUSE_SECONDS):
                client.create(f"/n{number}", os.urandom(700))
                number += 1
        except BaseException as error:  # noqa: BLE001 - it is raised where the test sees it
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield client
    finally:
        is_over.set()
        thread.join()
        client.stop()
        client.close()
    assert not failures


@pytest.mark.parametrize("kind", KINDS)
def test_directory_that_is_written__is_judged_up_to_a_point_without_a_false_alarm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    server = KINDS[kind](tmp_path / "data", configuration=_CONFIGURATION)
    with server, written(server):
        heads = []
        for look in range(LOOKS):
            result = call(capsys, "verify", server.data_dir, "--json")
            document = result.document
            found = {(p["severity"], p["code"], p["reason"]) for p in document["problems"]}
            assert "damage" not in {severity for severity, _, _ in found}, (look, found)
            assert (result.code, document["standing"]) == (3, "whole"), (look, found)
            assert document["in_use"], look
            heads.append(int(document["head"]["zxid"], 16))
        assert heads == sorted(heads)
        assert heads[-1] > heads[0]
        text = call(capsys, "verify", server.data_dir)
        assert (text.code, "In use: " in text.out, "repair" in text.out) == (3, True, False)
    assert call(capsys, "verify", server.data_dir).code == 0


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_repair_of_a_directory_in_use__is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, is_written: bool
) -> None:
    """Also where the server stands still, and where something is wrong with it."""
    server = KINDS[kind](tmp_path / "data")
    with server:
        if is_written:
            with written(server):
                result = call(capsys, "repair", server.data_dir, "--apply")
        else:
            (server.data_dir / "version-2" / "snapshot.ffff").write_bytes(b"not one")
            before = fingerprint(server.data_dir)
            result = call(capsys, "repair", server.data_dir, "--apply")
            assert fingerprint(server.data_dir) == before
        assert result.code == 4
        result.check_sentence("refused", "running", "stop it first")
        rescue = call(capsys, "ensemble", "rescue", server.data_dir, "--yes")
        assert rescue.code == 4


def test_reader_of_a_directory__is_no_user_of_it(tmp_path: Path) -> None:
    place = tmp_path / "version-2"
    place.mkdir()
    (place / "log.1").write_bytes(b"ZKLG")
    disk = RealDisk()
    directory = data_directory(disk, str(tmp_path))
    with (place / "log.1").open("rb"):
        assert not use_of(disk, directory, is_patient=True)
