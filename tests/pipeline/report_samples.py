"""Results of audits, made by hand, for looking at the report.

One a question: a broken ensemble, a healthy one, fifty servers, a thousand findings, many
ensembles, hostile text, and next to nothing. `python -m tests.pipeline.report_samples DIR` writes
them all.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from keepfast.pipeline.findings.document import (
    AuditResult,
    Coverage,
    EnsembleResult,
    Finding,
    FindingSeverity,
    Lane,
    LaneSpan,
    ServerZnode,
    SnapshotMark,
    TreeDiff,
    Verdict,
    ZnodeDifference,
    sorted_findings,
)
from keepfast.pipeline.report import ReportFacts, render_report
from keepfast.pipeline.report.targets import write_file
from keepfast.wire import make_zxid

HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=x onerror=document.title='owned'>\"'&\x1b[31m\u202e"
)


def _logs(server: str, *runs: tuple[int, int, int]) -> tuple[LaneSpan, ...]:
    """Runs of records: epoch, first and last counter."""
    return tuple(
        LaneSpan(
            "run",
            make_zxid(epoch, first),
            make_zxid(epoch, last),
            f"data/{server}/version-2/log.{make_zxid(epoch, first):x}",
            f"{last - first + 1} records",
        )
        for epoch, first, last in runs
    )


def _snapshot(
    server: str, zxid: int, *, ahead: int = 0, base: bool = False, valid: bool = True
) -> SnapshotMark:
    return SnapshotMark(
        zxid,
        f"data/{server}/version-2/snapshot.{zxid:x}",
        valid,
        zxid + ahead,
        base,
        "" if valid else "ends inside the znodes",
    )


def _broken_lanes() -> tuple[Lane, ...]:
    """Four servers that agree, and one with a hole."""
    healthy = [
        Lane(
            server,
            make_zxid(1, 1),
            make_zxid(3, 2),
            _logs(server, (1, 1, 25), (2, 1, 340), (2, 341, 900), (2, 901, 1505), (3, 1, 2)),
            (
                _snapshot(server, 0),
                _snapshot(server, make_zxid(2, 400), ahead=12),
                _snapshot(server, make_zxid(2, 1100), ahead=3, base=True),
            ),
            3,
            3,
        )
        for server in ("0", "1", "2", "4")
    ]
    wrong = Lane(
        "3",
        make_zxid(1, 1),
        make_zxid(3, 2),
        (
            *_logs("3", (1, 1, 25), (2, 1, 2), (2, 1505, 1505), (3, 1, 2)),
            LaneSpan(
                "hole", make_zxid(2, 3), make_zxid(2, 1504), None, "1,502 records are missing"
            ),
        ),
        (
            _snapshot("3", make_zxid(1, 0), base=True),
            _snapshot("3", make_zxid(2, 1200), valid=False),
        ),
        3,
        3,
        make_zxid(2, 3),
    )
    return tuple(sorted([*healthy, wrong], key=lambda lane: lane.server))


def _grave_findings() -> list[Finding]:
    """The divergence, as two checks see it."""
    return [
        Finding(
            "A2",
            "gap-served-as-diff",
            FindingSeverity.ERROR,
            "orders",
            server="3",
            evidence="the log jumps from 0x200000002 to 0x2000005e1, and no snapshot of this "
            "server reaches the end of the hole: 1,502 records that servers 0, 1, 2 and 4 hold "
            "were never applied",
            cause="a leader that had been caught up by SNAP served a DIFF from a log with a hole "
            "(diff-over-gap)",
            advice="Believe servers 0, 1, 2 and 4. Stop server 3, move its version-2 aside, start "
            "it empty, and let it catch up.",
            file="data/3/version-2/log.2000005e1",
            offset=16,
            first_zxid=make_zxid(2, 3),
            last_zxid=make_zxid(2, 1504),
            paths=("/between", "/z2"),
            is_divergence=True,
        ),
        Finding(
            "A6",
            "state-differs",
            FindingSeverity.ERROR,
            "orders",
            server="3",
            evidence="two znodes differ from those of the other servers at 0x300000002",
            advice="Believe servers 0, 1, 2 and 4. Stop server 3, move its version-2 aside, start "
            "it empty, and let it catch up.",
            first_zxid=make_zxid(2, 3),
            last_zxid=make_zxid(3, 2),
            paths=("/between", "/z2"),
            is_divergence=True,
        ),
    ]


def _mild_findings() -> list[Finding]:
    """What else is worth saying."""
    return [
        Finding(
            "A4",
            "snapshot-damaged",
            FindingSeverity.WARNING,
            "orders",
            server="3",
            evidence="ends inside the znodes",
            advice="Keep snapshot.2000004b0 of server 3 as evidence; nothing reads it.",
            file="data/3/version-2/snapshot.2000004b0",
            offset=155_648,
            first_zxid=make_zxid(2, 1200),
            last_zxid=make_zxid(2, 1200),
        ),
        Finding(
            "A5",
            "fuzzy-snapshot",
            FindingSeverity.NOTE,
            "orders",
            server="0",
            evidence="holds effects of 12 later records, as is normal",
            first_zxid=make_zxid(2, 400),
            last_zxid=make_zxid(2, 412),
        ),
    ]


def _broken_diff() -> TreeDiff:
    """Two znodes that one server has otherwise."""
    state = ServerZnode("1499", 4, make_zxid(2, 3), make_zxid(2, 1502), 1499)
    return TreeDiff(
        make_zxid(3, 2),
        ("0", "1", "2", "3", "4"),
        (
            ZnodeDifference("/between", tuple((s, None if s == "3" else state) for s in "01234")),
            ZnodeDifference(
                "/z2",
                tuple(
                    (
                        s,
                        ServerZnode(
                            "old" if s == "3" else "new",
                            3,
                            make_zxid(1, 4),
                            make_zxid(2, 2 if s == "3" else 9),
                            1,
                        ),
                    )
                    for s in "01234"
                ),
            ),
        ),
        2,
    )


def broken() -> AuditResult:
    """A DIFF over a gap: server 3 lacks 1,500 records and continues."""
    coverage = (
        Coverage(
            make_zxid(1, 1),
            make_zxid(1, 25),
            "agreed",
            tuple("01234"),
            "all five hold the same records",
        ),
        Coverage(
            make_zxid(2, 1),
            make_zxid(3, 2),
            "agreed",
            tuple("0124"),
            "four of five hold the same records",
        ),
    )
    return AuditResult(
        (
            EnsembleResult(
                "orders",
                Verdict.DIVERGED,
                tuple("01234"),
                coverage,
                sorted_findings([*_grave_findings(), *_mild_findings()]),
                _broken_lanes(),
                _broken_diff(),
                make_zxid(3, 2),
                (),
                7_540,
                1_480_221,
            ),
        )
    )


def _healthy_lanes() -> tuple[Lane, ...]:
    """An election, a rejoin by SNAP, an uncommitted tail."""
    return (
        Lane(
            "zk-0",
            make_zxid(1, 1),
            make_zxid(3, 901),
            (
                *_logs("zk-0", (1, 1, 12_000), (1, 12_001, 30_000), (2, 1, 5), (3, 1, 900)),
                LaneSpan(
                    "uncommitted",
                    make_zxid(3, 901),
                    make_zxid(3, 901),
                    "data/zk-0/version-2/log.300000001",
                    "the leader's own last record",
                ),
            ),
            (
                _snapshot("zk-0", make_zxid(1, 12_000), ahead=40),
                _snapshot("zk-0", make_zxid(1, 29_000), ahead=9, base=True),
            ),
            3,
            3,
        ),
        Lane(
            "zk-1",
            make_zxid(1, 1),
            make_zxid(3, 900),
            _logs("zk-1", (1, 1, 15_000), (1, 15_001, 30_000), (2, 1, 5), (3, 1, 900)),
            (_snapshot("zk-1", make_zxid(1, 15_000), ahead=33, base=True),),
            3,
            3,
        ),
        Lane(
            "zk-2",
            make_zxid(1, 1),
            make_zxid(3, 900),
            (
                *_logs("zk-2", (1, 1, 9_000), (3, 101, 900)),
                LaneSpan(
                    "gap",
                    make_zxid(1, 9_001),
                    make_zxid(3, 100),
                    None,
                    "covered by snapshot.300000064",
                ),
            ),
            (_snapshot("zk-2", make_zxid(3, 100), base=True),),
            3,
            3,
        ),
    )


def healthy() -> AuditResult:
    """Three servers, an election, a rejoin by SNAP, an uncommitted tail: nothing is wrong."""
    coverage = (
        Coverage(
            make_zxid(1, 1),
            make_zxid(3, 900),
            "agreed",
            ("zk-0", "zk-1", "zk-2"),
            "two or more servers hold the same records",
        ),
        Coverage(
            make_zxid(3, 901),
            make_zxid(3, 901),
            "single",
            ("zk-0",),
            "the end of the last epoch, on a minority",
        ),
    )
    finding = Finding(
        "A2",
        "explained-gap",
        FindingSeverity.NOTE,
        "locks",
        evidence="caught up by SNAP: the hole ends at a valid snapshot",
        server="zk-2",
        first_zxid=make_zxid(1, 9_001),
        last_zxid=make_zxid(3, 100),
    )
    diff = TreeDiff(make_zxid(3, 900), ("zk-0", "zk-1", "zk-2"), (), 0)
    return AuditResult(
        (
            EnsembleResult(
                "locks",
                Verdict.CONSISTENT,
                ("zk-0", "zk-1", "zk-2"),
                coverage,
                (finding,),
                _healthy_lanes(),
                diff,
                make_zxid(3, 900),
                (),
                92_000,
                18_000_000,
            ),
        )
    )


_STALE = make_zxid(5, 21)


def _fleet_lane(number: int, draw: random.Random) -> Lane:
    """One of many: a million records in nine logs, and a stale one on two of the servers."""
    name = f"zk-{number:02d}"
    start = draw.randrange(1, 400_000)
    cuts = sorted(draw.sample(range(start + 1, 999_000), 8))
    runs = [(4, low, high - 1) for low, high in pairwise([start, *cuts, 1_000_000])]
    spans = _logs(name, *runs, (5, 1, 20), (6, 1, 3))
    diverges = _STALE if number in (11, 37) else None
    if diverges is not None:
        file = f"data/{name}/version-2/log.500000001"
        spans = (*spans, LaneSpan("stale", diverges, diverges, file, "never committed"))
    marks = tuple(
        _snapshot(name, make_zxid(4, cut), ahead=draw.randrange(0, 3000), base=cut == cuts[-1])
        for cut in cuts[::3]
    )
    ends = (make_zxid(4, start), make_zxid(6, 3))
    return Lane(name, *ends, spans, marks, 6, 6, diverges, number > 44)


def _stale(server: str) -> Finding:
    return Finding(
        "A3",
        "stale-record-after-trunc",
        FindingSeverity.ERROR,
        "fleet",
        evidence=f"{server} holds 0x500000015, and epoch 6 was agreed without it",
        advice=f"Refill {server} from its peers.",
        server=server,
        first_zxid=_STALE,
        last_zxid=_STALE,
        paths=("/config/leader",),
        is_divergence=True,
    )


def many_servers(count: int = 50) -> AuditResult:
    """Fifty servers, two of them with a stale record."""
    draw = random.Random(7)
    lanes = tuple(_fleet_lane(number, draw) for number in range(count))
    findings = [_stale(lane.server) for lane in lanes if lane.diverges_at is not None]
    return AuditResult(
        (
            EnsembleResult(
                "fleet",
                Verdict.DIVERGED,
                tuple(lane.server for lane in lanes),
                (),
                sorted_findings(findings),
                lanes,
                None,
                make_zxid(6, 3),
                ("nobody holds 0x400000001 to 0x400000200: purged",),
                30_000_000,
                6_000_000_000,
            ),
        )
    )


def many_findings(count: int = 1000) -> AuditResult:
    """A thousand findings."""
    draw = random.Random(3)
    one = broken().ensembles[0]
    severities = list(FindingSeverity)
    findings = [
        Finding(
            f"A{draw.randrange(1, 15)}",
            draw.choice(
                [
                    "record-damaged",
                    "snapshot-damaged",
                    "digest-off",
                    "session-unknown",
                    "epoch-order",
                ]
            ),
            draw.choice(severities),
            "orders",
            evidence=f"finding {number}: the record fails its checksum, and sound ones follow",
            advice=f"Refill server {number % 5}.",
            server=str(number % 5),
            file=f"data/{number % 5}/version-2/log.200000{number % 100:03x}",
            offset=number * 131,
            first_zxid=make_zxid(2, number + 1),
            last_zxid=make_zxid(2, number + 1),
            paths=tuple(f"/app/{number}/{k}" for k in range(number % 4)),
        )
        for number in range(count)
    ]
    return AuditResult(
        (
            EnsembleResult(
                "orders",
                Verdict.DIVERGED,
                one.servers,
                one.coverage,
                sorted_findings(findings),
                one.lanes,
                one.tree_diff,
                one.committed_zxid,
                one.unchecked,
                one.records,
                one.size_bytes,
            ),
        )
    )


def many_ensembles(count: int = 300) -> AuditResult:
    """Three hundred ensembles, a few of them wrong."""
    good, bad = healthy().ensembles[0], broken().ensembles[0]
    result = []
    for number in range(count):
        one = bad if number % 97 == 5 else good
        result.append(
            EnsembleResult(
                f"ensemble-{number:03d}",
                one.verdict,
                one.servers,
                one.coverage,
                one.findings,
                one.lanes,
                one.tree_diff,
                one.committed_zxid,
                ("one server only",) if number % 50 == 7 else (),
                one.records,
            )
        )
    return AuditResult(tuple(result))


def hostile() -> AuditResult:
    """Text that tries to be markup, everywhere."""
    zxid = make_zxid(1, 1)
    state = ServerZnode(HOSTILE, 9, zxid, zxid, 0)
    lane = Lane(
        HOSTILE,
        zxid,
        zxid,
        (LaneSpan("run", zxid, zxid, HOSTILE, HOSTILE),),
        (SnapshotMark(zxid, HOSTILE, False, zxid, True, HOSTILE),),
        None,
        None,
        zxid,
    )
    finding = Finding(
        "A1",
        HOSTILE,
        FindingSeverity.ERROR,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        1,
        zxid,
        zxid,
        (HOSTILE,),
        True,
    )
    diff = TreeDiff(
        zxid, (HOSTILE,), (ZnodeDifference(HOSTILE, ((HOSTILE, state), ("b", None))),), 1
    )
    coverage = (Coverage(zxid, zxid, HOSTILE, (HOSTILE,), HOSTILE),)
    one = EnsembleResult(
        HOSTILE,
        Verdict.DIVERGED,
        (HOSTILE, "b"),
        coverage,
        (finding,),
        (lane,),
        diff,
        zxid,
        (HOSTILE,),
    )
    return AuditResult((one, one))


def nothing() -> AuditResult:
    """One server without a readable file."""
    finding = Finding(
        "A4",
        "no-valid-snapshot",
        FindingSeverity.ERROR,
        "empty",
        evidence="none of the 3 snapshots can be read",
        server="0",
        advice="Restore a backup.",
    )
    return AuditResult(
        (
            EnsembleResult(
                "empty",
                Verdict.UNREADABLE,
                ("0",),
                (),
                (finding,),
                (Lane("0", None, None),),
                None,
                None,
                ("one server only: nothing can be compared",),
            ),
        )
    )


SAMPLES: dict[str, Callable[[], AuditResult]] = {
    "broken": broken,
    "healthy": healthy,
    "many-servers": many_servers,
    "many-findings": many_findings,
    "many-ensembles": many_ensembles,
    "hostile": hostile,
    "nothing": nothing,
}


def main(directory: str) -> None:
    """Write all of them."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        facts = ReportFacts(
            "keepfast audit data --out report", "0.1.0", "2026-11-15 21:30 UTC", 7.4
        )
        write_file(directory, f"{name}.html", render_report(make(), facts))


if __name__ == "__main__":
    main(sys.argv[1])
