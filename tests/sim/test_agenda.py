from __future__ import annotations

import pytest

from keepfast.sim.agenda import SECOND, Agenda, LivelockError


def test_appointments__are_kept_in_the_order_of_time_then_of_making() -> None:
    agenda = Agenda()
    kept: list[str] = []
    agenda.after(20, lambda: kept.append("late"))
    agenda.after(10, lambda: kept.append("first"))
    agenda.after(10, lambda: kept.append("second"))
    assert not agenda.run_until(100)
    assert kept == ["first", "second", "late"]
    assert (agenda.now_us, agenda.steps) == (100, 3)


def test_cancelled_appointment__is_not_kept() -> None:
    agenda = Agenda()
    kept: list[int] = []
    agenda.after(10, lambda: kept.append(1)).cancel()
    agenda.run_until(100)
    assert (kept, agenda.steps) == ([], 0)


def test_run_until__stops_as_soon_as_it_is_done() -> None:
    agenda = Agenda()
    kept: list[int] = []
    for delay in (10, 20, 30):
        agenda.after(delay, lambda delay=delay: kept.append(delay))  # type: ignore[misc]
    assert agenda.run_until(100, lambda: len(kept) == 2)
    assert (kept, agenda.now_us) == ([10, 20], 20)


def test_appointment_in_the_past__is_kept_now() -> None:
    agenda = Agenda()
    agenda.run_until(50)
    times: list[int] = []
    agenda.at(10, lambda: times.append(agenda.now_us))
    agenda.run_until(60)
    assert times == [50]


def test_going_round_in_circles__is_noticed() -> None:
    agenda = Agenda(step_limit=100)

    def again() -> None:
        agenda.after(1, again)

    again()
    with pytest.raises(LivelockError, match="more than 100 steps in second 0"):
        agenda.run_until(SECOND)


def test_a_long_run__is_not_taken_for_one() -> None:
    agenda = Agenda(step_limit=100)
    for second in range(20):
        for step in range(99):
            agenda.at(second * SECOND + step, lambda: None)
    agenda.run_until(20 * SECOND)
    assert (agenda.steps, agenda.busiest) == (20 * 99, 99)
