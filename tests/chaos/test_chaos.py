"""A short campaign on real processes; `make chaos` runs the long one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, run_campaign
from tests.chaos.faults import CorruptBoth, DiskFull, Halves, KillOne, Wipe
from tests.chaos.kazoo_clients import KazooWorker
from tests.chaos.workloads import Deed, Register, real_time_violations


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_faults_under_load__no_violation_and_equal_trees(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    faults = (KillOne, Halves, CorruptBoth, Wipe, DiskFull)
    plan = Plan(1, faults, fault_seconds=1.0, calm_seconds=0.5, workers=1)
    outcome = run_campaign(plan, tmp_path / "e", tell)
    assert outcome.complaints == []
    assert len(outcome.struck) + len(outcome.skipped) == len(faults)
    assert outcome.done > 0


def test_kazoo_worker__sees_the_answer_to_another_request() -> None:
    """The second set is told the result of the first one, and was not done."""

    class Answer:
        def __init__(self, result: object) -> None:
            self._result = result

        def get(self, timeout: float) -> object:
            return self._result

    class Stat:
        version = 1
        dataLength = 9  # noqa: N815 - kazoo's name

    class Client:
        def set_async(self, _path: str, _value: bytes) -> Answer:
            return Answer(Stat())

        def create_async(self, _path: str, _value: bytes, sequence: bool) -> Answer:
            return Answer("/other")

        def get(self, _path: str) -> tuple[bytes, Stat]:
            return b"something", Stat()

    worker = KazooWorker("/x", 7, [], threading.Event())
    worker._step(Client())
    text = "; ".join(worker.complaints)
    assert "got version 1" in text
    assert "is read as b'something'" in text
    assert "create is answered by /other" in text


def test_checker__sees_writes_out_of_order() -> None:
    in_order = [Deed(0, 1, "a", 1), Deed(2, 3, "b", 2), Deed(2, 3, "c", 3)]
    assert real_time_violations(in_order, is_strict=True) == []
    lost = [*in_order, Deed(4, 5, "d", 3)]
    assert real_time_violations(lost, is_strict=True) == ["d got 3 after c had got 3"]
    assert real_time_violations(lost, is_strict=False) == []
    stale = [*in_order, Deed(4, 5, "read", 2)]
    assert real_time_violations(stale, is_strict=False) == ["read got 2 after c had got 3"]


def test_register__sees_two_values_of_one_version() -> None:
    register = Register("/x")
    register._tried |= {b"1", b"2"}
    register._seen += [(1, b"1"), (1, b"2")]
    register._writes += [Deed(0, 1, "write", 1), Deed(0, 1, "write", 1)]

    class Found:
        def sync(self, _path: str) -> None:
            """Nothing to wait for."""

        def get_data(self, _path: str) -> object:
            class Answer:
                data = b"2"

                class stat:  # noqa: N801 - as the reply's field
                    version = 1

            return Answer()

    register.check(Found())  # type: ignore[arg-type]
    text = "; ".join(register.complaints)
    assert "version 1 is b'1' and b'2'" in text
    assert "two writes got the same version" in text
