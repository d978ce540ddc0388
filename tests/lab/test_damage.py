"""What is done to files is what it says: a scenario must not end for another reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepfast.lab import LabError, file_damage
from keepfast.storage import RealDisk, load_tree
from keepfast.wire import CorruptSnapshot

CASES = Path(__file__).parent.parent / "data" / "cases"
# The formats of 3.4, 3.6 and 3.9 end with one, two and three seals.
EACH_FORMAT = ["healthy-plain-3.4.14", "healthy-elections-3.6.2", "healthy-elections-3.9.5"]


@pytest.fixture
def version_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    server = min(path for path in (CASES / request.param).iterdir() if path.is_dir())
    return Path(shutil.copytree(server / "version-2", tmp_path / "version-2"))


@pytest.mark.parametrize("version_dir", EACH_FORMAT, indirect=True)
def test_change_in_snapshot__leaves_every_seal_right(version_dir: Path) -> None:
    newest = file_damage.snapshots(version_dir)[-1]
    size = newest.stat().st_size
    assert file_damage.change_in_snapshot(version_dir, "world", "earth") == newest.name
    content = newest.read_bytes()
    assert b"earth" in content
    assert b"world" not in content
    assert len(content) == size
    load_tree(RealDisk(), str(newest), is_fuzzy=True)
    newest.write_bytes(content.replace(b"earth", b"world"))
    with pytest.raises(CorruptSnapshot):
        load_tree(RealDisk(), str(newest), is_fuzzy=True)


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_change_in_snapshot__text_of_another_length__is_refused(version_dir: Path) -> None:
    before = file_damage.snapshots(version_dir)[-1].read_bytes()
    with pytest.raises(LabError):
        file_damage.change_in_snapshot(version_dir, "world", "worlds")
    assert file_damage.snapshots(version_dir)[-1].read_bytes() == before


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_lose_log__takes_the_snapshots_that_make_up_for_it(version_dir: Path) -> None:
    logs = sorted(version_dir.glob("log.*"), key=file_damage.zxid_of)
    log = logs[1]
    with log.open("ab") as file:
        file.write(b"only-here")
    older = [
        one
        for one in file_damage.snapshots(version_dir)
        if file_damage.zxid_of(one) < file_damage.zxid_of(log)
    ]
    names = file_damage.lose_log(version_dir, "only-here")
    assert names[0] == log.name
    assert file_damage.snapshots(version_dir) == older
    assert sorted(version_dir.glob("log.*"), key=file_damage.zxid_of) == [logs[0], *logs[2:]]


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_lose_log__text_in_no_log__is_refused(version_dir: Path) -> None:
    before = sorted(version_dir.iterdir())
    with pytest.raises(LabError):
        file_damage.lose_log(version_dir, "nobody-wrote-this")
    assert sorted(version_dir.iterdir()) == before


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_change_in_snapshot__newest_is_a_part__takes_the_one_before(version_dir: Path) -> None:
    whole = file_damage.snapshots(version_dir)[-1]
    (version_dir / "snapshot.ffffffffff").write_bytes(whole.read_bytes()[:-20])
    assert file_damage.change_in_snapshot(version_dir, "world", "earth") == whole.name


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_undo_trunc__logs_are_as_before_and_the_new_snapshot_is_gone(version_dir: Path) -> None:
    before = file_damage.files(version_dir)
    first, *later = sorted(version_dir.glob("log.*"), key=file_damage.zxid_of)
    first.write_bytes(first.read_bytes()[:100])
    for log in later:
        log.unlink()
    made = version_dir / "snapshot.ffffffffff"
    made.write_bytes(b"made by the TRUNC")
    names = file_damage.undo_trunc(version_dir, before)
    assert file_damage.files(version_dir) == before
    assert set(names) == {first.name, made.name, *(log.name for log in later)}


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_put_back_snapshot__of_those_that_are_gone_the_newest_with_the_text(
    version_dir: Path,
) -> None:
    for number, text in enumerate([b"first", b"first", b"later"]):
        (version_dir / f"snapshot.f0000000{number}").write_bytes(text)
    before = file_damage.files(version_dir)
    for path in file_damage.snapshots(version_dir):
        path.unlink()
    file_damage.put_back_snapshot(version_dir, before, "first")
    assert [path.name for path in file_damage.snapshots(version_dir)] == ["snapshot.f00000001"]
    with pytest.raises(LabError):
        file_damage.put_back_snapshot(version_dir, before, "nobody-wrote-this")


@pytest.mark.parametrize("version_dir", EACH_FORMAT[-1:], indirect=True)
def test_lose_snapshots_without__only_those_with_the_text_stay(version_dir: Path) -> None:
    kept = version_dir / "snapshot.f00000000"
    kept.write_bytes(b"only-here")
    others = [path.name for path in file_damage.snapshots(version_dir) if path != kept]
    assert file_damage.lose_snapshots_without(version_dir, "only-here") == others
    assert file_damage.snapshots(version_dir) == [kept]
