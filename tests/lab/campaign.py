"""Every scenario many times on ours, once on Apache's: `python -m tests.lab.campaign [RUNS]`."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from keepfast.lab import SCENARIOS, find_release, play
from tests.lab.test_scenarios import ON_APACHE, ON_KEEPFAST, Silent


def main(runs: int) -> int:
    """Play; gives how many plays ended otherwise than they should."""
    wrong = 0
    for kind, expected, times in (("apache", ON_APACHE, 1), ("keepfast", ON_KEEPFAST, runs)):
        release = find_release(kind)
        for name, scenario in SCENARIOS.items():
            endings: Counter[str] = Counter()
            for _ in range(times):
                with tempfile.TemporaryDirectory(prefix="keepfast-lab-") as folder:
                    outcome = play(scenario, release, Path(folder), Silent())
                endings[outcome.ending.value] += 1
                wrong += outcome.ending is not expected[name]
            shown = ", ".join(f"{count} {ending}" for ending, count in endings.items())
            print(f"{kind:<9} {name:<22} {shown}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20), 1))
