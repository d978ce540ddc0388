"""Losing power at every moment of a scenario, in every legal way, and judging what recovery makes.

`Campaign.play` plays a scenario on a `MemoryDisk` and stops the world around each disk call.  There
it takes every outcome of a power loss that `memory_crash.py` allows, opens a store on each,
and asks the ledger of the scenario whether what was found may be found.

Three kinds of death: the machine loses power; it loses power again while the store is starting;
the process is killed and started again, and then the machine loses power.

What Apache would find counts too.  It goes by names alone, so between a change of the manifest
and the renames that follow it Apache may see the old history, the new one, or a part of either;
and the log format cannot tell the middle of a torn group from damage.  Apart from these two, and
without exception once a store has been opened, Apache finds what we find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_faults import DiskCall
from keepfast.sim.memory_volume import normalised
from keepfast.storage import DataDirectory, Epochs, Recovery, Standing, recover
from keepfast.storage.epochs import read_epochs
from keepfast.wire import KeepfastError
from tests.storage.scenarios import Scenario
from tests.storage.workload import NOTHING, REFUSED, Expectation, Point, Server, point_of

# What recovery may say after an ordinary power loss.  Anything else alarms an operator for
# nothing, or is the trace of a lie.
ORDINARY = {"torn-tail", "epoch-missing", "epoch-behind"}
# What may still be said once a store was opened: what only an ensemble can settle.
LASTING = {"epoch-behind", "unproven"}


class Limits(NamedTuple):
    """Up to how many pending operations, of how many sectors, every outcome is taken."""

    pending: int
    sectors: int


LIMITS = Limits(pending=6, sectors=4)
# A start that is interrupted for the second time.
LIMITS_INSIDE = Limits(pending=3, sectors=3)
SYNC_CALLS = {"fsync", "datasync", "fsync_directory"}


class InconsistentError(AssertionError):
    """Recovery lost something, made something up, or refused after an ordinary power loss."""


def demand(condition: bool, why: str, *facts: object) -> None:
    if not condition:
        raise InconsistentError("\n  ".join([why, *map(str, facts)]))


def may_be(epochs: Epochs, expected: Expectation) -> bool:
    """Whether these are the epochs that were acknowledged, or asked for since."""
    least, most = expected.least, expected.most
    accepted, current = (least.accepted, most.accepted), (least.current, most.current)
    return epochs.accepted in accepted and epochs.current in current


class Found(NamedTuple):
    """What a recovery made of a disk."""

    standing: Standing
    point: Point
    epochs: Epochs
    problems: frozenset[str]


class Examined(NamedTuple):
    """What we find on a disk, and what Apache would have found."""

    ours: Found
    apache: Found


def found_by(recovery: Recovery) -> Found:
    problems = {problem.code for problem in recovery.problems}
    if recovery.degraded:
        problems.add("degraded")
    is_refused = recovery.standing is Standing.DAMAGED
    point = REFUSED if is_refused else point_of(recovery.tree)
    return Found(recovery.standing, point, recovery.epochs, frozenset(problems))


def found_by_apache(disk: MemoryDisk, directory: DataDirectory) -> Found:
    """What is there without the files whose names begin with ours."""
    view = disk.clone()
    names = list(view.files())
    for path in names:
        if "/keepfast." in path:
            view.volume.erase(normalised(path))
    if not view.is_directory(directory.logs):
        return Found(Standing.EMPTY, NOTHING, Epochs(), frozenset())
    epochs = read_epochs(view, directory, None, [])
    for name in ("acceptedEpoch", "currentEpoch"):
        # Apache makes up a missing one from the last zxid, where we would rather not.
        if directory.in_snapshots(name) in names:
            view.volume.erase(normalised(directory.in_snapshots(name)))
    return found_by(recover(view, directory))._replace(epochs=epochs)


def look_at_log(server: Server) -> None:
    """The log leads to the head in one piece, and holds only what was ever submitted."""
    store = server.store
    segments = store.manifest.segments
    start = segments[0].follows if segments else store.durable
    records = store.history.records_after(start)
    demand(records is not None, "the log does not lead to its own head")
    last = start
    for record in records or ():
        last = record.zxid
        submitted = server.ledger.entries.get(last, record.entry)
        demand(record.entry == submitted, "the log holds another record", hex(last))
    demand(last == store.durable, "the log ends before the head", last, store.durable)


@dataclass
class Campaign:
    """A scenario, all disk states that were met in it, and what was made of them.

    start_again, kill: how many times a start is itself interrupted, after a power loss and
    after the death of the process.
    forget: the number of a sync call that does nothing and reports success.
    """

    scenario: Scenario
    start_again: int = 0
    kill: int = 0
    forget: int | None = None
    syncs: int = 0
    states: set[str] = field(default_factory=set)
    checks: int = 0
    calls: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    _entries: dict[int, bytes] = field(default_factory=dict)
    _examined: dict[str, Examined] = field(default_factory=dict)
    _apache: dict[tuple[object, ...], Found] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _kinds: set[tuple[object, ...]] = field(default_factory=set)
    _is_inner: bool = False
    _standing: Standing = Standing.WHOLE
    _said: set[str] = field(default_factory=set)

    def play(self) -> Self:
        """Play the scenario; raises InconsistentError at the first state that may not be."""
        server = self.prepare()
        self.watch(server, lambda: self.scenario.act(server))
        return self

    def prepare(self) -> Server:
        """A server that is about to act."""
        server = Server(self.scenario.make_disk(), self.scenario.directory)
        self.scenario.prepare(server)
        self._entries = server.ledger.entries
        if self.scenario.is_foreign:
            first = found_by(recover(server.disk, server.directory))
            self._standing, self._said = first.standing, {*first.problems, "unproven"}
        return server

    def _is_sound(self, found: Found, standing: Standing | None = None) -> bool:
        """Whether the standing is the one of these data, and nothing alarming is said."""
        expected = Standing.EMPTY if found.point == NOTHING else standing or self._standing
        return found.standing is expected and found.problems <= ORDINARY | self._said

    def watch(self, server: Server, action: Callable[[], None]) -> None:
        """Do `action` with a power loss around each disk call of the server's disk."""
        disk = server.memory_disk
        seen: Expectation | None = None

        def look(call: DiskCall) -> None:
            nonlocal seen
            self.calls += not call.is_after
            disk.ignored = self._ignored_by(call)
            # Before a call nothing is new but what the caller was told since the last one.
            if call.is_after or server.ledger.expectation is not seen:
                seen = server.ledger.expectation
                self.judge_all(disk, seen, str(call))

        disk.on_call = look
        try:
            action()
        finally:
            disk.on_call = None
        self.judge_all(disk, server.ledger.expectation, "at the end")

    def _ignored_by(self, call: DiskCall) -> frozenset[str]:
        if call.is_after or self._is_inner or call.operation not in SYNC_CALLS:
            return frozenset()
        self.syncs += 1
        return frozenset({call.operation} if self.syncs == self.forget else ())

    def judge_all(self, disk: MemoryDisk, expected: Expectation, place: str) -> None:
        """Judge every outcome of losing power now."""
        limits = LIMITS_INSIDE if self._is_inner else LIMITS
        for crashed in disk.crash_states(limits.pending, limit_sectors=limits.sectors):
            self.judge(crashed, expected, place)
        may_start = expected.allowed[0] != REFUSED
        if not self._is_inner and self.kill and may_start and disk.pending_count():
            # With nothing pending the death of the process is an outcome of losing power.
            self.kill -= 1
            self.interrupt_start(disk.clone(), expected, f"killed {place}")

    def judge(self, crashed: MemoryDisk, expected: Expectation, place: str) -> None:
        """Judge one disk state."""
        self.checks += 1
        try:
            examined = self._examine(crashed)
            self._check(examined, expected)
        except (InconsistentError, KeepfastError) as error:
            name, files = self.scenario.name, sorted(crashed.files())
            raise InconsistentError(f"{name}: {error}\n  {place}\n  {files}") from error
        if not self._is_inner and self.start_again and self._is_new_kind(crashed, examined):
            self.start_again -= 1
            ours, apache = examined
            # Where Apache is lost in the middle of a change, it is until a start is done.
            for_apache = apache[:3] == ours[:3] and self._is_sound(apache)
            same = Expectation((ours.point,), ours.epochs, ours.epochs, for_apache)
            self.interrupt_start(crashed.clone(), same, f"started after a crash {place}")

    def _is_new_kind(self, crashed: MemoryDisk, examined: Examined) -> bool:
        """Whether no state with these names, this manifest and this outcome was met yet."""
        manifest = crashed.files().get(self.scenario.directory.manifest)
        kind = (*sorted(crashed.files()), manifest, examined)
        is_new = examined.ours.point != REFUSED and kind not in self._kinds
        self._kinds.add(kind)
        return is_new

    def interrupt_start(self, disk: MemoryDisk, expected: Expectation, place: str) -> None:
        """Open a store, with a power loss around each disk call.

        What one start found the next must find: it may have been vouched for.  Where the process
        was killed, that means that what was found in the kernel's memory has to be on the disk
        when `open` returns.
        """
        server = Server(disk, self.scenario.directory)
        server.ledger.expectation = expected
        self._is_inner = True
        try:
            self.watch(server, lambda: self._start(server, expected))
        except InconsistentError as error:
            raise InconsistentError(f"{error}\n  {place}") from error
        finally:
            self._is_inner = False

    def _start(self, server: Server, expected: Expectation) -> None:
        found = found_by(server.open())
        demand(self._is_sound(found), "alarmed at the start", found)
        demand(found.point in expected.allowed, "not a state that may be found", found, expected)
        # A change of the manifest right after the start: nothing that the start left undone may
        # be forgotten by it.
        accepted = found.epochs.accepted or 0
        server.set_epochs(accepted + 1, found.epochs.current or 0)

    def _examine(self, crashed: MemoryDisk) -> Examined:
        fingerprint = crashed.fingerprint()
        examined = self._examined.get(fingerprint)
        if examined is None:
            self.states.add(fingerprint)
            apache = self._apache_view(crashed)
            examined = Examined(self._open(crashed.clone()), apache)
            self._examined[fingerprint] = examined
            self.verdicts[examined.ours.standing.value] += 1
        return examined

    def _open(self, disk: MemoryDisk) -> Found:
        """Open a store on what a crash left; demands what holds whatever was acknowledged.

        That is: the open store can be used, it can be opened again with all of that, and from the
        moment it is open Apache would find the same history and the same epochs.
        """
        server = Server(disk, self.scenario.directory)
        ours = found_by(server.open())
        fingerprint = disk.fingerprint()
        if not self._is_sound(ours) or fingerprint in self._used:
            return ours
        apache = self._apache_view(disk)
        demand(apache.point == ours.point, "Apache finds another history", ours, apache)
        demand(apache.epochs == ours.epochs, "Apache finds other epochs", ours, apache)
        demand(not apache.problems & {"torn-tail", "log-damaged"}, "Apache finds trouble", apache)
        self._look_again(server, ours.point)
        self._use(server)
        self._used.add(fingerprint)
        return ours

    def _use(self, server: Server) -> None:
        """Write to a recovered store, close it and look at it again."""
        if server.ledger.acknowledged == NOTHING:
            server.tree = server.store.initialise()
            server.ledger.replaced(point_of(server.tree))
        server.ledger.entries.update(self._entries)
        look_at_log(server)
        server.write(60, 700)
        self._look_again(server, server.ledger.acknowledged)
        server.close()
        self._look_again(server, server.ledger.acknowledged)

    def _look_again(self, server: Server, expected: Point) -> None:
        found = found_by(recover(server.disk, server.directory, full=True))
        demand(found.point == expected, "a second look finds another state", expected, found)
        demand(self._is_sound(found), "a second look finds trouble", found)
        demand(found.problems <= LASTING, "something of the crash is left", found)

    def _apache_view(self, disk: MemoryDisk) -> Found:
        files = disk.volume.files()
        key = tuple(
            (path, files[path].cached.digest()) for path in sorted(files) if "keepfast" not in path
        )
        found = self._apache.get(key)
        if found is None:
            found = self._apache[key] = found_by_apache(disk, self.scenario.directory)
        return found

    def _check(self, examined: Examined, expected: Expectation) -> None:
        """Compare what was found with what may be found."""
        ours, apache = examined
        if ours.point == REFUSED and REFUSED in expected.allowed:
            return  # it was damaged before
        demand(self._is_sound(ours), "refused, or alarmed, after a loss of power", ours)
        demand(ours.point in expected.allowed, "not a state that may be found", ours, expected)
        demand(may_be(ours.epochs, expected), "an epoch is wrong", ours, expected)
        if not expected.for_apache:
            return
        demand(may_be(apache.epochs, expected), "an epoch is wrong for Apache", apache, expected)
        if apache.point == REFUSED and "torn-tail" in ours.problems:
            return  # a hole in the middle of a group looks like damage to it; see the module
        # A snapshot at the head says nothing of doubts about how the head was reached.
        is_sound = self._is_sound(apache) or self._is_sound(apache, Standing.WHOLE)
        demand(is_sound, "Apache finds trouble", apache, expected)
        demand(apache.point in expected.allowed, "Apache finds less", apache, expected)
