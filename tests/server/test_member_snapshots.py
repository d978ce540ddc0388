"""Snapshots of a member that does not serve: of its own state, or none."""

from __future__ import annotations

import asyncio
from typing import Any

from keepfast.replica import Append
from keepfast.server import ListeningServer
from keepfast.storage import SnapshotEntry
from keepfast.testing import Ensemble, EnsembleServer
from keepfast.wire import Zxid
from tests.apache.words import wait_until


def written(ensemble: Ensemble) -> int:
    """Write something, and stop all from serving; gives the last zxid."""
    client = ensemble.client()
    for number in range(5):
        client.create(f"/a{number}", b"x")
    ensemble.wait_equal()
    zxid = ensemble[1].state()[0]
    ensemble.partition([1], [2], [3])
    wait_until(lambda: not any(one.is_serving for one in ensemble.servers), "nobody serves")
    return zxid


def forget_tree(server: ListeningServer) -> None:
    """As after a start: the front for clients has no tree before the server serves."""
    server.running.replica.service.tree = type(server.running.replica.tree)()


def owe_snapshot(server: ListeningServer) -> None:
    """As if many records had been stored since the last one."""
    server.running.core.cadence.count(
        [Append(Zxid(1), b"", None)] * server.running.options.snapshot_every
    )


def on(server: EnsembleServer, action: Any) -> Any:
    return server._on_loop(action)


def test_records_come_before_it_serves__no_snapshot_is_begun(keepfast_ensemble: Ensemble) -> None:
    written(keepfast_ensemble)
    server = keepfast_ensemble[1]
    on(server, lambda found: found.running.driver.run(lambda: owe_snapshot(found)))
    assert not on(server, lambda found: found.running.driver.snapshots.is_busy)


def test_tree_is_wanted_for_a_learner__it_is_the_members(keepfast_ensemble: Ensemble) -> None:
    zxid = written(keepfast_ensemble)
    server = keepfast_ensemble[1]
    on(server, forget_tree)
    found: list[SnapshotEntry | None] = []

    async def take(real: ListeningServer) -> None:
        found.append(await real.running.take_snapshot())

    real = server._server
    assert real is not None
    assert server._loop is not None
    asyncio.run_coroutine_threadsafe(take(real), server._loop).result(60)
    entry = found[0]
    assert entry is not None
    assert entry.zxid == zxid


def test_snapshot_that_is_begun__holds_the_state_of_that_moment(
    keepfast_ensemble: Ensemble,
) -> None:
    zxid = written(keepfast_ensemble)
    server = keepfast_ensemble[1]

    async def take(real: ListeningServer) -> SnapshotEntry | None:
        member = real.running.member
        tree = None if member is None else member.state.tree
        assert tree is not None
        task = asyncio.ensure_future(real.running.take_snapshot())
        await asyncio.sleep(0)
        # At once, and not when the task runs: what is committed until then must not be in it.
        assert tree.is_frozen
        return await task

    real = server._server
    assert real is not None
    assert server._loop is not None
    entry = asyncio.run_coroutine_threadsafe(take(real), server._loop).result(60)
    assert entry is not None
    assert entry.zxid == zxid
