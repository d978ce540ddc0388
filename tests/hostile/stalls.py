"""How long others wait while somebody attacks: `make stalls`.

A neighbour, in a process of its own, asks for a small znode again and again, and writes down how
long each answer took. One line for each attack, by both doors; a neighbour that waits for more than
50 ms is a failure.

What other programs on the machine cost is not the server's: the time for which the server's loop,
or the neighbour itself, was ready to run and had no core is subtracted from each wait (Linux counts
it for every thread). What is left is what the loop did before it came to the neighbour. It is too
noisy for a test all the same.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.hostile.doors import DOORS, Door, door_of
from tests.hostile.offenders import Offender, get_data
from tests.hostile.test_unreadable import ask, create_ephemerals, create_for_all
from tests.keepfast_server import KeepfastServer

_BOUND_MS = 50.0
_MS = 1_000_000
_IDLE_SECONDS = 3.0
_BIG = b"x" * 1_000_000
_SET_WATCHES_XID = struct.pack(">i", -8)
_CONFIGURATION = {"maxSessionTimeout": "60000", "maxClientCnxns": "0"}
# A tree that was taken over may have longer lists than clients may set.
_WHILE_PREPARING = {"keepfast.maxAclEntries": "20000"}


def _hear(offender: Offender, count: int) -> None:
    for _ in range(count):
        assert offender.frame() is not None


def nothing(_: Offender) -> None:
    time.sleep(_IDLE_SECONDS)


def long_ephemerals(offender: Offender) -> None:
    create_ephemerals(offender, 100_000)
    ask(offender, Op.CLOSE_SESSION, b"")


def multi_reads(offender: Offender) -> None:
    offender.ask(*[(Op.MULTI_READ, wire.multi([get_data("/big")] * 1000))] * 20)
    _hear(offender, 20)


def counts(offender: Offender) -> None:
    offender.ask(*[(Op.GET_ALL_CHILDREN_NUMBER, wire.text("/many"))] * 2000)
    _hear(offender, 2000)


def lists(offender: Offender) -> None:
    for _ in range(20):
        offender.ask((Op.GET_CHILDREN, wire.with_flag("/many", False)))
        _hear(offender, 1)


def ids_against_acl(offender: Offender) -> None:
    for number in range(2000):
        auth = wire.auth("digest", b"id%d:x" % number)
        offender.send(struct.pack(">ii", -4, Op.AUTH) + auth)
    _hear(offender, 2000)
    offender.ask(*[get_data("/closed")] * 500)
    _hear(offender, 500)


def long_acls(offender: Offender) -> None:
    """The longest list that is taken, of entries that take longest to check, and a longer one."""
    for count in (2048, 2048, 20_000):
        entries = [(1, "ip", f"2001:db8::{number:x}/127") for number in range(count)]
        offender.ask((Op.CREATE, wire.create(f"/acl{count}", b"", entries, 0)))
        _hear(offender, 1)


def many_reads(offender: Offender) -> None:
    """As many as one multiRead may have, and more."""
    for count in (10_000, 50_000):
        offender.ask((Op.MULTI_READ, wire.multi([get_data("/small")] * count)))
        _hear(offender, 1)


def large_reads(offender: Offender) -> None:
    for _ in range(200):
        offender.ask(get_data("/big"))
        _hear(offender, 1)


def watches_again(offender: Offender) -> None:
    """As many as fit into a request, each with an event that was missed, and without."""
    for zxid, path in ((0, "/none"), (1 << 40, "/many")):
        lists = [[path] * 100_000, [], []]
        offender.send(struct.pack(">ii", -8, Op.SET_WATCHES) + wire.set_watches(zxid, *lists))
        while (frame := offender.frame()) is None or frame[:4] != _SET_WATCHES_XID:
            assert frame is not None


def long_multis(offender: Offender) -> None:
    """As many operations as fit into a request, of each kind."""
    names = [f"/m{number:x}" for number in range(16_000)]
    creates = [(Op.CREATE, wire.create(name, b"", OPEN, 0)) for name in names]
    sets = [(Op.SET_DATA, wire.set_data(name, b"", -1)) for name in names] * 2
    deletes = [(Op.DELETE, wire.with_version(name, -1)) for name in names]
    checks = [(Op.CHECK, wire.with_version("/", -1))] * 55_000
    for operations in (creates, sets, deletes, checks, [*creates[:-1], creates[0]]):
        offender.ask((Op.MULTI, wire.multi(operations)))
        _hear(offender, 1)


def multis_of_acls(offender: Offender) -> None:
    """Many long lists, and very many different ones."""
    entries = [(31, "ip", f"2001:db8::{number:x}/127") for number in range(2000)]
    long = [(Op.CREATE, wire.create(f"/l{n}", b"", entries, 0)) for n in range(15)]
    other = [(31, "digest", f"{number}:x") for number in range(15_000)]
    short = [(Op.CREATE, wire.create(f"/s{n}", b"", [who], 0)) for n, who in enumerate(other)]
    for operations in (long, short, short[:2000]):
        offender.ask((Op.MULTI, wire.multi(operations)))
        _hear(offender, 1)


def acls_of_many_ids(offender: Offender) -> None:
    """Short requests, each of which becomes a long txn."""
    for number in range(2000):
        auth = wire.auth("digest", b"id%d:x" % number)
        offender.send(struct.pack(">ii", -4, Op.AUTH) + auth)
    _hear(offender, 2000)
    whoever = [(31, "auth", "")]
    names = (f"/acl-{number}" for number in range(200))
    made = [(Op.CREATE, wire.create(name, b"", whoever, 0)) for name in names]
    assert all(offender.ask_and_read(*made))


def many_ephemerals(offender: Offender) -> None:
    """As many as a session may have, and its end."""
    for start in (0, 10_000):
        names = (f"/e{number:x}" for number in range(start, start + 10_000))
        made = [(Op.CREATE, wire.create(name, b"", OPEN, 1)) for name in names]
        assert ask(offender, Op.MULTI, wire.multi(made)) == 0
    assert ask(offender, Op.CLOSE_SESSION, b"") == 0


def deep_paths(offender: Offender) -> None:
    """Writes far below a recursive watch, all at once."""
    assert ask(offender, Op.ADD_WATCH, wire.with_version("/none", 1)) == 0
    deep = ["/d" * levels for levels in range(1, 2001)]
    for start in range(0, len(deep), 500):
        made = [(Op.CREATE, wire.create(path, b"", OPEN, 0)) for path in deep[start : start + 500]]
        assert all(offender.ask_and_read(*made))
    assert all(offender.ask_and_read(*[(Op.SET_DATA, wire.set_data(deep[-1], b"", -1))] * 1500))


def names_asked(offender: Offender) -> None:
    """Lists of what the client has, which are short to ask for and long to make."""
    made = [(Op.CREATE, wire.create(f"/e{number:x}", b"", OPEN, 1)) for number in range(10_000)]
    assert ask(offender, Op.MULTI, wire.multi(made)) == 0
    assert all(offender.ask_and_read(*[(Op.GET_EPHEMERALS, wire.text("/none"))] * 1000))
    for number in range(2000):
        auth = wire.auth("digest", b"id%d:x" % number)
        offender.send(struct.pack(">ii", -4, Op.AUTH) + auth)
    _hear(offender, 2000)
    assert all(offender.ask_and_read(*[(Op.WHO_AM_I, b"")] * 200))
    assert ask(offender, Op.CLOSE_SESSION, b"") == 0


def many_multis(offender: Offender) -> None:
    """Each too short to be done in slices, and all committed together."""
    names = [f"/s{number:x}" for number in range(240)]
    creates = [(Op.CREATE, wire.create(name, b"", OPEN, 0)) for name in names]
    sets = [(Op.SET_DATA, wire.set_data(name, b"", -1)) for name in names]
    deletes = [(Op.DELETE, wire.with_version(name, -1)) for name in names]
    for operations, times in ((creates, 1), (sets, 200), (deletes, 1)):
        assert all(offender.ask_and_read(*[(Op.MULTI, wire.multi(operations))] * times))


@contextmanager
def _audience(offender: Offender, count: int) -> Iterator[None]:
    """Others who watch the whole tree, and read what they are sent."""
    door = Door({}, {}, offender.tls)
    watchers = [door.enter(offender.port) for _ in range(count)]
    readers = []
    for watcher in watchers:
        assert ask(watcher, Op.ADD_WATCH, wire.with_version("/", 1)) == 0
        readers.append(threading.Thread(target=watcher.is_cut_off, daemon=True))
    for reader in readers:
        reader.start()
    try:
        yield
        # It is applied after all events of what was before it were sent.
        assert ask(offender, Op.SET_DATA, wire.set_data("/small", b"s", -1)) == 0
    finally:
        for watcher, reader in zip(watchers, readers, strict=True):
            watcher.socket.shutdown(socket.SHUT_RDWR)
            reader.join()
            watcher.close()


def watched_multis(offender: Offender) -> None:
    """Each change is an event for everyone who watches the whole tree."""
    for count in (1, 20):
        with _audience(offender, count):
            long_multis(offender)


def watched_ephemerals(offender: Offender) -> None:
    with Door({}, {}, offender.tls).enter(offender.port) as closing, _audience(offender, 5):
        many_ephemerals(closing)


def short_paths(offender: Offender) -> None:
    """As many different znodes as one request can name."""
    names = [f"/{number:x}" for number in range(40_000)]
    for start in range(0, len(names), 10_000):
        made = [(Op.CREATE, wire.create(name, b"", OPEN, 0)) for name in names[start:][:10_000]]
        assert ask(offender, Op.MULTI, wire.multi(made)) == 0
    for watchers in (0, 1):
        with _audience(offender, watchers):
            changed = [(Op.SET_DATA, wire.set_data(name, b"", -1)) for name in names]
            assert ask(offender, Op.MULTI, wire.multi(changed)) == 0
    deleted = [(Op.DELETE, wire.with_version(name, -1)) for name in names]
    assert ask(offender, Op.MULTI, wire.multi(deleted)) == 0


def below_quotas(offender: Offender) -> None:
    """Applied in one piece, and therefore limited."""
    top = "/zookeeper/quota/stall"
    names = [top, *(f"{top}/{number}" for number in range(999))]
    made = [(Op.CREATE, wire.create(name, b"", OPEN, 0)) for name in names]
    gone = [(Op.DELETE, wire.with_version(name, -1)) for name in reversed(names)]
    for operations in (made, gone):
        assert ask(offender, Op.MULTI, wire.multi(operations)) == 0


def watches_set_and_removed(offender: Offender) -> None:
    """Many at a time, of each kind, and what is left of them when the client goes."""
    paths = [f"/none/{number}" for number in range(20_000)]
    for mode in (0, 1):
        added = [(Op.ADD_WATCH, wire.with_version(path, mode)) for path in paths]
        removed = [(Op.REMOVE_WATCHES, wire.with_version(path, 3)) for path in paths[:10_000]]
        assert all(offender.ask_and_read(*added, *removed))


ATTACKS: tuple[Callable[[Offender], None], ...] = (
    nothing,
    create_for_all,
    long_ephemerals,
    multi_reads,
    counts,
    lists,
    ids_against_acl,
    long_acls,
    many_reads,
    large_reads,
    watches_again,
    long_multis,
    multis_of_acls,
    acls_of_many_ids,
    many_ephemerals,
    deep_paths,
    names_asked,
    many_multis,
    watched_multis,
    watched_ephemerals,
    short_paths,
    below_quotas,
    watches_set_and_removed,
)
# Those that write a line into the audit log for each change.
AUDITED = (long_multis, many_ephemerals, many_multis, short_paths)


def prepare(door: Door, port: int, *, entries: int = 20_000, width: int = 20_000) -> None:
    """Make what the attacks ask for, with an ACL of this many entries, and this many children."""
    with door.enter(port) as writer:
        closed = [(1, "digest", f"user{number}:x") for number in range(entries)]
        made = [("/small", b"s", OPEN), ("/big", _BIG, OPEN), ("/many", b"", OPEN)]
        for path, data, acl in (*made, ("/closed", b"", closed)):
            assert ask(writer, Op.CREATE, wire.create(path, data, acl, 0)) == 0
        for start in range(0, width, 500):
            paths = (f"/many/{number}" for number in range(start, start + 500))
            writer.ask(*((Op.CREATE, wire.create(path, b"", OPEN, 0)) for path in paths))
            _hear(writer, 500)


class Waits(NamedTuple):
    """What a neighbour saw of an attack."""

    attack: str
    # The longest wait, and the longest without the time that other programs had the cores.
    longest_ms: float
    held_ms: float
    answers: int
    seconds: float


def _coreless_ns(pid: int) -> int:
    """How long the main thread of a process was ready to run and did not, since it began."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1])


def _neighbour(door: Door, port: int, pid: int, stop: Event, results: Connection) -> None:
    """Ask and measure until told to stop; sends both longest waits, and how many there were."""
    own = os.getpid()
    with door.enter(port) as line:
        results.send((0, 0, 0))
        longest, held, count = 0, 0, 0
        while not stop.is_set():
            coreless = _coreless_ns(pid) + _coreless_ns(own)
            begin = time.perf_counter_ns()
            line.ask(get_data("/small"))
            _hear(line, 1)
            waited = time.perf_counter_ns() - begin
            longest = max(longest, waited)
            held = max(held, waited - (_coreless_ns(pid) + _coreless_ns(own) - coreless))
            count += 1
        results.send((longest, held, count))


def _play(
    door: Door, server: KeepfastServer, attack: Callable[[Offender], None], name: str
) -> Waits:
    processes = multiprocessing.get_context("fork")
    stop = processes.Event()
    ours, theirs = processes.Pipe()
    arguments = (door, server.port, server.pid, stop, theirs)
    neighbour = processes.Process(target=_neighbour, args=arguments)
    neighbour.start()
    ours.recv()
    begin = time.monotonic()
    with door.enter(server.port) as offender:
        attack(offender)
    seconds = time.monotonic() - begin
    stop.set()
    longest, held, count = ours.recv()
    neighbour.join()
    return Waits(name, longest / _MS, held / _MS, count, seconds)


def measure(kind: str, root: Path) -> list[Waits]:
    """Play each attack by one door."""
    door = door_of(kind, root / "door")
    found = []
    with door.server(root / "data", _CONFIGURATION | _WHILE_PREPARING) as server:
        prepare(door, server.port)
    audited = {"audit.enable": "true"}
    for more, attacks in (({}, ATTACKS), (audited, AUDITED)):
        with door.server(root / "data", _CONFIGURATION | more) as server:
            for attack in attacks:
                name = attack.__name__ + (", audited" if more else "")
                found.append(_play(door, server, attack, name))
    return found


def main() -> int:
    failures = 0
    print(f"{'door':8} {'attack':24} {'held':>9} {'waited':>9} {'answers':>8} {'seconds':>8}")
    for kind in DOORS:
        with tempfile.TemporaryDirectory(prefix="keepfast-stalls-") as folder:
            results = measure(kind, Path(folder))
        for name, longest_ms, held_ms, answers, seconds in results:
            is_failure = held_ms > _BOUND_MS
            failures += is_failure
            mark = "  more than 50 ms" if is_failure else ""
            print(
                f"{kind:8} {name:24} {held_ms:6.1f} ms {longest_ms:6.1f} ms {answers:8} "
                f"{seconds:8.1f}{mark}",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
