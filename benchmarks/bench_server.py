"""A standalone server under load, against Apache 3.9.5 with its default settings and a 1 GB heap.

Both run at the same time on the same machine and are loaded in turn by `zkload`
(benchmarks/zkload.c, compiled here with cc). Medians of three alternating runs, after a warm-up
of both. `--only` measures some of the loads.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import ROOT, Served, apache_server, print_table, scratch
from tests.apache import words
from tests.apache.server import free_ports

LOADS = {
    "pipelined reads": ["-d", "32", "-o", "get"],
    "ping-pong reads": ["-d", "1", "-o", "get"],
    "pipelined writes": ["-d", "32", "-o", "set"],
    "ping-pong writes": ["-d", "1", "-o", "set"],
    "mixed 90/10": ["-d", "32", "-o", "mix", "-r", "90"],
}
ROUNDS = 3


@contextmanager
def keepfast_server(data_dir: Path, more: str = "", source: str | None = None) -> Iterator[Served]:
    """A Keepfast server as its command runs it.

    `more`: further lines of its configuration. `source`: the `src` folder of another version.
    """
    port = free_ports(1)[0]
    configuration = data_dir / "zoo.cfg"
    configuration.write_text(
        f"dataDir={data_dir}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n{more}"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "keepfast", "serve", str(configuration)],
        cwd=ROOT,
        env=os.environ | ({"PYTHONPATH": source} if source else {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        words.wait_until(lambda: words.serving_mode(port) is not None, "Keepfast", timeout=60)
        yield Served(port, process.pid)
    finally:
        process.kill()
        process.wait()


def compiled_zkload(place: Path, *, has_tls: bool = False) -> Path:
    """The load generator; the one with TLS needs OpenSSL's headers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("bench_server needs a C compiler for zkload.c; none was found")
    program = place / "zkload"
    source = Path(__file__).with_name("zkload.c")
    tls = ["-DTLS", "-lssl", "-lcrypto"] if has_tls else []
    subprocess.run([compiler, "-O2", "-o", str(program), str(source), *tls], check=True)
    return program


def load(program: Path, port: int, arguments: list[str]) -> dict[str, float]:
    """One run; gives what zkload measured."""
    return read_result([str(program), "-s", f"127.0.0.1:{port}", "-c", "8", *arguments])


def read_result(command: list[str]) -> dict[str, float]:
    """Run zkload; gives what it printed."""
    return parsed(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parsed(output: str) -> dict[str, float]:
    """What a run of zkload printed."""
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    if result["errors"]:
        raise SystemExit(f"{result['errors']} requests failed: {output}")
    return result


def compare(program: Path, ports: tuple[int, int], arguments: list[str], rounds: int) -> list[str]:
    """Medians of runs in turn, ours and Apache's, as cells of the table."""
    for port in reversed(ports):
        load(program, port, arguments)
    runs = [tuple(load(program, port, arguments) for port in ports) for _ in range(rounds)]
    mine, apache = (statistics.median(run[side]["ops_per_s"] for run in runs) for side in (0, 1))
    p99 = [statistics.median(run[side]["p99_us"] for run in runs) for side in (0, 1)]
    return [
        f"{apache:,.0f}",
        f"{mine:,.0f}",
        f"{mine / apache:.2f}",
        f"{p99[1] / 1000:.2f}",
        f"{p99[0] / 1000:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(LOADS), help="repeatable")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    titles = options.only or list(LOADS)
    rows = []
    with scratch() as place:
        program = compiled_zkload(place)
        for name in ("ours", "apache"):
            (place / name).mkdir()
        with (
            keepfast_server(place / "ours") as ours,
            apache_server(place / "apache", heap_mb=1024) as theirs,
        ):
            # Java compiles what runs often: every kind of request once before the first figure.
            for arguments in LOADS.values():
                load(program, theirs.port, ["-t", "3", *arguments])
                load(program, ours.port, ["-t", "1", *arguments])
            for title in titles:
                arguments = ["-t", str(options.seconds), *LOADS[title]]
                cells = compare(program, (ours.port, theirs.port), arguments, options.rounds)
                rows.append([title, *cells])
    print_table(
        "8 connections, 128-byte values",
        ["load", "Apache op/s", "Keepfast op/s", "ratio", "Apache p99 ms", "Keepfast p99 ms"],
        rows,
    )


if __name__ == "__main__":
    main()
