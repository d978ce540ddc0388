"""The commands of the admin server, with Apache's names, aliases and keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from keepfast.apache import java_hex, java_long
from keepfast.replica import Connection, SizeRange
from keepfast.server.admin_options import AdminOptions
from keepfast.server.ensemble_report import (
    ensemble_facts,
    member_of,
    monitor_facts,
    peer_state,
)
from keepfast.server.http import HttpRequest
from keepfast.server.metrics import collect, flat_values
from keepfast.server.reports import (
    VERSION_TEXT,
    ConnectionReport,
    configuration,
    connection_report,
    data_watches,
    environment,
    node_count,
    reset_connections,
    reset_server,
    watch_summary,
    watches_by_path,
    watches_by_session,
)
from keepfast.server.running_server import RunningServer
from keepfast.storage import ReadFile
from keepfast.tree import DIGEST_VERSION, ROOT, DataWatches, is_allowed
from keepfast.wire import Id, Perms, format_zxid

_CHUNK_BYTES: Final = 256 << 10
_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1
_ALL: Final = (Perms.READ, Perms.WRITE, Perms.CREATE, Perms.DELETE, Perms.ADMIN)


class RateLimit:
    """Allows one event per interval."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None

    def allows(self, now_ms: int) -> bool:
        """Whether an event is allowed now; if so, it is counted."""
        if self._next_ms is not None and now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._interval_ms
        return True


class CommandContext(NamedTuple):
    """What commands need to know about the admin server that runs them."""

    options: AdminOptions
    snapshot_limit: RateLimit


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of a command: fields for JSON, or a stream of bytes."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None
    stream_bytes: int = 0
    # The caller may not run it. Apache then shows the requested name, not the first one.
    is_refused: bool = False


Run = Callable[[RunningServer, CommandContext, HttpRequest], Awaitable[CommandAnswer]]
Show = Callable[[RunningServer], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Command:
    """One command; the first name is shown, the others are aliases."""

    names: tuple[str, ...]
    run: Run
    needs_data: bool = True
    method: str = "GET"

    @property
    def name(self) -> str:
        return self.names[0]


def _showing(show: Show) -> Run:
    """A command that shows something, or that does something and shows nothing."""

    async def run(
        server: RunningServer, _admin: CommandContext, _request: HttpRequest
    ) -> CommandAnswer:
        return CommandAnswer(show(server) or {})

    return run


def _showing_watches(show: Callable[[DataWatches[Connection]], Mapping[str, Any]]) -> Run:
    """A command that shows watches: there may be very many, so it is done beside the loop."""

    async def run(
        server: RunningServer, _admin: CommandContext, _request: HttpRequest
    ) -> CommandAnswer:
        loop = asyncio.get_running_loop()
        return CommandAnswer(await loop.run_in_executor(None, show, data_watches(server)))

    return run


# -- what is configured ------------------------------------------------------------------------


def _configuration(server: RunningServer) -> Mapping[str, Any]:
    found = configuration(server)
    return {
        "client_port": found["clientPort"],
        "data_dir": found["dataDir"],
        "data_log_dir": found["dataLogDir"],
        "tick_time": found["tickTime"],
        "max_client_cnxns": found["maxClientCnxns"],
        "min_session_timeout": found["minSessionTimeout"],
        "max_session_timeout": found["maxSessionTimeout"],
        "server_id": found["serverId"],
        "client_port_listen_backlog": found["clientPortListenBacklog"],
    }


def _dirs(server: RunningServer) -> Mapping[str, Any]:
    data_size, log_size = server.directory_sizes()
    return {"datadir_size": data_size, "logdir_size": log_size}


async def _initial_configuration(
    _server: RunningServer, admin: CommandContext, _request: HttpRequest
) -> CommandAnswer:
    return CommandAnswer({"initial_configuration": admin.options.initial_configuration})


async def _properties(
    _server: RunningServer, admin: CommandContext, _request: HttpRequest
) -> CommandAnswer:
    return CommandAnswer(dict(sorted(admin.options.properties.items())))


# -- clients -----------------------------------------------------------------------------------


def _connections(server: RunningServer, *, is_brief: bool) -> Mapping[str, Any]:
    shown: dict[str, list[dict[str, Any]]] = {"connections": [], "secure_connections": []}
    for connection in server.connections():
        report = _connection(connection_report(server, connection), is_brief=is_brief)
        shown["secure_connections" if connection.is_secure else "connections"].append(report)
    return shown


def _connection(report: ConnectionReport, *, is_brief: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "remote_socket_address": report.address,
        "interest_ops": report.interest,
        "outstanding_requests": report.queued,
        "packets_received": report.received,
        "packets_sent": report.sent,
    }
    if not is_brief:
        shown |= {
            "session_id": report.session_id,
            "last_operation": report.last_operation,
            "established": report.established,
            "session_timeout": report.timeout,
            "last_cxid": report.last_xid,
            "last_zxid": report.last_zxid,
            "last_response_time": report.last_response,
            "last_latency": report.last_latency,
            "min_latency": report.min_latency,
            "avg_latency": report.avg_latency,
            "max_latency": report.max_latency,
        }
    return shown


def _dump(server: RunningServer) -> Mapping[str, Any]:
    replica = server.replica
    return {
        "expiry_time_to_session_ids": {
            str(deadline): sessions
            for deadline, sessions in replica.service.sessions.buckets().items()
        },
        "session_id_to_ephemeral_paths": {
            str(session): sorted(paths)
            for session, paths in sorted(replica.tree.ephemerals.items())
        },
    }


def _watches(watches: DataWatches[Connection]) -> Mapping[str, Any]:
    return {
        "session_id_to_watched_paths": {
            str(session): paths for session, paths in watches_by_session(watches).items()
        }
    }


def _watches_by_path(watches: DataWatches[Connection]) -> Mapping[str, Any]:
    return {"path_to_session_ids": watches_by_path(watches)}


def _watch_summary(watches: DataWatches[Connection]) -> Mapping[str, Any]:
    summary = watch_summary(watches)
    return {
        "num_connections": summary.connections,
        "num_paths": summary.paths,
        "num_total_watches": summary.watches,
    }


# -- the server --------------------------------------------------------------------------------


def _server_stats(server: RunningServer) -> Mapping[str, Any]:
    replica = server.replica
    statistics = replica.statistics
    latency = statistics.latency()
    data_size, log_size = server.directory_sizes()
    response_sizes = _buffer_sizes(statistics.responses)
    stats = {
        "version": VERSION_TEXT,
        "read_only": server.replica.is_read_only,
        "server_stats": {
            "packets_sent": statistics.sent,
            "packets_received": statistics.received,
            "fsync_threshold_exceed_count": server.statistics.fsyncs_over_limit,
            "client_response_stats": response_sizes,
            "provider_null": False,
            "data_dir_size": data_size,
            "log_dir_size": log_size,
            "last_processed_zxid": replica.tree.last_zxid,
            "outstanding_requests": replica.outstanding,
            "server_state": server.mode,
            "avg_latency": float(round(latency.mean, 4)),
            "max_latency": int(latency.greatest),
            "min_latency": int(latency.least),
            "num_alive_client_connections": server.connection_count,
            "auth_failed_count": statistics.auth_failures,
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
            "uptime": server.uptime_ms,
        },
        "client_response": response_sizes,
        "node_count": node_count(server),
    }
    if server.mode == "leader":
        stats["proposal_stats"] = _buffer_sizes(statistics.proposals)
    return stats


def _buffer_sizes(sizes: SizeRange) -> Mapping[str, int]:
    return {
        "last_buffer_size": sizes.last,
        "min_buffer_size": sizes.least,
        "max_buffer_size": sizes.greatest,
    }


def _hash(server: RunningServer) -> Mapping[str, Any]:
    return {
        "digests": [
            {"zxid": zxid, "digest_version": DIGEST_VERSION, "digest": java_long(digest)}
            for zxid, digest in server.replica.statistics.digests
        ]
    }


def _last_snapshot(server: RunningServer) -> Mapping[str, Any]:
    found = server.last_snapshot()
    if found is None:
        return {"zxid": java_hex(-1), "timestamp": -1}
    return {"zxid": java_hex(found.zxid), "timestamp": int(server.time_of(found))}


def _monitor(server: RunningServer) -> Mapping[str, Any]:
    return {**monitor_facts(server), **dict(flat_values(collect(server)))}


def _is_read_only(server: RunningServer) -> dict[str, Any]:
    return {"read_only": server.replica.is_read_only}


async def _leader(
    server: RunningServer, _admin: CommandContext, _request: HttpRequest
) -> CommandAnswer:
    member = member_of(server)
    if member is None:
        return CommandAnswer(error="server is not initialized")
    leading = member.state.server_id if member.leader is not None else member.state.leader_id
    spec = None if leading is None else member.state.quorums.find(leading)
    if spec is None or not spec.quorum:
        return CommandAnswer({"leader_id": -1, "leader_ip": ""})
    return CommandAnswer({"leader_id": spec.server_id, "leader_ip": spec.quorum[0].host})


def _voting_view(server: RunningServer) -> Mapping[str, Any]:
    member = member_of(server)
    shown = {}
    for spec in () if member is None else member.state.quorums.current.members:
        if member is not None and spec.server_id in member.state.quorums.current.voters:
            shown[str(spec.server_id)] = {
                "server_addresses": [str(address) for address in spec.quorum],
                "election_addresses": [str(address) for address in spec.election],
                "client_address": "" if spec.client is None else str(spec.client),
                "learner_type": "PARTICIPANT",
            }
    return {"current_config": shown}


def _zab_state(server: RunningServer) -> Mapping[str, Any]:
    member = member_of(server)
    is_voting = member is not None and member.state.server_id in member.state.quorums.current.voters
    return {"voting": is_voting, "zabstate": peer_state(server)}


async def _set_trace_mask(
    server: RunningServer, _admin: CommandContext, request: HttpRequest
) -> CommandAnswer:
    given = request.query.get("traceMask")
    wanted = "setTraceMask requires long traceMask argument"
    if given is None:
        return CommandAnswer(error=wanted)
    try:
        mask = int(given)
    except ValueError:
        return CommandAnswer(error=f"{wanted}, got {given}")
    if not _MIN_LONG <= mask <= _MAX_LONG:
        return CommandAnswer(error=f"{wanted}, got {given}")
    server.trace_mask = mask
    return CommandAnswer({"tracemask": mask})


# -- snapshots ---------------------------------------------------------------------------------


def _refusal(server: RunningServer, request: HttpRequest) -> CommandAnswer | None:
    """Why the caller may not do everything to the root; None if it may."""
    given = request.headers.get("authorization")
    if given is None:
        return CommandAnswer(
            error="Auth info is missing for the command",
            status=HTTPStatus.UNAUTHORIZED,
            is_refused=True,
        )
    scheme, *credentials = given.split(" ")
    replica = server.replica
    ids: list[Id] = []
    # One word is enough where the connection itself is the proof.
    if len(credentials) == (scheme not in ("ip", "x509")):
        data = "".join(credentials).encode("latin-1")
        ids = replica.identify(request.address, scheme, data)
    if not ids:
        return CommandAnswer(
            error="Not authenticated", status=HTTPStatus.UNAUTHORIZED, is_refused=True
        )
    root = replica.tree.find(ROOT)
    acl = () if root is None else replica.tree.acl_of(root)
    if not replica.service.skips_acls and not all(
        is_allowed(acl, perm, tuple(ids)) for perm in _ALL
    ):
        return CommandAnswer(error="Not authorized", status=HTTPStatus.FORBIDDEN, is_refused=True)
    return None


async def _snapshot(
    server: RunningServer, admin: CommandContext, request: HttpRequest
) -> CommandAnswer:
    refusal = _refusal(server, request)
    if refusal is not None:
        return refusal
    if not admin.options.is_snapshot_enabled:
        return CommandAnswer(status=HTTPStatus.SERVICE_UNAVAILABLE)
    if not admin.snapshot_limit.allows(server.uptime_ms):
        server.statistics.snapshots_refused += 1
        return CommandAnswer(status=HTTPStatus.TOO_MANY_REQUESTS)
    entry = await server.take_snapshot()
    if entry is None:
        return CommandAnswer(status=HTTPStatus.INTERNAL_SERVER_ERROR)
    headers = {"last_zxid": format_zxid(entry.zxid), "snapshot_size": str(entry.size)}
    if request.query.get("streaming", "true").lower() != "true" or request.method == "HEAD":
        return CommandAnswer(headers=headers)
    # Opened before anything else runs: a purge may remove its name, but not its bytes.
    file = server.open_snapshot(entry)
    stream = _bytes_of(file, entry.size)
    return CommandAnswer(headers=headers, stream=stream, stream_bytes=entry.size)


async def _bytes_of(file: ReadFile, size: int) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    with file:
        for offset in range(0, size, _CHUNK_BYTES):
            wanted = min(_CHUNK_BYTES, size - offset)
            yield await loop.run_in_executor(None, file.read_at, offset, wanted)


async def _hand_over(
    server: RunningServer, _admin: CommandContext, request: HttpRequest
) -> CommandAnswer:
    refusal = _refusal(server, request)
    if refusal is not None:
        return refusal
    successor = server.hand_over()
    if successor is None:
        return CommandAnswer(
            error="this server does not lead, or no voter follows it",
            status=HTTPStatus.CONFLICT,
        )
    return CommandAnswer({"successor": successor})


async def _restore(
    server: RunningServer, _admin: CommandContext, request: HttpRequest
) -> CommandAnswer:
    refusal = _refusal(server, request)
    if refusal is not None:
        return refusal
    return CommandAnswer(
        error="a running server's data is not replaced: stop it and start it on a directory "
        "with the snapshot",
        status=HTTPStatus.NOT_IMPLEMENTED,
    )


_TABLE: Final = (
    Command(("configuration", "conf", "config"), _showing(_configuration)),
    Command(("connections", "cons"), _showing(lambda s: _connections(s, is_brief=False))),
    Command(("connection_stat_reset", "crst"), _showing(reset_connections)),
    Command(("dirs",), _showing(_dirs)),
    Command(("dump",), _showing(_dump)),
    Command(("environment", "env", "envi"), _showing(lambda _: environment()), needs_data=False),
    Command(
        ("get_trace_mask", "gtmk"),
        _showing(lambda s: {"tracemask": s.trace_mask}),
        needs_data=False,
    ),
    Command(("hand_over",), _hand_over, method="POST"),
    Command(("hash",), _showing(_hash)),
    Command(("initial_configuration", "icfg"), _initial_configuration),
    Command(("is_read_only", "isro"), _showing(_is_read_only)),
    Command(("last_snapshot", "lsnp"), _showing(_last_snapshot)),
    Command(("leader", "lead"), _leader),
    Command(("monitor", "mntr"), _showing(_monitor)),
    Command(("observer_connection_stat_reset", "orst"), _showing(lambda _: None)),
    Command(("observers", "obsr"), _showing(lambda _: {"synced_observers": 0, "observers": []})),
    Command(("restore", "rest"), _restore, method="POST"),
    Command(("ruok",), _showing(lambda _: None)),
    Command(("server_stats", "srvr"), _showing(_server_stats)),
    Command(("set_trace_mask", "stmk"), _set_trace_mask, needs_data=False),
    Command(("snapshot", "snap"), _snapshot),
    Command(("standing", "kfst"), _showing(ensemble_facts), needs_data=False),
    Command(("stat_reset", "srst"), _showing(reset_server)),
    Command(
        ("stats", "stat"),
        _showing(lambda s: {**_server_stats(s), **_connections(s, is_brief=True)}),
    ),
    Command(("system_properties", "sysp"), _properties, needs_data=False),
    Command(("voting_view",), _showing(_voting_view)),
    Command(("watch_summary", "wchs"), _showing_watches(_watch_summary)),
    Command(("watches", "wchc"), _showing_watches(_watches)),
    Command(("watches_by_path", "wchp"), _showing_watches(_watches_by_path)),
    Command(("zabstate",), _showing(_zab_state), needs_data=False),
)

COMMANDS: Final[Mapping[str, Command]] = {
    name: command for command in _TABLE for name in command.names
}


def command_names() -> list[str]:
    """The first names of all commands, in order."""
    return sorted(command.name for command in _TABLE)
