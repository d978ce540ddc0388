"""A read-only server shows what is known to be committed, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from keepfast.sim.host import Host
from keepfast.sim.script import quiet_options
from keepfast.wire import ErrorCode, ExistsRequest, OpCode
from tests.replica.simulated import Ensemble, PlainClient, create, process_of, started


def read_only_ensemble() -> tuple[Ensemble, Host]:
    ensemble = started(options=replace(quiet_options(), is_read_only_enabled=True))
    return ensemble, ensemble.leading()


def is_read_only(host: Host) -> bool:
    return process_of(host).replica.is_read_only


def exists(ensemble: Ensemble, host: Host, path: str) -> list[tuple[int, int]]:
    client = PlainClient(ensemble, host, read_only=True)
    return client.ask(1, OpCode.EXISTS, ExistsRequest(path, False))


def test_member_without_a_leader__serves_read_only_clients_if_that_is_on() -> None:
    ensemble, alone = read_only_ensemble()
    for host in ensemble.followers():
        host.kill()
    ensemble.wait(lambda: is_read_only(alone), "it is read-only")
    refused = PlainClient(ensemble, alone)
    assert not refused.is_open
    client = PlainClient(ensemble, alone, read_only=True)
    assert client.greeting is not None
    assert client.greeting.read_only
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, ErrorCode.NOT_READ_ONLY)]
    assert client.ask(2, OpCode.EXISTS, ExistsRequest("/", False)) == [(2, 0)]


def test_session_of_the_ensemble__cannot_be_closed_there() -> None:
    """Its end would be in nobody's history, and its ephemerals would live on."""
    ensemble, alone = read_only_ensemble()
    before = PlainClient(ensemble, alone)
    others = ensemble.followers()
    for host in others:
        host.kill()
    ensemble.wait(lambda: is_read_only(alone), "it is read-only")
    client = PlainClient(ensemble, alone, session=before.greeting, read_only=True)
    assert client.ask(1, OpCode.CLOSE_SESSION) == [(1, ErrorCode.NOT_READ_ONLY)]
    local = PlainClient(ensemble, alone, read_only=True)
    assert local.ask(1, OpCode.CLOSE_SESSION) == [(1, 0)]


def test_write_that_was_never_agreed_on__is_not_shown() -> None:
    ensemble, leader = read_only_ensemble()
    client = PlainClient(ensemble, leader)
    assert client.ask(1, OpCode.CREATE, create("/agreed")) == [(1, 0)]
    others = ensemble.followers()
    for host in others:
        # Without a word: a leader that knows of it does not write.
        host.cut_power()
    # In its log, and in no other one.
    assert client.ask(2, OpCode.CREATE, create("/orphan")) == []
    ensemble.wait(lambda: is_read_only(leader), "it is read-only")
    assert process_of(leader).store.head > process_of(leader).replica.tree.last_zxid
    assert exists(ensemble, leader, "/agreed") == [(1, 0)]
    assert exists(ensemble, leader, "/orphan") == [(1, ErrorCode.NO_NODE)]
    others[0].start()
    ensemble.wait_all("it is committed now, as a quorum has it")
    assert exists(ensemble, leader, "/orphan") == [(1, 0)]
    others[1].start()
    ensemble.wait_all("all are back")
    ensemble.check_equal()


def test_server_that_was_just_started__does_not_know_what_was_agreed_on() -> None:
    ensemble, leader = read_only_ensemble()
    other, _ = ensemble.followers()
    for host in ensemble.hosts:
        host.kill()
    leader.start()
    ensemble.pass_ticks(50)
    assert not is_read_only(leader)
    other.start()
    ensemble.wait_all("a quorum")
    other.kill()
    ensemble.wait(lambda: is_read_only(leader), "it knows now")
