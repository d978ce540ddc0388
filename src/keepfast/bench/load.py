"""Requests in flight on many connections, and how long each takes to be answered.

One thread and one selector. Everything that a workload needs is created before the clock starts,
below a dedicated znode, and deleted afterwards.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from random import Random
from struct import Struct
from typing import Final

from keepfast.bench.latencies import Latencies
from keepfast.bench.works import (
    KIDS,
    KIDS_COUNT,
    LOCK,
    MADE,
    MANY,
    BenchRequest,
    Slot,
    Work,
    WorkSetting,
    create,
    delete,
    get,
    set_data,
)
from keepfast.client import ClientOptions, ServerAddress, ServerConnection
from keepfast.wire import (
    ConnectRequest,
    ErrorCode,
    GetChildrenRequest,
    GetChildrenResponse,
    MalformedRecord,
    OpCode,
    SessionId,
    Xid,
    Zxid,
    decode,
    encode,
)

_HEADER: Final = Struct(">ii")
_REPLY: Final = Struct(">iqi")
_REPLY_SIZE: Final = 16
_NS: Final = 1_000_000_000
# Of the time that is measured; the works begin with it.
_WARM_UP: Final = 0.2
_SETUP_IN_FLIGHT: Final = 256
_STALLED_S: Final = 30.0
_NO_PASSWORD: Final = bytes(16)


class BenchFailed(Exception):  # noqa: N818 - it ends a measurement, it is not a fault in one
    """The measurement cannot be made or finished; the text says why."""


def _failed(address: ServerAddress, error: Exception) -> BenchFailed:
    return BenchFailed(f"{address}: {getattr(error, 'strerror', None) or error}")


@dataclass(frozen=True, slots=True)
class Load:
    """Where the load goes, and how much of it; None: as the work has it."""

    addresses: tuple[ServerAddress, ...]
    seconds: float = 5.0
    connections: int | None = None
    in_flight: int | None = None
    root: str = "/keepfast-bench"
    keys: int = 1000
    value_bytes: int = 128
    children: int = 100_000
    seed: int = 0
    client: ClientOptions = field(default_factory=ClientOptions)


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one workload."""

    work: Work
    connections: int
    in_flight: int
    seconds: float
    latencies: Latencies

    @property
    def per_second(self) -> float:
        """Requests (sessions, events) per second."""
        return self.latencies.count / self.seconds if self.seconds else 0.0


class _Line:
    """One session, its requests in flight and whose they are."""

    def __init__(self, address: ServerAddress, options: ClientOptions) -> None:
        wanted = options.session_timeout_ms
        hello = ConnectRequest(0, Zxid(0), wanted, SessionId(0), _NO_PASSWORD, False)
        try:
            self.connection = ServerConnection(address, hello, options)
        except (OSError, MalformedRecord) as error:
            raise _failed(address, error) from error
        if self.connection.response.timeout_ms <= 0:
            raise BenchFailed(f"{address} refused a session")
        self.waiting: deque[tuple[Slot | None, int]] = deque()
        self.events = 0
        self._xid = 0

    def send(self, request: BenchRequest, slot: Slot | None = None) -> None:
        """Put a request in flight."""
        self._xid += 1
        self.connection.send(_HEADER.pack(self._xid, request.op.value) + request.body)
        self.waiting.append((slot, time.monotonic_ns()))

    def replies(self) -> Iterator[tuple[Slot | None, int, int, bytes]]:
        """Of each reply that came: whose it is, when it was asked for, the error, the body."""
        try:
            payloads = self.connection.receive()
        except (OSError, MalformedRecord) as error:
            raise _failed(self.connection.address, error) from error
        for payload in payloads:
            xid, _, code = _REPLY.unpack_from(payload)
            if xid == Xid.EVENT:
                self.events += 1
                continue
            slot, since = self.waiting.popleft()
            yield slot, since, code, payload[_REPLY_SIZE:]

    def flush(self) -> None:
        """Send what is waiting."""
        try:
            self.connection.flush()
        except OSError as error:
            raise _failed(self.connection.address, error) from error

    def ask_all(self, requests: Iterator[BenchRequest], allowed: frozenset[int]) -> None:
        """Send requests many at a time and wait for all replies; their errors must be allowed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            while True:
                for request in islice(requests, _SETUP_IN_FLIGHT - len(self.waiting)):
                    self.send(request)
                if not self.waiting:
                    return
                self.flush()
                if not selector.select(_STALLED_S):
                    raise _stalled()
                for _, _, code, _ in self.replies():
                    if code and code not in allowed:
                        raise _refused(code)

    def ask(self, request: BenchRequest) -> bytes:
        """Send one request and wait for the body of its reply."""
        self.send(request)
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            while True:
                self.flush()
                if not selector.select(_STALLED_S):
                    raise _stalled()
                for _, _, code, body in self.replies():
                    if code:
                        raise _refused(code)
                    return body


def _stalled() -> BenchFailed:
    return BenchFailed(f"no reply for {_STALLED_S:.0f} s")


def _refused(code: int) -> BenchFailed:
    try:
        name = ErrorCode(code).name.lower().replace("_", " ")
    except ValueError:
        name = "unknown"
    return BenchFailed(f"a request failed with error {code} ({name})")


def run_work(work: Work, load: Load) -> Measured:
    """Create what the work needs, measure it, clean up. Raises BenchFailed."""
    connections = load.connections or work.connections
    in_flight = load.in_flight or work.in_flight
    run = f"{time.time_ns():x}"
    setting = WorkSetting(load.root, load.keys, b"v" * load.value_bytes, load.children, run)
    latencies = Latencies()
    maker = _Line(load.addresses[0], load.client)
    try:
        _make_working_set(maker, work, setting)
        if work.name == "connect":
            seconds = _connect(load, connections, latencies)
        elif work.name == "watchers":
            seconds = _watchers(load, connections, maker, setting, latencies)
        else:
            seconds = _requests(load, work, setting, (connections, in_flight), latencies)
        _delete_below(_fresh(maker, load), load.root)
    finally:
        maker.connection.close()
    return Measured(work, connections, in_flight, seconds, latencies)


def _fresh(maker: _Line, load: Load) -> _Line:
    """The same session if it still answers: a long measurement may have outlived it."""
    try:
        maker.ask(BenchRequest(OpCode.PING, b""))
    except BenchFailed:
        maker.connection.close()
        return _Line(load.addresses[0], load.client)
    return maker


def _make_working_set(maker: _Line, work: Work, setting: WorkSetting) -> None:
    def requests() -> Iterator[BenchRequest]:
        root = setting.root
        for path in ("", MADE, LOCK, KIDS, MANY):
            yield create(root + path, b"")
        for number in range(KIDS_COUNT):
            yield create(f"{root}{KIDS}/child-{number:04d}", setting.value)
        for number in range(setting.keys):
            yield create(f"{root}/k{number}", setting.value)
        if work.name == "list":
            for number in range(setting.children):
                yield create(f"{root}{MANY}/child-{number:08d}", b"")

    maker.ask_all(requests(), frozenset((ErrorCode.NODE_EXISTS.value,)))


def _delete_below(maker: _Line, root: str) -> None:
    """Delete a znode and all below it, deepest first."""
    levels = [[root]]
    while levels[-1]:
        below: list[str] = []
        for path in levels[-1]:
            found = maker.ask(
                BenchRequest(OpCode.GET_CHILDREN, encode(GetChildrenRequest(path, False)))
            )
            names = decode(GetChildrenResponse, found).children or ()
            below += [f"{path}/{name}" for name in names]
        # Only the working set's own folders have children: nobody asks a million leaves.
        levels.append(
            [path for path in below if path.removeprefix(root) in (MADE, LOCK, KIDS, MANY)]
        )
        maker.ask_all(
            (delete(path) for path in below if path not in levels[-1]),
            frozenset((ErrorCode.NO_NODE.value,)),
        )
    folders = (delete(path) for level in reversed(levels) for path in level)
    maker.ask_all(folders, frozenset((ErrorCode.NO_NODE.value, ErrorCode.NOT_EMPTY.value)))


@contextmanager
def _lines(load: Load, count: int) -> Iterator[list[_Line]]:
    lines: list[_Line] = []
    try:
        for _, address in zip(range(count), cycle(load.addresses), strict=False):
            lines.append(_Line(address, load.client))
        yield lines
        # What is under way would come to pass after the cleaning up, and sessions would live on.
        for line in lines:
            line.ask_all(iter((BenchRequest(OpCode.CLOSE_SESSION, b""),)), frozenset())
    finally:
        for line in lines:
            line.connection.close()


class _Clock:
    """The warm-up, then the time that counts, until something was measured."""

    def __init__(self, seconds: float, latencies: Latencies) -> None:
        self._latencies = latencies
        self._begins = time.monotonic_ns() + int(seconds * _WARM_UP * _NS)
        self._ends = self._begins + int(seconds * _NS)
        self.now = 0

    def look(self) -> bool:
        """Look at the time; False: it is over."""
        self.now = time.monotonic_ns()
        return self.now < self._ends or not self._latencies.count

    @property
    def counts(self) -> bool:
        """Whether what happens now is measured."""
        return self.now >= self._begins

    @property
    def seconds(self) -> float:
        """How long was measured."""
        return (time.monotonic_ns() - self._begins) / _NS


def _select(selector: selectors.BaseSelector) -> list[_Line]:
    ready = selector.select(_STALLED_S)
    if not ready:
        raise _stalled()
    return [key.data for key, _ in ready]


def _requests(
    load: Load, work: Work, setting: WorkSetting, shape: tuple[int, int], latencies: Latencies
) -> float:
    """Keep requests in flight until the time is over; returns the seconds that were measured."""
    if work.requests is None:
        raise BenchFailed(f"{work.name} is not a stream of requests")
    connections, in_flight = shape
    rng = Random(load.seed)
    with _lines(load, connections) as lines, selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line.connection, selectors.EVENT_READ, line)
            for _ in range(in_flight):
                made = work.requests(setting, rng)
                line.send(next(made), made)
            line.flush()
        clock = _Clock(load.seconds, latencies)
        while clock.look():
            for line in _select(selector):
                for slot, since, code, body in line.replies():
                    if code:
                        raise _refused(code)
                    if clock.counts:
                        latencies.add(time.monotonic_ns() - since)
                    if slot is not None:
                        line.send(slot.send(body), slot)
                line.flush()
            for line in lines:
                if line.connection.has_unsent:
                    line.flush()
        return clock.seconds


def _connect(load: Load, connections: int, latencies: Latencies) -> float:
    """Open and close sessions, one after another; returns the seconds that were measured."""
    clock = _Clock(load.seconds, latencies)
    addresses = cycle(load.addresses)
    close = BenchRequest(OpCode.CLOSE_SESSION, b"")
    with selectors.DefaultSelector() as selector:
        open_lines: dict[_Line, int] = {}
        while clock.look():
            while len(open_lines) < connections:
                since = time.monotonic_ns()
                line = _Line(next(addresses), load.client)
                line.send(close)
                line.flush()
                selector.register(line.connection, selectors.EVENT_READ, line)
                open_lines[line] = since
            for line in _select(selector):
                if any(True for _ in line.replies()):
                    if clock.counts:
                        latencies.add(time.monotonic_ns() - open_lines[line])
                    del open_lines[line]
                    selector.unregister(line.connection)
                    line.connection.close()
        for line in open_lines:
            line.connection.close()
    return clock.seconds


def _watchers(
    load: Load, connections: int, maker: _Line, setting: WorkSetting, latencies: Latencies
) -> float:
    """Change one znode that all watch, again and again; returns the seconds that were measured."""
    path = f"{setting.root}/k0"
    with _lines(load, connections) as lines, selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line.connection, selectors.EVENT_READ, line)
        clock = _Clock(load.seconds, latencies)
        while clock.look():
            for line in lines:
                line.send(get(path, watch=True))
                line.flush()
            for _ in _until(lines, selector, lambda line: not line.waiting):
                pass
            since = time.monotonic_ns()
            maker.send(set_data(path, setting.value))
            maker.flush()
            for line in _until(lines, selector, lambda line: line.events > 0):
                line.events = 0
                if clock.counts:
                    latencies.add(time.monotonic_ns() - since)
            maker.ask_all(iter(()), frozenset())
        return clock.seconds


def _until(
    lines: Sequence[_Line], selector: selectors.BaseSelector, is_done: Callable[[_Line], bool]
) -> Iterator[_Line]:
    """Read until every line is done; returns each when it is."""
    left = set(lines)
    while left:
        for line in _select(selector):
            for _, _, code, _ in line.replies():
                if code:
                    raise _refused(code)
            if line in left and is_done(line):
                left.discard(line)
                yield line
