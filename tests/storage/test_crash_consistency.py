"""Power is lost around every disk call of every operation; nothing acknowledged may be lost.

`make sim` shows the counts.  The second half of the file breaks the rules of storage on purpose,
one at a time: a campaign that does not notice would prove nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from keepfast.sim.disk_faults import DiskCall
from keepfast.sim.memory_disk import MemoryDisk, MemoryWriteFile
from keepfast.storage import (
    DataDirectory,
    Disk,
    Manifest,
    RetentionPlan,
    SnapshotEntry,
    Store,
    live_files,
    plan_retention,
    recovery_listed,
    store,
)
from keepfast.storage.segment_writer import SegmentWriter
from keepfast.storage.snapshot_writer import SnapshotWriter
from keepfast.wire import Zxid
from tests.storage.crash import Campaign, InconsistentError
from tests.storage.random_lives import RandomLife
from tests.storage.scenarios import SCENARIOS, Scenario
from tests.storage.workload import Server

# More than any scenario has: every one of them is played.
EVERY = 1_000_000
# Starts that are interrupted themselves, of those that differ in names, manifest or outcome.
STARTS = 40
MIN_STATES = 10_000

Tell = Callable[[str], None]


def scenario(name: str) -> Scenario:
    return next(each for each in SCENARIOS if each.name == name)


@pytest.fixture(scope="module")
def played() -> dict[str, set[str]]:
    """The disk states that each scenario met."""
    return {}


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: each.name.replace(" ", "-"))
def test_power_loss_at_every_disk_call__nothing_acknowledged_is_lost_and_nothing_is_made_up(
    each: Scenario, played: dict[str, set[str]], tell: Tell
) -> None:
    campaign = Campaign(each, start_again=STARTS, kill=EVERY).play()
    played[each.name] = campaign.states
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(campaign.verdicts.items()))
    starts, kills = STARTS - campaign.start_again, EVERY - campaign.kill
    tell(
        f"{len(campaign.states)} distinct disk states ({verdicts}) in {campaign.checks} checks "
        f"around {campaign.calls} disk calls; {starts} starts interrupted, {kills} kills"
    )


def test_the_scenarios_together__reach_enough_distinct_disk_states(
    played: dict[str, set[str]], tell: Tell
) -> None:
    if len(played) < len(SCENARIOS):
        pytest.skip("needs all scenarios before it")
    total = len(set().union(*played.values()))
    tell(f"{total} distinct disk states in {len(played)} scenarios")
    assert total >= MIN_STATES


@pytest.mark.parametrize("seed", range(16))
def test_random_lives_with_twenty_deaths_each__nothing_acknowledged_is_lost(seed: int) -> None:
    RandomLife(seed).live(20)


def test_group_larger_than_the_limit__is_written_as_several_and_a_torn_one_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The reader takes a sound record further after a torn one than this for a proof of damage.
    monkeypatch.setattr(store, "GROUP_LIMIT_BYTES", 1300)
    monkeypatch.setattr(recovery_listed, "GROUP_LIMIT_BYTES", 1300)

    def act(server: Server) -> None:
        server.write(10)
        server.write(500, 10, 500, 500, 500)

    Campaign(Scenario("several groups", act)).play()


# -- the checker notices ---------------------------------------------------------------------------


def expect_noticed(name: str, *, start_again: int = 0, kill: int = 0) -> InconsistentError:
    with pytest.raises(InconsistentError) as caught:
        Campaign(scenario(name), start_again=start_again, kill=kill).play()
    return caught.value


def kind_of(call: DiskCall) -> str:
    """A sync call by what it makes durable."""
    name = call.path.rpartition("/")[2].removeprefix("keepfast.")
    for word in ("manifest", "witness", "snapshot", "log", "Epoch"):
        if word in name:
            return f"{call.operation} of {word}"
    return call.operation


class Forgetful(Campaign):
    """Remembers which sync call it was that did nothing."""

    forgotten = ""

    def _ignored_by(self, call: DiskCall) -> frozenset[str]:
        ignored = super()._ignored_by(call)
        if ignored:
            self.forgotten = kind_of(call)
        return ignored


# Without one of these there is always a crash that shows it.
ALWAYS_NEEDED = {
    "fsync of manifest",
    "fsync of snapshot",
    "fsync of Epoch",
    "fsync of witness",
}
# These are needed, but not each time: the next of its kind may come before anything depends on it.
OFTEN_NEEDED = {"fsync_directory", "datasync of log"}
# An old statement of the watermark is a weaker truth, never a lie.  The fsyncs of a log are for its
# zeros and for giving them back.
NEVER_NEEDED = {"datasync of witness", "fsync of log"}


@pytest.mark.parametrize(
    "name",
    [
        "change of epoch",
        "snapshot while writing",
        "install over a history",
        "truncate to a snapshot",
        "purge",
    ],
)
def test_the_checker_notices__any_single_sync_that_does_nothing(name: str, tell: Tell) -> None:
    sound = Forgetful(scenario(name)).play()
    seen, noticed = Counter[str](), Counter[str]()
    for number in range(1, sound.syncs + 1):
        # What is known of a disk state does not depend on how it came about.
        campaign = replace(sound, forget=number, syncs=0)
        try:
            campaign.play()
        except InconsistentError:
            noticed[campaign.forgotten] += 1
        seen[campaign.forgotten] += 1
    tell(", ".join(f"{kind}: {noticed[kind]} of {seen[kind]}" for kind in sorted(seen)))
    assert set(seen) <= ALWAYS_NEEDED | OFTEN_NEEDED | NEVER_NEEDED
    for kind in ALWAYS_NEEDED & set(seen):
        assert noticed[kind] == seen[kind], kind
    for kind in OFTEN_NEEDED & set(seen):
        assert noticed[kind], kind


@pytest.mark.parametrize("operation", ["fsync", "datasync", "fsync_directory"])
def test_the_checker_notices__a_device_that_ignores(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(self: Campaign, call: DiskCall) -> frozenset[str]:
        return frozenset({operation})

    monkeypatch.setattr(Campaign, "_ignored_by", deaf)
    expect_noticed("change of epoch" if operation == "datasync" else "install over a history")


def test_the_checker_notices__records_acknowledged_before_their_fsync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(self: SegmentWriter) -> None:
        """Leave it to the kernel."""

    monkeypatch.setattr(SegmentWriter, "_datasync", hasty)
    expect_noticed("append groups")


def test_the_checker_notices__a_watermark_that_speaks_before_the_fsync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_group, write = Store._write_group, SegmentWriter.write

    def hasty(self: Store) -> None:
        def write_behind_the_word(writer: SegmentWriter, data: bytes) -> None:
            assert self._watermark is not None
            end, serial = writer.position + len(data), self._manifest.segments[-1].serial
            self._watermark.record(serial, end, self._taken[-1][0])
            write(writer, data)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SegmentWriter, "write", write_behind_the_word)
            write_group(self)

    monkeypatch.setattr(Store, "_write_group", hasty)
    assert "refused" in str(expect_noticed("append large records"))


def test_the_checker_notices__a_manifest_that_lists_a_snapshot_before_it_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsync = MemoryWriteFile.fsync

    def careless(self: MemoryWriteFile) -> None:
        if "snapshot" not in self._path:
            fsync(self)

    monkeypatch.setattr(MemoryWriteFile, "fsync", careless)
    expect_noticed("snapshot while writing")


def test_the_checker_notices__a_manifest_that_lists_a_segment_before_its_name_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = SegmentWriter.__init__

    def begin_after_a_look(self: SegmentWriter, disk: Disk, path: str, grow_bytes: int) -> None:
        begin(self, disk, path, grow_bytes)
        assert isinstance(disk, MemoryDisk)
        names = MemoryDisk.fsync_directory

        def not_this_time(forgetful: MemoryDisk, _: str) -> None:
            monkeypatch.setattr(MemoryDisk, "fsync_directory", names)

        monkeypatch.setattr(MemoryDisk, "fsync_directory", not_this_time)

    monkeypatch.setattr(SegmentWriter, "__init__", begin_after_a_look)
    assert "refused" in str(expect_noticed("roll on request"))


def test_the_checker_notices__a_live_name_given_before_the_manifest_lists_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complete = SnapshotWriter.complete

    def complete_and_publish(self: SnapshotWriter) -> SnapshotEntry:
        entry = complete(self)
        place = self._temporary.rpartition("/")[0]
        self._disk.rename(self._temporary, f"{place}/{entry.name}")
        return msgspec.structs.replace(entry, staged=None)

    monkeypatch.setattr(SnapshotWriter, "complete", complete_and_publish)
    expect_noticed("install over a history")


def test_the_checker_notices__a_segment_cut_before_the_manifest_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut_first(disk: Disk, directory: DataDirectory, kept: Manifest, _: Zxid) -> Manifest:
        live_files.cut_tail(disk, directory, kept.segments[-1])
        return kept

    monkeypatch.setattr(store, "with_fitting_base", cut_first)
    assert "refused" in str(expect_noticed("truncate the open segment"))


def test_the_checker_notices__files_purged_before_the_manifest_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def act(server: Server) -> None:
        def plan_and_delete(
            manifest: Manifest, head: Zxid, retain: int, proven: frozenset[str]
        ) -> RetentionPlan:
            plan = plan_retention(manifest, head, retain, proven)
            live_files.retire(server.disk, server.directory, plan.deleted, manifest.generation)
            return plan

        monkeypatch.setattr(store, "plan_retention", plan_and_delete)
        server.store.purge(1)

    with pytest.raises(InconsistentError):
        Campaign(replace(scenario("purge"), act=act)).play()


def test_the_checker_notices__an_old_history_left_in_place_by_a_received_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take_nothing_away(*_: object) -> None:
        """The field report snap-keeps-stale-log."""

    monkeypatch.setattr(live_files, "retire", take_nothing_away)
    expect_noticed("install an older state")


def test_the_checker_notices__a_start_that_vouches_for_what_is_in_memory_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trust(*_: object) -> None:
        """It could be read, so it must be there."""

    monkeypatch.setattr(live_files, "confirm_tail", trust)
    assert "killed" in str(expect_noticed("append groups", kill=EVERY))


def test_the_checker_notices__an_apache_snapshot_that_is_taken_over_without_an_fsync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The field report unsynced-snapshot: Apache was killed with its snapshot in memory only."""

    def start_and_lose_power() -> None:
        case = scenario("take over healthy-elections-3.9.5/0")
        server = Server(case.make_disk(), case.directory)
        path = server.directory.in_snapshots("snapshot.2000004b2")
        data = server.memory_disk.contents(path)
        server.memory_disk.remove(path)
        with server.memory_disk.create(path) as file:
            file.write_at(0, data)
        server.open()
        campaign = Campaign(case)
        campaign.judge_all(server.memory_disk, server.ledger.expectation, "after the start")

    def trust(*_: object) -> None:
        """It could be read, so it must be there."""

    start_and_lose_power()
    monkeypatch.setattr(live_files, "confirm_files", trust)
    # The start itself syncs the directory; the bytes of the snapshot are what is lost.
    with pytest.raises(InconsistentError, match="refused"):
        start_and_lose_power()
