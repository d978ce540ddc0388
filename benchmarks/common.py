"""What the benchmarks share: data, medians, a table, and the line that says where it was run."""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from keepfast.storage import LogReader, RealDisk, Store, StoreOptions, data_directory, frame
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    LogEntry,
    SessionId,
    SetDataTxn,
    TxnDigest,
    TxnHeader,
    encode_entry,
    make_zxid,
)
from tests.apache import words
from tests.apache.java import find_java, zookeeper_classpath
from tests.apache.server import free_ports

ROOT = Path(__file__).resolve().parent.parent


class Served(NamedTuple):
    """A server that runs: where clients reach it, and its process."""

    port: int
    pid: int


def machine() -> str:
    """Processor count, kernel, Python and commit: what a figure belongs to."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, commit {commit or 'none'}"
    )


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """One table, and below it where it was measured."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console = Console(width=110)
    console.print(table)
    console.print(machine())


def timed(action: Callable[[], object]) -> float:
    """Wall time of one call in seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_pair(
    first: Callable[[], float], second: Callable[[], float], rounds: int = 3
) -> tuple[float, float]:
    """Medians of two measurements that are taken in turn, so that load hits both alike."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter; its start is part of what is measured."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on the disk that holds the project: /tmp may be memory."""
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as name:
        yield Path(name)


def apache_command(
    main_class: str, *arguments: str, heap_mb: int, properties: str = ""
) -> list[str]:
    """Apache's code as its own scripts run it: the JVM's defaults, only the heap is given."""
    return [
        str(find_java()),
        f"-Xmx{heap_mb}m",
        f"-Dlog4j2.configurationFile={ROOT / 'tests' / 'apache' / 'log4j2.properties'}",
        *properties.split(),
        "-cp",
        zookeeper_classpath(),
        main_class,
        *arguments,
    ]


@contextmanager
def apache_server(data_dir: Path, heap_mb: int, more: str = "") -> Iterator[Served]:
    """A standalone Apache server on a directory, serving.

    `more`: further lines of its configuration.
    """
    port = free_ports(1)[0]
    configuration = data_dir / "zoo.cfg"
    configuration.write_text(
        f"dataDir={data_dir}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n{more}"
    )
    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (data_dir / "apache.out").open("wb") as output:
        process = subprocess.Popen(
            apache_command(main_class, str(configuration), heap_mb=heap_mb),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            words.wait_until(
                lambda: words.serving_mode(port) is not None, "Apache server", timeout=300
            )
            yield Served(port, process.pid)
        finally:
            process.kill()
            process.wait()


def set_data_entry(counter: int, data: bytes, digest: int = 0) -> bytes:
    """A log entry as a busy server writes it most."""
    header = TxnHeader(
        SessionId(0x1000012351E0000), counter, make_zxid(1, counter), 1_790_000_000_000, 5
    )
    body = SetDataTxn(f"/bench/node-{counter % 1000:06d}", data, counter)
    return encode_entry(LogEntry(header, body, TxnDigest(2, digest)))


def write_log(path: Path, count: int, data_bytes: int = 100) -> None:
    """A log of `count` records that every tool can decode."""
    data = b"v" * data_bytes
    with path.open("wb") as file:
        file.write(b"ZKLG\0\0\0\2" + bytes(8))
        for start in range(1, count + 1, 10_000):
            stop = min(count + 1, start + 10_000)
            file.write(b"".join(frame(set_data_entry(c, data)) for c in range(start, stop)))


def count_records(path: Path) -> int:
    """How many sound records a log has."""
    with RealDisk().open_read(str(path)) as file:
        return sum(1 for _ in LogReader(file))


def large_tree(count: int, data_bytes: int = 100, fan_out: int = 1000) -> Tree:
    """A tree of about `count` znodes, `fan_out` below each parent."""
    tree = Tree()
    zxid = 0

    def create(path: str, data: bytes, cversion: int) -> None:
        nonlocal zxid
        zxid += 1
        header = TxnHeader(SessionId(1), 0, make_zxid(0, zxid), 1_790_000_000_000 + zxid, 1)
        tree.apply(header, CreateTxn(path, data, OPEN_ACL, False, cversion))

    for parent in range(count // fan_out):
        create(f"/parent-{parent:06d}", b"", parent + 1)
        for child in range(fan_out):
            path = f"/parent-{parent:06d}/child-{child:08d}"
            create(path, b"%08d" % child + b"d" * (data_bytes - 8), child + 1)
    return tree


def write_directory(path: Path, tree: Tree) -> None:
    """A data directory whose newest snapshot holds `tree`."""
    disk = RealDisk()
    directory = data_directory(disk, str(path / "version-2"))
    store, _ = Store.open(disk, directory, StoreOptions(reserve_bytes=0))
    store.install_snapshot(tree)
    store.close()
