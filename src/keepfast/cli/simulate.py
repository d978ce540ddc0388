"""`keepfast simulate`: seeds of the simulator, spread over cores or over Spark executors."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document, progress_bar
from keepfast.sim import SeedOutcome, Simulation, run_seed

_SCHEMA: Final = "keepfast.simulate/1"
# At most this many runs are shown individually; more are only counted, except failures.
_MAX_ROWS: Final = 20
_HEADS: Final = ("seed", "outcome", "steps", "txns", "answers", "faults", "simulated", "options")
_NUMBERS: Final = "seed steps txns answers faults simulated"


@dataclass(frozen=True, slots=True)
class SimulateArguments:
    """What the command line says."""

    seeds: int
    first: int
    jobs: int | None
    master: str | None
    trace: bool
    as_json: bool


def simulate(arguments: SimulateArguments) -> int:
    """Run the seeds and print the results."""
    if arguments.trace and (arguments.as_json or arguments.master):
        raise CommandFailed("--trace prints steps for people: leave --json and --master out")
    out = Out()
    started = time.monotonic()
    if arguments.trace:
        outcomes = list(_traced(arguments, out))
    else:
        with progress_bar("simulating", arguments.seeds) as bar, _runner(arguments) as runs:
            outcomes = []
            for outcome in runs:
                outcomes.append(outcome)
                bar.on_read(f"seed {outcome.seed}", 1)
    outcomes.sort(key=lambda outcome: outcome.seed)
    seconds = time.monotonic() - started
    code = ExitCode.OK if all(outcome.is_well for outcome in outcomes) else ExitCode.WRONG
    if arguments.as_json:
        print_document(out, _document(outcomes, seconds) | {"exit_code": int(code)})
    else:
        _report(out, outcomes, seconds)
    out.flush()
    return code


def _seeds(arguments: SimulateArguments) -> range:
    return range(arguments.first, arguments.first + arguments.seeds)


def _traced(arguments: SimulateArguments, out: Out) -> Iterator[SeedOutcome]:
    for seed in _seeds(arguments):
        simulation = Simulation(seed)
        outcome = simulation.run()
        out.line(f"seed {seed}: {outcome.options}")
        for line in simulation.trace.lines():
            out.line(line)
        out.line()
        yield outcome


@contextmanager
def _runner(arguments: SimulateArguments) -> Iterator[Iterator[SeedOutcome]]:
    """The outcomes, in the order of completion."""
    seeds = _seeds(arguments)
    if arguments.master is not None:
        from keepfast.cli.pipeline_input import explained
        from keepfast.pipeline import spark_session

        with explained(), spark_session(arguments.master) as spark:
            driver = spark.sparkContext
            slices = max(1, min(len(seeds), 4 * driver.defaultParallelism))
            yield driver.parallelize(seeds, slices).map(run_seed).toLocalIterator()
        return
    jobs = min(arguments.jobs or os.cpu_count() or 1, max(len(seeds), 1))
    if jobs == 1:
        yield map(run_seed, seeds)
        return
    # Not by fork: the caller's threads would be gone in the child, but not their locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            chunk = max(1, min(50, len(seeds) // (4 * jobs)))
            yield pool.map(run_seed, seeds, chunksize=chunk)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _report(out: Out, outcomes: list[SeedOutcome], seconds: float) -> None:
    failed = [outcome for outcome in outcomes if not outcome.is_well]
    shown = outcomes if len(outcomes) <= _MAX_ROWS else failed[:_MAX_ROWS]
    if shown:
        out.table(_HEADS, [_row(outcome) for outcome in shown], _NUMBERS)
        out.line()
    for outcome in failed[:_MAX_ROWS]:
        out.line(f"seed {outcome.seed}: {outcome.checker}: {outcome.what}")
        out.line(f"  {outcome.replay}")
    if failed:
        out.line()
    simulated = sum(outcome.simulated_ms for outcome in outcomes) / 1000
    speed = simulated / seconds if seconds else 0.0
    pace = 60 * len(outcomes) / seconds if seconds else 0.0
    verdict = (
        out.paint(f"{len(failed)} failed", "bad") if failed else out.paint("all passed", "good")
    )
    out.line(
        f"{len(outcomes)} seeds, {verdict}: {sum(o.txns for o in outcomes)} txns, "
        f"{sum(o.answers for o in outcomes)} answers, {sum(o.faults for o in outcomes)} faults; "
        f"{simulated:.0f} s simulated in {seconds:.1f} s, {speed:.0f} times real time, "
        f"{pace:.0f} seeds per minute"
    )


def _row(outcome: SeedOutcome) -> tuple[str, ...]:
    return (
        str(outcome.seed),
        outcome.checker or "passed",
        str(outcome.steps),
        str(outcome.txns),
        str(outcome.answers),
        str(outcome.faults),
        f"{outcome.simulated_ms / 1000:.1f} s",
        outcome.options,
    )


def _document(outcomes: list[SeedOutcome], seconds: float) -> dict[str, object]:
    simulated_ms = sum(outcome.simulated_ms for outcome in outcomes)
    notes: Counter[str] = Counter()
    for outcome in outcomes:
        notes.update(outcome.notes)
    return {
        "schema": _SCHEMA,
        "seeds": len(outcomes),
        "failed": sum(not outcome.is_well for outcome in outcomes),
        "simulated_ms": simulated_ms,
        "elapsed_ms": round(seconds * 1000),
        "notes": dict(sorted(notes.items())),
        "runs": [
            {
                "seed": outcome.seed,
                "outcome": "well" if outcome.is_well else "violation",
                "checker": outcome.checker,
                "what": outcome.what or None,
                "options": outcome.options,
                "steps": outcome.steps,
                "txns": outcome.txns,
                "answers": outcome.answers,
                "faults": outcome.faults,
                "simulated_ms": outcome.simulated_ms,
                "replay": outcome.replay,
            }
            for outcome in outcomes
        ],
    }
