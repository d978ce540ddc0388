"""What Keepfast writes is for its owner alone, unless a setting says otherwise."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import CASES_DIR
from tests.cli.runs import call
from tests.keepfast_server import KeepfastServer


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """As loose as a user's may be."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes_below(root: Path) -> tuple[set[int], set[int]]:
    """The permissions of the files, and of the directories."""
    files: set[int] = set()
    directories: set[int] = set()
    for place, _, names in os.walk(root):
        directories.add(stat.S_IMODE(Path(place).stat().st_mode))
        files.update(stat.S_IMODE(Path(place, name).stat().st_mode) for name in names)
    return files, directories


@pytest.mark.parametrize(
    ("settings", "file_mode", "directory_mode"),
    [({}, 0o600, 0o700), ({"keepfast.umask": "027"}, 0o640, 0o750)],
)
def test_server__its_files_are_private_unless_its_umask_widens_that(
    tmp_path: Path, settings: dict[str, str], file_mode: int, directory_mode: int
) -> None:
    configuration = {"snapCount": "10", **settings}
    server = KeepfastServer(tmp_path / "data", configuration=configuration)
    with server, server.connect() as client:
        for number in range(30):
            client.create(f"/n{number}", b"x")
    place = server.data_dir / "version-2"
    assert modes_below(place) == ({file_mode}, {directory_mode})
    assert list(place.glob("snapshot.*"))


@pytest.mark.parametrize(("variable", "mode"), [(None, 0o700), ("022", 0o755)])
def test_tools__what_they_write_is_private_unless_asked_otherwise(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str | None,
    mode: int,
) -> None:
    if variable is not None:
        monkeypatch.setenv("KEEPFAST_UMASK", variable)
    target = tmp_path / "restored"
    result = call(capsys, "restore", CASES_DIR / "healthy-plain-3.9.5", "--to", target)
    assert result.code in (0, 3), result.err
    assert modes_below(target) == ({mode & 0o666}, {mode})


def test_umask_that_is_none__one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KEEPFAST_UMASK", "private")
    result = call(capsys, "verify", tmp_path)
    assert result.code == 2
    result.check_sentence("KEEPFAST_UMASK", "027")
