"""A server inside your tests: real sockets, a real data directory, ready in milliseconds.

    from keepfast.testing import Ensemble, Server

    with Server() as server:
        client = server.client()          # a started kazoo client
        client.create("/a", b"1")
        server.expire(client)             # also: drop_connections, delay, pause, fill_disk, restart

    with Ensemble(3) as ensemble:
        client = ensemble.client()
        ensemble.leader.kill()            # also: pause, restart, partition, isolate, heal
        ensemble.wait_for_leader()

With pytest, the fixtures `keepfast_server`, `keepfast_client` and `keepfast_ensemble` come with the
package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.harness import Network
    from keepfast.testing.ensemble import Ensemble, EnsembleServer
    from keepfast.testing.server import Server

__all__ = ["Ensemble", "EnsembleServer", "Network", "Server"]


def __getattr__(name: str) -> object:
    # Late: pytest imports this package in every run, for its fixtures, also where nobody uses them.
    if name == "Server":
        from keepfast.testing.server import Server

        return Server
    if name in ("Ensemble", "EnsembleServer"):
        from keepfast.testing import ensemble

        return getattr(ensemble, name)
    if name == "Network":
        from keepfast.harness import Network

        return Network
    raise AttributeError(name)
