"""Audit lines in an ensemble: each change in the log of one server, the one that was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.replica import AuditRecord
from keepfast.sim.process import Process
from keepfast.sim.script import quiet_options
from keepfast.tree import PrepareOptions
from keepfast.wire import CreateMode, DeleteRequest, MultiOp, OpCode, SetDataRequest
from tests.replica.simulated import Ensemble, PlainClient, create, started
from tests.replica.test_long_txns import multi

Lines = dict[int, list[AuditRecord]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What each server writes."""
    written: Lines = {}

    def audit(process: Process, records: list[AuditRecord]) -> None:
        written.setdefault(process.server_id, []).extend(records)

    monkeypatch.setattr(Process, "audit", audit)
    return written


def audited(slice_size: int) -> Ensemble:
    options = quiet_options(3)
    replica = replace(
        options.replica, is_audited=True, prepare=PrepareOptions(slice_size=slice_size)
    )
    return started(3, replace(options, replica=replica))


@pytest.mark.parametrize("slice_size", [1, 250])
@pytest.mark.parametrize("is_leader", [True, False])
def test_changes__are_logged_by_the_server_that_was_asked(
    lines: Lines, slice_size: int, is_leader: bool
) -> None:
    ensemble = audited(slice_size)
    host = ensemble.leading() if is_leader else ensemble.followers()[0]
    client = PlainClient(ensemble, host)
    ops = (
        MultiOp(OpCode.CREATE, create("/b")),
        MultiOp(OpCode.SET_DATA, SetDataRequest("/b", b"x", -1)),
        MultiOp(OpCode.DELETE, DeleteRequest("/b", -1)),
    )
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, 0)]
    assert client.ask(2, OpCode.SET_DATA, SetDataRequest("/a", b"x", -1)) == [(2, 0)]
    client.send_raw(multi(3, ops))
    client.send_raw(multi(4, (*ops, ops[-1])))
    client.send(5, OpCode.DELETE, DeleteRequest("/none", -1))
    ensemble.pass_ms(500)
    assert [xid for xid, _ in client.replies()] == [3, 4, 5]
    assert len(ensemble.up()) == 3
    assert list(lines) == [host.server_id]
    told = [(line.operation, line.path, line.is_success) for line in lines[host.server_id]]
    assert told == [
        ("create", "/a", True),
        ("setData", "/a", True),
        ("create", "/b", True),
        ("setData", "/b", True),
        ("delete", "/b", True),
        ("multiOperation", None, False),
        ("delete", "/none", False),
    ]
    assert {line.address for line in lines[host.server_id]} == {"127.0.0.1"}


def test_end_of_a_session__its_ephemerals_are_logged_by_all(lines: Lines) -> None:
    ensemble = audited(250)
    client = PlainClient(ensemble, ensemble.followers()[0])
    assert client.ask(1, OpCode.CREATE, create("/e", mode=CreateMode.EPHEMERAL)) == [(1, 0)]
    lines.clear()
    client.send(2, OpCode.CLOSE_SESSION)
    ensemble.pass_ms(500)
    assert {server: [line.path for line in some] for server, some in lines.items()} == {
        host.server_id: ["/e"] for host in ensemble.hosts
    }
