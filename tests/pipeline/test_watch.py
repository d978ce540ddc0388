"""The watch over lives of ensembles, look by look: silent, or as the audit judges."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import Event

import pytest

from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.watch import watching as watching_module
from keepfast.pipeline.watch.alerts import grave
from keepfast.pipeline.watch.checkpoint import CheckpointBusy, CheckpointUnusable
from keepfast.pipeline.watch.watching import Look, Watching, WatchOptions, WatchRefused
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import Life

LOOKS = 12


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes between the two looks of these tests."""
    monkeypatch.setattr(watching_module, "_MAX_DOUBT_S", 0.0)


class Lives:
    """One watch over a root, started anew whenever that is asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._checkpoint = root.parent / f"{root.name}.sqlite"
        self._watching = self._started()

    def _started(self) -> Watching:
        return Watching(WatchOptions((str(self.root),), str(self._checkpoint), 1.0))

    def look(self) -> Look:
        look = self._watching.look(Event())
        assert look is not None
        return look

    def start_again(self) -> None:
        self._watching.close()
        self._watching = self._started()

    def close(self) -> None:
        self._watching.close()


def write(life: Life, root: Path) -> None:
    """The files of a life as they are now, each changed only if its content is another one."""
    fresh = root.parent / f"{root.name}-fresh"
    life.write_files(fresh)
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if path.relative_to(root) not in wanted:
            path.unlink()
    for name in wanted:
        content = (fresh / name).read_bytes()
        target = root / name
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            # In place, as servers write: the file stays the same one.
            with open(target, "r+b" if target.exists() else "wb") as file:
                file.write(content)
                file.truncate()
            os.utime(target, ns=((fresh / name).stat().st_mtime_ns,) * 2)
    shutil.rmtree(fresh)


def audited(root: Path) -> set[str]:
    return set(grave(audit_with(run_here, discover([str(root)]), AuditOptions())))


@pytest.mark.parametrize("seed", range(8))
def test_honest_life__is_watched_without_a_word(seed: int, tmp_path: Path) -> None:
    life = Life(seed)
    root = tmp_path / "e"
    life.write(5)
    write(life, root)
    lives = Lives(root)
    for number in range(LOOKS):
        life.live(3)
        write(life, root)
        look = lives.look()
        assert (look.changes, set(grave(look.result.ensembles))) == ((), audited(root))
        if number % 4 == 3:
            lives.start_again()
    life.end()
    write(life, root)
    look = lives.look()
    assert (look.changes, look.open) == ((), ())
    lives.close()


def test_byte_that_rots__opens_a_finding_and_its_repair_closes_it(tmp_path: Path) -> None:
    """The time of the file is as it was: only reading it again tells."""
    root = tmp_path / "e"
    life = Life(3)
    life.live(10)
    life.start_all()
    write(life, root)
    lives = Lives(root)
    assert lives.look().open == ()
    log = max(root.rglob("log.*"), key=lambda path: path.stat().st_blocks)
    before, times = log.read_bytes(), log.stat()
    rotten = bytearray(before)
    rotten[200] ^= 4
    log.write_bytes(rotten)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    opened = lives.look().changes
    assert ("opened", "record-damaged", str(log)) in [
        (change.event, change.finding.kind, change.finding.file) for change in opened
    ]
    assert lives.look().changes == ()
    lives.start_again()
    assert lives.look().changes == ()
    log.write_bytes(before)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    closed = lives.look()
    assert {change.event for change in closed.changes} == {"closed"}
    assert (len(closed.changes), closed.open) == (len(opened), ())
    lives.close()


@pytest.mark.parametrize("name", case_names())
def test_case__is_judged_as_the_audit_judges_it(name: str, tmp_path: Path) -> None:
    root = CASES_DIR / name
    watching = Watching(WatchOptions((str(root),), str(tmp_path / "c.sqlite"), 1.0))
    look = watching.look(Event())
    assert look is not None
    expected = audit_with(run_here, discover([str(root)]), AuditOptions())
    (found,) = look.result.ensembles
    assert (found.verdict, found.unchecked) == (expected[0].verdict, expected[0].unchecked)
    assert set(grave([found])) == set(grave(expected))
    assert len(look.open) == len(grave(expected))
    watching.close()


def test_checkpoint__is_of_one_process_and_lies_elsewhere(tmp_path: Path) -> None:
    place = str(CASES_DIR / case_names()[0])
    options = WatchOptions((place,), str(tmp_path / "c.sqlite"))
    watching = Watching(options)
    with pytest.raises(CheckpointBusy, match="in use by another keepfast watch"):
        Watching(options)
    watching.close()
    (tmp_path / "other").write_text("something else" * 100)
    with pytest.raises(CheckpointUnusable, match="is no checkpoint of a watch"):
        Watching(WatchOptions((place,), str(tmp_path / "other")))
    with pytest.raises(WatchRefused, match="which is watched"):
        Watching(WatchOptions((place,), f"{place}/c.sqlite"))


def test_emptied_directory__is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "e"
    life = Life(5)
    life.live(5)
    write(life, root)
    places = tuple(str(one) for one in sorted(root.iterdir()))
    watching = Watching(WatchOptions(places, str(tmp_path / "c.sqlite"), 1.0))
    first = watching.look(Event())
    os.rename(places[0], tmp_path / "away")
    os.mkdir(places[0])
    unseen = watching.look(Event())
    assert first is not None
    assert unseen is not None
    assert places[0] in (unseen.unseen or "")
    assert (unseen.result, unseen.changes) == (first.result, ())
    os.rmdir(places[0])
    os.rename(tmp_path / "away", places[0])
    last = watching.look(Event())
    assert last is not None
    assert (last.unseen, last.changes) == (None, ())
    watching.close()
