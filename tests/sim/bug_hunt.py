"""The seed that catches a bug: `python -m tests.sim.bug_hunt [NAME] [LIMIT] [FIRST]`."""

from __future__ import annotations

import sys

from keepfast.sim import SeedOutcome, run_seed
from tests.sim.bugs import BUGS, Bug, planted
from tests.sim.product_bugs import PRODUCT_BUGS
from tests.sim.request_bugs import REQUEST_BUGS


def first_catch(bug: Bug, seeds: range) -> SeedOutcome | None:
    """The first run in which the bug shows; None if it shows in none."""
    with planted(bug):
        for seed in seeds:
            outcome = run_seed(seed)
            if not outcome.is_well:
                return outcome
    return None


def main(name: str = "", limit: str = "1000", first: str = "0") -> None:
    """Print which seed catches which bug."""
    start = int(first)
    for bug in (*BUGS, *PRODUCT_BUGS, *REQUEST_BUGS):
        if name not in bug.name:
            continue
        try:
            outcome = first_catch(bug, range(start, start + int(limit)))
        except (LookupError, AttributeError) as error:
            print(f"{bug.name:<36} cannot be planted: {error}", flush=True)
            continue
        found = "not caught"
        if outcome is not None:
            found = f"seed {outcome.seed}: {outcome.checker}: {outcome.what}"
        print(f"{bug.name:<36} {found}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
