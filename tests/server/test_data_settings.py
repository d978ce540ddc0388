"""Settings of the data directory, on servers that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.apache import ConfigError, load_config
from keepfast.client import Client
from keepfast.server.serve import check_directories
from tests.apache.words import wait_until
from tests.server.live import live


def config_text(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "zoo.cfg"
    path.write_text("\n".join([f"dataDir={tmp_path}/data", "clientPort=0", *lines]) + "\n")
    return path


def test_datadir_autocreate_off__a_disk_that_is_not_mounted_is_no_empty_directory(
    tmp_path: Path,
) -> None:
    config = load_config(config_text(tmp_path, "datadir.autocreate=false"))

    with pytest.raises(ConfigError, match=r"no directory .*/version-2, and datadir.autocreate"):
        check_directories(config)
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    check_directories(config)


def test_datadir_autocreate_on__missing_directories_are_made(tmp_path: Path) -> None:
    check_directories(load_config(config_text(tmp_path)))


def test_snap_size_limit__a_snapshot_after_so_many_bytes_of_log(tmp_path: Path) -> None:
    with (
        live(tmp_path, snapshot_every_bytes=4096) as served,
        Client(f"127.0.0.1:{served.port}") as client,
    ):
        client.create("/a", b"")
        before = set((tmp_path / "version-2").glob("snapshot.*"))
        client.set_data("/a", bytes(8192))

        wait_until(lambda: set((tmp_path / "version-2").glob("snapshot.*")) > before, "a snapshot")


def test_share_of_the_znodes__the_first_snapshot_comes_after_so_many_txns(tmp_path: Path) -> None:
    with (
        live(tmp_path, snapshot_every=2, snapshot_every_percent=2000) as served,
        Client(f"127.0.0.1:{served.port}") as client,
    ):
        client.create("/a", b"")
        place = tmp_path / "version-2"
        before = set(place.glob("snapshot.*"))
        znodes = served.server.running.replica.tree.node_count

        def is_taken() -> bool:
            client.set_data("/a", b"")
            return set(place.glob("snapshot.*")) > before

        wait_until(is_taken, "a snapshot")
        (taken,) = set(place.glob("snapshot.*")) - before
        assert int(taken.suffix[1:], 16) >= znodes * 10  # half of 20 for each, at least
