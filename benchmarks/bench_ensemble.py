"""Three Keepfast servers against three of Apache 3.9.5, side by side on this machine.

    python -m benchmarks.bench_ensemble                      loads, failover and catch-up
    python -m benchmarks.bench_ensemble --only loads
    python -m benchmarks.bench_ensemble --only catch-up --missing 1000000

Both ensembles run at the same time and are used in turn; figures are medians of three alternating
runs behind a warm-up, catch-up is measured once. Load comes from `zkload` (benchmarks/zkload.c).
Failover: seconds from kill -9 of a leader under load until a survivor takes a write. Catch-up:
seconds from the start of a follower that lacks so many txns, or that is empty beside so many
znodes, until it follows with all of them; and meanwhile the p99 of the leader's own clients.
"""

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_server import compiled_zkload, parsed, read_result
from benchmarks.common import print_table, scratch
from benchmarks.ensembles import APACHE, KEEPFAST, BenchEnsemble, wait_for_write
from tests.apache import words

LOADS = {
    "pipelined writes": ["-d", "32", "-o", "set"],
    "ping-pong writes": ["-d", "1", "-o", "set"],
    "reads over all three": ["-d", "32", "-o", "get"],
    "mixed 90/10": ["-d", "32", "-o", "mix", "-r", "90"],
}
ROUNDS = 3
_TIMEOUT = 1800.0

Pair = tuple[BenchEnsemble, BenchEnsemble]


class Bench:
    """A load generator and two ensembles: ours and Apache's."""

    def __init__(self, program: Path, both: Pair, seconds: str) -> None:
        self._program = program
        self.both = both
        self._seconds = seconds

    def load(
        self, hosts: str, arguments: list[str], seconds: str | None = None
    ) -> dict[str, float]:
        """One run; gives what zkload measured."""
        return read_result(self._command(hosts, ["-c", "8", *arguments], seconds))

    def start_load(self, hosts: str, arguments: list[str], seconds: str) -> subprocess.Popen[str]:
        """Begin a run, whatever becomes of it."""
        return subprocess.Popen(
            self._command(hosts, arguments, seconds),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _command(self, hosts: str, arguments: list[str], seconds: str | None) -> list[str]:
        return [str(self._program), "-s", hosts, "-t", seconds or self._seconds, *arguments]

    # -- loads -----------------------------------------------------------------------------------

    def loads(self) -> None:
        """Rates and p99 of each load, and the memory of all three servers behind them."""
        for arguments in LOADS.values():
            for ensemble in reversed(self.both):
                self.load(ensemble.hosts, arguments)
        rows = []
        for title, arguments in LOADS.items():
            runs = [[self.load(e.hosts, arguments) for e in self.both] for _ in range(ROUNDS)]
            ours, theirs = (
                statistics.median(run[side]["ops_per_s"] for run in runs) for side in (0, 1)
            )
            p99 = [statistics.median(run[side]["p99_us"] for run in runs) for side in (0, 1)]
            rows.append(
                [
                    title,
                    f"{theirs:,.0f}/s",
                    f"{ours:,.0f}/s",
                    f"{ours / theirs:.2f}",
                    f"{p99[1] / 1000:.2f}",
                    f"{p99[0] / 1000:.2f}",
                ]
            )
        ours, theirs = (ensemble.resident_mb() for ensemble in self.both)
        rows.append(
            ["memory of all three", f"{theirs:.0f} MB", f"{ours:.0f} MB", f"{ours / theirs:.2f}"]
        )
        print_table(
            "three servers, 8 connections, 128-byte values",
            ["load", "Apache", "Keepfast", "ratio", "Apache p99 ms", "Keepfast p99 ms"],
            [row + [""] * (6 - len(row)) for row in rows],
        )

    # -- failover --------------------------------------------------------------------------------

    def failover(self) -> None:
        """Leaders that are killed under load."""
        for ensemble in self.both:
            self.load(ensemble.hosts, LOADS["pipelined writes"], "0.2")
        runs = [[self._kill_leader(e) for e in self.both] for _ in range(ROUNDS)]
        self._print_times("leader killed under load", "seconds until a write is taken", runs)

    def _kill_leader(self, ensemble: BenchEnsemble) -> float:
        leader = ensemble.leader()
        load = self.start_load(ensemble.hosts, ["-c", "6", *LOADS["pipelined writes"]], "2")
        time.sleep(1)
        ensemble.kill(leader)
        survivors = [port for id, port in ensemble.ports.items() if id != leader]
        seconds = wait_for_write(survivors, "/zkload/k0")
        load.kill()
        load.wait()
        ensemble.start(leader)
        ensemble.wait_until_whole()
        return seconds

    # -- catch-up --------------------------------------------------------------------------------

    def catch_up(self, missing: int) -> None:
        """A follower that lacks txns, then one that lacks everything."""
        for title, operation, is_wiped in (
            (f"{missing:,} txns missing", "set", False),
            (f"{missing:,} znodes missing", "create", True),
        ):
            times, p99 = [], []
            for ensemble in self.both:
                seconds, quiet, busy = self._catch_up(ensemble, missing, operation, is_wiped)
                times.append(seconds)
                p99.append(f"{quiet / 1000:.1f} -> {busy / 1000:.1f}")
            self._print_times(f"catch-up, {title}", "seconds until it follows", [times], p99)

    def _catch_up(
        self, ensemble: BenchEnsemble, missing: int, operation: str, is_wiped: bool
    ) -> tuple[float, float, float]:
        """Seconds, and the p99 of the leader's clients before and meanwhile."""
        follower, leader = ensemble.follower(), ensemble.leader()
        own = f"127.0.0.1:{ensemble.ports[leader]}"
        light = ["-c", "2", "-d", "1", "-o", "mix", "-r", "50"]
        quiet = read_result(self._command(own, light, "3"))["p99_us"]
        ensemble.kill(follower)
        port = ensemble.ports[leader]
        count = _znode_count if is_wiped else words.last_zxid
        goal, runs = count(port) + missing, 0
        while count(port) < goal:
            runs += 1
            self.load(own, ["-d", "32", "-o", operation, "-x", str(runs)], "2")
        if is_wiped:
            ensemble.wipe(follower)
        goal = words.last_zxid(port)
        started = time.perf_counter()
        ensemble.start(follower)
        load = self.start_load(own, light, "3")
        is_there = _reached(ensemble.ports[follower], goal)
        words.wait_until(is_there, "the follower is up to date", timeout=_TIMEOUT)
        seconds = time.perf_counter() - started
        output = load.communicate()[0]
        return seconds, quiet, parsed(output)["p99_us"]

    def _print_times(
        self, title: str, what: str, runs: list[list[float]], p99: list[str] | None = None
    ) -> None:
        ours, theirs = (statistics.median(run[side] for run in runs) for side in (0, 1))
        row = [what, f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}"]
        columns = ["what", "Apache", "Keepfast", "times Apache's"]
        if p99 is not None:
            columns += ["Apache leader's p99 ms", "Keepfast leader's p99 ms"]
            row += [p99[1], p99[0]]
        print_table(title, columns, [row])


def _znode_count(port: int) -> int:
    return int(words.monitor(port)["znode_count"])


def _reached(port: int, zxid: int) -> Callable[[], bool]:
    def is_reached() -> bool:
        try:
            return words.serving_mode(port) == "follower" and words.last_zxid(port) >= zxid
        except (OSError, words.NotReadyError):
            return False

    return is_reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("loads", "failover", "catch-up")
    parser.add_argument("--only", choices=parts, help="measure this alone")
    parser.add_argument("--seconds", default="3", help="of one run of a load")
    parser.add_argument("--missing", type=int, default=100_000, help="txns, then znodes")
    parser.add_argument("--tick", type=int, default=2000, help="tickTime in ms")
    wanted = parser.parse_args()
    with scratch() as place:
        program = compiled_zkload(place)
        with (
            BenchEnsemble(KEEPFAST, place / "ours", tick_ms=wanted.tick) as ours,
            BenchEnsemble(APACHE, place / "apache", tick_ms=wanted.tick) as theirs,
        ):
            bench = Bench(program, (ours, theirs), wanted.seconds)
            if wanted.only in (None, "loads"):
                bench.loads()
            if wanted.only in (None, "failover"):
                bench.failover()
            if wanted.only in (None, "catch-up"):
                bench.catch_up(wanted.missing)


if __name__ == "__main__":
    main()
