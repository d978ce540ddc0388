"""Workloads with an invariant: what clients do, what they were told, and what must follow from it.

Each operation has three outcomes: done, refused, or unknown (the connection or the session was lost
while it was under way: it may have happened, or may still). Checks hold whatever the unknown ones
did.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import NamedTuple

from keepfast.client import Client, ClientEvent, OperationFailed
from keepfast.wire import CreateMode, ErrorCode, EventType

_REFUSALS = frozenset((ErrorCode.BAD_VERSION, ErrorCode.NO_NODE, ErrorCode.NODE_EXISTS))


def make_znode(client: Client, path: str) -> None:
    """Have a znode there, whether or not an attempt before this one made it."""
    try:
        client.create(path, b"")
    except OperationFailed as error:
        if error.code is not ErrorCode.NODE_EXISTS:
            raise


class Deed(NamedTuple):
    """One operation: when it was under way, and what it was told; None: unknown."""

    start: float
    end: float
    key: str
    number: int | None


class Workload(ABC):
    """What several workers do on one path; `step` is called by many threads."""

    name: str

    def __init__(self, root: str) -> None:
        self.root = f"{root}/{self.name}"
        self.done = 0
        self.unknown = 0
        self._lock = threading.Lock()
        self._next = 0
        self.complaints: list[str] = []

    def set_up(self, client: Client) -> None:
        """Make the path, before any step; again, if it is not known whether that was done."""
        make_znode(client, self.root)

    @abstractmethod
    def step(self, client: Client, rng: random.Random) -> None:
        """Do something, and note what came of it. Raises OperationFailed for unknown outcomes."""

    @abstractmethod
    def check(self, client: Client) -> None:
        """Add to `complaints` what is not as it must be; nothing else is under way any more."""

    def take(self, client: Client, rng: random.Random) -> None:
        """One step, counted."""
        try:
            self.step(client, rng)
        except OperationFailed:
            self.unknown += 1
            raise
        self.done += 1

    def unique(self) -> int:
        """A number that nobody else gets."""
        with self._lock:
            self._next += 1
            return self._next

    def complain(self, condition: bool, text: str) -> None:
        """Note a violation unless the condition holds."""
        if not condition:
            self.complaints.append(f"{self.name}: {text}")


def real_time_violations(deeds: list[Deed], *, is_strict: bool) -> list[str]:
    """Pairs where the later operation was told a smaller number than the earlier one.

    Of two operations of which one ended before the other began, the numbers have to be in order.
    """
    ended = sorted((d for d in deeds if d.number is not None), key=lambda d: d.end)
    begun = sorted((d for d in deeds if d.number is not None), key=lambda d: d.start)
    found, greatest, position = [], None, 0
    for deed in begun:
        while position < len(ended) and ended[position].end < deed.start:
            candidate = ended[position]
            if greatest is None or (candidate.number or 0) > (greatest.number or 0):
                greatest = candidate
            position += 1
        if greatest is None:
            continue
        low, high = greatest.number or 0, deed.number or 0
        if high < low or (is_strict and high == low):
            found.append(f"{deed.key} got {high} after {greatest.key} had got {low}")
    return found


class Register(Workload):
    """Writes, conditional writes, and reads behind a sync: linearizable by the znode's version."""

    name = "register"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._writes: list[Deed] = []
        self._reads: list[Deed] = []
        self._seen: list[tuple[int, bytes]] = []
        self._tried: set[bytes] = {b""}

    def step(self, client: Client, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self._write(client, rng)
        else:
            self._read(client)

    def _write(self, client: Client, rng: random.Random) -> None:
        value = b"%d" % self.unique()
        with self._lock:
            self._tried.add(value)
        expected = client.get_data(self.root).stat.version if rng.random() < 0.5 else -1
        start = time.monotonic()
        try:
            stat = client.set_data(self.root, value, expected)
        except OperationFailed as error:
            if error.code in _REFUSALS:
                return
            self._writes.append(Deed(start, time.monotonic(), "unknown write", None))
            raise
        self._writes.append(Deed(start, time.monotonic(), f"write {value!r}", stat.version))
        self._seen.append((stat.version, value))

    def _read(self, client: Client) -> None:
        start = time.monotonic()
        client.sync(self.root)
        found = client.get_data(self.root)
        version = found.stat.version
        self._reads.append(Deed(start, time.monotonic(), f"read of {found.data!r}", version))
        self._seen.append((version, found.data or b""))

    def check(self, client: Client) -> None:
        client.sync(self.root)
        found = client.get_data(self.root)
        self._seen.append((found.stat.version, found.data or b""))
        values: dict[int, bytes] = {}
        for version, value in self._seen:
            self.complain(
                values.setdefault(version, value) == value,
                f"version {version} is {values[version]!r} and {value!r}",
            )
            self.complain(value in self._tried, f"{value!r} was never written")
        told = [deed.number for deed in self._writes if deed.number is not None]
        self.complain(len(told) == len(set(told)), "two writes got the same version")
        last = max(told, default=0)
        self.complain(found.stat.version >= last, f"version {last} was acknowledged and is lost")
        unknown = len(self._writes) - len(told)
        self.complain(
            len(told) <= found.stat.version <= len(told) + unknown,
            f"version {found.stat.version} with {len(told)} writes and {unknown} unknown ones",
        )
        for text in real_time_violations(self._writes, is_strict=True):
            self.complain(False, text)
        for text in real_time_violations([*self._writes, *self._reads], is_strict=False):
            self.complain(False, text)


class GrowingSet(Workload):
    """Elements are added: all that were acknowledged stay, and no other appears."""

    name = "set"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._added: set[str] = set()
        self._tried: set[str] = set()

    def step(self, client: Client, rng: random.Random) -> None:
        element = f"e{self.unique()}"
        self._tried.add(element)
        client.create(f"{self.root}/{element}", b"")
        self._added.add(element)

    def check(self, client: Client) -> None:
        client.sync(self.root)
        there = set(client.get_children(self.root))
        self.complain(self._added <= there, f"lost: {sorted(self._added - there)[:5]}")
        self.complain(there <= self._tried, f"from nowhere: {sorted(there - self._tried)[:5]}")


class CounterOf(Workload):
    """Increments by compare-and-set: each acknowledged one counts once."""

    name = "counter"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._results: list[Deed] = []
        self._lost = 0

    def step(self, client: Client, rng: random.Random) -> None:
        found = client.get_data(self.root)
        value = int(found.data or b"0") + 1
        start = time.monotonic()
        try:
            client.set_data(self.root, b"%d" % value, found.stat.version)
        except OperationFailed as error:
            if error.code in _REFUSALS:
                return
            self._lost += 1
            raise
        self._results.append(Deed(start, time.monotonic(), "increment", value))

    def check(self, client: Client) -> None:
        client.sync(self.root)
        value = int(client.get_data(self.root).data or b"0")
        count = len(self._results)
        self.complain(
            count <= value <= count + self._lost,
            f"{value} after {count} increments and {self._lost} unknown ones",
        )
        results = [deed.number for deed in self._results]
        self.complain(len(results) == len(set(results)), "two increments gave the same value")
        for text in real_time_violations(self._results, is_strict=True):
            self.complain(False, text)


class Queue(Workload):
    """Items are put in and taken out: none twice, none lost, none from nowhere."""

    name = "queue"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._put: set[bytes] = set()
        self._tried: set[bytes] = set()
        self._taken: Counter[bytes] = Counter()
        self._maybe_taken: set[bytes] = set()

    def step(self, client: Client, rng: random.Random) -> None:
        if rng.random() < 0.6:
            item = b"%d" % self.unique()
            self._tried.add(item)
            client.create(f"{self.root}/q-", item, mode=CreateMode.PERSISTENT_SEQUENTIAL)
            self._put.add(item)
            return
        names = sorted(client.get_children(self.root))
        if not names:
            return
        path = f"{self.root}/{rng.choice(names[:3])}"
        try:
            item = client.get_data(path).data or b""
        except OperationFailed as error:
            if error.code in _REFUSALS:
                return
            raise
        try:
            client.delete(path)
        except OperationFailed as error:
            if error.code not in _REFUSALS:
                self._maybe_taken.add(item)
                raise
            return
        with self._lock:
            self._taken[item] += 1

    def check(self, client: Client) -> None:
        client.sync(self.root)
        left = {
            client.get_data(f"{self.root}/{name}").data or b""
            for name in client.get_children(self.root)
        }
        twice = [item for item, count in self._taken.items() if count > 1]
        self.complain(not twice, f"taken twice: {twice[:5]}")
        gone = self._put - left - set(self._taken) - self._maybe_taken
        self.complain(not gone, f"lost: {sorted(gone)[:5]}")
        strange = (left | set(self._taken)) - self._tried
        self.complain(not strange, f"from nowhere: {sorted(strange)[:5]}")
        back = left & set(self._taken)
        self.complain(not back, f"taken and still there: {sorted(back)[:5]}")


class UniqueIds(Workload):
    """Sequence numbers: all different, and growing in real time."""

    name = "ids"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._deeds: list[Deed] = []

    def step(self, client: Client, rng: random.Random) -> None:
        start = time.monotonic()
        path = client.create(f"{self.root}/i-", b"", mode=CreateMode.PERSISTENT_SEQUENTIAL)
        number = int(path[-10:])
        self._deeds.append(Deed(start, time.monotonic(), "id", number))

    def check(self, client: Client) -> None:
        numbers = [deed.number for deed in self._deeds]
        self.complain(len(numbers) == len(set(numbers)), "an id was given out twice")
        for text in real_time_violations(self._deeds, is_strict=True):
            self.complain(False, text)
        client.sync(self.root)
        there = {int(name[-10:]) for name in client.get_children(self.root)}
        lost = {number for number in numbers if number is not None} - there
        self.complain(not lost, f"lost: {sorted(lost)[:5]}")


class Watches(Workload):
    """A watch fires before its client can see what it watched for; none is lost.

    Every step of a worker reads with a watch; the one before has to have fired if the version is
    another one, on the same session, however often the connection was lost in between.
    """

    name = "watches"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._armed: dict[int, int] = {}
        self._fired: Counter[int] = Counter()
        self._expected: Counter[int] = Counter()

    def on_event(self, session_id: int, event: ClientEvent) -> None:
        """An event of a worker's client."""
        if event.type is EventType.NODE_DATA_CHANGED and event.path == self.root:
            with self._lock:
                self._fired[session_id] += 1

    def step(self, client: Client, rng: random.Random) -> None:
        if rng.random() < 0.4:
            client.set_data(self.root, b"%d" % self.unique())
            return
        session = client.session_id
        version = client.get_data(self.root, True).stat.version
        self._look(session, version)

    def _look(self, session: int, version: int) -> None:
        with self._lock:
            before = self._armed.get(session)
            self._armed[session] = version
            if before is None or before == version:
                return
            self.complain(version > before, f"version {version} was read after {before}")
            self._expected[session] += 1
            self.complain(
                self._fired[session] >= self._expected[session],
                f"session {session:#x} saw version {version} before its watch at {before} fired",
            )

    def check(self, client: Client) -> None:
        pass  # everything is checked at once


WORKLOADS: tuple[type[Workload], ...] = (
    Register,
    GrowingSet,
    CounterOf,
    Queue,
    UniqueIds,
    Watches,
)
