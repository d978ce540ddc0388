"""Tables of sessions in snapshots against the records: what is wrong, and what a healthy one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keepfast.pipeline.agreement.committed import judge
from keepfast.pipeline.agreement.electorate import Electorate, electorate_of
from keepfast.pipeline.decode.session_rows import SESSION, SessionSaid
from keepfast.pipeline.engine.stages import compared_of, run_here, views_of
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.replay.plan import SnapshotPlan, plan_replay
from keepfast.pipeline.replay.proof import chain_plans
from keepfast.pipeline.replay.relational import session_doubts_here, sums_here
from keepfast.pipeline.replay.session_tables import Doubt, TableCut, doubts_of, troubles_of
from tests.pipeline.ensembles import Life
from tests.pipeline.planting_snapshots import lost_session

S = 0x77
BEGUN, ENDED, LISTED = SessionSaid.BEGUN, SessionSaid.ENDED, SessionSaid.LISTED
Row = tuple[int, int, int, SessionSaid]
AT_40 = TableCut(40, 50, 0)
SERVERS: Electorate = electorate_of([("1", None), ("2", None), ("3", None)], [])


def found(
    rows: Sequence[Row],
    cuts: Sequence[TableCut] = (AT_40,),
    eras: Sequence[int] = (),
    *,
    starts_empty: bool = True,
) -> list[tuple[Doubt, int]]:
    given = np.array(list(rows), SESSION)
    doubts = doubts_of(given, cuts, np.array(eras, np.int64), starts_empty=starts_empty)
    return [(Doubt(one.doubt), one.cut) for one in doubts]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(S, 30, 6000, BEGUN), (S, 0, 6000, LISTED)], None),
        ([(S, 30, 6000, BEGUN)], Doubt.MISSING),
        ([(S, 30, 6000, BEGUN), (S, 51, 0, ENDED)], Doubt.MISSING),
        # The table was copied later than the zxid was read.
        ([(S, 30, 6000, BEGUN), (S, 50, 0, ENDED)], None),
        ([(S, 45, 6000, BEGUN), (S, 0, 6000, LISTED)], None),
        # 3.4 applies a record, and then notes the session; its leader notes it before the record.
        ([(S, 40, 6000, BEGUN)], None),
        ([(S, 900, 6000, BEGUN), (S, 0, 6000, LISTED)], None),
        ([(S, 10, 6000, BEGUN), (S, 39, 0, ENDED), (S, 0, 6000, LISTED)], Doubt.ENDED),
        ([(S, 10, 6000, BEGUN), (S, 40, 0, ENDED), (S, 0, 6000, LISTED)], None),
        # An end may be logged twice.
        ([(S, 10, 6000, BEGUN), (S, 20, 0, ENDED), (S, 60, 0, ENDED)], None),
        ([(S, 30, 6000, BEGUN), (S, 0, 6001, LISTED)], Doubt.TIMEOUT),
        ([(S, 0, 6000, LISTED)], Doubt.UNKNOWN),
    ],
)
def test_one_table(rows: list[Row], expected: Doubt | None) -> None:
    assert found(rows) == ([] if expected is None else [(expected, 0)])


def test_history_that_does_not_begin_empty__only_tables_that_differ_are_in_doubt() -> None:
    cuts = (AT_40, replace(AT_40, zxid=60, until=70))
    older = [(S, 80, 0, ENDED)]
    assert found(older, cuts, starts_empty=False) == []
    assert found([*older, (S, 0, 1, LISTED), (S, 1, 1, LISTED)], cuts, starts_empty=False) == []
    one = [*older, (S, 1, 1, LISTED)]
    assert found(one, cuts, starts_empty=False) == [(Doubt.DISPUTED, -1)]


def test_epoch_that_one_server_alone_shows__what_was_before_it_is_not_known() -> None:
    """Records may be missing there, of the session's end or of its beginning."""
    later = TableCut(40, 50, 1)
    assert found([(S, 10, 6000, BEGUN)], [later], [30]) == []
    assert (
        found([(S, 10, 6000, BEGUN), (S, 20, 0, ENDED), (S, 0, 6000, LISTED)], [later], [30]) == []
    )
    assert found([(S, 35, 6000, BEGUN)], [later], [30]) == [(Doubt.MISSING, 0)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([6, 6, -1], [("3", "missing")]),
        # As Apache keeps a session of a TRUNC: nobody is blamed.
        ([6, -1, -1], [("1", "unknown")]),
        ([6, -1, -2], [("1", "unknown")]),
        ([6, 6, 7], [("3", "timeout")]),
        ([6, 7, -2], []),
    ],
)
def test_dispute__a_quorum_decides(values: list[int], expected: list[tuple[str, str]]) -> None:
    rows = [(S, cut, value, LISTED) for cut, value in enumerate(values) if value >= 0]
    # Those that are not asked begin later: the session's end is before them.
    cuts = [TableCut(40 if value != -2 else 90, 50 if value != -2 else 99, 0) for value in values]
    ended = [(S, 80, 0, ENDED)]
    given = np.array([*rows, *ended], SESSION)
    doubts = doubts_of(given, cuts, np.empty(0, np.int64), starts_empty=False)
    plans = [SnapshotPlan(name, name, 40, 40) for name in ("1", "2", "3")]
    troubles = troubles_of(doubts, plans, {"1", "2", "3"}, SERVERS)
    assert [(one.server, one.doubt) for one in troubles] == expected
    assert all(one.sessions == (S,) and one.count == 1 for one in troubles)
    # About a snapshot whose znodes are wrong there is enough to say.
    assert not troubles_of(doubts, plans, set(), SERVERS)


def test_buckets_of_sessions__give_what_one_gives(tmp_path: Path) -> None:
    life = next(life for life in map(_lived, range(100)) if lost_session(life) is not None)
    (view,) = views_of(run_here, discover([str(life.write_files(tmp_path))]))
    plan = plan_replay(view, judge(view, *compared_of(run_here, [view])))
    (chain, *_) = chain_plans(plan)
    doubts = session_doubts_here(chain)
    assert doubts
    many = replace(chain, records=40_000_000)
    assert many.session_buckets == 10
    assert sums_here(many).sessions == doubts


def _lived(seed: int) -> Life:
    life = Life(seed)
    life.live()
    return life
