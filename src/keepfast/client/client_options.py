"""Options of a client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client connects and how long it waits."""

    # Asked for; the server clamps it. Too low: a short pause ends the session and its ephemerals.
    # Too high: a dead client's ephemerals stay that long.
    session_timeout_ms: int = 30_000
    # For one server: name, TCP, TLS and handshake. Too low: a busy server is passed over. Too
    # high: a silent one holds up the others.
    connect_timeout_s: float = 5.0
    # For one operation, from its call to its reply. A lost connection is noticed earlier, after
    # two thirds of the session timeout; this bounds a server that lives and does not answer.
    operation_timeout_s: float = 60.0
    # Longest reply that is accepted; longer ones cost the connection. A list of children has no
    # other limit, and Java's client gives up at 1 MiB.
    max_reply_bytes: int = 64 * 1024 * 1024
    # Accept a server that has lost its quorum and serves reads only.
    read_only: bool = False
    # Scheme and credential of each; shown on every connection before anything is asked. One that
    # is refused ends the session.
    credentials: tuple[tuple[str, bytes], ...] = ()
    # Not None: TLS with this context. Host names are checked if the context says so.
    ssl_context: ssl.SSLContext | None = None
