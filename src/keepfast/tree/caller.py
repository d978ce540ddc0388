"""On whose behalf a request is made."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.wire import Id, SessionId


class Caller(NamedTuple):
    """On whose behalf a request is made; one for all requests of a connection."""

    session_id: SessionId
    # What the connection has authenticated as.
    ids: tuple[Id, ...] = ()
    # A local session, known to one server only and not in the tree.
    is_local: bool = False
    # The session was taken over by a connection to another server.
    is_moved: bool = False
