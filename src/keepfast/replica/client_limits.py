"""How many connections clients may have: in all, and from one address.

A world reports that a connection was opened or is gone; whether there is room for it is decided
here. Connections that are closed count until they are gone: each still holds a descriptor.
"""

from __future__ import annotations

from collections import Counter

from keepfast.replica.connection import Connection
from keepfast.replica.replica_options import ReplicaOptions


class ClientLimits:
    """The connections of one server."""

    def __init__(self, options: ReplicaOptions) -> None:
        self._options = options
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()

    def has_place(self, address: str, arriving: int = 0, arriving_in_all: int = 0) -> bool:
        """Whether one more connection is allowed, besides those being set up."""
        options = self._options
        per_address, total = options.max_connections_per_address, options.max_connections
        if per_address and self._per_address[address] + arriving >= per_address:
            return False
        return not total or len(self._connections) + arriving_in_all < total

    def add(self, connection: Connection) -> None:
        """It has come."""
        self._connections.add(connection)
        self._per_address[connection.address] += 1

    def remove(self, connection: Connection) -> None:
        """It is gone. Idempotent."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]
