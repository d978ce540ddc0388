"""How a connection authenticates, and what happens to one that does not.

    ip       every connection has it from the start
    x509     the subject of the certificate that it showed in the TLS handshake
    digest   by an auth request (op 100): user and password
    sasl     by sasl requests (op 102): an exchange, see `sasl`; one by Kerberos is made aside of
             the loop, and the requests after it wait

Both requests are handled immediately, whatever else the connection has in flight, as in Apache. Ids
accumulate; there is no way to lose one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import new as new_hash
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from keepfast.replica.connection import Connection, size_of_id
from keepfast.replica.sasl import DigestMd5, Exchange
from keepfast.wire import (
    AuthPacket,
    ErrorCode,
    GetSASLRequest,
    Id,
    InvariantViolation,
    KeeperError,
    MalformedRecord,
    OpCode,
    codec_of,
    encode_buffer,
    encode_reply,
)

_REQUEST_HEADER: Final = Struct(">ii")
_HEADER_SIZE: Final = 8
_AUTH: Final = OpCode.AUTH.value
_SASL: Final = OpCode.SASL.value
_NO_TOKEN: Final = encode_buffer(None)
_SUPER: Final = "super"

# The requests by which a client says who it is.
INTRODUCTIONS: Final = frozenset((_AUTH, _SASL))


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """How clients may authenticate, and whether they must."""

    # Schemes that an auth request may name.
    schemes: frozenset[str] = frozenset(("digest", "ip"))
    # hashlib's name of the hash in digest ids; another one does not match ACLs that are stored.
    digest_algorithm: str = "sha1"
    # Subject of the certificate whose owner may do anything; None: there is none.
    x509_super_user: str | None = None
    # Passwords of SASL users by name; None: there is no DIGEST-MD5.
    sasl_users: Mapping[str, str] | None = field(default=None, repr=False)
    # Begins an exchange that may take long (Kerberos); None: there is none. Without either,
    # clients continue without SASL.
    new_slow_exchange: Callable[[], Exchange] | None = field(default=None, repr=False)
    # SASL users who may do anything, besides the one called `super`.
    sasl_super_users: frozenset[str] = frozenset()
    # Whether a client whose SASL exchange failed may continue without a name.
    is_sasl_failure_allowed: bool = False
    # Every client has to prove an id of one of these before it may ask for anything; empty: none
    # has to. `ip` among them: every client has one.
    required_schemes: frozenset[str] = frozenset()
    # Bytes of the ids that one connection may have. Low: clients with many ids are cut off. High:
    # each of its writes carries them between servers, and `auth` in an ACL becomes all of them.
    max_id_bytes: int = 512 << 10


def no_nonce() -> str:
    """The source of nonces in a server without SASL."""
    raise InvariantViolation("SASL without a source of nonces")


class Proof(msgspec.Struct, eq=False):
    """A step of an exchange that may take long, and its result."""

    connection: Connection
    xid: int
    exchange: Exchange
    token: bytes
    answer: bytes | None = None
    failure: KeeperError | None = None

    def check(self) -> None:
        """Take the step; called on any thread."""
        try:
            self.answer = self.exchange.step(self.token)
        except KeeperError as error:
            self.failure = error


class AuthVerdict(NamedTuple):
    """The reply to a client, and why its connection is closed; either may be empty.

    With a proof: neither is known before that is checked.
    """

    reply: bytes = b""
    close_reason: str = ""
    proof: Proof | None = None


class Authenticator:
    """Decides who connections belong to. `make_nonce` returns a unique text."""

    def __init__(
        self,
        options: AuthenticationOptions,
        super_digest: str | None,
        make_nonce: Callable[[], str],
    ) -> None:
        self._options = options
        self._super_digest = super_digest
        self._make_nonce = make_nonce

    def meet(self, connection: Connection, subject: str | None) -> None:
        """Record what is known about a connection before it sends anything."""
        connection.owes_identity = bool(self._options.required_schemes)
        ids = [] if subject is None else [Id("x509", subject)]
        if subject is not None and subject == self._options.x509_super_user:
            ids.append(Id(_SUPER, subject))
        self._add(connection, ids)

    def answer(self, connection: Connection, payload: bytes) -> AuthVerdict:
        """Handle an auth or a sasl request; any other one of a client who owes an id is refused."""
        if len(payload) < _HEADER_SIZE:
            return AuthVerdict(close_reason="a request without a header")
        xid, op = _REQUEST_HEADER.unpack_from(payload)
        try:
            if op == _AUTH:
                return self._authenticate(connection, xid, payload)
            if op == _SASL:
                return self._exchange(connection, xid, payload)
        except MalformedRecord as error:
            return AuthVerdict(close_reason=f"authentication request: {error}")
        schemes = ", ".join(sorted(self._options.required_schemes))
        reply = encode_reply(xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH)
        return AuthVerdict(reply, f"it has to authenticate by one of {schemes} first")

    def _authenticate(self, connection: Connection, xid: int, payload: bytes) -> AuthVerdict:
        packet = codec_of(AuthPacket).decode(payload, _HEADER_SIZE)
        ids = self.proven_ids(connection, packet.scheme or "", packet.auth or b"")
        if not ids:
            reply = encode_reply(xid, 0, ErrorCode.AUTH_FAILED)
            return AuthVerdict(reply, f"authentication with scheme {packet.scheme!r} failed")
        new = (held for held in ids if held not in connection.ids)
        if connection.id_bytes + sum(map(size_of_id, new)) > self._options.max_id_bytes:
            reply = encode_reply(xid, 0, ErrorCode.AUTH_FAILED)
            return AuthVerdict(reply, f"it has ids of more than {self._options.max_id_bytes} bytes")
        self._add(connection, ids)
        return AuthVerdict(encode_reply(xid, 0, 0))

    def proven_ids(self, connection: Connection, scheme: str, credentials: bytes) -> list[Id]:
        """The ids that an auth request proves; none if it proves nothing."""
        if scheme not in self._options.schemes:
            return []
        if scheme == "digest":
            identity = digest_id(credentials, self._options.digest_algorithm)
            ids = [Id(scheme, identity)]
            return [Id(_SUPER, ""), *ids] if self._is_super(identity) else ids
        if scheme == "ip":
            return [Id(scheme, connection.address)]
        # Proven by the handshake, or not at all.
        return [held for held in connection.ids if held.scheme == scheme == "x509"]

    def _is_super(self, identity: str) -> bool:
        """Whether an id is the superuser's; compared in constant time."""
        wanted = self._super_digest
        return wanted is not None and compare_digest(
            identity.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass")
        )

    def _exchange(self, connection: Connection, xid: int, payload: bytes) -> AuthVerdict:
        token = codec_of(GetSASLRequest).decode(payload, _HEADER_SIZE).token
        options = self._options
        if options.sasl_users is None and options.new_slow_exchange is None:
            # No token and no error: the client continues unauthenticated.
            return AuthVerdict(encode_reply(xid, 0, 0, _NO_TOKEN))
        if token is None:
            return AuthVerdict(close_reason="a sasl request without a token")
        if connection.sasl is None:
            if options.new_slow_exchange is not None:
                connection.sasl = options.new_slow_exchange()
            else:
                connection.sasl = DigestMd5(options.sasl_users or {}, self._make_nonce())
        proof = Proof(connection, xid, connection.sasl, token)
        if options.new_slow_exchange is not None:
            return AuthVerdict(proof=proof)
        proof.check()
        return self.judge(proof)

    def judge(self, proof: Proof) -> AuthVerdict:
        """What a step of an exchange means for its client."""
        if proof.failure is not None:
            return self._failed_exchange(proof.xid, proof.failure)
        user = proof.exchange.user
        if user is not None:
            ids = [Id("sasl", user)]
            if user in self._options.sasl_super_users:
                ids.append(Id(_SUPER, ""))
            self._add(proof.connection, ids)
        return AuthVerdict(encode_reply(proof.xid, 0, 0, encode_buffer(proof.answer)))

    def _failed_exchange(self, xid: int, error: KeeperError) -> AuthVerdict:
        is_required = "sasl" in self._options.required_schemes
        if self._options.is_sasl_failure_allowed and not is_required:
            return AuthVerdict(encode_reply(xid, 0, 0, _NO_TOKEN))
        code = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if is_required else error.code
        reply = encode_reply(xid, 0, code, _NO_TOKEN)
        return AuthVerdict(reply, f"SASL authentication failed: {error.detail}")

    def _add(self, connection: Connection, ids: list[Id]) -> None:
        for identity in ids:
            connection.add_id(identity)
        if connection.owes_identity:
            required = self._options.required_schemes
            connection.owes_identity = not any(held.scheme in required for held in connection.ids)


def digest_id(credentials: bytes, algorithm: str = "sha1") -> str:
    """`user:hash` of `user:password`, as ACLs hold it."""
    user = credentials.partition(b":")[0].decode("utf-8", "replace")
    # SHA-1 is what ZooKeeper's clients and nearly all stored ACLs use.
    hashed = new_hash(algorithm, credentials, usedforsecurity=False).digest()
    return f"{user}:{b64encode(hashed).decode()}"
