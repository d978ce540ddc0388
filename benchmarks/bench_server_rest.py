"""What a server costs that has little to do, against Apache 3.9.5 with a 1 GB heap.

Memory at rest and with a million znodes; the time from the start of the process to its first reply;
what 1,000 idle sessions with 100,000 watches take from the throughput of reads. Keepfast runs from
its bytecode, as an installed package does; `--only` measures a part.
"""

import argparse
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bench_server import compiled_zkload
from benchmarks.common import (
    ROOT,
    apache_command,
    large_tree,
    print_table,
    scratch,
    write_directory,
)
from tests.apache import words
from tests.apache.server import free_ports
from tests.differential import requests as wire
from tests.differential.requests import Op

ROUNDS = 3
SECONDS = "3"
SESSIONS = 1000
WATCHES_A_SESSION = 100
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
KINDS = ("Apache", "Keepfast")


def command_of(kind: str, configuration: Path) -> list[str]:
    if kind == "Apache":
        return apache_command(MAIN_CLASS, str(configuration), heap_mb=1024)
    return [sys.executable, "-m", "keepfast", "serve", str(configuration)]


class Process:
    """A server, as a user starts it."""

    def __init__(self, kind: str, data_dir: Path) -> None:
        data_dir.mkdir(exist_ok=True)
        self.port = free_ports(1)[0]
        configuration = data_dir / "zoo.cfg"
        configuration.write_text(
            f"dataDir={data_dir}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
        )
        # Some development machines keep Python from writing its bytecode; pip writes it.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(data_dir.parent / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        started = time.perf_counter()
        with (data_dir / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command_of(kind, configuration),
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
            )
        try:
            # Not by `wait_until`, which looks every 20 ms.
            while not self._answers():
                if self.process.poll() is not None:
                    raise SystemExit((data_dir / "output").read_text(errors="replace")[-3000:])
        except BaseException:
            self.end()
            raise
        self.start_seconds = time.perf_counter() - started

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"srvr")
                return b"Mode: " in connection.recv(1 << 16)
        except OSError:
            time.sleep(0.002)
            return False

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert match is not None
        return int(match[1]) / 1024

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(kind: str, data_dir: Path) -> Iterator[Process]:
    process = Process(kind, data_dir)
    try:
        yield process
    finally:
        process.end()


def at_rest(place: Path) -> list[list[float]]:
    """Seconds to the first reply, and MiB after it; one row per kind, medians of runs in turn."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for number in range(2 * ROUNDS):
        for kind in KINDS:
            with running(kind, place / f"rest-{kind}-{number}") as server:
                # The first one reads from the disk what the others find in memory.
                if number:
                    found[kind].append((server.start_seconds, server.resident_mib()))
    return [
        [statistics.median(column) for column in zip(*found[kind], strict=True)] for kind in KINDS
    ]


def with_znodes(place: Path, count: int) -> list[list[float]]:
    """The same on a directory that holds this many znodes."""
    tree = large_tree(count)
    rows = []
    for kind in KINDS:
        data_dir = place / f"znodes-{kind}"
        data_dir.mkdir()
        write_directory(data_dir, tree)
        with running(kind, data_dir) as server:
            found = int(words.monitor(server.port)["znode_count"])
            if found < count:
                raise SystemExit(f"{kind} has {found} znodes of {count}")
            rows.append([server.start_seconds, server.resident_mib()])
    return rows


def reads_per_second(program: Path, port: int) -> float:
    command = [str(program), "-s", f"127.0.0.1:{port}", "-c", "8", "-d", "32", "-t", SECONDS]
    output = subprocess.run([*command, "-o", "get"], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return result["ops_per_s"]


def idle_session(stack: ExitStack, port: int, number: int) -> None:
    """A session with watches of every kind, which then says nothing more."""
    line = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
    hello = wire.connect(0, 40_000, 0, bytes(16))
    frames = [hello]
    for watch in range(WATCHES_A_SESSION):
        path = f"/idle/{number}/{watch}"
        kind = (Op.EXISTS, wire.with_flag(path, True)), (Op.ADD_WATCH, wire.with_version(path, 0))
        op, body = kind[watch % 2]
        frames.append(struct.pack(">ii", watch, op) + body)
    line.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    waiting = len(frames)
    held = b""
    while waiting:
        held += line.recv(1 << 16)
        while len(held) >= 4 and len(held) >= 4 + struct.unpack_from(">i", held)[0]:
            held = held[4 + struct.unpack_from(">i", held)[0] :]
            waiting -= 1


def with_watches(place: Path, program: Path) -> list[list[float]]:
    """Reads a second without and with idle sessions that watch, in turn; one row per kind."""
    rows = []
    for kind in KINDS:
        with running(kind, place / f"watches-{kind}") as server:
            for _ in range(2):
                reads_per_second(program, server.port)
            without = [reads_per_second(program, server.port) for _ in range(ROUNDS)]
            with ExitStack() as stack:
                for number in range(SESSIONS):
                    idle_session(stack, server.port, number)
                beside = [reads_per_second(program, server.port) for _ in range(ROUNDS)]
                watches = int(words.monitor(server.port)["watch_count"])
                if watches < SESSIONS * WATCHES_A_SESSION:
                    raise SystemExit(f"{kind} has {watches} watches")
            without += [reads_per_second(program, server.port) for _ in range(ROUNDS)]
        rows.append([statistics.median(without), statistics.median(beside)])
    return rows


def rows_at_rest(place: Path, _: int) -> list[list[str]]:
    theirs, ours = at_rest(place)
    return [
        _row("cold start to the first reply, s", theirs[0], ours[0]),
        _row("resident memory at rest, MiB", theirs[1], ours[1]),
    ]


def rows_with_znodes(place: Path, count: int) -> list[list[str]]:
    theirs, ours = with_znodes(place, count)
    return [
        _row(f"start with {count:,} znodes, s", theirs[0], ours[0]),
        _row(f"resident memory with {count:,} znodes, MiB", theirs[1], ours[1]),
    ]


def rows_with_watches(place: Path, _: int) -> list[list[str]]:
    watched = with_watches(place, compiled_zkload(place))
    costs = [f"{beside / without - 1:+.1%}" for without, beside in watched]
    title = f"{SESSIONS:,} idle sessions, {SESSIONS * WATCHES_A_SESSION:,} watches: of reads"
    return [[title, *costs, ""]]


def _row(title: str, theirs: float, ours: float) -> list[str]:
    return [title, f"{theirs:,.2f}", f"{ours:,.2f}", f"{ours / theirs:.2f}"]


PARTS = {"rest": rows_at_rest, "znodes": rows_with_znodes, "watches": rows_with_watches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="repeatable")
    parser.add_argument("--znodes", type=int, default=1_000_000)
    options = parser.parse_args()
    with scratch() as place:
        rows = [row for part in options.only or PARTS for row in PARTS[part](place, options.znodes)]
    print_table("a server with little to do", ["what", *KINDS, "ratio"], rows)


if __name__ == "__main__":
    main()
