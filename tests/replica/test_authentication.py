"""Who a connection belongs to, by which request, and what becomes of one that does not say."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.replica import (
    AuthenticationOptions,
    CadenceOptions,
    CheckProofs,
    DigestMd5,
    PauseReads,
    Phase,
    ReplicaOptions,
    ResumeReads,
    ServerCore,
    SnapshotCadence,
)
from keepfast.wire import (
    AuthPacket,
    ErrorCode,
    GetSASLRequest,
    Id,
    OpCode,
    ReplyHeader,
    SetSASLResponse,
    codec_of,
    encode_frame,
    encode_int,
)
from tests.replica.machine import Client, Machine
from tests.replica.test_sasl import NONCE, RECORDED, RESPONSE, USERS

REFUSED = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
FAILED = ErrorCode.AUTH_FAILED
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
DN = "CN=bob,O=Acme"


def machine_with(**options: Any) -> Machine:
    return Machine(
        ReplicaOptions(
            tick_ms=1000,
            min_session_timeout_ms=2000,
            super_digest=SUPER_DIGEST,
            authentication=AuthenticationOptions(**options),
        ),
        make_nonce=lambda: NONCE,
    )


def connected(machine: Machine, subject: str | None = None) -> Client:
    client = Client(machine, subject=subject)
    client.connect()
    return client


def exchange(client: Client, xid: int, token: bytes | None) -> tuple[int, int, bytes | None]:
    """Send a token; gives xid, error and token of the reply."""
    client.send(xid, OpCode.SASL, GetSASLRequest(token))
    (payload,) = client.take()
    header = codec_of(ReplyHeader).decode(payload)
    assert header.zxid == 0
    return header.xid, header.err, codec_of(SetSASLResponse).decode(payload, 16).token


def log_in(client: Client, response: bytes = RESPONSE) -> tuple[int, int, bytes | None]:
    _, error, _ = exchange(client, 1, b"")
    assert error == 0
    return exchange(client, 2, response)


class TestSasl:
    def test_right_password__gives_the_id(self) -> None:
        client = connected(machine_with(sasl_users=USERS))
        assert log_in(client) == (2, 0, f"rspauth={RECORDED['plain'].answer}".encode())
        assert client.connection.ids == (Id("ip", "127.0.0.1"), Id("sasl", "bob"))
        assert client.connection.caller.ids == client.connection.ids

    def test_super_user__may_do_anything(self) -> None:
        options = {"sasl_users": USERS, "sasl_super_users": frozenset(("bob",))}
        client = connected(machine_with(**options))
        log_in(client)
        assert Id("super", "") in client.connection.ids

    def test_wrong_password__is_told_with_a_null_token_and_cut_off(self) -> None:
        client = connected(machine_with(sasl_users=USERS))
        assert log_in(client, RESPONSE.replace(b"b42f", b"b42e")) == (2, FAILED, None)
        assert client.connection.phase is Phase.CLOSED
        assert "wrong password for 'bob'" in client.connection.close_reason
        assert client.replica.statistics.auth_failures == 1

    def test_wrong_password__goes_on_without_a_name_where_that_is_allowed(self) -> None:
        machine = machine_with(sasl_users=USERS, is_sasl_failure_allowed=True)
        client = connected(machine)
        assert log_in(client, b"x") == (2, 0, None)
        assert client.connection.is_open
        assert client.connection.ids == (Id("ip", "127.0.0.1"),)

    def test_wrong_password__is_not_allowed_where_sasl_is_required(self) -> None:
        machine = machine_with(
            sasl_users=USERS, is_sasl_failure_allowed=True, required_schemes=frozenset(("sasl",))
        )
        client = connected(machine)
        assert log_in(client, b"x") == (2, REFUSED, None)
        assert client.connection.phase is Phase.CLOSED

    def test_third_token__fails(self) -> None:
        client = connected(machine_with(sasl_users=USERS))
        log_in(client)
        assert exchange(client, 3, b"") == (3, FAILED, None)
        assert client.connection.phase is Phase.CLOSED

    def test_no_sasl_here__client_goes_on_without_a_name(self) -> None:
        client = connected(Machine())
        assert exchange(client, 1, b"") == (1, 0, None)
        assert client.connection.is_open

    def test_slow_exchange__holds_what_is_behind_it_in_order(self) -> None:
        machine = machine_with(
            new_slow_exchange=lambda: DigestMd5(USERS, NONCE),
            required_schemes=frozenset(("sasl",)),
        )
        client = connected(machine)
        client.send(1, OpCode.SASL, GetSASLRequest(b""))
        for xid, token in ((2, RESPONSE), (3, b"third")):
            client.send(xid, OpCode.SASL, GetSASLRequest(token))
            client.send(-2, OpCode.PING)
        for expected in ([(1, 0)], [(2, 0), (-2, 0)]):
            assert client.replies() == []
            (proof,) = machine.replica.take_proofs()
            proof.check()
            machine.replica.proved(proof)
            assert client.replies() == expected
        assert Id("sasl", "bob") in client.connection.ids
        (proof,) = machine.replica.take_proofs()
        proof.check()
        machine.replica.proved(proof)
        assert client.replies() == [(3, REFUSED)]
        assert client.connection.phase is Phase.CLOSED

    def test_slow_exchange__of_a_client_that_is_gone_means_nothing(self) -> None:
        machine = machine_with(new_slow_exchange=lambda: DigestMd5(USERS, NONCE))
        client = connected(machine)
        client.send(1, OpCode.SASL, GetSASLRequest(b""))
        (proof,) = machine.replica.take_proofs()
        machine.replica.lost(client.connection)
        proof.check()
        machine.replica.proved(proof)
        assert client.replies() == []

    def test_slow_exchange__has_no_more_read_than_one_burst(self) -> None:
        machine = machine_with(new_slow_exchange=lambda: DigestMd5(USERS, NONCE))
        core = ServerCore(
            machine.replica, None, SnapshotCadence(CadenceOptions(), lambda _: 0), 0.0
        )
        client = connected(machine)
        client.send(1, OpCode.SASL, GetSASLRequest(b""))
        core.receive(client.connection, encode_frame(encode_int(2) + encode_int(OpCode.PING)))
        batch = core.end_turn()
        assert PauseReads([client.connection]) in batch
        (proof,) = next(e.proofs for e in batch if isinstance(e, CheckProofs))
        proof.check()
        core.proved(proof)
        assert ResumeReads([client.connection]) in core.end_turn()

    def test_null_token__closes(self) -> None:
        client = connected(machine_with(sasl_users=USERS))
        client.send(1, OpCode.SASL, GetSASLRequest(None))
        assert client.replies() == []
        assert client.connection.phase is Phase.CLOSED

    def test_cut_token__closes(self) -> None:
        client = connected(machine_with(sasl_users=USERS))
        client.send(1, OpCode.SASL)
        assert client.replies() == []
        assert client.connection.phase is Phase.CLOSED

    def test_sasl_by_an_auth_request__fails(self) -> None:
        client = connected(machine_with(sasl_users=USERS, schemes=frozenset(("sasl", "ip"))))
        client.send(5, OpCode.AUTH, AuthPacket(0, "sasl", b"bob:secret"))
        assert client.replies() == [(5, FAILED)]
        assert client.connection.phase is Phase.CLOSED


class TestCertificate:
    def test_subject__is_an_id_from_the_start(self) -> None:
        client = connected(machine_with(), DN)
        assert client.connection.ids == (Id("ip", "127.0.0.1"), Id("x509", DN))

    def test_subject_of_the_super_user__may_do_anything(self) -> None:
        client = connected(machine_with(x509_super_user=DN), DN)
        assert Id("super", DN) in client.connection.ids

    def test_another_subject__may_not(self) -> None:
        client = connected(machine_with(x509_super_user=DN), DN + "x")
        assert client.connection.ids == (Id("ip", "127.0.0.1"), Id("x509", DN + "x"))

    @pytest.mark.parametrize(("subject", "error"), [(DN, 0), (None, FAILED)])
    def test_auth_request_for_x509__depends_on_the_handshake(
        self, subject: str | None, error: int
    ) -> None:
        client = connected(machine_with(schemes=frozenset(("x509", "ip"))), subject)
        client.send(5, OpCode.AUTH, AuthPacket(0, "x509", b""))
        assert client.replies() == [(5, error)]


class TestDigest:
    def test_super_digest__may_do_anything(self) -> None:
        client = connected(machine_with())
        client.send(5, OpCode.AUTH, AuthPacket(0, "digest", b"super:test"))
        assert client.replies() == [(5, 0)]
        assert Id("super", "") in client.connection.ids
        assert Id("digest", SUPER_DIGEST) in client.connection.ids

    def test_another_algorithm__gives_another_id(self) -> None:
        client = connected(machine_with(digest_algorithm="sha256"))
        client.send(5, OpCode.AUTH, AuthPacket(0, "digest", b"bob:secret"))
        (identity,) = [held.id for held in client.connection.ids if held.scheme == "digest"]
        assert identity == "bob:huAluaVu3uER4LIpielGv9Qqk5x3YVDr6I2R/mXf2wE="

    def test_switched_off__fails(self) -> None:
        client = connected(machine_with(schemes=frozenset(("ip",))))
        client.send(5, OpCode.AUTH, AuthPacket(0, "digest", b"bob:secret"))
        assert client.replies() == [(5, FAILED)]

    def test_ip__is_proven_already(self) -> None:
        client = connected(machine_with())
        client.send(5, OpCode.AUTH, AuthPacket(0, "ip", None))
        assert client.replies() == [(5, 0)]

    def test_cut_request__closes(self) -> None:
        client = connected(machine_with())
        client.send(5, OpCode.AUTH)
        assert client.connection.phase is Phase.CLOSED


class TestEnforcement:
    @pytest.mark.parametrize("op", [OpCode.PING, OpCode.WHO_AM_I, OpCode.CLOSE_SESSION, 1234])
    def test_request_of_a_stranger__is_refused_and_the_session_stays(self, op: int) -> None:
        machine = machine_with(required_schemes=frozenset(("digest",)))
        client = connected(machine)
        client.send(7, op)
        assert client.replies() == [(7, REFUSED)]
        assert client.connection.phase is Phase.CLOSED
        machine.settle()
        assert client.connection.session_id in machine.replica.service.sessions

    def test_requests_behind_the_right_one__are_served(self) -> None:
        client = connected(machine_with(required_schemes=frozenset(("digest", "sasl"))))
        client.send(1, OpCode.AUTH, AuthPacket(0, "digest", b"bob:secret"))
        client.send(2, OpCode.WHO_AM_I)
        assert client.replies() == [(1, 0), (2, 0)]

    def test_requests_in_one_batch__are_judged_in_their_order(self) -> None:
        machine = machine_with(required_schemes=frozenset(("digest",)))
        client = Client(machine)
        # Sent before the session is there: they are all handled in one go.
        client.send(1, OpCode.AUTH, AuthPacket(0, "ip", None))
        client.send(2, OpCode.AUTH, AuthPacket(0, "digest", b"bob:secret"))
        client.send(3, OpCode.WHO_AM_I)
        client.connect()
        machine.settle()
        assert client.connection.owes_identity is False
        assert client.connection.is_open

    def test_another_scheme__does_not_satisfy(self) -> None:
        client = connected(machine_with(required_schemes=frozenset(("sasl",)), sasl_users=USERS))
        client.send(1, OpCode.AUTH, AuthPacket(0, "digest", b"bob:secret"))
        client.send(2, OpCode.WHO_AM_I)
        assert client.replies() == [(1, 0), (2, REFUSED)]

    def test_certificate__satisfies_x509(self) -> None:
        client = connected(machine_with(required_schemes=frozenset(("x509",))), DN)
        client.send(2, OpCode.WHO_AM_I)
        assert client.replies() == [(2, 0)]

    def test_ip__is_satisfied_by_everybody(self) -> None:
        client = connected(machine_with(required_schemes=frozenset(("ip",))))
        client.send(2, OpCode.WHO_AM_I)
        assert client.replies() == [(2, 0)]
