"""How long the neighbours of a heavy request wait: a server of ours and one of Apache's.

While one client does something heavy, another one asks for a small znode, again and again, one
request at a time. Shown are its p99 and its longest wait on both servers, and how long the loop of
ours was held at most (`keepfast_loop_held_worst_seconds`, without the time of the disk). `--quick`
has a tenth of everything.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench_server import keepfast_server
from benchmarks.common import apache_server, print_table, scratch
from benchmarks.large_snapshot import write_large_directory
from benchmarks.raw_client import RawClient, in_pieces
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    DeleteRequest,
    GetChildrenRequest,
    GetDataRequest,
    MultiOp,
    OpCode,
    SetDataRequest,
    SetWatches,
    Zxid,
    encode,
    encode_multi_request,
)
from tests.apache import words

PROBED = "/probed"
MEGABYTE = 1_000_000
# What Apache's client puts into one setWatches.
WATCHED_AT_ONCE = 6_000
SETTLE_SECONDS = 0.5
# Between two writes, while a snapshot is waited for.
PAUSE_SECONDS = 0.002


class Sizes(NamedTuple):
    """How much of everything."""

    children: int
    operations: int
    values: int
    ephemerals: int
    watches: int
    clients: int
    znodes: int
    snapshots: int


FULL = Sizes(1_000_000, 10_000, 20, 100_000, 100_000, 10_000, 5_000_000, 5)
QUICK = Sizes(100_000, 1_000, 5, 10_000, 10_000, 1_000, 500_000, 5)


def made(path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT) -> bytes:
    """A create request."""
    return encode(CreateRequest(path, data, OPEN_ACL, mode.value))


class Probe(threading.Thread):
    """Asks for one znode until it is stopped; keeps how long it waited, in ms."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(port)
        self._request = encode(GetDataRequest(PROBED, False))
        self._is_over = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        while not self._is_over.is_set():
            start = time.perf_counter()
            self._client.do(OpCode.GET_DATA, self._request)
            self.waits.append((time.perf_counter() - start) * 1000)
            time.sleep(0.0005)

    def stop(self) -> tuple[float, float]:
        """p99 and the longest wait."""
        self._is_over.set()
        self.join()
        self._client.drop()
        ordered = sorted(self.waits)
        return ordered[len(ordered) * 99 // 100], ordered[-1]


# Each load prepares, at a server with this port and this directory, and gives what is measured.
Load = Callable[[int, Path, Sizes], Callable[[], None]]


def children(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    client = RawClient(port)
    client.do(OpCode.CREATE, made("/many"))
    in_pieces(client, OpCode.CREATE, (made(f"/many/{n:07d}") for n in range(sizes.children)))
    asked = encode(GetChildrenRequest("/many", False))

    def work() -> None:
        for number in range(3):
            # Each time another list: none is known from before.
            client.do(OpCode.CREATE, made(f"/many/new-{number}"))
            client.do(OpCode.GET_CHILDREN, asked)

    return work


def multi(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    client = RawClient(port)
    client.do(OpCode.CREATE, made("/multi"))
    paths = [f"/multi/{n}" for n in range(sizes.operations)]
    creates = tuple(
        MultiOp(OpCode.CREATE.value, CreateRequest(path, b"", OPEN_ACL, 0)) for path in paths
    )
    deletes = tuple(MultiOp(OpCode.DELETE.value, DeleteRequest(path, -1)) for path in paths)
    bodies = [encode_multi_request(ops) for ops in (creates, deletes)]

    def work() -> None:
        for body in bodies * 3:
            client.do(OpCode.MULTI, body)

    return work


def values(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    client = RawClient(port)
    client.do(OpCode.CREATE, made("/large"))
    change = encode(SetDataRequest("/large", b"v" * MEGABYTE, -1))
    read = encode(GetDataRequest("/large", False))

    def work() -> None:
        for _ in range(sizes.values):
            client.do(OpCode.SET_DATA, change)
            client.do(OpCode.GET_DATA, read)

    return work


def ephemerals(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    client = RawClient(port)
    client.do(OpCode.CREATE, made("/e"))
    mode = CreateMode.EPHEMERAL
    in_pieces(
        client, OpCode.CREATE, (made(f"/e/{n:06d}", mode=mode) for n in range(sizes.ephemerals))
    )
    return lambda: void(client.do(OpCode.CLOSE_SESSION, b""))


def watches(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    client = RawClient(port)
    client.do(OpCode.CREATE, made("/watched"))
    paths = [f"/watched/{n:06d}" for n in range(sizes.watches)]
    in_pieces(client, OpCode.CREATE, map(made, paths))
    parts = [
        tuple(paths[start : start + WATCHED_AT_ONCE])
        for start in range(0, len(paths), WATCHED_AT_ONCE)
    ]
    bodies = [encode(SetWatches(Zxid(1 << 60), part, (), ())) for part in parts]
    return lambda: void(client.do(OpCode.SET_WATCHES, *bodies))


def disconnect(port: int, _: Path, sizes: Sizes) -> Callable[[], None]:
    clients = [RawClient(port) for _ in range(sizes.clients)]

    def work() -> None:
        for client in clients:
            client.drop()

    return work


def snapshots(port: int, place: Path, sizes: Sizes) -> Callable[[], None]:
    """Write until a snapshot is due, and wait for it, again and again; old ones are purged."""
    client = RawClient(port)
    change = encode(SetDataRequest(PROBED, b"v", -1))

    def newest() -> str:
        return max(path.name for path in (place / "version-2").glob("snapshot.*"))

    def work() -> None:
        for _ in range(sizes.snapshots):
            before = newest()
            while newest() == before:
                client.do(OpCode.SET_DATA, change)
                time.sleep(PAUSE_SECONDS)

    return work


def void(_: object) -> None:
    """For a lambda whose result nobody wants."""


LOADS: dict[str, Load] = {
    "lists of {children:,} children": children,
    "multis of {operations:,} operations": multi,
    "values of 1 MB, written and read": values,
    "closing a session with {ephemerals:,} ephemerals": ephemerals,
    "{watches:,} watches set again": watches,
    "{clients:,} clients gone at once": disconnect,
    "{snapshots} snapshots of {znodes:,} znodes, old ones purged": snapshots,
}


def measured(port: int, place: Path, load: Load, sizes: Sizes) -> tuple[float, float, float]:
    """Seconds of the load, p99 and longest wait of the neighbour."""
    with RawClient(port) as client:
        client.do(OpCode.CREATE, made(PROBED, b"v"))
    work = load(port, place, sizes)
    words.ask(port, "srst")
    probe = Probe(port)
    probe.start()
    time.sleep(SETTLE_SECONDS)
    start = time.perf_counter()
    work()
    spent = time.perf_counter() - start
    time.sleep(SETTLE_SECONDS)
    return spent, *probe.stop()


def row(title: str, place: Path, load: Load, sizes: Sizes) -> list[str]:
    """Both servers, one after the other; each starts with nothing, or with a tree to snapshot."""
    # By default a session may have fewer ephemerals.
    more = f"keepfast.maxEphemerals={sizes.ephemerals}\n"
    for side in (place / "ours", place / "apache"):
        side.mkdir(parents=True)
    if load is snapshots:
        more += "snapCount=100\nautopurge.purgeInterval=1\n"
        for side in (place / "ours", place / "apache"):
            write_large_directory(side / "version-2", sizes.znodes)
    with apache_server(place / "apache", heap_mb=8192, more=more) as (port, _):
        theirs = measured(port, place / "apache", load, sizes)
    with keepfast_server(place / "ours", more) as (port, _):
        ours = measured(port, place / "ours", load, sizes)
        facts = dict(line.split("\t") for line in words.ask(port, "mntr").splitlines())
    pairs = [f"{a:,.2f} / {b:,.2f}" for a, b in zip(theirs, ours, strict=True)]
    held = float(facts["zk_keepfast_loop_held_worst_seconds"]) * 1000
    return [title.format(**sizes._asdict()), *pairs, f"{held:,.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="rows whose title has this; repeatable")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    chosen = {
        title: load
        for title, load in LOADS.items()
        if not options.only or any(part in title for part in options.only)
    }
    if not chosen:
        raise SystemExit(f"no row has {options.only}; there are: {', '.join(LOADS)}")
    with scratch() as place:
        rows = [
            row(title, place / str(number), load, sizes)
            for number, (title, load) in enumerate(chosen.items())
        ]
    print_table(
        "What a neighbour waits for; Apache / Keepfast",
        ["load", "seconds", "neighbour p99 ms", "worst ms", "our loop held, worst ms"],
        rows,
    )


if __name__ == "__main__":
    main()
