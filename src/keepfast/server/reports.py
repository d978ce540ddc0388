"""Facts about a running server, as plain values: four-letter words and admin commands show them."""

from __future__ import annotations

import os
import platform
import socket
import sys
from heapq import merge
from typing import Final, NamedTuple

from keepfast import __version__
from keepfast.apache import java_double
from keepfast.quorum import Address
from keepfast.replica import NO_OPERATION, WRITES, Connection
from keepfast.server.audit_log import user_name
from keepfast.server.running_server import RunningServer
from keepfast.tree import DataWatches
from keepfast.wire import OpCode, ServerId

# The release whose protocol this server speaks: clients parse the number.
COMPATIBLE_VERSION: Final = "3.9.5"
VERSION_TEXT: Final = f"{COMPATIBLE_VERSION}-keepfast-{__version__}, built on 2026-11-15 00:00 UTC"

# Paths: about 5 ms. Not Final, which would put it into compiled code: tests make it small.
_SORTED_AT_ONCE = 10_000

# What Apache calls the last operation of a connection; a write that failed has no name.
_OPERATION_NAMES: Final[dict[int, str]] = {
    OpCode.PING: "PING",
    OpCode.CREATE_SESSION: "SESS",
    OpCode.CLOSE_SESSION: "CLOS",
    OpCode.MULTI: "MULT",
    OpCode.MULTI_READ: "MLTR",
    OpCode.CREATE: "CREA",
    OpCode.CREATE2: "CREA",
    OpCode.CREATE_CONTAINER: "CREA",
    OpCode.CREATE_TTL: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.SET_DATA: "SETD",
    OpCode.RECONFIG: "RECO",
    OpCode.SET_ACL: "SETA",
    OpCode.SYNC: "SYNC",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_WATCHES: "SETW",
    OpCode.SET_WATCHES2: "STW2",
    OpCode.ADD_WATCH: "ADDW",
    OpCode.GET_ACL: "GETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN",
    OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW",
    OpCode.WHO_AM_I: "HOMI",
    OpCode.GET_EPHEMERALS: "GETE",
}
# Apache looks at connections without a session in steps of this length.
_CONNECTION_STEP_MS: Final = 10_000

_KILOBYTE: Final = 1024
_MEGABYTE: Final = 1 << 20


class ConnectionReport(NamedTuple):
    """One connection; times in ms, `established` as wall clock time, `last_response` monotonic."""

    address: str
    interest: int
    queued: int
    received: int
    sent: int
    session_id: int
    last_operation: str
    established: int
    timeout: int
    last_xid: int
    last_zxid: int
    last_response: int
    last_latency: int
    min_latency: int
    avg_latency: int
    max_latency: int


def connection_report(server: RunningServer, connection: Connection) -> ConnectionReport:
    """What is known about a connection."""
    latency = connection.latency()
    operation = connection.last_op
    is_read = operation not in WRITES and operation != NO_OPERATION
    return ConnectionReport(
        address=str(Address(connection.address, connection.port)),
        interest=server.interest_of(connection),
        queued=len(connection.queue),
        received=connection.received,
        sent=connection.sent,
        session_id=connection.session_id,
        last_operation=_OPERATION_NAMES.get(operation, "NA"),
        established=server.wall_clock_of(connection.opened_ms),
        timeout=connection.timeout_ms,
        last_xid=connection.last_xid,
        last_zxid=connection.last_zxid,
        last_response=connection.last_ms,
        last_latency=0 if is_read else connection.last_latency_ms,
        min_latency=int(latency.least),
        avg_latency=int(latency.mean),
        max_latency=int(latency.greatest),
    )


def connection_deadlines(server: RunningServer) -> dict[int, list[Connection]]:
    """When connections would be dropped if they stayed silent: monotonic ms, in order."""
    found: dict[int, list[Connection]] = {}
    for connection in server.connections():
        active = max(connection.last_ms, connection.opened_ms)
        due = active + (connection.timeout_ms or _CONNECTION_STEP_MS)
        found.setdefault((due // _CONNECTION_STEP_MS + 1) * _CONNECTION_STEP_MS, []).append(
            connection
        )
    return dict(sorted(found.items()))


class WatchSummary(NamedTuple):
    """How many watch how many paths; as in Apache, watches on children do not count."""

    connections: int
    paths: int
    watches: int


def data_watches(server: RunningServer) -> DataWatches[Connection]:
    """The watches on data, for the functions below, which may take long: not in the loop."""
    return server.replica.service.watches.data_watches()


def watch_summary(watches: DataWatches[Connection]) -> WatchSummary:
    """Numbers of watches on data."""
    paths = watches.by_path()
    watchers: set[Connection] = set()
    watchers.update(*paths.values())
    return WatchSummary(len(watchers), len(paths), sum(map(len, paths.values())))


def watches_by_path(watches: DataWatches[Connection]) -> dict[str, list[int]]:
    """The sessions that watch the data of each path."""
    watched = watches.by_path()
    paths = list(watched)
    # Sorting lets no other thread run, so it is done in pieces.
    pieces = (
        sorted(paths[at : at + _SORTED_AT_ONCE]) for at in range(0, len(paths), _SORTED_AT_ONCE)
    )
    return {path: sorted(w.session_id for w in watched[path]) for path in merge(*pieces)}


def watches_by_session(watches: DataWatches[Connection]) -> dict[int, list[str]]:
    """The paths whose data each session watches."""
    found: dict[int, list[str]] = {}
    for path, sessions in watches_by_path(watches).items():
        for session in sessions:
            found.setdefault(session, []).append(path)
    return dict(sorted(found.items()))


def node_count(server: RunningServer) -> int:
    """The number of znodes as Apache counts them: the root twice."""
    return server.replica.tree.node_count + 1


def configuration(server: RunningServer) -> dict[str, int | str]:
    """The settings that Apache shows, by its names."""
    options = server.options
    replica = options.replica
    data_size, log_size = server.directory_sizes()
    shown: dict[str, int | str] = {
        "clientPort": server.port,
        "secureClientPort": -1 if server.secure_port is None else server.secure_port,
        "dataDir": os.path.abspath(server.directory.snapshots),
        "dataDirSize": data_size,
        "dataLogDir": os.path.abspath(server.directory.logs),
        "dataLogSize": log_size,
        "tickTime": replica.tick_ms,
        "maxClientCnxns": replica.max_connections_per_address,
        "minSessionTimeout": replica.min_session_timeout_ms,
        "maxSessionTimeout": replica.max_session_timeout_ms,
        "clientPortListenBacklog": options.backlog,
        "serverId": server.server_id,
    }
    ensemble = options.ensemble
    if ensemble is not None:
        me = ensemble.membership.find(ServerId(ensemble.server_id))
        is_voter = me is not None and me.server_id in ensemble.membership.voters
        shown |= {
            "initLimit": ensemble.quorum.init_limit,
            "syncLimit": ensemble.quorum.sync_limit,
            "electionAlg": 3,
            "electionPort": "|".join(str(a.port) for a in ensemble.election_addresses),
            "quorumPort": "|".join(str(a.port) for a in ensemble.quorum_addresses),
            "peerType": 0 if is_voter else 1,
        }
    return shown


def environment() -> dict[str, str]:
    """The process and the machine, in Apache's order; Python's facts where Java's would be."""
    page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    free, whole = (
        (os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page)
        if page
        else (0, 0)
    )
    return {
        "zookeeper.version": VERSION_TEXT,
        "host.name": socket.gethostname(),
        "python.version": platform.python_version(),
        "python.implementation": platform.python_implementation(),
        "python.executable": sys.executable,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": user_name(),
        "user.home": os.path.expanduser("~"),
        "user.dir": os.getcwd(),
        "os.memory.free": f"{free // _MEGABYTE}MB",
        "os.memory.max": f"{whole // _MEGABYTE}MB",
        "os.memory.total": f"{resident_bytes() // _MEGABYTE}MB",
    }


def resident_bytes() -> int:
    """The peak memory of this process; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KILOBYTE


def file_descriptors() -> tuple[int, int]:
    """Open ones, and the limit; -1 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return -1, -1
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for place in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(place):
            return len(os.listdir(place)), limit
    return -1, limit


def latency_text(server: RunningServer) -> str:
    """Minimum, mean and maximum time of requests, in ms."""
    latency = server.replica.statistics.latency()
    mean = java_double(round(latency.mean, 4))
    return f"{int(latency.least)}/{mean}/{int(latency.greatest)}"


def reset_server(server: RunningServer) -> None:
    """Begin to count again everything but what belongs to single connections."""
    server.replica.statistics.reset()
    server.statistics.reset()


def reset_connections(server: RunningServer) -> None:
    """Begin to count again for every connection."""
    for connection in server.connections():
        connection.reset_statistics()
