"""When a group of records is complete."""

from __future__ import annotations

from itertools import pairwise

from keepfast.replica.gathering import Gathering

A, B, C = b"a", b"b", b"c"
SYNC = 0.004  # seconds that a sync takes


def gathering(*sessions: bytes) -> Gathering:
    """Behind a sync, at time 0, of one record of each of these sessions."""
    machine = Gathering()
    machine.add(list(sessions), 0.0)
    machine.synced(machine.take(), 0.0, SYNC)
    return machine


def test_first_record_of_all__is_due_at_once() -> None:
    machine = Gathering()
    machine.add([A], 5.0)
    assert machine.seconds_left(5.0) == 0


def test_all_who_were_answered_have_written_again__due_at_once() -> None:
    machine = gathering(A, B, C)
    machine.add([B], 0.0001)
    assert machine.seconds_left(0.0001) > 0
    machine.add([A, C], 0.0002)
    assert machine.seconds_left(0.0002) == 0


def test_who_wrote_during_the_sync__belongs_to_the_next_group_with_those_it_answers() -> None:
    machine = Gathering()
    machine.add([A, B], 0.0)
    group = machine.take()
    machine.add([C], 0.0)
    machine.synced(group, 0.0, SYNC)
    assert machine.seconds_left(0.0) > 0
    machine.add([A, B], 0.0001)
    assert machine.seconds_left(0.0001) == 0


def test_nobody_comes__due_after_a_part_of_the_time_of_a_sync() -> None:
    machine = gathering(A, B)
    machine.add([A], 0.0001)
    assert 0 < machine.seconds_left(0.0001) <= SYNC / 2
    assert machine.seconds_left(0.0001 + SYNC / 2) == 0


def test_more_come_all_the_time__due_at_the_latest_moment() -> None:
    machine = gathering(*(bytes([session]) for session in range(200)))
    now = 0.0
    for session in range(100):
        machine.add([bytes([session])], now)
        if not machine.seconds_left(now):
            break
        now += 0.001
    assert 0.005 < now < 0.02


def test_disappointed__the_next_groups_do_not_wait_and_each_time_more_of_them() -> None:
    machine = gathering(A)
    waits: list[int] = []
    now = 1.0
    for group in range(20):
        # Each time somebody else writes during the sync, and never comes back.
        machine.add([A], now)
        taken = machine.take()
        machine.add([bytes([100 + group])], now)
        machine.synced(taken, now, SYNC)
        if machine.seconds_left(now):
            waits.append(group)
            now += 1
            assert machine.seconds_left(now) == 0
    steps = [later - earlier for earlier, later in pairwise(waits)]
    assert steps == sorted(steps)
    assert steps[-1] > 2


def test_client_with_many_writes__is_waited_for_until_most_are_there() -> None:
    machine = gathering(*[A] * 100)
    machine.add([A] * 20, 0.0001)
    assert machine.seconds_left(0.0001) > 0
    machine.add([A] * 45, 0.0002)
    assert machine.seconds_left(0.0002) == 0
