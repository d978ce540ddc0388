"""A server inside your tests: real sockets, a real data directory, ready in milliseconds.

    from keepfast.testing import Server

    with Server() as server:
        client = server.client()          # a started kazoo client
        client.create("/a", b"1")
        server.expire(client)             # also: drop_connections, delay, pause, fill_disk, restart

With pytest, the fixtures `keepfast_server` and `keepfast_client` come with the package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.testing.server import Server

__all__ = ["Server"]


def __getattr__(name: str) -> object:
    # Late: pytest imports this package in every run, for its fixtures, also where nobody uses them.
    if name == "Server":
        from keepfast.testing.server import Server

        return Server
    raise AttributeError(name)
