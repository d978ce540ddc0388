"""The simulated world: a whole ensemble with clients in one process, under one seed.

What may live here: virtual time, network, disks, processes, clients and faults; the driver that
runs `replica` in them, as `server` does in the real world; and checkers, which observe from
outside. What may not: a decision of the protocol, a real clock, socket or file.
"""

from keepfast.sim.describe import describe
from keepfast.sim.ledger import Violation
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.options import (
    DiskOptions,
    FaultOptions,
    SimOptions,
    WorkloadOptions,
)
from keepfast.sim.run import SeedOutcome, Simulation, run_seed
from keepfast.sim.simulated_world import World
from keepfast.sim.swarm import draw_options
from keepfast.sim.trace import Trace

__all__ = [
    "DiskOptions",
    "FaultOptions",
    "MemoryDisk",
    "SeedOutcome",
    "SimOptions",
    "Simulation",
    "Trace",
    "Violation",
    "WorkloadOptions",
    "World",
    "describe",
    "draw_options",
    "run_seed",
]
