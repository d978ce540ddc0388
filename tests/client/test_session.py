"""The session: handshake, pings, loss and return of connections, what becomes of requests."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from keepfast.client import Client, ClientEvent, ClientOptions, ClientState, OperationFailed
from keepfast.harness import HeldPorts
from keepfast.wire import (
    AddWatchMode,
    ConnectResponse,
    ErrorCode,
    EventType,
    GetChildrenResponse,
    InvariantViolation,
    KeeperState,
    OpCode,
    SessionId,
    SetWatches,
    SetWatches2,
    Stat,
    Xid,
    Zxid,
    decode,
    encode,
    encode_event,
    encode_frame,
    encode_reply,
)
from tests.client.fake_server import PASSWORD, SESSION, FakeServer, eventually

# None of them ends anything here: a slow machine must not be taken for a silent server.
PATIENT = ClientOptions(session_timeout_ms=60_000, connect_timeout_s=60, operation_timeout_s=60)
READ_ONLY = replace(PATIENT, read_only=True)
STAT = Stat(*range(11))


def answer_children(type: int, body: bytes) -> tuple[int, bytes]:
    """A tree in which every znode has the child `a`."""
    if type == OpCode.GET_CHILDREN:
        return 0, encode(GetChildrenResponse(("a",)))
    if type == OpCode.GET_DATA:
        return 0, b"\xff\xff\xff\xff" + encode(STAT)
    if type == OpCode.EXISTS:
        return ErrorCode.NO_NODE, b""
    return 0, encode_reply(0, 0, 0)[-4:]


def test_handshake__asks_for_the_timeout_and_takes_the_servers() -> None:
    with FakeServer(timeout_ms=3000) as server, Client(server.host, PATIENT) as client:
        assert client.session_id == SESSION
        assert client.session_timeout_ms == 3000
        assert client.state is ClientState.CONNECTED
        (request,) = server.handshakes
        assert request.timeout_ms == 60_000
        assert request.session_id == 0
        assert request.password == bytes(16)
        assert request.read_only is False


def test_end_of_with_block__closes_the_session_and_tells_so() -> None:
    events: list[ClientEvent] = []
    with FakeServer() as server:
        with Client(server.host, PATIENT, events.append) as client:
            pass
        assert server.types() == [OpCode.CLOSE_SESSION]
        assert client.state is ClientState.CLOSED
    assert [event.state for event in events] == [
        KeeperState.SYNC_CONNECTED,
        KeeperState.CLOSED,
    ]
    with pytest.raises(OperationFailed) as failure:
        client.get_children("/")
    assert failure.value.code is ErrorCode.SESSION_EXPIRED


def test_idle_connection__is_kept_alive_by_pings() -> None:
    with FakeServer(timeout_ms=600) as server, Client(server.host, PATIENT):
        # One in 200 ms. Where a slow machine answers too late, the next connection has its chance.
        assert eventually(lambda: max(server.pings) >= 6)


def test_silent_server__is_left_after_two_thirds_of_the_timeout() -> None:
    events: list[ClientEvent] = []
    with FakeServer(timeout_ms=600) as server:
        server.answers_pings = False
        with Client(server.host, PATIENT, events.append):
            assert eventually(lambda: len(server.handshakes) >= 2)
        assert KeeperState.DISCONNECTED in [event.state for event in events]


def test_lost_connection__comes_back_with_the_same_session_at_another_server() -> None:
    with FakeServer(answer_children) as first, FakeServer(answer_children) as second:
        first.zxid = 7
        with Client(f"{first.host},{second.host}", PATIENT) as client:
            client.get_children("/")
            first.response = None
            first.drop()
            # A request before the client has noticed would be lost with the connection.
            assert eventually(lambda: client.state.is_connected and bool(second.handshakes))
            assert client.get_children("/") == ("a",)
            assert str(client.server) == second.host
        (request,) = second.handshakes
        assert request.session_id == SESSION
        assert request.password == PASSWORD
        assert request.last_zxid_seen == 7


def test_request_in_flight_when_the_connection_breaks__fails_and_is_not_sent_again() -> None:
    def answer(type: int, body: bytes) -> tuple[int, bytes] | None:
        if type != OpCode.DELETE:
            return 0, b""
        server.drop()
        return None

    with FakeServer(answer) as server:
        with Client(server.host, PATIENT) as client:
            with pytest.raises(OperationFailed) as failure:
                client.delete("/a")
            assert failure.value.code is ErrorCode.CONNECTION_LOSS
            assert failure.value.path == "/a"
            assert failure.value.is_connection_failure
            assert eventually(lambda: len(server.handshakes) == 2)
        assert server.types().count(OpCode.DELETE) == 1


def test_no_server_at_all__says_why_for_each() -> None:
    with HeldPorts(2) as held:
        client = Client(",".join(f"127.0.0.1:{port}" for port in held.numbers), PATIENT)
        with pytest.raises(OperationFailed) as failure, client:
            pass
    for port in held.numbers:
        assert f"127.0.0.1:{port}: Connection refused" in str(failure.value)


def test_request_without_a_connection__fails_after_every_server_was_tried() -> None:
    with HeldPorts(1) as held:
        client = Client(f"127.0.0.1:{held.numbers[0]}", PATIENT).start()
        try:
            with pytest.raises(OperationFailed) as failure:
                client.get_children("/")
        finally:
            client.close()
    # And not REQUEST_TIMEOUT.
    assert failure.value.code is ErrorCode.CONNECTION_LOSS
    assert "Connection refused" in failure.value.detail


def test_patient_client__waits_for_a_server_that_comes_late() -> None:
    with FakeServer() as server:
        server.response = None
        client = Client(server.host, PATIENT).start()
        try:
            assert eventually(lambda: len(server.handshakes) >= 2)
            server.response = ConnectResponse(0, 60_000, SESSION, PASSWORD, False)
            client.wait_connected(60, is_patient=True)
            assert client.state is ClientState.CONNECTED
        finally:
            client.close()


def test_waiting_for_the_connection__ends_behind_its_event() -> None:
    told: list[KeeperState] = []

    def take_long(event: ClientEvent) -> None:
        # Long enough for a caller that does not wait for this to be ahead of it.
        threading.Event().wait(0.3)
        told.append(event.state)

    with FakeServer() as server, Client(server.host, PATIENT, take_long):
        assert told == [KeeperState.SYNC_CONNECTED]


def test_server_that_hangs_up_at_the_handshake__is_reported() -> None:
    with FakeServer() as server:
        server.response = None
        with pytest.raises(OperationFailed, match="closed the connection"), Client(server.host):
            pass


def test_read_only_server_without_local_sessions__is_reported() -> None:
    class Refusing(FakeServer):
        def _greet(self, connection: object, payload: bytes) -> bool:
            frame = encode_reply(0, 0, ErrorCode.NOT_READ_ONLY)
            connection.sendall(frame)  # type: ignore[attr-defined]
            return False

    with Refusing() as server, pytest.raises(OperationFailed, match="no quorum"):
        Client(server.host, PATIENT).__enter__()


def test_read_only_server__shows_in_the_state() -> None:
    events: list[ClientEvent] = []
    with FakeServer() as server:
        server.response = ConnectResponse(0, 60_000, SESSION, PASSWORD, True)
        with Client(server.host, READ_ONLY, events.append) as client:
            assert client.state is ClientState.CONNECTED_READ_ONLY
        assert server.handshakes[0].read_only is True
    assert events[0].state is KeeperState.CONNECTED_READ_ONLY


def test_session_of_a_read_only_server__is_not_asked_for_elsewhere() -> None:
    with FakeServer() as server:
        server.response = ConnectResponse(0, 60_000, SESSION, PASSWORD, True)
        with Client(server.host, READ_ONLY) as client:
            server.response = ConnectResponse(0, 60_000, SessionId(77), PASSWORD, False)
            server.drop()
            assert eventually(lambda: client.state is ClientState.CONNECTED)
            assert client.session_id == 77
            server.drop()
            assert eventually(lambda: len(server.handshakes) == 3)
        assert [request.session_id for request in server.handshakes] == [0, 0, 77]


def test_expired_session__is_final() -> None:
    events: list[ClientEvent] = []
    with FakeServer() as server, Client(server.host, PATIENT, events.append) as client:
        server.response = ConnectResponse(0, 0, SessionId(0), bytes(16), False)
        server.drop()
        assert eventually(lambda: client.state is ClientState.CLOSED)
        with pytest.raises(OperationFailed) as failure:
            client.get_children("/")
        assert failure.value.code is ErrorCode.SESSION_EXPIRED
        assert failure.value.is_connection_failure
    states = [event.state for event in events]
    assert states == [KeeperState.SYNC_CONNECTED, KeeperState.DISCONNECTED, KeeperState.EXPIRED]


def test_refused_credential__ends_the_session() -> None:
    def refuse(type: int, body: bytes) -> tuple[int, bytes]:
        return (ErrorCode.AUTH_FAILED if type == OpCode.AUTH else 0), b""

    events: list[ClientEvent] = []
    with FakeServer(refuse) as server, Client(server.host, PATIENT, events.append) as client:
        with pytest.raises(OperationFailed) as failure:
            client.add_auth("digest", b"x")
        assert failure.value.code is ErrorCode.AUTH_FAILED
        assert client.state is ClientState.AUTH_FAILED
        with pytest.raises(OperationFailed) as later:
            client.get_children("/")
        assert later.value.code is ErrorCode.AUTH_FAILED
        # Whoever waits for the connection only now is told the same, not that there was none.
        with pytest.raises(OperationFailed) as waiting:
            client.wait_connected()
        assert waiting.value.code is ErrorCode.AUTH_FAILED
    assert [event.state for event in events][-1] is KeeperState.AUTH_FAILED


def test_request_before_the_answer_to_a_credential__waits_for_it() -> None:
    failures: list[OperationFailed] = []

    def read() -> None:
        with pytest.raises(OperationFailed) as failure:
            client.get_children("/")
        failures.append(failure.value)

    def answer(type: int, body: bytes) -> tuple[int, bytes] | None:
        return None if type == OpCode.AUTH else answer_children(type, body)

    options = replace(PATIENT, credentials=(("nosuch", b"p"),))
    with FakeServer(answer, timeout_ms=4500) as server, Client(server.host, options) as client:
        reader = threading.Thread(target=read)
        reader.start()
        assert eventually(lambda: server.pings[0] > 0)
        assert server.types() == [OpCode.AUTH]
        server.send(encode_reply(Xid.AUTH, 0, ErrorCode.AUTH_FAILED))
        reader.join()
    assert [failure.code for failure in failures] == [ErrorCode.AUTH_FAILED]
    assert OpCode.GET_CHILDREN not in server.types()


def test_reconnection__shows_credentials_and_sets_watches_again_before_anything_else() -> None:
    with FakeServer(answer_children) as server, Client(server.host, PATIENT) as client:
        client.add_auth("digest", b"u:p")
        client.get_data("/d", watch=True)
        assert client.exists("/e", watch=True) is None
        client.get_children("/c", watch=True)
        server.requests.clear()
        server.drop()
        assert eventually(lambda: len(server.requests) >= 2)
        client.get_children("/")
        assert server.types()[:3] == [OpCode.AUTH, OpCode.SET_WATCHES, OpCode.GET_CHILDREN]
        watches = decode(SetWatches, server.requests[1][2])
        assert watches == SetWatches(Zxid(server.zxid), ("/d",), ("/e",), ("/c",))

        client.add_watch("/r", AddWatchMode.PERSISTENT_RECURSIVE)
        server.requests.clear()
        server.drop()
        assert eventually(lambda: len(server.requests) >= 2)
        assert server.types()[1] == OpCode.SET_WATCHES2
        both = decode(SetWatches2, server.requests[1][2])
        assert both.persistent_recursive_watches == ("/r",)
        assert both.data_watches == ("/d",)


def test_event__goes_to_the_callback_if_a_watch_waits_for_it() -> None:
    events: list[ClientEvent] = []
    with FakeServer(answer_children) as server:
        client = Client(f"{server.host}/app", PATIENT, events.append)
        with client:
            server.send(encode_event(EventType.NODE_DATA_CHANGED, "/app/d", 5))
            client.get_data("/d", watch=True)
            server.send(encode_event(EventType.NODE_DATA_CHANGED, "/app/d", 6))
            server.send(encode_event(EventType.NODE_DATA_CHANGED, "/app/d", 7))
            client.get_children("/")
        about_znodes = [event for event in events if event.type is not EventType.NONE]
    assert about_znodes == [
        ClientEvent(EventType.NODE_DATA_CHANGED, KeeperState.SYNC_CONNECTED, "/d", 6)
    ]


def test_operation_in_a_callback__is_refused_and_does_not_hang() -> None:
    outcomes: list[Exception] = []
    holder: list[Client] = []

    def callback(event: ClientEvent) -> None:
        if event.state is KeeperState.SYNC_CONNECTED:
            try:
                holder[0].get_children("/")
            except InvariantViolation as error:
                outcomes.append(error)

    with FakeServer() as server:
        client = Client(server.host, PATIENT, callback)
        holder.append(client)
        with client:
            pass
    assert len(outcomes) == 1


def test_reply_that_nobody_asked_for__costs_the_connection() -> None:
    with FakeServer(answer_children) as server, Client(server.host, PATIENT):
        server.send(encode_reply(77, 1, 0))
        assert eventually(lambda: len(server.handshakes) == 2)


@pytest.mark.parametrize("frame", [b"\x7f\xff\xff\xff", encode_frame(b"short")])
def test_bytes_that_are_no_reply__cost_the_connection(frame: bytes) -> None:
    with FakeServer(answer_children) as server, Client(server.host, PATIENT) as client:
        server.send(frame)
        assert eventually(lambda: len(server.handshakes) == 2)
        assert client.get_children("/") == ("a",)


def test_reply_with_a_bad_body__fails_that_operation_alone() -> None:
    def answer(type: int, body: bytes) -> tuple[int, bytes]:
        return 0, b"\x00" if type == OpCode.GET_ACL else encode(GetChildrenResponse(()))

    with FakeServer(answer) as server, Client(server.host, PATIENT) as client:
        with pytest.raises(OperationFailed) as failure:
            client.get_acl("/")
        assert failure.value.code is ErrorCode.MARSHALLING_ERROR
        assert client.get_children("/") == ()


def test_error_code_of_a_newer_server__is_still_a_failed_operation() -> None:
    with FakeServer(lambda type, body: (-999, b"")) as server, Client(server.host) as client:
        with pytest.raises(OperationFailed) as failure:
            client.get_children("/")
        assert failure.value.code is ErrorCode.SYSTEM_ERROR


def test_server_that_never_answers__ends_in_a_timeout() -> None:
    with FakeServer(lambda type, body: None) as server, Client(server.host, PATIENT) as client:
        with pytest.raises(OperationFailed) as failure:
            client.get_children("/", timeout_s=0.2)
        assert failure.value.code is ErrorCode.REQUEST_TIMEOUT


def test_client_that_was_never_started__can_be_closed() -> None:
    Client("127.0.0.1:1").close()
