"""Who may join: SASL between servers, as configured by `quorum.auth.*` and the JAAS file.

    dialler                                   acceptor
    magic, status 0, first token         ->
                                        <-    magic, status 0 (continue), challenge
    magic, status 0, response            ->
                                        <-    magic, status 1 (success), proof; or -1 (error)

The mechanism is what the section is about: DIGEST-MD5, or Kerberos (kerberos.py), which may wait
for a KDC. Steps are therefore taken on threads, those of diallers apart from those of acceptors.

It comes after the hello of an election connection, and first of all on a quorum port. A dialler
that does not have to authenticate (`learnerRequireSasl=false`) just continues; an acceptor that
does not require it (`serverRequireSasl=false`) sees from the magic which of the two it is, and
accepts failed logins, too: that is how a running ensemble is migrated.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from keepfast.apache import (
    ConfigError,
    KerberosLogin,
    LoginModule,
    QuorumAuthConfig,
    digest_users,
    kerberos_login,
    read_jaas,
)
from keepfast.replica import QUORUM_SERVICE, DigestMd5, DigestMd5Client, Exchange
from keepfast.server.kerberos import (
    MAX_TOKEN,
    GssapiClient,
    GssapiServer,
    Realm,
    peer_judge,
    service_at,
)
from keepfast.server.logs import EventLog
from keepfast.server.peer_stream import PeerStream
from keepfast.wire import (
    QUORUM_AUTH_MAGIC,
    KeeperError,
    PeerProtocolError,
    QuorumAuthPacket,
    encode,
)

T = TypeVar("T")

_HEAD: Final = struct.Struct(">qii")
_MAGIC: Final = QUORUM_AUTH_MAGIC.to_bytes(8)
_GOES_ON: Final = 0
_SUCCESS: Final = 1
_ERROR: Final = -1
_NONCE_BYTES: Final = 24
# RFC 2831 allows 4096 for a response.
_MAX_RESPONSE_BYTES: Final = 4096
# Low: a KDC that does not answer holds up logins to other servers, too. High: idle threads.
_THREADS: Final = 4


class DialledExchange(Protocol):
    """The dialler's side of one exchange, with any mechanism."""

    # Whether this side is done, and the other one has authenticated.
    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """The next token; the first one comes after nothing. Raises KeeperError(AUTH_FAILED)."""


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "keepfast-sasl")


@dataclass(frozen=True, slots=True)
class PeerSasl:
    """Authenticates this server to others, and others to this one."""

    # Begin an exchange with the server on a host, and with one that has dialled.
    dial: Callable[[str], DialledExchange] = field(repr=False)
    accept: Callable[[], Exchange] = field(repr=False)
    log: EventLog = field(repr=False)
    # Whether a connection that this server makes begins with the exchange.
    is_proving: bool = False
    # Whether others have to succeed in it.
    is_required: bool = False
    longest_token: int = _MAX_RESPONSE_BYTES
    _dialling: ThreadPoolExecutor = field(default_factory=_threads, repr=False)
    _accepting: ThreadPoolExecutor = field(default_factory=_threads, repr=False)

    async def prove(self, stream: PeerStream) -> None:
        """The dialler's side, if it is wanted. Raises PeerProtocolError or OSError."""
        if not self.is_proving:
            return
        client = self.dial(stream.dialled_host)
        token = await self._next(client, b"")
        while True:
            _send(stream, _GOES_ON, token)
            status, token = await self._receive(stream)
            if status not in (_GOES_ON, _SUCCESS):
                raise PeerProtocolError("the other server does not accept our login")
            if not client.is_complete:
                token = await self._next(client, token)
            if status == _SUCCESS:
                break
        if not client.is_complete:
            raise PeerProtocolError("the other server does not prove that it is one of ours")

    async def _next(self, client: DialledExchange, token: bytes) -> bytes:
        try:
            return await _aside(self._dialling, partial(client.step, token))
        except KeeperError as error:
            raise PeerProtocolError(f"SASL: {error.detail}") from None

    async def check(self, stream: PeerStream) -> None:
        """The acceptor's side. Raises PeerProtocolError if the other must not get in, or OSError.

        What is not part of the exchange stays in the stream.
        """
        if await stream.fill(len(_MAGIC)) != _MAGIC:
            if self.is_required:
                raise PeerProtocolError(f"{stream.address} does not try to authenticate")
            return
        server = self.accept()
        try:
            while True:
                _, token = await self._receive(stream)
                answer = await _aside(self._accepting, partial(server.step, token))
                if server.user is not None:
                    _send(stream, _SUCCESS, answer)
                    return
                _send(stream, _GOES_ON, answer)
        except KeeperError as error:
            _send(stream, _ERROR, b"")
            if self.is_required:
                raise PeerProtocolError(f"{stream.address}: SASL: {error.detail}") from None
            self.log.warning("peer-not-authenticated", address=stream.address, reason=error.detail)

    async def _receive(self, stream: PeerStream) -> tuple[int, bytes]:
        magic, status, length = _HEAD.unpack(await stream.read_exactly(_HEAD.size))
        if magic != QUORUM_AUTH_MAGIC:
            raise PeerProtocolError(f"{stream.address} does not speak SASL")
        if not -1 <= length <= self.longest_token:
            raise PeerProtocolError(f"{stream.address} sends a token of {length} bytes")
        return status, await stream.read_exactly(max(length, 0))


async def _aside(threads: ThreadPoolExecutor, step: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, step)


def load_peer_sasl(
    config: QuorumAuthConfig,
    jaas_file: str,
    log: EventLog,
    hosts: Collection[str] = (),
    krb5_config_file: str = "",
) -> PeerSasl | None:
    """What the settings and the JAAS file say; None if it is off. Raises ConfigError.

    `hosts` are those of the members.
    """
    if not config.enable_sasl:
        return None
    if not jaas_file:
        raise ConfigError(
            "needed for quorum.auth.enableSasl", key="java.security.auth.login.config"
        )
    sections = read_jaas(jaas_file)
    accepting, theirs = _section(sections, config.server_login_context, jaas_file)
    dialling, ours = _section(sections, config.learner_login_context, jaas_file)
    if (ours is None) != (theirs is None):
        raise ConfigError("servers log in by Kerberos in one section, not in both", file=jaas_file)
    if ours is None or theirs is None:
        user, password = _digest_login(config, dialling, jaas_file)
        sasl = digest_sasl(user, password, digest_users(accepting), log)
    else:
        realm = Realm(krb5_config_file)
        realm.check(theirs, config.server_login_context, jaas_file)
        realm.check(ours, config.learner_login_context, jaas_file)
        mine = [realm.principal(one.principal) for one in (ours, theirs)]
        sasl = PeerSasl(
            partial(_dial_by_kerberos, realm, ours, config.service_principal),
            partial(GssapiServer, realm, theirs, peer_judge(mine, hosts)),
            log,
            longest_token=MAX_TOKEN,
        )
    return replace(
        sasl, is_proving=config.learner_require_sasl, is_required=config.server_require_sasl
    )


def digest_sasl(user: str, password: str, users: Mapping[str, str], log: EventLog) -> PeerSasl:
    """Logins by DIGEST-MD5: our own, and those of servers that dial."""
    return PeerSasl(
        lambda _: DigestMd5Client(user, password, _nonce(), QUORUM_SERVICE),
        lambda: DigestMd5(users, _nonce(), QUORUM_SERVICE),
        log,
    )


def _section(
    sections: Mapping[str, tuple[LoginModule, ...]], name: str, file: str
) -> tuple[tuple[LoginModule, ...], KerberosLogin | None]:
    modules = sections.get(name)
    if modules is None:
        raise ConfigError(f"there is no section {name}", file=file)
    return modules, kerberos_login(modules, name, file)


def _digest_login(
    config: QuorumAuthConfig, modules: tuple[LoginModule, ...], file: str
) -> tuple[str, str]:
    """User and password of this server."""
    options = modules[0].options if modules else {}
    if config.fips_mode and config.learner_require_sasl:
        raise ConfigError("must be false: servers log in by DIGEST-MD5", key="fips-mode")
    if "username" not in options or "password" not in options:
        reason = f"section {config.learner_login_context} needs username and password"
        raise ConfigError(reason, file=file)
    return options["username"], options["password"]


def _dial_by_kerberos(
    realm: Realm, login: KerberosLogin, service: str, host: str
) -> DialledExchange:
    me = realm.principal(login.principal)
    return GssapiClient(realm, login, service_at(service, host, realm, me))


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _send(stream: PeerStream, status: int, token: bytes | None) -> None:
    stream.write(encode(QuorumAuthPacket(QUORUM_AUTH_MAGIC, status, token)))
