"""A learner answers each request with its own txn (R15), whatever xids its clients use again."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.replica import Replica, ReplicaOptions
from keepfast.tree import Caller, Preparer, Tree
from keepfast.wire import (
    OPEN_ACL,
    ConnectResponse,
    CreateMode,
    CreateRequest,
    CreateSessionTxn,
    ErrorCode,
    ErrorTxn,
    ExistsRequest,
    KeeperError,
    LogEntry,
    OpCode,
    PacketParser,
    PacketType,
    QuorumPacket,
    ReplyHeader,
    RevalidateRequest,
    SessionId,
    SetDataRequest,
    TxnHeader,
    Zxid,
    codec_of,
    decode_forwarded_request,
    decode_request,
    encode_entry,
    make_zxid,
    session_password,
)
from tests.replica.machine import START_MS, Client

EPOCH = 1
SESSION = SessionId(0x0100_0000_0000_0001)
TELLS = [pytest.param(True, id="keepfast-leader"), pytest.param(False, id="apache-leader")]


class Learner:
    """A learner's replica, and a leader that proposes and commits when the test says so."""

    def __init__(self, *, tells: bool) -> None:
        """`tells`: the leader says with REVALIDATE how far it has proposed, as ours do."""
        self.tells = tells
        self.now_ms = START_MS
        options = ReplicaOptions(server_id=2, tick_ms=1000, min_session_timeout_ms=2000)
        self.replica = Replica(None, options, START_MS, START_MS)
        self.leader_tree, tree = Tree(), Tree()
        self._preparer = Preparer(self.leader_tree)
        self.last = make_zxid(EPOCH, 0)
        self._parser = PacketParser()
        self.inbox: list[QuorumPacket] = []
        self.proposed: list[LogEntry] = []
        self.received = self.last
        self.replica.learn(tree, EPOCH, lambda data: self.inbox.extend(self._parser.feed(data)))
        self.propose(SESSION, 0, OpCode.CREATE_SESSION, CreateSessionTxn(10_000))
        for path in ("/a", "/b"):
            self.propose(SESSION, 1, OpCode.CREATE, create(path))
            self.propose(SESSION, 1, OpCode.SET_DATA, SetDataRequest(path, b"0", -1))
        self.commit()

    def propose(self, session: SessionId, cxid: int, op: int, request: Any) -> None:
        """The leader makes a txn of a request, of whichever server."""
        self.last = Zxid(self.last + 1)
        try:
            if isinstance(request, KeeperError):
                raise request
            entry = self._preparer.prepare(
                Caller(session), cxid, self.last, START_MS, int(op), request
            )
        except KeeperError as error:
            header = TxnHeader(session, cxid, self.last, START_MS, OpCode.ERROR.value)
            entry = LogEntry(header, ErrorTxn(error.code), None)
        self.proposed.append(entry)

    def serve(self, *, is_valid: bool = True) -> None:
        """The leader takes what it was sent: proposes writes, answers for sessions."""
        inbox, self.inbox[:] = list(self.inbox), []
        for packet in inbox:
            if packet.type == PacketType.REVALIDATE:
                asked = codec_of(RevalidateRequest).decode(packet.data or b"")
                proposed = self.last if self.tells else Zxid(-1)
                self.replica.revalidated(asked.session_id, is_valid, proposed, self.received)
            else:
                request = decode_forwarded_request(packet.data or b"")
                is_end = request.type == OpCode.CLOSE_SESSION
                decoded = None if is_end else decode_request(request.type, request.body, 0, 1 << 20)
                self.propose(request.session_id, request.cxid, request.type, decoded)

    def commit(self, count: int | None = None) -> None:
        """The oldest proposals are committed."""
        count = len(self.proposed) if count is None else count
        for entry in self.proposed[:count]:
            self._preparer.apply(entry)
            self.received = entry.header.zxid
            self.replica.commit_learned((encode_entry(entry),), lambda _: None)
        del self.proposed[:count]

    def connected(self) -> LearnerClient:
        """A client that came back with the session."""
        client = LearnerClient(self)
        self.serve()
        client.take()
        assert client.connection.is_open
        return client


class LearnerClient(Client):
    """A connection of the session to the learner."""

    def __init__(self, learner: Learner, id: SessionId = SESSION) -> None:
        session = ConnectResponse(0, 10_000, id, session_password(id), False)
        super().__init__(learner, session=session)  # type: ignore[arg-type]

    def drop(self) -> None:
        """The connection is lost."""
        self.replica.lost(self.connection)


def create(path: str) -> CreateRequest:
    return CreateRequest(path, b"", OPEN_ACL, CreateMode.PERSISTENT.value)


def set_data(path: str, data: bytes) -> SetDataRequest:
    return SetDataRequest(path, data, -1)


@pytest.mark.parametrize("tells", TELLS)
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "general"])
def test_old_write_of_a_lost_connection__does_not_answer_the_new_one(
    tells: bool, is_plain: bool
) -> None:
    learner = Learner(tells=tells)
    first = learner.connected()
    old = set_data("/a", b"old") if is_plain else create("/old")
    new = set_data("/b", b"new") if is_plain else create("/new")
    op = OpCode.SET_DATA if is_plain else OpCode.CREATE
    first.send(1, op, old)
    first.drop()
    second = LearnerClient(learner)
    learner.serve()
    assert second.connection.is_open
    second.take()
    second.send(1, op, new)
    learner.serve()
    learner.commit(1)
    assert second.replies() == []
    learner.commit()
    assert second.replies() == [(1, 0)]


@pytest.mark.parametrize("tells", TELLS)
def test_several_old_writes_and_refusals__each_is_counted(tells: bool) -> None:
    learner = Learner(tells=tells)
    for _ in range(2):
        client = learner.connected()
        for xid in (1, 2, 3):
            client.send(xid, OpCode.SET_DATA, set_data("/a" if xid != 2 else "/none", b"old"))
        client.drop()
    last = learner.connected()
    last.send(1, OpCode.CREATE, create("/b/c"))
    last.send(2, OpCode.SET_DATA, set_data("/none", b"new"))
    learner.serve()
    learner.commit(6)
    assert last.replies() == []
    learner.commit()
    assert last.replies() == [(1, 0), (2, ErrorCode.NO_NODE)]


def test_old_write_through_another_server__does_not_answer_the_new_one() -> None:
    learner = Learner(tells=True)
    # Proposed by the leader before the session moved here, and not sent to us before its answer.
    learner.propose(SESSION, 1, OpCode.CREATE, create("/old"))
    client = learner.connected()
    client.send(1, OpCode.SET_DATA, set_data("/none", b"new"))
    learner.serve()
    learner.commit(1)
    assert client.replies() == []
    learner.commit()
    assert client.replies() == [(1, ErrorCode.NO_NODE)]


def test_write_through_another_server_that_comes_late__no_answer_is_made_of_its_refusal() -> None:
    learner = Learner(tells=True)
    client = learner.connected()
    client.send(1, OpCode.SET_DATA, set_data("/a", b"new"))
    learner.propose(SESSION, 1, OpCode.ERROR, KeeperError(ErrorCode.SESSION_MOVED))
    learner.serve()
    learner.commit()
    # As on Apache: who asked does not learn what became of it, and connects again.
    assert client.replies() == []
    assert not client.connection.is_open


def test_end_of_the_session__is_not_answered_by_the_refusal_of_an_older_write() -> None:
    learner = Learner(tells=True)
    client = learner.connected()
    client.send(1, OpCode.CLOSE_SESSION, None)
    # Of a write with the same xid, which the server that the client came from forwarded too late.
    learner.propose(SESSION, 1, OpCode.ERROR, KeeperError(ErrorCode.SESSION_MOVED))
    learner.serve()
    learner.commit(1)
    assert client.replies() == []
    assert client.connection.is_open
    learner.commit()
    (reply,) = client.take()
    assert codec_of(ReplyHeader).decode(reply) == ReplyHeader(1, learner.received, 0)
    assert not client.connection.is_open


def test_end_of_the_session__answers_no_request_with_its_xid() -> None:
    learner = Learner(tells=True)
    client = learner.connected()
    client.send(0, OpCode.SET_DATA, set_data("/a", b"new"))
    learner.propose(SESSION, 0, OpCode.CLOSE_SESSION, None)
    learner.commit()
    assert client.replies() == []
    assert not client.connection.is_open


def test_client_that_comes_back_twice__only_the_last_connection_is_served() -> None:
    learner = Learner(tells=True)
    first, second = LearnerClient(learner), LearnerClient(learner)
    first.send(1, OpCode.SET_DATA, set_data("/a", b"first"))
    second.send(1, OpCode.SET_DATA, set_data("/none", b"second"))
    learner.serve()
    learner.serve()
    learner.commit()
    assert not first.connection.is_open
    greeting, reply = second.take()
    assert codec_of(ConnectResponse).decode(greeting).session_id == SESSION
    assert codec_of(ReplyHeader).decode(reply).err == ErrorCode.NO_NODE


def test_session_that_a_lagging_learner_does_not_know__is_served_once_its_txn_is_here() -> None:
    learner = Learner(tells=True)
    session = SessionId(SESSION + 1)
    learner.propose(session, 0, OpCode.CREATE_SESSION, CreateSessionTxn(10_000))
    client = LearnerClient(learner, session)
    client.send(1, OpCode.EXISTS, ExistsRequest("/a", False))
    learner.serve()
    # It lives, as the leader says; what the client reads is not older than its session.
    assert client.take() == []
    learner.commit()
    greeting, _ = client.take()
    assert codec_of(ConnectResponse).decode(greeting).session_id == session
    assert client.connection.is_open


def test_session_that_the_leader_does_not_know__is_expired() -> None:
    learner = Learner(tells=True)
    client = LearnerClient(learner, SessionId(SESSION + 1))
    learner.serve(is_valid=False)
    assert codec_of(ConnectResponse).decode(client.take()[0]).session_id == 0
