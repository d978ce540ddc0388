"""Backpressure on clients that request more than they read.

Requests are short and replies may be long: one read from a socket can hold requests for gigabytes.
Replies to reads are therefore made in bursts. When a burst is full the connection is *stalled*: its
further requests are held, and the driver reads no more of them, until the client has read most of
what was sent. A client that reads nothing costs one burst and is dropped when its session expires.

The same bounds the time that one client takes from the others in a turn of the loop: work that does
not show in the size of a reply is counted as if it did, and of very many requests at once only the
first are handled in this turn.

Events are not held back, because their order among the replies is guaranteed; what waits in a
socket is bounded by `max_unsent_bytes`, plus the largest reply that the client requested, and a
client that lets more than that wait is cut off.
"""

from __future__ import annotations

from typing import Final

from keepfast.replica.connection import Connection
from keepfast.replica.service import Service

# Work other than building replies, in bytes of a reply that take as long: about 5 us are 1 KiB.
ID_WORK: Final = 20
MULTI_READ_WORK: Final = 600
INTRODUCTION_WORK: Final = 2048
WATCH_WORK: Final = 300
NAME_WORK: Final = 200

# Requests of one connection that are handled in one turn of the loop, where replies are among them.
# Low: pipelines of reads take more turns. High: other clients wait for one that asks a lot.
TURN_REQUESTS: Final = 2000


def note_large(service: Service, connection: Connection, size: int) -> bool:
    """Count a large reply that was just queued; True: the connection is stalled now."""
    size += connection.work
    connection.work = 0
    # The only one in the queue: the driver has taken what was there before.
    connection.burst = size if len(connection.out) == 1 else connection.burst + size
    if connection.burst > service.options.max_burst_bytes:
        stall(service, connection)
    return connection.is_stalled


def is_held(service: Service, connection: Connection) -> bool:
    """Whether a connection is stalled because it is owed events (event_gate.py)."""
    return service.gate is not None and service.gate.holds(connection)


def stall(service: Service, connection: Connection) -> None:
    """Handle no more requests of a connection until others have had their turn."""
    connection.is_stalled = True
    connection.free_until = -1
    service.stalled[connection] = None


def put_off(service: Service, connection: Connection) -> None:
    """Continue with a begun request of a connection when others have had their turn."""
    stall(service, connection)
    service.unfinished[connection] = None
