"""Settings of a simulated world. A seed draws every one of them within its legal range (`swarm`).

"Swarm" after Groce et al., *Swarm Testing* (2012): leaving features out of single runs finds more
than giving every run a bit of everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from keepfast.quorum import ElectionOptions
from keepfast.replica import ReplicaOptions
from keepfast.sim.network import NetworkOptions
from keepfast.storage import StoreOptions

# What wall clocks show when a world begins.
WALL_START_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """How disks behave; times in us."""

    # One call of the store, an fsync above all, takes between these two.
    min_latency_us: int = 200
    max_latency_us: int = 3000
    # How often (of 1) one takes `stall_us` longer.
    stall_chance: float = 0.0
    stall_us: int = 300_000
    # Bytes of a disk that gets full; the rest is free forever.
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class ClientHabits:
    """How clients of different implementations and settings differ."""

    # Counts its requests from 1 on every connection, as kazoo does; Java's client keeps counting.
    restarts_xids: bool = False
    # Accepts a read-only server.
    is_read_only: bool = False
    # Has the address of one server only; None: of all.
    only_server: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What clients do."""

    clients: int = 2
    # Those of the first client, of the second, and so on; then from the first again.
    habits: tuple[ClientHabits, ...] = (ClientHabits(),)
    # Time between two requests of a client, on average.
    think_ms: int = 40
    # Requests of one client that may be under way at a time.
    pipeline: int = 4
    keys: int = 4
    session_timeout_ms: int = 4000
    # The largest value that is written where large ones are.
    large_bytes: int = 0
    # How often each kind of request is drawn, relative to the others.
    weights: tuple[tuple[str, int], ...] = (
        ("create", 10),
        ("set", 30),
        ("delete", 8),
        ("multi", 8),
        ("read", 30),
        ("sync", 4),
        ("roam", 4),
        ("end", 1),
    )
    watch_chance: float = 0.4


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """What goes wrong, and how often."""

    # Time between two faults, on average; 0: nothing ever fails.
    every_ms: int = 1500
    # How often each kind of fault is drawn, relative to the others.
    weights: tuple[tuple[str, int], ...] = ()
    # Faults that wait for a named step of the protocol, at the start of a run.
    traps: int = 0
    # Whether the first leader dies before anybody follows it.
    has_first_term: bool = False


@dataclass(frozen=True, slots=True)
class SimOptions:
    """One world."""

    servers: int = 3
    observers: int = 0
    # Ticks of server time for which clients work and things fail.
    busy_ticks: int = 20
    # Ticks within which everything must have recovered once faults stop.
    healing_ticks: int = 200
    # Each server's clock is off by up to this.
    skew_ms: int = 0
    # Records between two snapshots, and snapshots that a purge keeps; 0: none are taken, purged.
    snapshot_every: int = 20
    retain: int = 3
    # Whether clients may change who belongs to the ensemble.
    is_reconfig_enabled: bool = False
    # Whether a server without a leader serves read-only clients.
    is_read_only_enabled: bool = False
    # Whether servers make a secret for session passwords by themselves.
    is_secret_shared: bool = False
    # Whether the world begins with a majority that was restored from a backup.
    is_restored: bool = False
    # The number of the server that is one of Apache's; None: all are ours.
    apache: int | None = None
    # The largest txn is so much larger on every second server than `replica` says.
    uneven_txn_bytes: int = 0
    # Bytes of a learner that are handled in one turn.
    learner_turn_bytes: int = 16 << 10
    # Observers that are sent a snapshot, or missed txns, at the same time.
    max_catch_ups: int = 10
    init_limit: int = 10
    sync_limit: int = 5
    # How often (of 1) an acknowledgement is followed by a look at what a crash would leave.
    crash_check_chance: float = 0.1
    election: ElectionOptions = field(default_factory=ElectionOptions)
    replica: ReplicaOptions = field(default_factory=ReplicaOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    disk: DiskOptions = field(default_factory=DiskOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)
    # The names of the features that were put into all of the above; for people.
    features: tuple[str, ...] = ()
