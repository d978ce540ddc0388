"""Many generated ensembles, healthy and damaged, audited on Spark: counts, and what went wrong.

    python -m tests.pipeline.audit_campaign [--healthy N] [--damaged N] [--seed S] [--summed]

Recall has to be 100 %, and there may be no alarm about a healthy ensemble.  The first failing seeds
are printed with what was found; `healthy(seed)` and `damaged(seed)` make them again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from keepfast.pipeline.engine.auditing import audit_places
from keepfast.pipeline.engine.session import SessionOptions, spark_session
from keepfast.pipeline.engine.stages import AuditOptions
from keepfast.pipeline.findings.document import EnsembleResult, Finding, FindingSeverity, Verdict
from keepfast.wire import format_zxid
from tests.pipeline.ensembles import healthy
from tests.pipeline.planted import Planted
from tests.pipeline.planting import PLANTERS, damaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_SHOWN = 10


@dataclass(slots=True)
class Tally:
    """What a campaign counted."""

    healthy: int = 0
    damaged: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    servers: int = 0
    records: int = 0

    @property
    def is_good(self) -> bool:
        return not self.alarms and not self.missed

    def lines(self) -> list[str]:
        """The counts, for people."""
        planted = sum(self.damaged.values())
        found = planted - len(self.missed)
        by_check = ", ".join(f"{check} {self.damaged[check]}" for check in PLANTERS)
        return [
            f"{self.healthy} healthy ensembles, {len(self.alarms)} false alarms",
            f"{found} of {planted} damaged ensembles found ({by_check})",
            f"{self.servers} servers, {self.records} records, Spark jobs a run: {self.jobs}",
        ]


def write_healthy(root: Path, seed: int) -> None:
    healthy(seed).write_files(root / f"healthy-{seed}")


def write_damaged(root: Path, seed: int) -> Planted:
    life, planted = damaged(seed)
    life.write_files(root / f"damaged-{seed}")
    return planted


def run_campaign(
    spark: SparkSession,
    root: Path,
    healthy_seeds: Sequence[int],
    damaged_seeds: Sequence[int],
    options: AuditOptions | None = None,
) -> Tally:
    """Write the ensembles below `root`, audit each of the two kinds in one run, and count."""
    tally = Tally()
    context = get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        list(pool.map(partial(write_healthy, root / "h"), healthy_seeds, chunksize=16))
        planted = list(pool.map(partial(write_damaged, root / "d"), damaged_seeds, chunksize=16))
    if healthy_seeds:
        for result in _audit(spark, root / "h", tally, options):
            tally.healthy += 1
            grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
            if grave or result.verdict is not Verdict.CONSISTENT:
                tally.alarms.append(_told(result, grave))
    if damaged_seeds:
        by_name = {f"damaged-{s}": p for s, p in zip(damaged_seeds, planted, strict=True)}
        for result in _audit(spark, root / "d", tally, options):
            expected = by_name[result.name]
            tally.damaged[expected.check] += 1
            if not expected.found_in(result):
                grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
                tally.missed.append(f"{expected}: {_told(result, grave)}")
    return tally


def _audit(
    spark: SparkSession, root: Path, tally: Tally, options: AuditOptions | None
) -> tuple[EnsembleResult, ...]:
    group = f"campaign {root}"
    spark.sparkContext.setJobGroup(group, "one run of the audit")
    results = audit_places(spark, [str(root)], options).ensembles
    tally.jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    tally.servers += sum(len(result.servers) for result in results)
    tally.records += sum(result.records for result in results)
    return results


def _told(result: EnsembleResult, findings: list[Finding]) -> str:
    texts = [
        f"{f.check} {f.kind} {f.server} "
        f"{'' if f.first_zxid is None else format_zxid(f.first_zxid)} {f.evidence}"
        for f in findings[:3]
    ]
    return f"{result.name} is {result.verdict.value}: {'; '.join(texts) or 'nothing was found'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign, print its counts; 1 if something was missed or made up."""
    parser = argparse.ArgumentParser(description="The audit on generated ensembles.")
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--damaged", type=int, default=560)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--summed", action="store_true", help="by sums, as long histories are")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="keepfast-campaign-") as directory,
        spark_session(SessionOptions("local[2]")) as spark,
    ):
        tally = run_campaign(
            spark,
            Path(directory),
            range(options.seed, options.seed + options.healthy),
            range(options.seed, options.seed + options.damaged),
            AuditOptions(tree_records=0) if options.summed else None,
        )
    for line in (*tally.lines(), *tally.alarms[:_MAX_SHOWN], *tally.missed[:_MAX_SHOWN]):
        print(line)
    print(f"{time.monotonic() - started:.0f} seconds")
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
