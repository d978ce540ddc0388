"""What the driver does by itself: its work grows as the number of files and epochs, not faster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from keepfast.pipeline.agreement.committed import Agreement, judge, suspicious_buckets
from keepfast.pipeline.agreement.comparing import Compared, ComparedSum
from keepfast.pipeline.agreement.electorate import electorate_of
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.coverage import coverage_of, lanes_of, sources_of
from keepfast.pipeline.findings.document import EnsembleResult, Verdict
from keepfast.pipeline.findings.evidence import plan_evidence
from keepfast.pipeline.replay.plan import plan_replay
from keepfast.pipeline.replay.proof import chain_plans
from keepfast.pipeline.scan.facts import Bucket, EpochFacts, LogFacts, RecordRun
from keepfast.pipeline.schemas import BUCKET_BITS
from keepfast.wire import make_zxid

NOTHING: Compared = ComparedSum().total()


def view_of(logs: int) -> EnsembleView:
    """Three servers; each epoch has a log of its own."""

    def log(server: str, epoch: int) -> LogFacts:
        first, last = make_zxid(epoch, 1), make_zxid(epoch, 3)
        return LogFacts(
            f"/e/{server}/log.{first:x}",
            *(first, 4096, 1.0),
            runs=(RecordRun(first, last, 16, 400),),
            buckets=(Bucket(first >> BUCKET_BITS, 3, epoch, 0, 0, 16, 400),),
            records=3,
            end=400,
        )

    servers = tuple(
        ServerView(
            name,
            tuple(log(name, epoch) for epoch in range(1, logs + 1)),
            (),
            EpochFacts(logs, logs, ()),
        )
        for name in "123"
    )
    electorate = electorate_of([(server.name, None) for server in servers], [])
    return EnsembleView("e", servers, electorate)


def opcodes(work: Callable[[], Any]) -> int:
    """How many instructions of Python a call takes: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def result_of(view: EnsembleView) -> EnsembleResult:
    return EnsembleResult(view.name, Verdict.CONSISTENT, tuple(s.name for s in view.servers))


STEPS: dict[str, Callable[[EnsembleView, Agreement], Any]] = {
    "suspicious_buckets": lambda view, _: suspicious_buckets(view),
    "judge": lambda view, _: judge(view, NOTHING),
    "plan_replay": plan_replay,
    "chain_plans": lambda view, agreed: chain_plans(plan_replay(view, agreed)),
    "sources_of": sources_of,
    "coverage_of": coverage_of,
    "lanes_of": lambda view, agreed: lanes_of(view, agreed, ()),
    "plan_evidence": lambda view, agreed: plan_evidence(view, agreed, [], result_of(view)),
}


@pytest.mark.parametrize("name", STEPS)
def test_twice_the_files__take_about_twice_the_work(name: str) -> None:
    counts = []
    for logs in (150, 300):
        agreement = judge(view_of(logs), NOTHING)
        fresh = view_of(logs)  # without what the judgement has worked out
        counts.append(opcodes(partial(STEPS[name], fresh, agreement)))
    assert counts[0] > 1000
    assert counts[1] / counts[0] < 2.6, counts
