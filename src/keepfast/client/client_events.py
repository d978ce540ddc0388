"""What a client reports about itself and about what it watches."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from keepfast.wire import EventType, KeeperState


class ClientState(Enum):
    """Where a session is; the values are the words that ZooKeeper's own shell shows."""

    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    CONNECTED_READ_ONLY = "CONNECTEDREADONLY"
    # Closed by us, or expired: this session never comes back.
    CLOSED = "CLOSED"
    AUTH_FAILED = "AUTH_FAILED"

    @property
    def is_connected(self) -> bool:
        return self in (ClientState.CONNECTED, ClientState.CONNECTED_READ_ONLY)

    @property
    def is_alive(self) -> bool:
        """Whether operations can still succeed, now or after a reconnection."""
        return self not in (ClientState.CLOSED, ClientState.AUTH_FAILED)


class ClientEvent(NamedTuple):
    """A change of a watched znode, or (type NONE, no path) of the session's own state.

    `zxid` is that of the change where the server sends it (3.9), else -1.
    """

    type: EventType
    state: KeeperState
    path: str | None = None
    zxid: int = -1
