"""The one loop of a server: it passes events to `replica.ServerCore` and performs its effects.

What may live here: the order in which effects are performed, and how the disk is used: on which
thread, in which groups, in which steps. What may not: decisions about the protocol (they belong in
`replica`), and sockets, clocks, threads, randomness, logging: those are a `ServerWorld`, of which
there are two, `server`'s and `sim`'s.
"""

from keepfast.driver.disk_worker import DiskWorker
from keepfast.driver.guard import Failure, Guard
from keepfast.driver.loop import ServerLoop
from keepfast.driver.peer_streams import StreamSource
from keepfast.driver.server_statistics import ServerStatistics
from keepfast.driver.server_world import PeerWorld, ServerWorld, Timer
from keepfast.driver.snapshot_taker import SnapshotTaker
from keepfast.driver.store_facts import store_facts

__all__ = [
    "DiskWorker",
    "Failure",
    "Guard",
    "PeerWorld",
    "ServerLoop",
    "ServerStatistics",
    "ServerWorld",
    "SnapshotTaker",
    "StreamSource",
    "Timer",
    "store_facts",
]
