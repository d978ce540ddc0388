"""Strangers at the ports between servers: the ensemble continues as one, in the same epoch."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from keepfast.quorum.hello import LearnerHello, encode_learner_hello
from keepfast.quorum.links import encode_packet
from keepfast.testing import Ensemble
from keepfast.testing.ensemble import EnsembleServer
from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    Hello,
    HelloForm,
    Id,
    Notification,
    OpCode,
    PeerState,
    QuorumPacket,
    ServerId,
    SessionId,
    Zxid,
    encode,
    encode_hello,
    encode_notification,
    encode_request_packet,
    epoch_of,
)
from tests.conformance.guards import by_sasl, by_tls
from tests.hostile.offenders import is_whole

TIMEOUT = 60.0


@pytest.fixture(scope="module", params=["open", "sasl", "tls"])
def guard(request: pytest.FixtureRequest) -> str:
    """What a stranger at these ports does not have: nothing, a password, a certificate."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def ensemble(guard: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder = tmp_path_factory.mktemp("guard")
    guards = {"sasl": by_sasl, "tls": by_tls}
    security = None if guard == "open" else guards[guard](folder).security
    with Ensemble(3, security=security) as found:
        yield found
        found.wait_equal()
        for server in found.servers:
            server.stop()
        assert all(is_whole(server.data_dir) for server in found.servers)


@pytest.fixture
def leader(ensemble: Ensemble) -> Iterator[EnsembleServer]:
    """The leader, which has to be it afterwards, in the same epoch, with all servers equal."""
    ensemble.wait_serving()
    found = ensemble.wait_for_leader()
    client = ensemble.client()
    client.ensure_path("/before")
    epoch = epoch_of(Zxid(found.state()[0]))
    yield found
    client.ensure_path("/after")
    assert client.exists("/owned") is None
    assert client.exists("/before") is not None
    client.stop()
    client.close()
    ensemble.wait_serving()
    ensemble.wait_equal()
    assert ensemble.leader is found
    assert epoch_of(Zxid(found.state()[0])) == epoch


def quorum_port(server: EnsembleServer) -> int:
    return server._ensemble.quorum_addresses[0].port


def election_port(server: EnsembleServer) -> int:
    return server._ensemble.election_addresses[0].port


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def send(link: socket.socket, data: bytes) -> None:
    """Send as a stranger does: the server may have cut the link off at any byte, rightly."""
    with contextlib.suppress(ConnectionError):
        link.sendall(data)


def end_sending(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be cut off already
        link.shutdown(socket.SHUT_WR)


def is_cut_off(link: socket.socket) -> bool:
    try:
        while link.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def hello(server_id: int, accepted: int) -> bytes:
    told = encode_learner_hello(LearnerHello(ServerId(server_id), True, 0, Zxid(0), None))
    return encode_packet(told._replace(zxid=Zxid(accepted << 32)))


@pytest.mark.parametrize("accepted", [9, 1000, 0x7FFFFFFF, -1])
@pytest.mark.parametrize("who", ["follower", "leader", "stranger"])
def test_late_hello__ends_its_own_link(
    ensemble: Ensemble, leader: EnsembleServer, who: str, accepted: int
) -> None:
    ids = {"follower": ensemble.followers[0].id, "leader": leader.id, "stranger": 77}
    with dial(quorum_port(leader)) as link:
        send(link, hello(ids[who], accepted))
        assert is_cut_off(link)


def test_request_of_the_superuser_before_a_hello__is_not_done(leader: EnsembleServer) -> None:
    request = encode(CreateRequest("/owned", b"", OPEN_ACL, 0))
    packet = encode_request_packet(
        SessionId(1), 1, OpCode.CREATE.value, request, (Id("super", ""),)
    )
    with dial(quorum_port(leader)) as link:
        send(link, packet)
        assert is_cut_off(link)


@pytest.mark.parametrize("size", [5000, 100 << 20])
def test_large_packet_before_a_hello__is_not_waited_for(leader: EnsembleServer, size: int) -> None:
    with dial(quorum_port(leader)) as link:
        send(link, struct.pack(">iqi", 1, 0, size) + bytes(4))
        assert is_cut_off(link)


def test_pings_before_a_hello__end_the_link(leader: EnsembleServer, guard: str) -> None:
    with dial(quorum_port(leader)) as link:
        send(link, encode_packet(QuorumPacket(5, Zxid(1))) * 10_000)
        if guard != "open":
            end_sending(link)
        assert is_cut_off(link)


def test_many_links_without_a_word__a_follower_gets_in_all_the_same(
    ensemble: Ensemble, leader: EnsembleServer
) -> None:
    follower = ensemble.followers[0]
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(dial(quorum_port(leader)))
            stack.enter_context(dial(election_port(leader)))
        follower.stop()
        follower.restart()
        ensemble.wait_serving()


def test_invented_ids__shut_nobody_out(
    ensemble: Ensemble, leader: EnsembleServer, guard: str
) -> None:
    with ExitStack() as stack:
        for invented in range(100, 200):
            link = stack.enter_context(dial(election_port(leader)))
            send(link, encode_hello(Hello(HelloForm.V34, ServerId(invented))))
        # Greater than the leader's own, so that this connection is the one that is kept; and it is
        # told at once who leads.
        link = stack.enter_context(dial(election_port(leader)))
        send(link, encode_hello(Hello(HelloForm.V34, ServerId(240))))
        if guard != "open":
            # One more stranger, who proves nothing.
            end_sending(link)
            assert is_cut_off(link)
            return
        (length,) = struct.unpack(">i", _exactly(link, 4))
        assert len(_exactly(link, length)) == length


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        assert more, "cut off"
        data += more
    return data


def test_vote_of_the_last_round__does_not_stop_who_looks(ensemble: Ensemble) -> None:
    ensemble.wait_serving()
    *others, poor = ensemble.servers
    for server in others:
        server.stop()
    ensemble._wait(lambda: poor.mode == "looking", "it looks", TIMEOUT)
    vote = Notification(PeerState.LOOKING, ServerId(poor.id), Zxid(1 << 33), 2**63 - 1, 2, 2, b"")
    payload = encode_notification(vote)
    with ExitStack() as stack:
        # From one of a greater id, which a connection is kept of; and from a member's.
        for claimed in (others[0].id, 250):
            link = stack.enter_context(dial(election_port(poor)))
            send(link, encode_hello(Hello(HelloForm.V34, ServerId(claimed))))
            send(link, struct.pack(">i", len(payload)) + payload)
        for server in others:
            server.restart()
        ensemble.wait_serving()
        ensemble.wait_equal()
    client = ensemble.client()
    client.ensure_path("/alive")
    client.stop()
    client.close()


def test_unknown_packets__end_their_link(leader: EnsembleServer) -> None:
    for kind in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 19, 99, -1):
        with dial(quorum_port(leader)) as link:
            send(link, encode_packet(QuorumPacket(kind, Zxid(1), b"x" * 20)))
            end_sending(link)
            assert is_cut_off(link)
