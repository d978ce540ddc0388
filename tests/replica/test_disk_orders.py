"""What the disk is ordered to do comes after all records that were stored before the order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from keepfast.sim.agenda import MS
from keepfast.sim.options import DiskOptions
from keepfast.sim.script import quiet_options
from keepfast.wire import OpCode, SetDataRequest, Zxid
from tests.replica.simulated import PlainClient, create, process_of, started

_FSYNC_US = 5 * MS
_FAST_US = 100
_WRITES = 60


def test_order_while_records_come_and_a_thread_syncs__sees_all_before_it_durable() -> None:
    disk = DiskOptions(min_latency_us=_FSYNC_US, max_latency_us=_FSYNC_US)
    ensemble = started(1, replace(quiet_options(1), disk=disk))
    (host,) = ensemble.hosts
    process, agenda = process_of(host), ensemble.world.agenda
    store, worker = process.store, process.loop.disk
    client = PlainClient(ensemble, host)
    for xid in range(1, 6):
        assert client.ask(xid, OpCode.CREATE, create(f"/{xid}")) == [(xid, 0)]
    assert worker.fsync_seconds > 0.001  # slow enough for a thread

    seen: list[tuple[Zxid, Zxid]] = []

    def order() -> None:
        head = store.head
        worker.order(lambda: store.durable, lambda durable: seen.append((head, durable)))  # type: ignore[arg-type]

    under_way = 0
    for xid in range(6, 6 + _WRITES):
        client.send(xid, OpCode.SET_DATA, SetDataRequest("/1", b"%d" % xid, -1))
        # No multiple of what an fsync takes: records come at every moment of one.
        agenda.run_until(agenda.now_us + 1300)
        under_way += store.head > store.durable
        process.run(order)
    ensemble.pass_ms(600)
    assert under_way > _WRITES // 2
    assert len(seen) == _WRITES
    assert [pair for pair in seen if pair[1] < pair[0]] == []


def test_fast_disk_while_a_snapshot_is_taken__the_loop_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An fsync may take long on a disk that large files are written to, whatever it took before."""
    disk = DiskOptions(min_latency_us=_FAST_US, max_latency_us=_FAST_US)
    ensemble = started(1, replace(quiet_options(1), disk=disk))
    (host,) = ensemble.hosts
    process, agenda = process_of(host), ensemble.world.agenda
    loop = process.loop
    client = PlainClient(ensemble, host)
    assert client.ask(1, OpCode.CREATE, create("/1")) == [(1, 0)]
    inline: list[bool] = []
    called = process.call_disk

    def call_disk(work: Callable[[], None]) -> float:
        inline.append(loop.snapshots.is_busy)
        return called(work)

    monkeypatch.setattr(process, "call_disk", call_disk)
    process.run(lambda: loop.guard.run(lambda: loop.snapshots.begin(process.replica.tree)))
    during = 0
    for xid in range(2, 2 + _WRITES):
        client.send(xid, OpCode.SET_DATA, SetDataRequest("/1", b"%d" % xid, -1))
        agenda.run_until(agenda.now_us + _FAST_US)
        during += loop.snapshots.is_busy
    ensemble.pass_ms(100)
    assert during > 1
    assert not loop.snapshots.is_busy
    assert inline  # before and after, the loop calls the disk itself
    assert not any(inline)
