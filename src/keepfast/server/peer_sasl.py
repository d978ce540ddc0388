"""Who may join: SASL DIGEST-MD5 between servers, as `quorum.auth.*` and the JAAS file want it.

    dialler                                   acceptor
    magic, status 0, empty token         ->
                                        <-    magic, status 0 (go on), challenge
    magic, status 0, response            ->
                                        <-    magic, status 1 (success), proof; or -1 (error)

It comes behind the hello of an election connection, and first of all on a quorum port. A dialler
that does not have to prove itself (`learnerRequireSasl=false`) just goes on; an acceptor that does
not insist on it (`serverRequireSasl=false`) sees by the magic which of the two it is, and lets in
who fails, too: that is how an ensemble is changed over while it runs.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from keepfast.replica import QUORUM_SERVICE, DigestMd5, DigestMd5Client
from keepfast.server.config_errors import ConfigError
from keepfast.server.config_security import QuorumAuthConfig
from keepfast.server.jaas import LoginModule, digest_users, read_jaas, wants_kerberos
from keepfast.server.logs import EventLog
from keepfast.server.peer_stream import PeerStream
from keepfast.wire import (
    QUORUM_AUTH_MAGIC,
    KeeperError,
    PeerProtocolError,
    QuorumAuthPacket,
    encode,
)

_HEAD: Final = struct.Struct(">qii")
_MAGIC: Final = QUORUM_AUTH_MAGIC.to_bytes(8)
_GOES_ON: Final = 0
_SUCCESS: Final = 1
_ERROR: Final = -1
# RFC 2831 allows 4096 for a response; what Kerberos would need is not spoken here.
_LONGEST_TOKEN: Final = 4096
_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class PeerSasl:
    """What this server knows: its own user and password, and those of servers that dial."""

    user: str
    password: str = field(repr=False)
    users: Mapping[str, str] = field(repr=False)
    log: EventLog = field(repr=False)
    # Whether a connection that this server makes begins with the exchange.
    is_proving: bool = False
    # Whether others have to succeed in it.
    is_required: bool = False

    async def prove(self, stream: PeerStream) -> None:
        """The dialler's side, if it is wanted. Raises PeerProtocolError or OSError."""
        if not self.is_proving:
            return
        client = DigestMd5Client(self.user, self.password, _nonce(), QUORUM_SERVICE)
        _send(stream, _GOES_ON, b"")
        while True:
            status, token = await _receive(stream)
            if status not in (_GOES_ON, _SUCCESS):
                raise PeerProtocolError("the other server does not accept our user or password")
            try:
                answer = client.step(token)
            except KeeperError as error:
                raise PeerProtocolError(f"SASL: {error.detail}") from None
            if status == _SUCCESS:
                break
            _send(stream, _GOES_ON, answer)
        if not client.is_complete:
            raise PeerProtocolError("the other server does not prove that it knows the password")

    async def check(self, stream: PeerStream) -> None:
        """The acceptor's side. Raises PeerProtocolError if the other must not get in, or OSError.

        What is no part of the exchange stays in the stream.
        """
        if await stream.fill(len(_MAGIC)) != _MAGIC:
            if self.is_required:
                raise PeerProtocolError(f"{stream.address} does not try to authenticate")
            return
        server = DigestMd5(self.users, _nonce(), QUORUM_SERVICE)
        try:
            while True:
                _, token = await _receive(stream)
                answer = server.step(token)
                if server.user is not None:
                    _send(stream, _SUCCESS, answer)
                    return
                _send(stream, _GOES_ON, answer)
        except KeeperError as error:
            _send(stream, _ERROR, b"")
            if self.is_required:
                raise PeerProtocolError(f"{stream.address}: SASL: {error.detail}") from None
            self.log.warning("peer-not-authenticated", address=stream.address, reason=error.detail)


def load_peer_sasl(config: QuorumAuthConfig, jaas_file: str, log: EventLog) -> PeerSasl | None:
    """What the settings and the JAAS file say; None if it is off. Raises ConfigError."""
    if not config.enable_sasl:
        return None
    if config.fips_mode and config.learner_require_sasl:
        raise ConfigError("must be false: servers log in by DIGEST-MD5", key="fips-mode")
    if not jaas_file:
        raise ConfigError(
            "needed for quorum.auth.enableSasl", key="java.security.auth.login.config"
        )
    sections = read_jaas(jaas_file)
    accepting = _section(sections, config.server_login_context, jaas_file)
    dialling = _section(sections, config.learner_login_context, jaas_file)
    options = dialling[0].options if dialling else {}
    if "username" not in options or "password" not in options:
        reason = f"section {config.learner_login_context} needs username and password"
        raise ConfigError(reason, file=jaas_file)
    return PeerSasl(
        options["username"],
        options["password"],
        digest_users(accepting),
        log,
        is_proving=config.learner_require_sasl,
        is_required=config.server_require_sasl,
    )


def _section(
    sections: Mapping[str, tuple[LoginModule, ...]], name: str, file: str
) -> tuple[LoginModule, ...]:
    modules = sections.get(name)
    if modules is None:
        raise ConfigError(f"there is no section {name}", file=file)
    if wants_kerberos(modules):
        raise ConfigError(f"section {name}: Kerberos is not supported, DIGEST-MD5 is", file=file)
    return modules


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _send(stream: PeerStream, status: int, token: bytes) -> None:
    stream.write(encode(QuorumAuthPacket(QUORUM_AUTH_MAGIC, status, token)))


async def _receive(stream: PeerStream) -> tuple[int, bytes]:
    magic, status, length = _HEAD.unpack(await stream.read_exactly(_HEAD.size))
    if magic != QUORUM_AUTH_MAGIC:
        raise PeerProtocolError(f"{stream.address} does not speak SASL")
    if not -1 <= length <= _LONGEST_TOKEN:
        raise PeerProtocolError(f"{stream.address} sends a token of {length} bytes")
    return status, await stream.read_exactly(max(length, 0))
