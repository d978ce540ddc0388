"""What a server answers to each four-letter word, in Apache's text formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from keepfast.apache import (
    java_date,
    java_hex,
    java_long,
    java_number,
    trace_mask_of,
    word_of,
    word_refusal,
)
from keepfast.quorum import Address
from keepfast.server.ensemble_report import ensemble_facts, member_of, monitor_facts
from keepfast.server.metrics import collect, flat_values
from keepfast.server.reports import (
    VERSION_TEXT,
    ConnectionReport,
    configuration,
    connection_deadlines,
    connection_report,
    data_watches,
    environment,
    latency_text,
    node_count,
    reset_connections,
    reset_server,
    watch_summary,
    watches_by_path,
    watches_by_session,
)
from keepfast.server.running_server import RunningServer
from keepfast.wire import safe_text


def answer(server: RunningServer, data: bytes) -> str:
    """The text for a word that is complete."""
    word = word_of(data)
    refusal = word_refusal(word, server.options.word_whitelist, is_serving=server.is_serving)
    if refusal is not None:
        return refusal
    mask = trace_mask_of(data)
    if mask is not None:
        server.trace_mask = mask
    return _ANSWERS[word](server)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ruok(_server: RunningServer) -> str:
    return "imok"


def _isro(server: RunningServer) -> str:
    return "ro" if server.replica.is_read_only else "rw"


def _summary(server: RunningServer) -> str:
    replica = server.replica
    lines = [
        f"Latency min/avg/max: {latency_text(server)}",
        f"Received: {replica.statistics.received}",
        f"Sent: {replica.statistics.sent}",
        f"Connections: {server.connection_count}",
        f"Outstanding: {replica.outstanding}",
        f"Zxid: {replica.tree.last_zxid:#x}",
        f"Mode: {server.mode}",
        f"Node count: {node_count(server)}",
    ]
    if server.mode == "leader":
        sizes = replica.statistics.proposals
        lines.append(f"Proposal sizes last/min/max: {sizes.last}/{sizes.least}/{sizes.greatest}")
    return _lines(*lines)


def _srvr(server: RunningServer) -> str:
    return _lines(f"Zookeeper version: {VERSION_TEXT}") + _summary(server)


def _stat(server: RunningServer) -> str:
    reports = (connection_report(server, c) for c in server.connections())
    clients = "".join(_lines(f" {_brief(report)})") for report in reports)
    return (
        _lines(f"Zookeeper version: {VERSION_TEXT}", "Clients:")
        + clients
        + _lines("")
        + _summary(server)
    )


def _brief(report: ConnectionReport) -> str:
    return (
        f"/{report.address}[{report.interest:x}](queued={report.queued},"
        f"recved={report.received},sent={report.sent}"
    )


def _cons(server: RunningServer) -> str:
    reports = (connection_report(server, c) for c in server.connections())
    return _lines(*(f" {_brief(report)}{_details(report)})" for report in reports), "")


def _details(report: ConnectionReport) -> str:
    if not report.session_id:
        return ""
    xid = f",lcxid={report.last_xid:#x}" if report.last_xid >= 0 else ""
    return (
        f",sid={_session(report.session_id)},lop={report.last_operation},"
        f"est={report.established},to={report.timeout}{xid},lzxid=0x{java_hex(report.last_zxid)},"
        f"lresp={report.last_response},llat={report.last_latency},minlat={report.min_latency},"
        f"avglat={report.avg_latency},maxlat={report.max_latency}"
    )


def _crst(server: RunningServer) -> str:
    reset_connections(server)
    return "Connection stats reset.\n"


def _srst(server: RunningServer) -> str:
    reset_server(server)
    return "Server stats reset.\n"


def _conf(server: RunningServer) -> str:
    return _lines(*(f"{key}={value}" for key, value in configuration(server).items())) + _members(
        server
    )


def _members(server: RunningServer) -> str:
    """The members, at the end of `conf`, where there are any."""
    member = member_of(server)
    if member is None:
        return ""
    return f"membership: \n{member.state.quorums.current.text().decode()}"


def _envi(_server: RunningServer) -> str:
    return _lines("Environment:", *(f"{key}={value}" for key, value in environment().items()))


def _dump(server: RunningServer) -> str:
    replica = server.replica
    connections = {
        deadline: [
            f"ip: /{Address(c.address, c.port)} sessionId: {_session(c.session_id)}" for c in found
        ]
        for deadline, found in connection_deadlines(server).items()
    }
    ephemerals = replica.tree.ephemerals
    lines = ["SessionTracker dump:", *_sessions(server)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(ephemerals)}):"]
    for session, paths in sorted(ephemerals.items()):
        lines.append(f"{_session(session)}:")
        lines.extend(f"\t{safe_text(path)}" for path in sorted(paths))
    lines += ["Connections dump:", *_expiring(server, "Connections", connections)]
    return _lines(*lines)


def _sessions(server: RunningServer) -> list[str]:
    """The sessions that this server watches over; a learner: those of the ensemble, too."""
    replica = server.replica
    buckets = replica.service.sessions.buckets()
    tracked = _sets(server, "Session", buckets)
    if server.mode not in ("leader", "standalone"):
        timeouts = sorted(replica.tree.sessions.items())
        tracked = [f"Global Sessions({len(timeouts)}):"]
        tracked += [f"{_session(session)}\t{timeout_ms}ms" for session, timeout_ms in timeouts]
    local = replica.handshake.local
    if not replica.options.has_local_sessions and not len(local):
        return tracked
    if server.mode == "leader":
        tracked = _sets(server, "Global Session", buckets)
    return _sets(server, "Local Session", local.buckets()) + tracked


def _sets(server: RunningServer, what: str, found: dict[int, list[int]]) -> list[str]:
    names = {deadline: list(map(_session, sessions)) for deadline, sessions in found.items()}
    return _expiring(server, what, names)


def _expiring(server: RunningServer, what: str, found: dict[int, list[str]]) -> list[str]:
    lines = [f"{what} Sets ({len(found)})/({sum(map(len, found.values()))}):"]
    for deadline, names in found.items():
        lines.append(f"{len(names)} expire at {java_date(server.wall_clock_of(deadline))}:")
        lines.extend(f"\t{name}" for name in names)
    return lines


def _session(session_id: int) -> str:
    return f"0x{java_hex(session_id)}"


def _wchs(server: RunningServer) -> str:
    summary = watch_summary(data_watches(server))
    return _lines(
        f"{summary.connections} connections watching {summary.paths} paths",
        f"Total watches:{summary.watches}",
    )


def _wchc(server: RunningServer) -> str:
    lines = []
    for session, paths in watches_by_session(data_watches(server)).items():
        lines.append(_session(session))
        lines.extend(f"\t{safe_text(path)}" for path in paths)
    return _lines(*lines, "")


def _wchp(server: RunningServer) -> str:
    lines = []
    for path, sessions in watches_by_path(data_watches(server)).items():
        lines.append(safe_text(path))
        lines.extend(f"\t{_session(session)}" for session in sessions)
    return _lines(*lines, "")


def _dirs(server: RunningServer) -> str:
    data, logs = server.directory_sizes()
    return _lines(f"datadir_size: {data}", f"logdir_size: {logs}")


def _gtmk(server: RunningServer) -> str:
    return str(server.trace_mask)


def _hash(server: RunningServer) -> str:
    return _lines(
        *(
            f"{java_hex(zxid)}: {java_long(digest)}"
            for zxid, digest in server.replica.statistics.digests
        )
    )


def _mntr(server: RunningServer) -> str:
    lines = [f"zk_{name}\t{value}" for name, value in monitor_facts(server).items()]
    lines.extend(f"zk_{name}\t{java_number(value)}" for name, value in flat_values(collect(server)))
    return _lines(*lines)


def _kfst(server: RunningServer) -> str:
    return _lines(*(f"{name}={value}" for name, value in ensemble_facts(server).items()))


_ANSWERS: Final[dict[str, Callable[[RunningServer], str]]] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "cons": _cons,
    "crst": _crst,
    "srst": _srst,
    "conf": _conf,
    "envi": _envi,
    "dump": _dump,
    "wchs": _wchs,
    "wchc": _wchc,
    "wchp": _wchp,
    "dirs": _dirs,
    "gtmk": _gtmk,
    "stmk": _gtmk,
    "hash": _hash,
    "mntr": _mntr,
    "kfst": _kfst,
}
