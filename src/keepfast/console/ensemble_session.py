"""A session with the ensemble that outlives its servers: opened again whenever it has ended.

A lost connection is handled by the client. What it cannot repair is done here: a session that
expired while nobody answered, servers that were found later, and the SASL exchange, which has to be
made again on every connection.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keepfast.client import (
    Client,
    ClientEvent,
    ClientOptions,
    OperationFailed,
    ServerAddress,
    Target,
)
from keepfast.replica import CLIENT_SERVICE, DigestMd5Client
from keepfast.wire import ErrorCode, EventType, KeeperError, KeeperState

_SESSION_MS: Final = 20_000
_CONNECT_SECONDS: Final = 3.0
# A person waits for the answer.
_ANSWER_SECONDS: Final = 20.0
_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    """A name and a password, shown as ZooKeeper's `digest` scheme or in a SASL exchange."""

    scheme: str
    user: str
    password: str

    @property
    def secret(self) -> bytes:
        """As the digest scheme wants it."""
        return f"{self.user}:{self.password}".encode()

    def __repr__(self) -> str:
        """Without the password: it must not get into a log."""
        return f"Credential({self.scheme!r}, {self.user!r})"


def _ignore(_: ClientEvent) -> None:
    """The callback of a session that watches nothing."""


class EnsembleSession:
    """Gives a client that is alive; any thread may ask."""

    def __init__(
        self,
        target: Target,
        credential: Credential | None = None,
        on_event: Callable[[ClientEvent], None] = _ignore,
    ) -> None:
        """Nothing is sent before the first `client()`."""
        self._target = target
        self._credential = credential
        self._on_event = on_event
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._needs_sasl = False
        self._is_closed = False

    @property
    def chroot(self) -> str:
        return self._target.chroot

    def client(self) -> Client:
        """A client whose session may still live. Raises OperationFailed if the login fails."""
        with self._lock:
            if self._is_closed:
                raise OperationFailed(ErrorCode.SESSION_EXPIRED, detail="the console is stopping")
            if self._client is None or not self._client.state.is_alive:
                if self._client is not None:
                    self._client.close()
                self._needs_sasl = self._is_sasl
                self._client = Client(self._target, self._options(), self._heard).start()
            client = self._client
            if self._needs_sasl:
                self._exchange(client)
            return client

    def use_addresses(self, addresses: tuple[ServerAddress, ...]) -> None:
        """Know more servers, or other ones; the next client is of a new session."""
        with self._lock:
            if set(addresses) == set(self._target.addresses):
                return
            self._target = Target(addresses, self._target.chroot)
            old, self._client = self._client, None
        if old is not None:
            old.close()

    def close(self) -> None:
        """End the session, for good."""
        with self._lock:
            self._is_closed = True
            old, self._client = self._client, None
        if old is not None:
            old.close()

    @property
    def _is_sasl(self) -> bool:
        return self._credential is not None and self._credential.scheme == "sasl"

    def _options(self) -> ClientOptions:
        credentials: tuple[tuple[str, bytes], ...] = ()
        held = self._credential
        if held is not None and not self._is_sasl:
            credentials = ((held.scheme, held.secret),)
        return ClientOptions(
            session_timeout_ms=_SESSION_MS,
            connect_timeout_s=_CONNECT_SECONDS,
            operation_timeout_s=_ANSWER_SECONDS,
            read_only=True,
            credentials=credentials,
        )

    def _heard(self, event: ClientEvent) -> None:
        if event.type is EventType.NONE and event.state is KeeperState.DISCONNECTED:
            self._needs_sasl = self._is_sasl
        self._on_event(event)

    def _exchange(self, client: Client) -> None:
        """Prove who we are on this connection; a refusal ends the session."""
        held = self._credential
        if held is None:
            return
        client.wait_connected(_ANSWER_SECONDS)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        steps = DigestMd5Client(held.user, held.password, nonce, CLIENT_SERVICE)
        try:
            challenge = client.sasl(b"") or b""
            proof = client.sasl(steps.step(challenge)) or b""
            steps.step(proof)
        except KeeperError as error:
            client.close()
            self._client = None
            raise OperationFailed(ErrorCode.AUTH_FAILED, detail=error.detail) from error
        self._needs_sasl = False
