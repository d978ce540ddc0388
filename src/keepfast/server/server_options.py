"""What a server is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keepfast.replica import ReplicaOptions
from keepfast.server.admin_options import AdminOptions
from keepfast.server.tls_port import TlsOptions
from keepfast.storage import StoreOptions

if TYPE_CHECKING:
    from keepfast.server.election_links import LinkSecurity
    from keepfast.server.member_driver import EnsembleOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens, where its data lies, and how it behaves."""

    data_dir: str
    log_dir: str | None = None
    host: str = "127.0.0.1"
    # The plain client port; None: there is none.
    port: int | None = 2181
    # TLS for clients; None: there is none.
    tls: TlsOptions | None = None
    # Connections that may wait to be accepted; -1: as many as `listeners.py` finds right.
    backlog: int = -1
    # Whether the system probes silent connections of clients. Off: one that a firewall has dropped
    # is noticed when its session expires.
    is_keep_alive: bool = False
    # Connections from one address, and in all; 0: no limit. Low: a busy host is shut out.
    max_connections_per_address: int = 60
    max_connections: int = 0
    # Records between two snapshots. Low: the disk writes snapshots all the time. High: a start
    # replays more records.
    snapshot_every: int = 100_000
    # Snapshots that a purge keeps; 0: nothing is ever purged.
    retain_snapshots: int = 0
    # Four-letter words that are answered; "*" for all.
    word_whitelist: frozenset[str] = frozenset(("srvr",))
    # An fsync that takes longer is counted and logged. Low: healthy ones are. High: a disk in
    # trouble goes unnoticed.
    slow_fsync_ms: int = 1000
    # The HTTP admin server; None: there is none.
    admin: AdminOptions | None = None
    # Its place among its peers; None: it is alone.
    ensemble: EnsembleOptions | None = None
    # What guards the connections to its peers.
    security: LinkSecurity | None = None
    replica: ReplicaOptions = field(default_factory=ReplicaOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
