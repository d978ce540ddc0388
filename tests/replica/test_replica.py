"""The server without I/O: order of replies, sessions, events, what is refused."""

import pytest

from keepfast.replica import Phase, ReplicaOptions
from keepfast.tree import PrepareOptions
from keepfast.wire import (
    OPEN_ACL,
    AddWatchRequest,
    AuthPacket,
    CreateRequest,
    CreateTTLRequest,
    DeleteContainerRequest,
    DeleteRequest,
    ExistsRequest,
    ForwardedRequest,
    GetDataRequest,
    OpCode,
    ServerId,
    SessionId,
    SetDataRequest,
    SyncRequest,
)
from tests.replica.machine import Client, Machine


def connected(machine: Machine, **arguments: int) -> Client:
    client = Client(machine, **arguments)  # type: ignore[arg-type]
    client.connect()
    return client


def create(path: str, flags: int = 0) -> CreateRequest:
    return CreateRequest(path, b"", OPEN_ACL, flags)


def test_write__is_not_answered_before_it_is_durable() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, OpCode.CREATE, create("/a"))
    assert client.replies() == []
    machine.settle()
    assert client.replies() == [(1, 0)]


def test_read_behind_a_write__waits_and_sees_it() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, OpCode.CREATE, create("/a"))
    client.send(2, OpCode.EXISTS, ExistsRequest("/a", False))
    client.send(3, OpCode.PING)
    assert client.replies() == []
    machine.settle()
    assert client.replies() == [(1, 0), (2, 0), (-2, 0)]


def test_read_of_another_client__does_not_wait_and_does_not_see_it() -> None:
    machine = Machine()
    writer, reader = connected(machine), connected(machine)
    writer.send(1, OpCode.CREATE, create("/a"))
    reader.send(1, OpCode.EXISTS, ExistsRequest("/a", False))
    assert reader.replies() == [(1, -101)]


def test_pipelined_writes__see_each_other_and_failed_ones_use_a_zxid() -> None:
    machine = Machine()
    client = connected(machine)
    before = machine.replica.tree.last_zxid
    client.send(1, OpCode.CREATE, create("/a"))
    client.send(2, OpCode.CREATE, create("/a/b"))
    client.send(3, OpCode.CREATE, create("/a"))
    client.send(4, OpCode.DELETE, DeleteRequest("/a", -1))
    machine.settle()
    assert client.replies() == [(1, 0), (2, 0), (3, -110), (4, -111)]
    assert machine.replica.tree.last_zxid == before + 4


def test_event__comes_before_any_reply_that_shows_the_change() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, OpCode.EXISTS, ExistsRequest("/a", True))
    client.send(2, OpCode.CREATE, create("/a"))
    client.send(3, OpCode.GET_DATA, GetDataRequest("/a", False))
    machine.settle()
    assert client.replies() == [(1, -101), (-1, 1), (2, 0), (3, 0)]


def test_persistent_recursive_watch__stays_and_sees_below() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, OpCode.ADD_WATCH, AddWatchRequest("/", 1))
    for xid, path in ((2, "/a"), (3, "/a/b")):
        client.send(xid, OpCode.CREATE, create(path))
    client.send(4, OpCode.DELETE, DeleteRequest("/a/b", -1))
    machine.settle()
    assert client.replies() == [(1, 0), (-1, 1), (2, 0), (-1, 1), (3, 0), (-1, 2), (4, 0)]


def test_sync__is_answered_when_what_was_under_way_is_applied() -> None:
    machine = Machine()
    writer, reader = connected(machine), connected(machine)
    writer.send(1, OpCode.CREATE, create("/a"))
    reader.send(1, OpCode.SYNC, SyncRequest("/"))
    reader.send(2, OpCode.EXISTS, ExistsRequest("/a", False))
    assert reader.replies() == []
    machine.settle()
    assert reader.replies() == [(1, 0), (2, 0)]


def test_expired_session__its_ephemerals_go_and_its_connection_is_closed() -> None:
    machine = Machine()
    client, watcher = connected(machine, timeout_ms=4000), connected(machine, timeout_ms=60_000)
    client.send(1, OpCode.CREATE, create("/e", 1))
    machine.settle()
    watcher.send(1, OpCode.EXISTS, ExistsRequest("/e", True))
    watcher.replies()
    machine.advance(6000)
    machine.tick()
    machine.settle()
    assert machine.replica.tree.find("/e") is None
    assert watcher.replies() == [(-1, 2)]
    assert client.connection.phase is Phase.CLOSED


def test_touched_session__does_not_expire() -> None:
    machine = Machine()
    client = connected(machine, timeout_ms=4000)
    for _ in range(10):
        machine.advance(2000)
        client.send(-2, OpCode.PING)
        machine.tick()
    machine.settle()
    assert client.connection.phase is Phase.OPEN


def test_reconnect__with_password_keeps_the_session_and_closes_the_old_connection() -> None:
    machine = Machine()
    first = Client(machine)
    session = first.connect()
    second = Client(machine, session=session)
    assert second.connect().session_id == session.session_id
    assert first.connection.phase is Phase.CLOSED


def test_reconnect__with_a_wrong_password_is_refused() -> None:
    machine = Machine()
    session = Client(machine).connect()._replace(password=bytes(16))
    again = Client(machine, session=session)
    assert again.connect().session_id == 0
    assert again.connection.phase is Phase.CLOSED


def test_client_from_the_future__is_sent_away() -> None:
    machine = Machine()
    client = Client(machine, last_zxid=99)
    assert client.connection.phase is Phase.CLOSED


@pytest.mark.parametrize("op", [OpCode.DELETE_CONTAINER, OpCode.CHECK, OpCode.CREATE_SESSION, 77])
def test_internal_or_unknown_request__is_refused_and_the_client_cut_off(op: int) -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, op, DeleteContainerRequest(b"/a"))
    assert client.replies() == [(1, -6)]
    assert client.connection.phase is Phase.CLOSED


def test_malformed_body__is_answered_and_the_connection_stays() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(1, OpCode.GET_DATA)
    client.send(2, OpCode.SET_DATA)
    machine.settle()
    assert client.replies() == [(1, -5), (2, -5)]
    assert client.connection.phase is Phase.OPEN


def test_unknown_auth_scheme__is_refused_and_the_client_cut_off() -> None:
    machine = Machine()
    client = connected(machine)
    client.send(-4, OpCode.AUTH, AuthPacket(0, "nosuch", b"x"))
    assert client.replies() == [(-4, -115)]
    assert client.connection.phase is Phase.CLOSED


def test_full_disk__writes_are_refused_without_a_zxid_and_reads_go_on() -> None:
    machine = Machine()
    client = connected(machine)
    before = machine.replica.tree.last_zxid
    machine.replica.service.is_writable = False
    client.send(1, OpCode.SET_DATA, SetDataRequest("/", b"x", -1))
    client.send(2, OpCode.GET_DATA, GetDataRequest("/", False))
    assert client.replies() == [(1, -1), (2, 0)]
    assert not machine.replica.service.appends
    machine.replica.service.is_writable = True
    client.send(3, OpCode.SET_DATA, SetDataRequest("/", b"x", -1))
    machine.settle()
    assert client.replies() == [(3, 0)]
    assert machine.replica.tree.last_zxid == before + 1


def test_container_and_ttl__go_when_their_time_is_over() -> None:
    options = ReplicaOptions(
        tick_ms=1000, container_check_ms=1000, prepare=PrepareOptions(is_ttl_enabled=True)
    )
    machine = Machine(options)
    client = connected(machine, timeout_ms=60_000)
    client.send(1, OpCode.CREATE_CONTAINER, create("/box", 4))
    client.send(2, OpCode.CREATE, create("/box/child"))
    client.send(3, OpCode.CREATE_TTL, CreateTTLRequest("/t", b"", OPEN_ACL, 5, 5000))
    machine.settle()
    machine.advance(3000)
    machine.tick()
    machine.settle()
    assert machine.replica.tree.find("/box")
    assert machine.replica.tree.find("/t")
    client.send(4, OpCode.DELETE, DeleteRequest("/box/child", -1))
    machine.settle()
    machine.advance(3000)
    machine.tick()
    machine.settle()
    assert machine.replica.tree.find("/box") is None
    assert machine.replica.tree.find("/t") is None


def test_client_gone_before_its_session_is_made__leaves_no_trace_on_others() -> None:
    machine = Machine()
    client = Client(machine)
    machine.replica.lost(client.connection)
    machine.settle()
    assert client.take() == []
    assert len(machine.replica.service.sessions) == 1


def test_session_of_a_read_only_server__ends_with_that_role() -> None:
    machine = Machine()
    tree = machine.replica.tree
    machine.replica.show(tree)
    session = Client(machine, read_only=True).connect()
    assert session.read_only
    machine.replica.lead(tree, 2)
    assert Client(machine, session=session, read_only=True).connect().session_id == 0


def test_session_said_to_have_ended__is_not_created_after_that() -> None:
    """A local session is upgraded through one server while its client has moved to another."""
    machine = Machine()
    proposer = machine.replica.proposer
    assert proposer is not None
    assert not proposer.revalidate(0x51, 4000, ServerId(2))
    create = ForwardedRequest(SessionId(0x51), 0, OpCode.CREATE_SESSION.value, b"\0\0\x0f\xa0")
    proposer.propose_forwarded(ServerId(3), create, ())
    machine.settle()
    assert 0x51 not in machine.replica.tree.sessions


def test_session_that_is_being_created__has_not_ended() -> None:
    machine = Machine()
    proposer = machine.replica.proposer
    assert proposer is not None
    create = ForwardedRequest(SessionId(0x51), 0, OpCode.CREATE_SESSION.value, b"\0\0\x0f\xa0")
    proposer.propose_forwarded(ServerId(3), create, ())
    assert proposer.revalidate(0x51, 4000, ServerId(2))
    machine.settle()
    assert 0x51 in machine.replica.tree.sessions
