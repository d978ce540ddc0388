"""How long the loop was held: counted for each turn, and shown as metrics."""

from __future__ import annotations

import pytest

from keepfast.driver.turn_times import TurnTimes

MS = 1_000_000


def test_spread_of_turns__worst_and_quantiles() -> None:
    turns = TurnTimes()
    for _ in range(98):
        turns.add(MS // 10)
    turns.add(3 * MS)
    turns.add(40 * MS)
    assert turns.worst_ms == 40
    assert turns.quantile_ms(0.5) == pytest.approx(0.1, abs=0.02)
    assert turns.quantile_ms(0.99) == pytest.approx(3, abs=0.02)
    assert turns.quantile_ms(1.0) == 40
    assert turns.over_limit == 1


def test_time_of_the_disk_is_not_the_loops() -> None:
    turns = TurnTimes()
    turns.excuse(0.030)
    turns.add(32 * MS)
    assert turns.worst_ms == 2
    turns.add(4 * MS)
    assert turns.worst_ms == 4


def test_reset__nothing_is_left() -> None:
    turns = TurnTimes()
    turns.add(9 * MS)
    turns.reset()
    assert (turns.worst_ms, turns.quantile_ms(0.99), turns.over_limit) == (0, 0, 0)
