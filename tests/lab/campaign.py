"""Every scenario many times on ours, and on Apache's servers: `python -m tests.lab.campaign`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from keepfast.lab import SCENARIOS, Outcome, find_release, play
from tests.lab.test_scenarios import ON_APACHE, ON_KEEPFAST, Silent

_EXPECTED = {"apache": ON_APACHE, "keepfast": ON_KEEPFAST}


def main(arguments: list[str]) -> int:
    """Play; gives how many plays ended otherwise than they should."""
    parser = argparse.ArgumentParser(prog="tests.lab.campaign", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=20, help="plays of each on ours")
    parser.add_argument("--apache-runs", type=int, default=1, help="plays of each on Apache's")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    asked = parser.parse_args(arguments)
    wrong = 0
    print(f"{'servers of':<10} {'scenario':<22} {'runs':>4} {'s/run':>6}  ended", flush=True)
    for kind, times in (("apache", asked.apache_runs), ("keepfast", asked.runs)):
        for name in asked.only if times else ():
            wrong += _repeat(kind, name, times)
    return wrong


def _repeat(kind: str, name: str, times: int) -> int:
    """Play one scenario so often; gives how many plays ended wrongly."""
    endings: Counter[str] = Counter()
    wrong: list[Outcome] = []
    release, begin = find_release(kind), time.monotonic()
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="keepfast-lab-") as folder:
            outcome = play(SCENARIOS[name], release, Path(folder), Silent())
        endings[outcome.ending.value] += 1
        if outcome.ending is not _EXPECTED[kind][name] or outcome.problem:
            wrong.append(outcome)
    seconds = (time.monotonic() - begin) / times
    shown = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    print(f"{kind:<10} {name:<22} {times:>4} {seconds:>6.1f}  {shown}", flush=True)
    for outcome in wrong:
        print(f"  not as it should be: {outcome.problem} {outcome.values}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
