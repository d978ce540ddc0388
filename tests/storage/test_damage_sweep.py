"""No single damage to a directory makes recovery give a wrong state in silence.

The counts are printed. Where no manifest describes a directory, as in one that Apache wrote, some
damages leave what an ordinary history might have been; they are stated here, and no others occur.
The last part turns the rules off one at a time: then the sweep and the fixtures have to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit
from keepfast.storage import (
    Compression,
    DataDirectory,
    Disk,
    LogReader,
    Manifest,
    Problem,
    Recovery,
    RetentionPlan,
    Retired,
    SegmentEntry,
    SnapshotWriter,
    Standing,
    Store,
    recover,
)
from keepfast.storage.history import History
from keepfast.storage.replay import Replay
from keepfast.storage.truncation import cut_segments
from keepfast.wire import (
    CreateSessionTxn,
    LogEntry,
    OpCode,
    StorageError,
    TxnDigest,
    TxnHeader,
    Zxid,
    encode_entry,
)
from tests.cases import load_case
from tests.storage.damage import Damage, Facts, Outcome, Sweep, Verdict, facts_of
from tests.storage.directories import SESSION, Place, line, log_bytes, zxid
from tests.storage.fixture_table import FIXTURES
from tests.storage.test_fixtures import check_fx1, check_fx2, place_of
from tests.storage.workload import ONE_PLACE, OPTIONS, Server, other_tree

Tell = Callable[[str], None]

NEWEST_LOG = "log.200000001"
# Enough to have sectors without a record after the last one.
PADDING = 600


def filled(server: Server, disk: MemoryDisk) -> MemoryDisk:
    """Several segments, snapshots plain and packed, two epochs; returns the disk at halfway."""
    server.start()
    server.set_epochs(1, 1)
    server.write(30, 30, 0)
    server.write(40, 100)
    server.snapshot()
    server.store.roll()
    server.write(50, 0, 20)
    midway = disk.clone()
    server.store.options = replace(server.store.options, compression=Compression.GZIP)
    server.snapshot()
    server.write(200, 0, 30)
    server.store.roll()
    server.write(30)
    server.change_epoch()
    # A later one was promised: between the two a wrong digit would be a legal current epoch.
    server.set_epochs(7, 2)
    server.write(20, 20)
    server.write(30, 200)
    server.write(10, 0, 0)
    return midway


def closed_sweep() -> Sweep:
    disk = MemoryDisk()
    server = Server(disk)
    midway = filled(server, disk)
    server.close()
    return Sweep(disk, ONE_PLACE, midway)


def open_sweep() -> Sweep:
    """As a killed server leaves it: an open segment, and the watermark as the kernel has it."""
    disk = MemoryDisk()
    midway = filled(Server(disk), disk)
    return Sweep(disk.clone(), ONE_PLACE, midway)


def apache_disk(server_id: str) -> MemoryDisk:
    disk = MemoryDisk()
    for path in sorted(load_case("healthy-latent-3.9.5").server_dir(server_id).rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name.startswith("log."):
                data = data.rstrip(b"\0") + bytes(PADDING)
            # All of one time: what a time tells is not what is tried here.
            disk.put(ONE_PLACE.in_snapshots(path.name), data)
    return disk


def adopted_sweep() -> Sweep:
    """Apache's files after a manifest: a server was started on them and stopped again."""
    disk = apache_disk("0")
    store, _ = Store.open(disk, ONE_PLACE, OPTIONS)
    store.close()
    return Sweep(disk, ONE_PLACE)


def wrong_ones(sweep: Sweep, damages: Iterator[Damage] | None = None) -> list[Verdict]:
    wrong = (Outcome.SILENT, Outcome.WRONG_AND_SAID)
    return [verdict for verdict in sweep.run(damages) if verdict.outcome in wrong]


def silent_ones(sweep: Sweep, names: tuple[str, ...]) -> list[Verdict]:
    damages = (d for d in sweep.damages(step=3) if set(names) & set(d.names))
    return [v for v in sweep.run(damages) if v.outcome is Outcome.SILENT]


def report(tell: Tell, sweep: Sweep, silent: str = "silent wrong") -> None:
    total = sum(sweep.counts.values())
    count = sum(n for (_, outcome), n in sweep.counts.items() if outcome is Outcome.SILENT)
    tell(f"{total} damages, {count} {silent}")
    for text in sweep.table():
        tell(f"  {text}")


# -- with a manifest -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("make", [closed_sweep, open_sweep, adopted_sweep])
def test_any_damage_under_a_manifest__right_state_or_refusal(
    make: Callable[[], Sweep], tell: Tell
) -> None:
    sweep = make()
    wrong = wrong_ones(sweep)
    report(tell, sweep)
    # Stricter than "no silent one": with a wrong state a server is not whole, whatever is said.
    assert [f"{verdict.damage}: {verdict.found.problems}" for verdict in wrong] == []


@pytest.mark.parametrize("make", [closed_sweep, open_sweep])
def test_any_damage_to_a_listed_file__full_check_reports_it(make: Callable[[], Sweep]) -> None:
    sweep = make()
    vouched = vouched_bytes(sweep)
    damages = (d for d in sweep.damages(step=29) if set(d.names) <= set(vouched))
    unreported = [
        verdict.damage
        for verdict in sweep.run(damages, full=True)
        if not verdict.found.problems and vouched_bytes(sweep) != vouched
    ]
    assert unreported == []


def vouched_bytes(sweep: Sweep) -> dict[str, bytes]:
    """The bytes of each listed file that the manifest vouches for.

    Not among them: the version in a log's header, and what lies after a segment's last record.
    """
    manifest = sweep.manifest
    files = sweep.disk.files()
    found = {s.name: files.get(ONE_PLACE.path_of(s.name), b"") for s in manifest.snapshots}
    for segment in manifest.segments:
        data = files.get(ONE_PLACE.path_of(segment.name), b"")
        assert segment.seal is not None
        found[segment.name] = data[:4] + data[segment.start : segment.seal.end]
    return found


# -- without one ---------------------------------------------------------------------------------


def prefixes_of(disk: MemoryDisk, newest_log: str) -> dict[int, Facts]:
    """The state after each record of the newest log, and before the first, by its end."""
    path = ONE_PLACE.in_logs(newest_log)
    data = disk.contents(path)
    with disk.open_read(path) as file:
        ends = [16, *(frame.end for frame in LogReader(file))]
    states = {}
    for end in ends:
        disk.put(path, data[:end] + bytes(PADDING))
        facts = facts_of(recover(disk, ONE_PLACE))
        assert facts is not None
        states[end] = facts
    disk.put(path, data)
    return states


@pytest.mark.slow
@pytest.mark.parametrize(("server_id", "step"), [("0", 1), ("1", 5), ("2", 5)])
def test_any_damage_without_a_manifest__only_the_end_of_the_newest_log_can_be_lost(
    server_id: str, step: int, tell: Tell
) -> None:
    sweep = Sweep(apache_disk(server_id), ONE_PLACE)
    newest = max(name for name in sweep.names() if name.startswith("log."))
    ends = prefixes_of(sweep.disk, newest)
    wrong = wrong_ones(sweep, sweep.damages(step))
    report(tell, sweep, "cannot be told from a log that ended earlier, and no other silent wrong")
    kinds = {(verdict.damage.kind, verdict.damage.names) for verdict in wrong}
    assert kinds == {
        # Any length: Apache's own crash leaves a log that ends anywhere.
        ("file cut", (newest,)),
        # The sector that holds all its records, or the last of them: a write that was lost.
        ("sector zeroed", (newest,)),
        # A log that was never begun.
        ("file removed", (newest,)),
    }
    for verdict in wrong:
        # What is left is a state that this server had: the records before the damage.
        at = 0 if verdict.damage.kind == "file removed" else verdict.damage.at
        end = max((end for end in ends if end <= at), default=16)
        assert facts_of(verdict.found) == ends[end], verdict.damage


def test_session_lost_at_the_end_of_an_epoch_without_a_manifest__cannot_be_seen() -> None:
    """What a digest does not prove: sessions, errors and what is below /zookeeper are not in it."""
    found = []
    history = line("1.1,1.2,2.1")
    header = TxnHeader(SESSION, 0, zxid("1.3"), 1_700_000_000_000, OpCode.CREATE_SESSION)
    digest = TxnDigest(2, history.tree_at(zxid("1.2")).digest)
    opened = encode_entry(LogEntry(header, CreateSessionTxn(30_000), digest))
    for last in ([opened], []):
        place = Place()
        place.snapshot("1.0", history.tree_at(zxid("1.0")))
        entries = [history.entry(zxid("1.1")), history.entry(zxid("1.2")), *last]
        place.put("log.100000001", log_bytes(entries))
        place.log("2.1", history)
        found.append(recover(place.disk, place.directory))
    assert [result.standing for result in found] == [Standing.WHOLE] * 2
    assert [result.tree is not None and set(result.tree.sessions) for result in found] == [
        *({SESSION}, set())
    ]


# -- the proof of the proof: each rule turned off ------------------------------------------------


def silent_fixtures() -> list[str]:
    """Fixtures that are not whole, and are said to be."""
    found = []
    for name, fixture in FIXTURES.items():
        place = place_of(name)
        if (
            fixture.standing is not Standing.WHOLE
            and recover(place.disk, place.directory).standing is Standing.WHOLE
        ):
            found.append(name)
    return found


def test_with_all_rules__no_fixture_is_wrong() -> None:
    assert silent_fixtures() == []


def test_without_r1__records_are_replayed_over_a_hole(
    monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    monkeypatch.setattr(Replay, "_join", lambda self, zxid, frame, name: None)
    found = silent_fixtures()
    tell(f"silent wrong without R1: {found}")
    assert {"FX4", "FX5", "FX6", "FX13"} <= set(found)


def forget_doubt(result: Recovery, problem: Problem, problems: list[Problem]) -> Recovery:
    return result


def forget_watermark(
    _disk: Disk, _directory: DataDirectory, result: Recovery, *_: object
) -> Recovery:
    return result


def test_without_r2__a_lost_segment_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    sweep = closed_sweep()
    monkeypatch.setattr("keepfast.storage.recovery.load_manifest", lambda disk, directory: None)
    monkeypatch.setattr("keepfast.storage.recovery.doubted", forget_doubt)
    # What was acknowledged is known without a manifest, too.
    monkeypatch.setattr("keepfast.storage.recovery._check_against_watermark", forget_watermark)
    found = silent_ones(sweep, (NEWEST_LOG,))
    tell(f"{len(found)} silent wrong without R2, and {silent_fixtures()}")
    assert {verdict.damage.kind for verdict in found} >= {"file cut", "file removed"}
    assert {"FX14", "FX14-open"} <= set(silent_fixtures())


def test_without_r2__what_another_program_wrote_is_not_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    server.close()
    # The records that another program appended, in a log of its own.
    other_disk = disk.clone()
    other = Server(other_disk)
    other.open()
    other.write(20, 20)
    path = ONE_PLACE.in_logs(other.store.manifest.segments[-1].name)
    disk.put(path, other_disk.contents(path))

    found = recover(disk, ONE_PLACE)
    assert (found.standing, found.head) == (Standing.WHOLE, other.tree.last_zxid)
    monkeypatch.setattr("keepfast.storage.recovery.foreign_names", lambda *arguments: set())
    found = recover(disk, ONE_PLACE)
    assert (found.standing, found.head) == (Standing.WHOLE, server.tree.last_zxid)


def lost_installs(ignored: frozenset[str]) -> int:
    """How many crashes lose a snapshot whose installation was acknowledged, and say nothing."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    disk.ignored = ignored
    server.install(other_tree(3, (20, 20, 20)))
    right = server.ledger.acknowledged
    lost = 0
    for state in disk.crash_states():
        found = recover(state, ONE_PLACE)
        if found.standing is Standing.WHOLE and found.head != right.zxid:
            lost += 1
    return lost


def test_without_r3__an_acknowledged_snapshot_is_gone_after_a_crash(tell: Tell) -> None:
    assert lost_installs(frozenset()) == 0
    lost = lost_installs(frozenset({"fsync", "fsync_directory"}))
    tell(f"{lost} silent wrong without R3")
    assert lost > 0


def test_without_r3__a_snapshot_that_was_written_wrong_is_vouched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def vouches() -> bool:
        disk = MemoryDisk()
        server = Server(disk)
        server.start()
        server.write(20)
        disk.inject("write_at", "*snapshot*", None, kept=5)
        try:
            server.install(other_tree(3, (20, 20)))
        except StorageError:
            return False
        return recover(disk, ONE_PLACE).standing is not Standing.WHOLE

    assert not vouches()
    monkeypatch.setattr(SnapshotWriter, "_read_back", lambda self: None)
    assert vouches()


def test_without_r4__acknowledged_records_are_cut_off_as_a_torn_tail(
    monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    sweep = open_sweep()
    assert silent_ones(sweep, (NEWEST_LOG,)) == []
    monkeypatch.setattr(
        "keepfast.storage.recovery_listed.is_torn_tail", lambda ending, acknowledged: True
    )
    found = silent_ones(sweep, (NEWEST_LOG,))
    tell(f"{len(found)} silent wrong without R4")
    kinds = {verdict.damage.kind for verdict in found}
    assert kinds >= {"byte flipped", "bit flipped", "file cut", "sector zeroed"}


def keep_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Store._write_manifest

    def keeping(self: Store, **changes: Any) -> None:
        if "generation" in changes:
            kept = self.manifest.snapshots
            names = {snapshot.name for snapshot in kept}
            retired = tuple(r for r in changes["retired"] if r.name not in names)
            changes |= {"snapshots": kept, "retired": retired}
        commit(self, **changes)

    monkeypatch.setattr(Store, "_write_manifest", keeping)


def cut_behind_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(history: History, zxid: Zxid) -> tuple[SegmentEntry, ...]:
        # As Apache does: after the first record at or beyond the zxid that is looked for.
        following = Zxid(zxid + 1)
        return cut_segments(history, following if history.contains(following) else zxid)

    monkeypatch.setattr("keepfast.storage.store.cut_segments", cut)


@pytest.mark.parametrize("disable", [keep_snapshots, cut_behind_the_next])
def test_without_r5__a_truncation_leaves_what_it_has_to_drop(
    disable: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_fx1()
    check_fx2()
    disable(monkeypatch)
    # What is on the disk is what counts, not that the store notices at the end.
    monkeypatch.setattr("keepfast.storage.store.invariant", lambda condition, why: None)
    monkeypatch.setattr(
        "keepfast.storage.store.with_fitting_base", lambda disk, directory, kept, zxid: kept
    )
    place = place_of("FX2")
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    store.truncate(Zxid(0x1_0000_0002))
    store.close()
    found = recover(place.disk, place.directory)
    assert (found.standing, found.head) == (Standing.WHOLE, 0x1_0000_0003)


def check_purge_of_rotten_snapshots() -> None:
    """Four snapshots, and the three newest are rotten: the oldest is the only way to the head."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    for _ in range(3):
        server.write(20)
        server.snapshot()
    server.close()
    for snapshot in server.store.manifest.snapshots[1:]:
        flip_bit(disk, ONE_PLACE.in_snapshots(snapshot.name), 100)
    store, _ = Store.open(disk, ONE_PLACE, OPTIONS)
    store.purge(3)
    store.close()
    found = recover(disk, ONE_PLACE)
    assert (found.standing, found.head) == (Standing.WHOLE, server.tree.last_zxid)


def by_count(manifest: Manifest, head: Zxid, retain: int, proven: frozenset[str]) -> RetentionPlan:
    kept = manifest.snapshots[-retain:]
    segments = tuple(s for s in manifest.segments if s.seal is None or s.seal.last > kept[0].zxid)
    live = {s.name for s in kept} | {s.name for s in segments}
    deleted = tuple(Retired(name, delete=True) for name in manifest.names() - live)
    return RetentionPlan(kept, segments, deleted)


def test_without_r11__purge_deletes_the_only_good_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_purge_of_rotten_snapshots()
    monkeypatch.setattr("keepfast.storage.store.plan_retention", by_count)
    purge = Store.purge

    def careless(self: Store, retain: int) -> tuple[str, ...]:
        self.degraded = False
        return purge(self, retain)

    monkeypatch.setattr(Store, "purge", careless)
    # A start puts rotten ones aside where it can; then there would be nothing to count wrongly.
    monkeypatch.setattr(
        "keepfast.storage.recovery_listed._put_aside", lambda manifest, damaged: manifest
    )
    with pytest.raises(AssertionError):
        check_purge_of_rotten_snapshots()
