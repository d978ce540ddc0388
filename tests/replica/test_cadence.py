from __future__ import annotations

from keepfast.replica import Append, CadenceOptions, ServerCore, SnapshotCadence, TakeSnapshot
from keepfast.wire import OPEN_ACL, CreateRequest, OpCode, Zxid
from tests.replica.machine import Client, Machine

RECORD = Append(Zxid(1), b"x" * 10, None)


def at_the_limit(span: int) -> int:
    """The greatest number that may be drawn: all of each limit."""
    return span - 1


def least(_span: int) -> int:
    """The smallest: half of it."""
    return 0


def records_until_due(options: CadenceOptions, znodes: int, draw: object = at_the_limit) -> int:
    cadence = SnapshotCadence(options, draw)  # type: ignore[arg-type]
    count = 0
    while not cadence.is_due(znodes):
        cadence.count([RECORD])
        count += 1
    return count


def test_small_tree__due_after_the_number_of_records() -> None:
    options = CadenceOptions(every=100, every_percent=100)
    assert records_until_due(options, 100) == 100
    assert records_until_due(options, 4, least) == 50


def test_tree_of_more_znodes_than_that__due_after_as_many_records_as_znodes() -> None:
    options = CadenceOptions(every=100, every_percent=100)
    assert records_until_due(options, 700) == 700
    assert records_until_due(options, 700, least) == 350
    assert records_until_due(CadenceOptions(every=100, every_percent=50), 700) == 350


def test_share_of_0_percent__the_number_of_records_alone_counts() -> None:
    assert records_until_due(CadenceOptions(every=100), 700) == 100


def test_many_bytes__due_however_large_the_tree_is() -> None:
    options = CadenceOptions(every=100, every_bytes=300, every_percent=100)
    assert records_until_due(options, 700) == 30


def test_tree_that_grows_or_shrinks__its_size_of_the_moment_counts() -> None:
    cadence = SnapshotCadence(CadenceOptions(every=10, every_percent=100), at_the_limit)
    cadence.count([RECORD] * 20)
    assert not cadence.is_due(21)
    assert cadence.is_due(20)


def test_snapshot_begins__counted_from_0_again() -> None:
    cadence = SnapshotCadence(CadenceOptions(every=10, every_percent=100), at_the_limit)
    cadence.count([RECORD] * 30)
    cadence.restart()
    cadence.count([RECORD] * 9)
    assert not cadence.is_due(1)


def test_no_snapshots_wanted__never_due() -> None:
    cadence = SnapshotCadence(CadenceOptions(every=0, every_percent=100), at_the_limit)
    cadence.count([RECORD] * 1000)
    assert not cadence.is_due(0)


def test_snapshot_that_is_due__is_taken_once() -> None:
    machine = Machine()
    core = ServerCore(
        machine.replica, None, SnapshotCadence(CadenceOptions(every=3), at_the_limit), 0.0
    )
    client = Client(machine)
    machine.settle()
    taken = []
    for number in range(1, 10):
        client.send(number, OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN_ACL, 0))
        # Its group waits for others.
        core.set_clock(10.0 * number, 0)
        batch = core.end_turn()
        taken.append(any(isinstance(effect, TakeSnapshot) for effect in batch))
        assert not any(isinstance(effect, TakeSnapshot) for effect in core.end_turn())
    assert taken == [False, False, True] * 3
