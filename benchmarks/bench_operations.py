"""Every operation that users have, against Apache 3.9.5 in one run: one server, or three.

Both kinds run at the same time with their default settings (Apache with a heap of 1 GB each) and
are loaded in turn by `zkload` (benchmarks/zkload.c, compiled here with cc): medians of alternating
rounds, after a warm-up of both. `--only` measures some of the rows, `--servers 3` an ensemble,
`--tls` one server over TLS; `--former` compares with another version of Keepfast.

Besides rates and latencies the table has the CPU time (user and system) that the server processes
spent per operation: on a machine with other work, only that can be compared.
"""

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench_server import compiled_zkload, keepfast_server, read_result
from benchmarks.common import Served, apache_server, print_table, scratch
from benchmarks.ensembles import APACHE, KEEPFAST, BenchEnsemble
from tests.apache.server import free_ports
from tests.server.authority import Authority

ROUNDS = 3


class Row(NamedTuple):
    """One load: its name in the table, and zkload's arguments."""

    title: str
    arguments: str


class Target(NamedTuple):
    """The servers of one kind: where zkload reaches them, and their processes."""

    hosts: str
    pids: list[int]


def target(served: Served, port: int | None = None) -> Target:
    """One server, at its own port or at another one of it."""
    return Target(f"127.0.0.1:{port or served.port}", [served.pid])


ONE = (
    Row("getData, 1,000 znodes", "-o get"),
    Row("getData, 100,000 znodes", "-o get -n 100000"),
    Row("exists", "-o exists"),
    Row("getChildren2, 20 children", "-o children"),
    Row("getChildren of 100,000, 4 x 4", "-o list -m 100000 -c 4 -d 4"),
    Row("getData with watch + 10 % setData", "-o watch"),
    Row("create", "-o create"),
    Row("create, then delete", "-o createdelete"),
    Row("ephemeral create, then delete", "-o ephemeral"),
    Row("multi (check, setData, create, delete)", "-o multi"),
    Row("locks, 8 in flight", "-o lock -d 8"),
    Row("setData", "-o set"),
    Row("setData, 8 x 1", "-o set -d 1"),
    Row("setData, 64 x 1", "-o set -c 64 -d 1"),
    Row("setData of 20 KB, 8 x 8", "-o set -v 20480 -d 8"),
    Row("connect, close, rounds of 50", "-o connect -c 50"),
    Row("one change to 500 watchers", "-o watchers -c 500"),
    Row("everyday mix, 8 x 32", "-o everyday"),
    Row("everyday mix, 64 x 1", "-o everyday -c 64 -d 1"),
)
THREE = (
    Row("getData", "-o get -c 9"),
    Row("exists", "-o exists -c 9"),
    Row("getChildren2, 20 children", "-o children -c 9"),
    Row("getChildren of 100,000, 6 x 4", "-o list -m 100000 -c 6 -d 4"),
    Row("getData with watch + 10 % setData", "-o watch -c 9"),
    Row("create", "-o create -c 9"),
    Row("create, then delete", "-o createdelete -c 9"),
    Row("ephemeral create, then delete", "-o ephemeral -c 9"),
    Row("multi (check, setData, create, delete)", "-o multi -c 9"),
    Row("locks, 8 in flight", "-o lock -c 9 -d 8"),
    Row("setData", "-o set -c 9"),
    Row("setData, 9 x 1", "-o set -c 9 -d 1"),
    Row("setData, 90 x 1", "-o set -c 90 -d 1"),
    Row("setData of 20 KB, 9 x 8", "-o set -v 20480 -c 9 -d 8"),
    Row("connect, close, rounds of 50", "-o connect -c 50"),
    Row("one change to 500 watchers", "-o watchers -c 500"),
    Row("everyday mix, 9 x 32", "-o everyday -c 9"),
    Row("everyday mix, 90 x 1", "-o everyday -c 90 -d 1"),
)
# Over TLS, with what Apache needs for it: Netty in place of its own sockets.
SECURE = tuple(
    Row(f"TLS: {row.title}", f"{row.arguments} -T")
    for row in ONE
    if row.title in ("getData, 1,000 znodes", "create", "setData", "everyday mix, 8 x 32")
)
NETTY = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"


@contextmanager
def one_of_each_by_tls(place: Path) -> Iterator[tuple[Target, Target]]:
    """The secure ports of a server of ours and one of Apache's."""
    for name in ("ours", "apache"):
        (place / name).mkdir()
    authority = Authority(place / "authority")
    store, ports = authority.pkcs8_pem(), free_ports(2)
    ours, theirs = (
        f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=none\n"
        f"ssl.keyStore.location={store}\n"
        f"ssl.trustStore.location={authority.pem}\n"
        for port in ports
    )
    with (
        keepfast_server(place / "ours", ours) as keepfast,
        apache_server(place / "apache", heap_mb=1024, more=theirs + NETTY) as apache,
    ):
        yield target(keepfast, ports[0]), target(apache, ports[1])


@contextmanager
def one_of_each(place: Path) -> Iterator[tuple[Target, Target]]:
    """A server of ours and one of Apache's."""
    for name in ("ours", "apache"):
        (place / name).mkdir()
    with (
        keepfast_server(place / "ours") as ours,
        apache_server(place / "apache", heap_mb=1024) as theirs,
    ):
        yield target(ours), target(theirs)


@contextmanager
def both_versions(place: Path, former: str) -> Iterator[tuple[Target, Target]]:
    """A server of this code, and one of another version of it."""
    for name in ("ours", "former"):
        (place / name).mkdir()
    with (
        keepfast_server(place / "ours") as ours,
        keepfast_server(place / "former", source=former) as theirs,
    ):
        yield target(ours), target(theirs)


@contextmanager
def three_of_each(place: Path) -> Iterator[tuple[Target, Target]]:
    """An ensemble of ours and one of Apache's."""
    with (
        BenchEnsemble(KEEPFAST, place / "ours") as ours,
        BenchEnsemble(APACHE, place / "apache") as theirs,
    ):
        yield Target(ours.hosts, ours.pids), Target(theirs.hosts, theirs.pids)


def load(program: Path, servers: Target, row: Row, seconds: float) -> dict[str, float]:
    """One run; gives what zkload measured."""
    place = ["-s", servers.hosts, "-P", ",".join(map(str, servers.pids))]
    return read_result([str(program), *place, "-t", str(seconds), *row.arguments.split()])


def measured(
    program: Path, both: tuple[Target, Target], row: Row, seconds: float, rounds: int
) -> list[str]:
    """The cells of one row: rates, their ratio, CPU per operation, and latencies of both."""
    for servers in reversed(both):
        load(program, servers, row, seconds)
    runs = [tuple(load(program, servers, row, seconds) for servers in both) for _ in range(rounds)]

    def median(name: str, side: int) -> float:
        return statistics.median(run[side][name] for run in runs)

    mine, apache = median("ops_per_s", 0), median("ops_per_s", 1)
    latencies = [
        f"{median(name, 1) / 1000:.2f} / {median(name, 0) / 1000:.2f}"
        for name in ("p50_us", "p99_us", "max_us")
    ]
    cpu = f"{median('cpu_us', 1):,.1f} / {median('cpu_us', 0):,.1f}"
    return [row.title, f"{apache:,.0f}", f"{mine:,.0f}", f"{mine / apache:.2f}", cpu, *latencies]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--tls", action="store_true", help="one server, over TLS")
    parser.add_argument("--only", action="append", help="rows whose title has this; repeatable")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--former", help="the `src` folder of another version, in Apache's place")
    options = parser.parse_args()
    rows = SECURE if options.tls else ONE if options.servers == 1 else THREE
    chosen = [row for row in rows if not options.only or any(o in row.title for o in options.only)]
    if not chosen:
        raise SystemExit(
            f"no row has {options.only}; there are: {', '.join(r.title for r in rows)}"
        )
    servers = one_of_each if options.servers == 1 else three_of_each
    if options.tls:
        servers = one_of_each_by_tls
    if options.former:
        servers = partial(both_versions, former=options.former)
    with scratch() as place:
        program = compiled_zkload(place, has_tls=options.tls)
        with servers(place) as both:
            # Java compiles what runs often: some of every operation before the first figure.
            for row in chosen:
                for each in both:
                    load(program, each, row, 1)
            table = [measured(program, both, r, options.seconds, options.rounds) for r in chosen]
    rival, name = ("former", "this code") if options.former else ("Apache", "Keepfast")
    print_table(
        f"{options.servers} server(s), 8 x 32 in flight unless said; CPU, ms: {rival} / {name}",
        [
            "load",
            f"{rival} op/s",
            f"{name} op/s",
            "ratio",
            "CPU µs",
            "p50 ms",
            "p99 ms",
            "worst ms",
        ],
        table,
    )


if __name__ == "__main__":
    main()
