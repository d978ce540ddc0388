"""Every scenario many times on ours, and on Apache's servers: `python -m tests.lab.campaign`.

What each play left is audited, without Spark: the audit has to name what happened on Apache's
servers, and to find nothing on ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from keepfast.harness import find_release
from keepfast.lab import SCENARIOS, play
from tests.lab.test_scenarios import ON_APACHE, ON_KEEPFAST
from tests.lab.truth import Witness, expected, named

_EXPECTED = {"apache": ON_APACHE, "keepfast": ON_KEEPFAST}


def main(arguments: list[str]) -> int:
    """Play; gives how many plays ended otherwise than they should."""
    parser = argparse.ArgumentParser(prog="tests.lab.campaign", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=20, help="plays of each on ours")
    parser.add_argument("--apache-runs", type=int, default=1, help="plays of each on Apache's")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    asked = parser.parse_args(arguments)
    wrong = plays = 0
    head = f"{'servers of':<10} {'scenario':<22} {'runs':>4} {'s/run':>6}  "
    print(f"{head}{'ended':<18}  the audit: verdict kind server zxid znodes", flush=True)
    for kind, times in (("apache", asked.apache_runs), ("keepfast", asked.runs)):
        for name in asked.only if times else ():
            wrong += _repeat(kind, name, times)
            plays += times
    if wrong:
        print(f"WRONG: {wrong} of {plays} plays did not end, or were not audited, as they should")
    else:
        print(f"all {plays} plays ended as they should, and the audit said so")
    return wrong


def _repeat(kind: str, name: str, times: int) -> int:
    """Play one scenario so often; gives how many plays ended wrongly."""
    endings: Counter[str] = Counter()
    audits: Counter[str] = Counter()
    wrong: list[str] = []
    release, begin = find_release(kind), time.monotonic()
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="keepfast-lab-") as folder:
            witness = Witness(Path(folder), name)
            outcome = play(SCENARIOS[name], release, Path(folder), witness)
            should, said = expected(outcome, witness.zxid), named(outcome)
        endings[outcome.ending.value] += 1
        audits[str(said)] += 1
        if outcome.ending is not _EXPECTED[kind][name] or outcome.problem:
            wrong.append(f"ended {outcome.ending.value}: {outcome.problem} {outcome.values}")
        elif said != should:
            wrong.append(f"the audit should say {should}, and says {said}")
    seconds = (time.monotonic() - begin) / times
    shown = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    audited = "; ".join(f"{count} {text}" for text, count in audits.items())
    head = f"{kind:<10} {name:<22} {times:>4} {seconds:>6.1f}  "
    print(f"{head}{shown:<18}  {audited}", flush=True)
    for text in wrong:
        print(f"  not as it should be: {text}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
