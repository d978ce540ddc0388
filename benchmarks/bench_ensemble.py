"""Three Keepfast servers against three of Apache 3.9.5, side by side on this machine.

    python -m benchmarks.bench_ensemble                      everything
    python -m benchmarks.bench_ensemble --only loads         or failover, hand-over
    python -m benchmarks.bench_ensemble --only missing-txns --missing 1000000
    python -m benchmarks.bench_ensemble --only missing-records --missing 1000000
    python -m benchmarks.bench_ensemble --only missing-znodes --missing 1000000

Both ensembles run at the same time and are loaded in turn; figures are medians of three alternating
runs after a warm-up, catch-up is measured once. Load comes from `zkload` (benchmarks/zkload.c).
Failover: seconds from kill -9 of a leader under load until a survivor takes a write. Hand-over: the
same, from the request. Catch-up: seconds from the start of a follower that lacks this many txns (on
a thousand znodes), or that is empty where there are this many znodes, until it has all of them; and
the p99 of the leader's own clients just before and during that time. With many txns on few znodes,
both kinds of servers choose to send a tree; `missing-records` has both send the records.
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
HAND_OVER_LOADS: dict[str, list[str]] = {
    "quiet": [],
    "ping-pong writes": LOADS["ping-pong writes"],
    "pipelined writes": LOADS["pipelined writes"],
}
# Clients that notice when their leader is busy with something else.
LIGHT = ["-c", "2", "-d", "1", "-o", "mix", "-r", "50"]
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
        """One run; returns what zkload measured."""
        return read_result(self._command(hosts, ["-c", "8", *arguments], seconds))

    def start_load(self, hosts: str, arguments: list[str], seconds: str) -> subprocess.Popen[str]:
        """Start a run, whose result is not needed."""
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
        """Rates and p99 of each load, and the memory of all three servers after them."""
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

    # -- hand-over -------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Leaders of ours that are asked to hand over; Apache has no such request."""
        ours = self.both[0]
        self.load(ours.hosts, LOADS["pipelined writes"], "0.2")
        for title, arguments in HAND_OVER_LOADS.items():
            seconds = [self._hand_over(ours, arguments) for _ in range(ROUNDS)]
            print_table(
                f"leader hands over on request, {title}",
                ["what", "Keepfast"],
                [
                    ["seconds until a write is taken, median", f"{statistics.median(seconds):.3f}"],
                    ["the longest", f"{max(seconds):.3f}"],
                ],
            )

    def _hand_over(self, ensemble: BenchEnsemble, arguments: list[str]) -> float:
        load = self.start_load(ensemble.hosts, ["-c", "6", *arguments], "5") if arguments else None
        time.sleep(1)
        leader = ensemble.leader()
        started = time.perf_counter()
        ensemble.hand_over(leader)
        asked = time.perf_counter() - started
        seconds = asked + wait_for_write(list(ensemble.ports.values()), "/zkload/k0")
        if load is not None:
            load.kill()
            load.wait()
        ensemble.wait_until_whole()
        return seconds

    # -- catch-up --------------------------------------------------------------------------------

    def catch_up(self, missing: int, operation: str) -> None:
        """A follower that lacks txns on few znodes, or one that lacks everything."""
        times, p99 = [], []
        for ensemble in self.both:
            seconds, quiet, busy = self._catch_up(ensemble, missing, operation)
            times.append(seconds)
            p99.append(f"{quiet / 1000:.1f} -> {busy / 1000:.1f}")
        what = "txns" if operation == "set" else "znodes"
        title = f"catch-up, {missing:,} {what} missing"
        self._print_times(title, "seconds until it follows", [times], p99)

    def _catch_up(
        self, ensemble: BenchEnsemble, missing: int, operation: str
    ) -> tuple[float, float, float]:
        """Seconds, and the p99 of the leader's clients before and meanwhile."""
        follower, leader = ensemble.follower(), ensemble.leader()
        port = ensemble.ports[leader]
        own = f"127.0.0.1:{port}"
        ensemble.kill(follower)
        is_wiped = operation == "create"
        count = _znode_count if is_wiped else words.last_zxid
        goal, runs = count(port) + missing, 0
        while count(port) < goal:
            runs += 1
            self.load(own, ["-d", "32", "-o", operation, "-x", str(runs)], "2")
        if is_wiped:
            ensemble.wipe(follower)
        quiet = read_result(self._command(own, LIGHT, "5"))["p99_us"]
        goal = words.last_zxid(port)
        load = self.start_load(own, [*LIGHT, "-w", "0"], "1000")
        started = time.perf_counter()
        ensemble.start(follower)
        is_there = _reached(ensemble.ports[follower], goal)
        words.wait_until(is_there, "the follower is up to date", timeout=_TIMEOUT)
        seconds = time.perf_counter() - started
        load.terminate()
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
    parts = ("loads", "failover", "hand-over", "missing-txns", "missing-records", "missing-znodes")
    parser.add_argument("--only", choices=parts, help="measure this alone")
    parser.add_argument("--seconds", default="3", help="of one run of a load")
    parser.add_argument("--missing", type=int, default=100_000, help="txns, or znodes")
    parser.add_argument("--tick", type=int, default=2000, help="tickTime in ms")
    wanted = parser.parse_args()
    with scratch() as place:
        program = compiled_zkload(place)
        for part in parts:
            if wanted.only in (None, part):
                _measure(part, wanted, place / part, program)


def _measure(part: str, wanted: argparse.Namespace, place: Path, program: Path) -> None:
    sends_records = part == "missing-records"
    with (
        BenchEnsemble(KEEPFAST, place / "ours", wanted.tick, sends_records) as ours,
        BenchEnsemble(APACHE, place / "apache", wanted.tick, sends_records) as theirs,
    ):
        bench = Bench(program, (ours, theirs), wanted.seconds)
        if part == "loads":
            bench.loads()
        elif part == "failover":
            bench.failover()
        elif part == "hand-over":
            bench.hand_over()
        else:
            bench.catch_up(wanted.missing, "create" if part == "missing-znodes" else "set")


if __name__ == "__main__":
    main()
