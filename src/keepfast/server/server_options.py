"""The options of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from keepfast.apache import TlsConfig
from keepfast.replica import ReplicaOptions
from keepfast.server.admin_options import AdminOptions
from keepfast.storage import StoreOptions

if TYPE_CHECKING:
    from keepfast.server.election_links import LinkSecurity
    from keepfast.server.peer_network import EnsembleOptions


class TlsOptions(msgspec.Struct, frozen=True):
    """Where TLS clients connect, and by which rules."""

    config: TlsConfig
    host: str = "0.0.0.0"
    # A separate port; None: there is none.
    port: int | None = None
    # Whether TLS clients get in at the plain client port, too.
    is_on_client_port: bool = False
    # Whether the stores are read again when their files change.
    is_reloading: bool = False
    # Handshakes under way at which further sockets are closed; 0: no limit. Low: clients that all
    # connect again at once are refused and try again. High: they wait for each other.
    max_handshakes: int = 0


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
    # Records between two snapshots. Low: the disk writes snapshots all the time. High: a start
    # replays more records.
    snapshot_every: int = 100_000
    # The same by bytes of records; 0: however many.
    snapshot_every_bytes: int = 4 << 30
    # At least this many records per 100 znodes of the tree; 0: however large it is.
    snapshot_every_percent: int = 0
    # Snapshots that a purge keeps; 0: nothing is ever purged.
    retain_snapshots: int = 0
    # Four-letter words that are answered; "*" for all.
    word_whitelist: frozenset[str] = frozenset(("srvr",))
    # An fsync that takes longer is counted and logged. Low: healthy ones are. High: a disk in
    # trouble goes unnoticed.
    slow_fsync_ms: int = 1000
    # See session_secret.py; empty: servers make their own. Without a secret, passwords follow from
    # the ids of sessions, as on Apache's servers.
    session_passwords_file: str = ""
    has_session_secret: bool = True
    # The HTTP admin server; None: there is none.
    admin: AdminOptions | None = None
    # Its place among its peers; None: it is alone.
    ensemble: EnsembleOptions | None = None
    # What protects the connections to its peers.
    security: LinkSecurity | None = None
    replica: ReplicaOptions = field(default_factory=ReplicaOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
