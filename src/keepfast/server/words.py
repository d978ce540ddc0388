"""Four-letter words on the client port, in Apache's text formats.

A connection whose first four bytes are one of these is answered with text and closed. The words
that are not on the whitelist are refused, as Apache refuses them: scripts look for that sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from keepfast.server.ensemble_report import ensemble_facts, member_of, monitor_facts
from keepfast.server.java_text import java_date, java_hex, java_long, java_number
from keepfast.server.metrics import collect, flat_values
from keepfast.server.reports import (
    VERSION_TEXT,
    ConnectionReport,
    configuration,
    connection_deadlines,
    connection_report,
    environment,
    latency_text,
    node_count,
    watch_summary,
    watches_by_path,
    watches_by_session,
)
from keepfast.server.statistics import reset_connections, reset_server

if TYPE_CHECKING:
    from keepfast.server.server import Server

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"

WORD_SIZE: Final = 4
_MASK: Final = Struct(">q")
# The only word with an argument.
_SET_MASK: Final = b"stmk"
_SET_MASK_SIZE: Final = WORD_SIZE + _MASK.size

# What these answer does not depend on the data.
_ALWAYS: Final = frozenset(("ruok", "envi", "gtmk", "stmk", "kfst"))
# Our own word tells no more than this one of Apache's: whoever may ask the one may ask the other.
_SAME_AS: Final = {"kfst": "srvr"}


def is_word(data: bytes) -> bool:
    """Whether the first bytes of a connection are a word, whole or not."""
    return data[:WORD_SIZE].decode("latin-1") in WORDS


def is_complete(data: bytes) -> bool:
    """Whether everything that belongs to the word is there."""
    return data[:WORD_SIZE] != _SET_MASK or len(data) >= _SET_MASK_SIZE


def answer(server: Server, data: bytes) -> str:
    """The text for a word that is complete."""
    word = data[:WORD_SIZE].decode("latin-1")
    allowed = server.options.word_whitelist
    if allowed.isdisjoint(("*", word, _SAME_AS.get(word, word))):
        return f"{word} is not executed because it is not in the whitelist.\n"
    if word == "stmk":
        server.trace_mask = _MASK.unpack_from(data, WORD_SIZE)[0]
        return str(server.trace_mask)
    if word not in _ALWAYS and not server.is_serving:
        if word == "isro":
            return "null"
        return NOT_SERVING if word == "hash" else f"{NOT_SERVING}\n"
    return WORDS[word](server)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ruok(_server: Server) -> str:
    return "imok"


def _isro(server: Server) -> str:
    return "ro" if server.replica.is_read_only else "rw"


def _summary(server: Server) -> str:
    replica = server.replica
    return _lines(
        f"Latency min/avg/max: {latency_text(server)}",
        f"Received: {replica.statistics.received}",
        f"Sent: {replica.statistics.sent}",
        f"Connections: {server.connection_count}",
        f"Outstanding: {replica.outstanding}",
        f"Zxid: {replica.tree.last_zxid:#x}",
        f"Mode: {server.mode}",
        f"Node count: {node_count(server)}",
    )


def _srvr(server: Server) -> str:
    return _lines(f"Zookeeper version: {VERSION_TEXT}") + _summary(server)


def _stat(server: Server) -> str:
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


def _cons(server: Server) -> str:
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


def _crst(server: Server) -> str:
    reset_connections(server)
    return "Connection stats reset.\n"


def _srst(server: Server) -> str:
    reset_server(server)
    return "Server stats reset.\n"


def _conf(server: Server) -> str:
    return _lines(*(f"{key}={value}" for key, value in configuration(server).items())) + _members(
        server
    )


def _members(server: Server) -> str:
    """The members, at the end of `conf`, where there are any."""
    member = member_of(server)
    if member is None:
        return ""
    return f"membership: \n{member.quorums.current.text().decode()}"


def _envi(_server: Server) -> str:
    return _lines("Environment:", *(f"{key}={value}" for key, value in environment().items()))


def _dump(server: Server) -> str:
    replica = server.replica
    sessions = {
        deadline: [_session(session) for session in found]
        for deadline, found in replica.sessions.buckets().items()
    }
    connections = {
        deadline: [f"ip: /{c.address}:{c.port} sessionId: {_session(c.session_id)}" for c in found]
        for deadline, found in connection_deadlines(server).items()
    }
    ephemerals = replica.tree.ephemerals
    lines = ["SessionTracker dump:", *_expiring(server, "Session", sessions)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(ephemerals)}):"]
    for session, paths in sorted(ephemerals.items()):
        lines.append(f"{_session(session)}:")
        lines.extend(f"\t{path}" for path in sorted(paths))
    lines += ["Connections dump:", *_expiring(server, "Connections", connections)]
    return _lines(*lines)


def _expiring(server: Server, what: str, found: dict[int, list[str]]) -> list[str]:
    lines = [f"{what} Sets ({len(found)})/({sum(map(len, found.values()))}):"]
    for deadline, names in found.items():
        lines.append(f"{len(names)} expire at {java_date(server.wall_clock_of(deadline))}:")
        lines.extend(f"\t{name}" for name in names)
    return lines


def _session(session_id: int) -> str:
    return f"0x{java_hex(session_id)}"


def _wchs(server: Server) -> str:
    summary = watch_summary(server)
    return _lines(
        f"{summary.connections} connections watching {summary.paths} paths",
        f"Total watches:{summary.watches}",
    )


def _wchc(server: Server) -> str:
    lines = []
    for session, paths in watches_by_session(server).items():
        lines.append(_session(session))
        lines.extend(f"\t{path}" for path in paths)
    return _lines(*lines, "")


def _wchp(server: Server) -> str:
    lines = []
    for path, sessions in watches_by_path(server).items():
        lines.append(path)
        lines.extend(f"\t{_session(session)}" for session in sessions)
    return _lines(*lines, "")


def _dirs(server: Server) -> str:
    data, logs = server.directory_sizes()
    return _lines(f"datadir_size: {data}", f"logdir_size: {logs}")


def _gtmk(server: Server) -> str:
    return str(server.trace_mask)


def _hash(server: Server) -> str:
    return _lines(
        *(
            f"{java_hex(zxid)}: {java_long(digest)}"
            for zxid, digest in server.replica.statistics.digests
        )
    )


def _mntr(server: Server) -> str:
    lines = [f"zk_{name}\t{value}" for name, value in monitor_facts(server).items()]
    lines.extend(f"zk_{name}\t{java_number(value)}" for name, value in flat_values(collect(server)))
    return _lines(*lines)


def _kfst(server: Server) -> str:
    return _lines(*(f"{name}={value}" for name, value in ensemble_facts(server).items()))


WORDS: Final[dict[str, Callable[[Server], str]]] = {
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
