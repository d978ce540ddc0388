"""Looking never changes anything: names, sizes, times and bytes are as they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cases import CASES_DIR
from tests.cli.runs import call, fingerprint
from tests.storage.directories import Place
from tests.storage.fixture_table import FIXTURES
from tests.storage.workload import Server


def looks(place: Path) -> list[tuple[str | Path, ...]]:
    files = [path for path in (place / "version-2").iterdir() if path.is_file()]
    return [
        ("inspect", place),
        ("inspect", place, "--json"),
        ("inspect", place, "-v"),
        ("inspect", place, "--at", "1.2"),
        ("inspect", "blame", "/a", place, "--children"),
        ("verify", place),
        ("verify", place, "--json"),
        ("repair", place),
        ("repair", place, "--json"),
        *(("inspect", file) for file in files),
    ]


def check(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = fingerprint(place)
    for command in looks(place):
        result = call(capsys, *command)
        assert result.code in (0, 1, 2, 3, 4), result
        assert fingerprint(place) == before, command


@pytest.mark.parametrize(
    "name",
    [
        "healthy-plain-3.9.5/2",
        "healthy-plain-3.4.14/2",
        "healthy-plain-3.9.5-gz/2",
        "disk-full-3.4.14/0",
        "unsynced-snapshot-3.4.14-trunc/2",
        "snap-stale-log-served-3.9.5/4",
    ],
)
def test_directory_of_apache(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    check(capsys, Path(shutil.copytree(CASES_DIR / name, tmp_path / "data")))


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    FIXTURES[name].write(Place(tmp_path / "data"))
    check(capsys, tmp_path / "data")


def test_directory_of_a_running_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    server = Server(place.disk, place.directory)
    server.start()
    server.write(20, 20)
    server.snapshot()
    server.write(20)
    check(capsys, tmp_path / "data")
    server.close()
