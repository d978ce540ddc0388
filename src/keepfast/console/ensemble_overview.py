"""The overview: servers, quorum, and what is wrong, in words, with the command that helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keepfast.client import Gravity, ServerAddress, ServerStatus, StatusFinding
from keepfast.console.measurements import number
from keepfast.console.server_watching import Picture, WatchedServer
from keepfast.wire import format_zxid

# A follower that lacks more than this is worth a sentence.
_MAX_LAG: Final = 1000
# Below this a disk is nearly full, whatever its size.
_LOW_DISK_BYTES: Final = 512 << 20
# Under load the trees of two servers are seldom seen at one zxid: rounds without a comparison.
_PATIENT_ROUNDS: Final = 8
# Apache's servers add the commit they were built from.
_BUILD: Final = re.compile(r"-[0-9a-f]{40}\Z")


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What the files of a server on this machine show, where `--data` names them."""

    directory: str
    free_bytes: int | None = None
    snapshot_zxid: int | None = None
    snapshot_ms: int | None = None


def overview_of(
    picture: Picture, connect: str, local: Mapping[ServerAddress, LocalFacts]
) -> dict[str, Any]:
    """The document that pages get after each round."""
    verdict = picture.verdict
    findings = [
        _finding(finding, picture)
        for finding in verdict.findings
        if finding.kind != "digest-unknown" or picture.uncompared_rounds >= _PATIENT_ROUNDS
    ]
    findings += _more_findings(picture, local)
    quorum = _quorum(picture)
    if quorum["unasked"]:
        findings = [one for one in findings if one["kind"] != "leader-unknown"]
        findings.append(_not_asked(picture, quorum["unasked"]))
    findings.sort(key=lambda one: one["level"] != "bad")
    return {
        "at": picture.time_ms,
        "connect": connect,
        "level": _level(findings, quorum),
        "sentence": _sentence(picture, quorum),
        "quorum": quorum,
        "findings": findings,
        "servers": [_server(one, picture, local.get(one.address)) for one in picture.servers],
    }


def _level(findings: list[dict[str, Any]], quorum: dict[str, Any]) -> str:
    levels = {one["level"] for one in findings}
    if "bad" in levels or not quorum["has_quorum"]:
        return "bad"
    return "warning" if levels else "good"


def _quorum(picture: Picture) -> dict[str, Any]:
    """Who votes, who of them serves, and how many have to."""
    statuses = [one.status for one in picture.servers]
    voters = frozenset().union(*(one.voters for one in statuses))
    if not voters:
        voters = frozenset(one.server_id for one in picture.members if not one.is_observer)
    unasked = _unasked(picture, voters)
    serving = {one.server_id for one in statuses if one.is_serving and one.server_id is not None}
    is_led = any(one.is_serving and one.role in ("follower", "observer") for one in statuses)
    is_alone = any(one.role == "standalone" and one.is_serving for one in statuses)
    count = len(voters) or len(statuses)
    present = len(serving & voters) if voters else sum(one.is_serving for one in statuses)
    needed = 1 if is_alone else count // 2 + 1
    return {
        "voters": sorted(voters),
        "serving": sorted(serving & voters),
        "count": count,
        "present": present,
        "needed": needed,
        "unasked": unasked,
        # A server follows only who has a quorum: also where nobody named the others.
        "has_quorum": is_alone
        or (present >= needed and picture.verdict.leader is not None)
        or (is_led and bool(unasked)),
        "may_lose": max(present - needed, 0),
        "is_alone": is_alone,
    }


def _unasked(picture: Picture, voters: frozenset[int]) -> list[int]:
    """Members whose client ports nobody named; none where a server that was asked has no id."""
    asked = {one.status.server_id for one in picture.servers}
    members = voters | {one.server_id for one in picture.members}
    return [] if None in asked else sorted(members - asked)


def _servers(ids: Sequence[int]) -> str:
    return f"{'server' if len(ids) == 1 else 'servers'} {', '.join(map(str, ids))}" if ids else ""


def _sentence(picture: Picture, quorum: dict[str, Any]) -> str:
    leader = picture.verdict.leader
    if quorum["is_alone"]:
        return "One server, standalone: it serves."
    count = f"{quorum['present']} of {quorum['count']} voters serve"
    unasked = _servers(quorum["unasked"])
    if leader is None and quorum["has_quorum"]:
        return f"The leader is among the servers that were not asked: {unasked}."
    if leader is None:
        return f"{count}; there is no leader, so nothing can be written."
    name = leader.address if leader.server_id is None else f"server {leader.server_id}"
    lose = quorum["may_lose"]
    if unasked:
        return f"{count}, {name} leads in epoch {leader.epoch}; not asked: {unasked}."
    spare = "no further one may fail" if not lose else f"{lose} more may fail"
    return f"{count}, {name} leads in epoch {leader.epoch}; {spare}."


# -- what is wrong ---------------------------------------------------------------------------------


def _finding(finding: StatusFinding, picture: Picture) -> dict[str, Any]:
    server = next((one for one in picture.servers if one.address == finding.server), None)
    command, hint = _help(finding.kind, server, picture)
    return {
        "level": "bad" if finding.gravity is Gravity.WRONG else "warning",
        "kind": finding.kind,
        "sentence": finding.sentence[:1].upper() + finding.sentence[1:],
        "server": None if finding.server is None else str(finding.server),
        "command": command,
        "hint": hint,
    }


def _not_asked(picture: Picture, unasked: Sequence[int]) -> dict[str, Any]:
    names = ",".join(str(one.address) for one in picture.servers)
    whose = "its client port" if len(unasked) == 1 else "their client ports"
    member = "is a member" if len(unasked) == 1 else "are members"
    sentence = f"{_servers(unasked)} {member} too, but the configuration does not name {whose}"
    return {
        "level": "warning",
        "kind": "not-asked",
        "sentence": sentence[:1].upper() + sentence[1:],
        "server": None,
        "command": f"keepfast console {names},HOST:PORT",
        "hint": f"Start the console with {whose}.",
    }


def _help(kind: str, server: WatchedServer | None, picture: Picture) -> tuple[str, str]:
    """The command that helps, and a word on it; either may be empty."""
    directory = shlex.quote(_directory_of(server)) if server is not None else "DIR"
    if kind == "down" and server is not None and "timed out" in server.status.problem:
        return "", "Its host or the network is away, or the process hangs: look there first."
    if kind == "down":
        if server is not None and "keepfast" not in server.status.version and server.seen_s:
            return "bin/zkServer.sh start", "Start it again on its host, or look why it ended."
        hint = "Start it again on its host; its zoo.cfg may be elsewhere."
        return f"keepfast serve {directory}/zoo.cfg", hint
    if kind == "not-serving" and server is not None and "no quorum" in server.status.problem:
        return "", "It serves again by itself, once enough of the others can be reached."
    if kind in ("not-serving", "not-whole"):
        return f"keepfast verify {directory}", "Shows what its files prove, and what is missing."
    if kind == "disk-full":
        return f"df -h {directory}", "Free space; the server takes writes again by itself."
    if kind == "digest-mismatch":
        places = " ".join(shlex.quote(_directory_of(one)) for one in picture.servers)
        return f"keepfast audit {places}", "Proves which server left the common history, and where."
    if kind in ("role-unknown", "digest-unknown"):
        line = "4lw.commands.whitelist=srvr, mntr, conf, cons, dump, dirs, hash, wchs, wchc"
        return line, "This line in zoo.cfg lets the server report more."
    if kind in ("no-leader", "leader-unknown"):
        names = " ".join(str(one.address) for one in picture.servers)
        return f"keepfast status {names}", "Says what each server waits for."
    return "", ""


def _directory_of(server: WatchedServer) -> str:
    directory = server.settings.get("dataDir", "DIR")
    return directory.removesuffix("/version-2")


def _more_findings(
    picture: Picture, local: Mapping[ServerAddress, LocalFacts]
) -> list[dict[str, Any]]:
    """What `judge` does not look at: lag, and disks that are nearly full."""
    found: list[dict[str, Any]] = []
    for server in picture.servers:
        lag = picture.verdict.lag_of(server.status)
        base = {"server": str(server.address), "level": "warning"}
        if lag is not None and lag > _MAX_LAG and server.status.is_serving:
            sentence = f"{_name(server.status)} is {lag:,} transactions behind the leader"
            found.append(
                {**base, "kind": "behind", "sentence": sentence, "command": "", "hint": ""}
            )
        free = _free_bytes(server, local.get(server.address))
        is_writable = server.status.facts.get("writable") != "0"
        if free is not None and free < _LOW_DISK_BYTES and is_writable:
            sentence = f"The disk of {_name(server.status)} has only {free >> 20} MiB left"
            command = f"df -h {shlex.quote(_directory_of(server))}"
            found.append(
                {**base, "kind": "disk-low", "sentence": sentence, "command": command, "hint": ""}
            )
    return found


def _name(status: ServerStatus) -> str:
    return str(status.address) if status.server_id is None else f"server {status.server_id}"


# -- one server ------------------------------------------------------------------------------------


def _server(server: WatchedServer, picture: Picture, local: LocalFacts | None) -> dict[str, Any]:
    status, values = server.status, server.values
    facts = status.facts
    lag = None if status is picture.verdict.leader else picture.verdict.lag_of(status)
    return {
        "address": str(server.address),
        "id": status.server_id,
        "kind": _kind(status),
        "version": _BUILD.sub("", status.version.partition(",")[0]),
        "is_reached": status.is_reached,
        "is_serving": status.is_serving,
        "role": (status.role or "unknown") if status.is_reached else "down",
        "problem": status.problem,
        "standing": status.standing,
        "standing_reason": _standing_reason(status),
        "epoch": status.epoch,
        "zxid": None if status.zxid is None else format_zxid(status.zxid),
        "lag": lag,
        "connections": status.connections,
        "sessions": number(values, "global_sessions"),
        "znodes": number(values, "znode_count"),
        "watches": number(values, "watch_count"),
        "ephemerals": number(values, "ephemerals_count"),
        "outstanding": number(values, "outstanding_requests"),
        "uptime_ms": number(values, "uptime"),
        "p99_read_ms": number(values, "p99_readlatency"),
        "p99_write_ms": number(values, "p99_updatelatency"),
        "catch_up": facts.get("catch_up_reason")
        and f"{facts['catch_up']}: {facts['catch_up_reason']}",
        "disk": _disk(server, local),
        "snapshot": _snapshot(server, local),
        "series": server.series.document(),
        "seen": None if server.seen_s is None else round(server.seen_s * 1000),
        "has_figures": bool(values),
    }


def _kind(status: ServerStatus) -> str:
    if status.is_keepfast or "keepfast" in status.version:
        return "keepfast"
    return "apache" if status.version else ""


def _standing_reason(status: ServerStatus) -> str:
    """Why the data has the standing that it has, in words."""
    if not status.is_reached:
        return ""
    if not status.is_keepfast:
        return "an Apache server does not report it; the audit of its files does"
    words = {
        "whole": "one contiguous history, proven from a snapshot to its head",
        "empty": "no data: it learns, and does not vote until it has caught up",
        "catching up": "it receives what it lacks from the leader, and does not vote yet",
        "unproven": "not everything could be proven: it learns, and does not vote",
        "damaged": "something is missing or wrong: it learns, and does not vote",
    }
    return words.get(status.standing, status.problem)


def _free_bytes(server: WatchedServer, local: LocalFacts | None) -> int | None:
    reported = number(server.values, "keepfast_disk_free_bytes")
    if reported is not None:
        return round(reported)
    return None if local is None else local.free_bytes


def _disk(server: WatchedServer, local: LocalFacts | None) -> dict[str, Any]:
    snapshots, logs = server.sizes or (None, None)
    is_writable = server.status.facts.get("writable")
    return {
        "free": _free_bytes(server, local),
        "snapshots": snapshots,
        "logs": logs,
        "is_full": is_writable == "0",
        "directory": server.settings.get("dataDir", ""),
    }


def _snapshot(server: WatchedServer, local: LocalFacts | None) -> dict[str, Any] | None:
    facts = server.status.facts
    if "snapshot_zxid" in facts:
        time_ms = int(facts.get("snapshot_ms", "0"))
        return {"zxid": facts["snapshot_zxid"], "at": time_ms}
    if local is not None and local.snapshot_zxid is not None:
        return {"zxid": format_zxid(local.snapshot_zxid), "at": local.snapshot_ms}
    return None
