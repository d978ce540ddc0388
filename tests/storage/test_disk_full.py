"""A full disk is an ordinary condition; a failing disk is the end of a store (R7).

One life of a server is played again and again, each time with another call or another byte at
which the disk is full.  Whatever is refused is tried again once there is space, and the life has
to end in the same state as without any trouble.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_faults import CHANGING_CALLS, DiskCall
from keepfast.storage import Epochs, Standing, Store, list_directory, recover
from keepfast.storage.locks import is_locked, unlock_directory
from keepfast.wire import DiskFailed, DiskFull, InvariantViolation, StorageError, Zxid
from tests.storage.crash import ORDINARY, SYNC_CALLS, Campaign, found_by, look_at_log
from tests.storage.scenarios import SCENARIOS, Scenario, nothing
from tests.storage.workload import OPTIONS, Point, Server, other_tree

SPACE_TAKING_CALLS = {"write_at", "create", "allocate"}
# What a write that fails half-way leaves behind: nothing, a byte, more than a sector.
PARTS = (0, 1, 600)

Tell = Callable[[str], None]
Step = Callable[[Server], object]


def sync(server: Server) -> None:
    server.sync()


def snapshot(server: Server) -> None:
    server.snapshot()


def purge(server: Server) -> None:
    server.store.purge(1)


def close(server: Server) -> None:
    """Closing gives the directory back, even if it has no space to say that it is closed."""
    try:
        server.store.close()
    except DiskFull:
        assert not is_locked(server.disk, server.directory)
    with pytest.raises(StorageError, match="closed"):
        server.store.sync()


def append(*sizes: int) -> Step:
    return lambda server: server.append(*sizes)


def epochs(accepted: int, current: int) -> Step:
    return lambda server: server.set_epochs(accepted, current)


def new_epoch(server: Server) -> None:
    server.epoch += 1


def truncate(zxid: int) -> Step:
    return lambda server: server.truncate(Zxid(zxid))


def install(server: Server) -> None:
    server.install(other_tree(5, [0, 300, 40]))


def roll(server: Server) -> None:
    server.store.roll()


LIFE: list[Step] = [
    *(Server.start, append(10, 300), sync, roll, append(700, 20), sync, snapshot),
    *(epochs(1, 1), append(30), sync, epochs(2, 1), epochs(2, 2), new_epoch),
    *(append(50, 900), sync, snapshot, append(5), sync, purge),
    *(truncate(0x2_0000_0002), epochs(3, 3), new_epoch, append(200), sync, close, Server.open),
    *(append(20), sync, epochs(5, 3), install, epochs(5, 5), append(30, 30), sync, purge, close),
    Server.open,
]


def nothing_to_do() -> None:
    """The disk is full for one call only."""


@dataclass
class Patient:
    """Plays a life; what is refused for lack of space is tried again when there is space."""

    disk: MemoryDisk
    campaign: Campaign
    relieve: Callable[[], None] = nothing_to_do
    refusals: int = 0

    def live(self) -> Point | None:
        """Where the life ended; None if the store failed for good, and was sound when it did."""
        server = Server(self.disk)
        for step in LIFE:
            try:
                step(server)
            except DiskFailed:
                look_after_failure(server, self.campaign, "a sync")
                return None
            except DiskFull:
                self.refusals += 1
                look_while_full(server, self.campaign)
                if step is sync:
                    refuse_appends(server.store)
                self.relieve()
                if step is not Server.start and step is not Server.open:
                    server.ledger.not_replaced()
                    assert server.store.has_space()
                again(step, server)
            if step is Server.open and server.store.is_full:
                # It reads, and takes the directory over when there is space.
                self.refusals += 1
                look_while_full(server, self.campaign)
                self.relieve()
                assert server.store.has_space()
            if hasattr(server, "store"):
                names = [segment.name for segment in server.store.manifest.segments]
                assert len(names) == len(set(names))
        return server.ledger.acknowledged


def again(step: Step, server: Server) -> None:
    if step is Server.start:
        # Either the directory could not be opened, or it is open and empty.
        unlock_directory(server.disk, server.directory)
    step(server)


def look_while_full(server: Server, campaign: Campaign) -> None:
    """Nothing partial has a live name, nothing is left lying about, and reads continue."""
    disk = server.memory_disk
    if not disk.is_directory(server.directory.snapshots):
        return  # refused before anything was made
    listing = list_directory(disk, server.directory)
    assert not listing.temporaries
    expected = server.ledger.expectation
    found = found_by(recover(disk.clone(), server.directory, full=True))
    assert found.point in expected.allowed
    assert found.problems <= ORDINARY
    for crashed in disk.crash_states():
        crashed.capacity = None
        campaign.judge(crashed, expected, "full")
    if hasattr(server, "store") and server.store.standing is Standing.WHOLE:
        look_at_log(server)


def refuse_appends(store: Store) -> None:
    head = store.head
    with pytest.raises(DiskFull):
        store.append(Zxid(head + 1), bytes(40))
    assert store.head == head


def dry_run() -> tuple[Point, int, int]:
    """The end of an undisturbed life, its calls that take space, and the most that it took."""
    disk = MemoryDisk()
    calls = most = 0

    def count(call: DiskCall) -> None:
        nonlocal calls, most
        calls += not call.is_after and call.operation in SPACE_TAKING_CALLS
        most = max(most, disk.used_bytes())

    disk.on_call = count
    end = Patient(disk, Campaign(Scenario("life", nothing))).live()
    assert end is not None
    return end, calls, most


def lives(calls: Iterable[str], part: int) -> Iterator[tuple[Point | None, Patient]]:
    """One life for each disk call of these kinds, which finds the disk full."""
    campaign = Campaign(Scenario("life", nothing))
    number, is_struck = 0, True
    while is_struck:
        number += 1
        disk = MemoryDisk()
        seen, is_struck = 0, False

        def strike(call: DiskCall, disk: MemoryDisk = disk, number: int = number) -> None:
            nonlocal seen, is_struck
            seen += not call.is_after and call.operation in calls
            if seen == number and not is_struck:
                is_struck = True
                # What the watermark says fits into a sector, of which no part can be missing.
                kept = 0 if "witness" in call.path else part
                disk.inject(call.operation, call.path, errno.ENOSPC, kept=kept)

        disk.on_call = strike
        patient = Patient(disk, campaign)
        end = patient.live()
        if is_struck:
            yield end, patient


@pytest.mark.parametrize("part", PARTS)
def test_disk_full_at_every_call_that_takes_space__is_ordinary(part: int, tell: Tell) -> None:
    end, calls, _ = dry_run()
    count = refusals = 0
    for found, patient in lives(SPACE_TAKING_CALLS, part):
        assert found == end
        count += 1
        refusals += patient.refusals
    tell(f"{count} lives, each with one call that found the disk full; {refusals} refusals")
    assert count == calls
    # A file that cannot grow by a whole step may still have grown by enough.
    assert refusals >= calls * 0.9


def test_disk_full_reported_by_a_sync__leaves_nothing_in_doubt_or_is_final(tell: Tell) -> None:
    end, _, _ = dry_run()
    ordinary = final = 0
    for found, _ in lives(SYNC_CALLS, 0):
        assert found in (end, None)
        ordinary += found is not None
        final += found is None
    tell(f"{ordinary} times nothing depended on it yet, {final} times the store was done for")
    assert ordinary
    assert final


def test_disk_full_at_every_size__is_ordinary(tell: Tell) -> None:
    end, _, most = dry_run()
    count = refusals = 0
    campaign = Campaign(Scenario("life", nothing))
    for capacity in range(most, 0, -61):
        disk = MemoryDisk(capacity)

        def relieve(disk: MemoryDisk = disk) -> None:
            disk.capacity = None

        patient = Patient(disk, campaign, relieve)
        assert patient.live() == end
        count += 1
        refusals += patient.refusals
    tell(f"{count} lives on disks of at most {most} bytes; {refusals} refusals")
    assert refusals >= count - 1


def test_disk_full_while_snapshots_are_taken__purge_keeps_the_only_good_one() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(300)
    server.snapshot()
    for _ in range(3):
        server.write(20)
        disk.capacity = disk.used_bytes() + 100
        with pytest.raises(DiskFull):
            server.snapshot()
        disk.capacity = None
    assert not list_directory(disk, server.directory).temporaries
    disk.capacity = disk.used_bytes()  # not even the manifest can be written
    with pytest.raises(DiskFull):
        server.store.purge(1)
    assert found_by(recover(disk, server.directory, full=True)).point == server.ledger.acknowledged
    disk.capacity = None
    assert server.store.purge(1) == ("snapshot.0",)
    assert list_directory(disk, server.directory).snapshots == ("snapshot.100000001",)
    assert found_by(recover(disk, server.directory, full=True)).point == server.ledger.acknowledged


def test_reserve_reached__appends_are_refused_and_what_was_taken_becomes_durable() -> None:
    disk = MemoryDisk(20_000)
    server = Server(disk)
    server.options = replace(OPTIONS, reserve_bytes=5_000)
    server.start()
    server.write(10)
    server.append(100)
    disk.capacity = disk.used_bytes() + 4_999
    assert not server.store.has_space()
    refuse_appends(server.store)
    server.sync()
    server.snapshot()
    disk.capacity = None
    assert server.store.has_space()
    server.write(10)


# -- a failing disk --------------------------------------------------------------------------------

USES: list[Callable[[Store], object]] = [
    lambda store: store.append(Zxid(store.head + 1), bytes(40)),
    lambda store: store.sync(),
    lambda store: store.confirm(),
    lambda store: store.begin_snapshot(other_tree(9, [0]).freeze()),
    lambda store: store.install_snapshot(other_tree(9, [0])),
    lambda store: store.truncate(store.durable),
    lambda store: store.purge(1),
    lambda store: store.set_epochs(Epochs(99, 99)),
]


@dataclass
class Struck:
    """A scenario in which one call that changes the disk failed."""

    server: Server
    call: DiskCall
    error: StorageError | None


def strike_each(campaign: Campaign) -> Iterator[Struck]:
    """Play a scenario once for each call that changes the disk, with EIO from that call."""
    number = 0
    while True:
        number += 1
        server = campaign.prepare()
        struck: list[DiskCall] = []
        error = play_struck(server, campaign.scenario, number, struck)
        if not struck:
            return
        yield Struck(server, struck[0], error)


def play_struck(
    server: Server, scenario: Scenario, number: int, struck: list[DiskCall]
) -> StorageError | None:
    disk = server.memory_disk
    seen = 0

    def strike(call: DiskCall) -> None:
        nonlocal seen
        seen += not call.is_after and call.operation in CHANGING_CALLS
        if seen == number and not struck:
            struck.append(call)
            disk.inject(call.operation, call.path, errno.EIO)

    disk.on_call = strike
    try:
        scenario.act(server)
    except StorageError as error:
        return error
    finally:
        disk.on_call = None
    return None


FAILING = [each for each in SCENARIOS if each.name not in ("install over damage",)]


@pytest.mark.parametrize("each", FAILING, ids=lambda each: each.name.replace(" ", "-"))
def test_write_or_fsync_fails__the_store_is_done_for_and_the_next_start_is_sound(
    each: Scenario, tell: Tell
) -> None:
    campaign = Campaign(each)
    failures = 0
    for struck in strike_each(campaign):
        server, call = struck.server, struck.call
        if call.operation == "remove_directory":
            continue  # an empty directory left behind is no harm
        failures += 1
        assert isinstance(struck.error, DiskFailed), call
        look_after_failure(server, campaign, str(call))
        if call.operation in ("write_at", "fsync", "datasync"):
            # The machine runs on, and the kernel still shows what the device never got.  Where a
            # directory could not be synced no file system continues to be written to.
            restart(server, campaign, str(call))
    tell(f"{failures} failures, {len(campaign.states)} distinct disk states")


def look_after_failure(server: Server, campaign: Campaign, call: str) -> None:
    """Nothing is accepted any more; what is on the disk is sound."""
    if hasattr(server, "store"):
        for use in USES:
            with pytest.raises((StorageError, InvariantViolation)):
                use(server.store)
    # Which of the names under way are there is anybody's guess, also Apache's.
    expected = replace(server.ledger.expectation, for_apache=False)
    campaign.judge_all(server.memory_disk, expected, f"failed: {call}")


def restart(server: Server, campaign: Campaign, call: str) -> None:
    """Start a new process on the machine, then lose power."""
    disk = server.memory_disk.clone()
    again = Server(disk, server.directory)
    found = found_by(again.open())
    assert found.point in server.ledger.expectation.allowed, call
    after = replace(again.ledger.expectation, for_apache=False)
    campaign.judge_all(disk, after, f"restarted after this failed: {call}")
