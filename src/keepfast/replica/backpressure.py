"""Clients that ask for more than they take.

Requests are short and replies may be long: one read from a socket can hold requests for gigabytes.
Replies to reads are therefore made in bursts. When a burst is full the connection is *stalled*: its
further requests are held, and the driver reads no more of them, until the client has taken most of
what was sent. A client that takes nothing costs one burst and is gone when its session expires.

Events are not held back, for their order among the replies is promised; what waits in a socket is
bounded by `max_unsent_bytes`, and a client who lets that much wait is cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keepfast.replica.connection import Phase

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection
    from keepfast.replica.replica import Replica

# Shorter replies are not counted: as many as one read of a socket can ask for are no burden, and
# counting would show in the cost of every read.
LARGE_REPLY: Final = 1024


def note_large(replica: Replica, connection: Connection, size: int) -> bool:
    """Count a large reply that was just queued; True: the connection is stalled now."""
    # The only one in the queue: the driver has taken what was there before.
    connection.burst = size if len(connection.out) == 1 else connection.burst + size
    if connection.burst > replica.options.max_burst_bytes:
        connection.is_stalled = True
        connection.free_ms = -1
    return connection.is_stalled


def go_on(replica: Replica, connection: Connection) -> None:
    """The client has taken what was sent to it: handle what was held."""
    connection.burst = 0
    connection.is_stalled = False
    if connection.phase is not Phase.OPEN:
        return
    # It reads, so it lives, even if its pings stand behind requests that are held.
    replica.sessions.touch(connection.session_id, replica.now_ms)
    replica.send_ready(connection)
    if connection.held and not connection.is_stalled and not connection.is_throttled:
        held, connection.held = connection.held, []
        replica.handle_all(connection, held)
