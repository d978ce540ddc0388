"""The watch over lives of ensembles, look by look: silent, or as the audit judges."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from threading import Event

import pytest

from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.watch import rounds
from keepfast.pipeline.watch import watching as watching_module
from keepfast.pipeline.watch.alerts import grave
from keepfast.pipeline.watch.checkpoint import Checkpoint, CheckpointBusy, CheckpointUnusable
from keepfast.pipeline.watch.watching import Look, Watching, WatchOptions, WatchRefused
from keepfast.tree import CONFIG
from keepfast.wire import (
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnDigest,
    TxnHeader,
    encode_entry,
    make_zxid,
)
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import Life
from tests.pipeline.planted import Planter
from tests.pipeline.planting import PLANTERS
from tests.pipeline.planting_snapshots import (
    altered_seal,
    altered_timeout,
    ended_session,
    lost_session,
)

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


# What snapshots state besides their znodes is compared by audits alone (docs/watch.md).
AUDITED_ONLY = (altered_seal, lost_session, ended_session, altered_timeout)
EACH_PLANTER = list(
    dict.fromkeys(one for some in PLANTERS.values() for one in some if one not in AUDITED_ONLY)
)


@pytest.mark.parametrize("planter", EACH_PLANTER, ids=[one.__name__ for one in EACH_PLANTER])
def test_damage_while_it_is_watched__is_judged_as_the_audit_judges_it(
    planter: Planter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_MAX_SHARE", float("inf"))
    for seed in range(2000):
        life = Life(seed)
        life.live()
        root = tmp_path / str(seed)
        write(life, root)
        planted = planter(life)
        if planted is None:
            shutil.rmtree(root)
            continue
        lives = Lives(root)
        lives.look()
        write(life, root)
        lives.look()
        look = lives.look()
        assert set(grave(look.result.ensembles)) == audited(root), (seed, planted)
        assert {finding.check for _, finding in look.open} & planted.checks
        lives.close()
        return
    raise AssertionError("no life allows it")


def test_record_that_changes_the_members__counts_in_the_next_look(tmp_path: Path) -> None:
    root = tmp_path / "e"
    life = Life(4, "3.9")
    life.write(20)
    write(life, root)
    lives = Lives(root)
    assert lives.look().result.ensembles[0].unchecked == ()
    life.counter += 1
    zxid = make_zxid(life.epoch, life.counter)
    text = "".join(
        f"server.{number}=10.0.0.{number}:2888:3888:participant\n" for number in range(1, 10)
    )
    body = SetDataTxn(CONFIG, f"{text}version={zxid:x}".encode(), -1)
    header = TxnHeader(SessionId(7), 1, zxid, 1_700_000_000_000, OpCode.RECONFIG)
    life.tree.apply(header, body)
    entry = encode_entry(LogEntry(header, body, TxnDigest(2, life.tree.digest)))
    for member in life.members:
        member.append(zxid, entry, life.now)
    write(life, root)
    (expected,) = audit_with(run_here, discover([str(root)]), AuditOptions())
    assert "9" in " ".join(expected.unchecked)
    (found,) = lives.look().result.ensembles
    assert found.unchecked == expected.unchecked
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
    # As the home of a user who has none.
    with pytest.raises(CheckpointUnusable, match="Not a directory; name another file with"):
        Watching(WatchOptions((place,), str(tmp_path / "other" / "deeper" / "c.sqlite")))
    with pytest.raises(WatchRefused, match="which is watched"):
        Watching(WatchOptions((place,), f"{place}/c.sqlite"))


def test_full_disk__is_said_and_no_checkpoint_is_called_wrong(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "c.sqlite"))
    checkpoint.put_text("kind", "before", b"kept")
    checkpoint._database.execute("PRAGMA max_page_count = 1")
    reason = "cannot be written: database or disk is full"
    with pytest.raises(CheckpointUnusable, match=reason), checkpoint.changing():
        checkpoint.put_text("kind", "before", bytes(1 << 20))
    assert checkpoint.texts("kind") == {"before": b"kept"}
    checkpoint.close()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(CheckpointUnusable, match=r"new.sqlite cannot be written"):
            Checkpoint(str(tmp_path / "new.sqlite"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


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
