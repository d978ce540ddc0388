"""The one loop of a server: it passes events to `replica.ServerCore` and performs its effects.

What may live here: the order in which effects are performed, and how the disk is used: on which
thread, in which groups, in which steps. What may not: decisions about the protocol (they belong in
`replica`), and sockets, clocks, threads, randomness, logging: those are a `ServerWorld`, of which
there are two, `server`'s and `sim`'s.
"""

from keepfast.driver.disk_worker import DiskWorker
from keepfast.driver.facts import store_facts
from keepfast.driver.guard import Failure, Guard
from keepfast.driver.loop import ServerLoop
from keepfast.driver.snapshots import SnapshotTaker
from keepfast.driver.statistics import ServerStatistics
from keepfast.driver.streams import StreamSource
from keepfast.driver.world import PeerWorld, ServerWorld, Timer

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
