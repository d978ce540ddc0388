"""Whether an ensemble is healthy, judged by what its servers report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

from keepfast.client.hosts import ServerAddress
from keepfast.client.probe import ADMIN_PORT, ServerStatus, probe

_ROUNDS: Final = 5
_PAUSE_SECONDS: Final = 0.15
_LOW_HALF: Final = 0xFFFFFFFF


class Gravity(Enum):
    """What a finding means."""

    WRONG = "wrong"  # it is not as it should be
    UNKNOWN = "unknown"  # it could not be checked


@dataclass(frozen=True, slots=True)
class StatusFinding:
    """One sentence about the ensemble or one of its servers."""

    kind: str
    gravity: Gravity
    sentence: str
    server: ServerAddress | None = None


@dataclass(frozen=True, slots=True)
class EnsembleStatus:
    """The servers, in query order, and the findings about them."""

    servers: tuple[ServerStatus, ...]
    findings: tuple[StatusFinding, ...]
    leader: ServerStatus | None

    @property
    def is_healthy(self) -> bool:
        """Nothing is wrong, and everything was checked."""
        return not self.findings

    @property
    def is_wrong(self) -> bool:
        """Something is wrong."""
        return any(finding.gravity is Gravity.WRONG for finding in self.findings)

    def lag_of(self, server: ServerStatus) -> int | None:
        """How many txns it is behind the leader; None: that is not known."""
        leader = self.leader
        if leader is None or leader.zxid is None or server.zxid is None:
            return None
        if leader.zxid >> 32 == server.zxid >> 32:
            return max(leader.zxid - server.zxid, 0)
        # Of another epoch: only what the leader has made in its own is surely missing.
        return (leader.zxid & _LOW_HALF) or None


def look_at(
    addresses: Sequence[ServerAddress], timeout_s: float = 2.0, admin_port: int = ADMIN_PORT
) -> EnsembleStatus:
    """Query all servers at once, again if their digests are not of the same zxid; then judge.

    Writes continue while servers are asked, so that each shows the digest of another zxid.
    """
    seen: dict[ServerAddress, ServerStatus] = {}
    with ThreadPoolExecutor(len(addresses)) as pool:
        for number in range(_ROUNDS):
            if number:
                time.sleep(_PAUSE_SECONDS)
            for status in pool.map(lambda one: probe(one, timeout_s, admin_port), addresses):
                before = seen.get(status.address)
                if before is not None:
                    status.digests = before.digests | status.digests
                seen[status.address] = status
            verdict = judge(list(seen.values()))
            if not any(finding.kind == "digest-unknown" for finding in verdict.findings):
                break
            if not any(status.digests for status in seen.values()):
                break  # nobody shows any: asking again does not help
    return verdict


def judge(servers: Sequence[ServerStatus]) -> EnsembleStatus:
    """The findings about these servers."""
    findings = [finding for server in servers for finding in _about(server)]
    leaders = [server for server in servers if server.role == "leader" and server.is_serving]
    leader = max(leaders, key=lambda one: one.epoch or 0, default=None)
    findings += _about_leaders(servers, leaders)
    findings += _about_identity(servers)
    findings += _about_digests(servers, leader)
    return EnsembleStatus(tuple(servers), tuple(findings), leader)


def _about(server: ServerStatus) -> list[StatusFinding]:
    """What can be seen at one server alone."""
    address = server.address
    if not server.is_reached:
        return [StatusFinding("down", Gravity.WRONG, f"{_name(server)} {server.problem}", address)]
    found = []
    if server.problem:
        sentence = f"{_name(server)} does not serve: {server.problem}"
        found.append(StatusFinding("not-serving", Gravity.WRONG, sentence, address))
    elif not server.role:
        sentence = f"{address} does not say what it is: no four-letter word is allowed there"
        found.append(StatusFinding("role-unknown", Gravity.UNKNOWN, sentence, address))
    elif server.standing not in ("", "whole"):
        sentence = f"the data of {_name(server)} are {server.standing}"
        found.append(StatusFinding("not-whole", Gravity.WRONG, sentence, address))
    if server.facts.get("writable") == "0":
        sentence = f"{_name(server)} takes no writes: its disk is full"
        found.append(StatusFinding("disk-full", Gravity.WRONG, sentence, address))
    return found


def _about_leaders(
    servers: Sequence[ServerStatus], leaders: Sequence[ServerStatus]
) -> list[StatusFinding]:
    if len(leaders) > 1:
        names = " and ".join(f"{_name(one)} in epoch {one.epoch}" for one in leaders)
        return [StatusFinding("two-leaders", Gravity.WRONG, f"more than one server leads: {names}")]
    alone = [server for server in servers if server.role == "standalone"]
    if alone and len(servers) > 1:
        names = ", ".join(str(one.address) for one in alone)
        sentence = f"these are no members of an ensemble, but servers alone: {names}"
        return [StatusFinding("standalone", Gravity.WRONG, sentence)]
    if leaders or alone:
        return []
    asked = {server.server_id for server in servers}
    known = frozenset().union(*(server.voters for server in servers))
    led_by = {int(s.facts["leader"]) for s in servers if s.is_serving and "leader" in s.facts}
    if led_by - asked or (known - asked and any(server.is_serving for server in servers)):
        others = ", ".join(map(str, sorted(known - asked)))
        sentence = f"none of these leads, and servers {others} were not asked: name them too"
        return [StatusFinding("leader-unknown", Gravity.UNKNOWN, sentence)]
    if any(server.is_reached and not server.role for server in servers):
        return [StatusFinding("leader-unknown", Gravity.UNKNOWN, "nobody says that it leads")]
    return [
        StatusFinding("no-leader", Gravity.WRONG, "there is no leader: writes are not possible")
    ]


def _about_identity(servers: Sequence[ServerStatus]) -> list[StatusFinding]:
    known = {s.facts["ensemble"]: s for s in servers if s.facts.get("ensemble")}
    if len(known) < 2:
        return []
    text = ", ".join(f"{_name(server)} to {name}" for name, server in known.items())
    return [StatusFinding("two-ensembles", Gravity.WRONG, f"data of different ensembles: {text}")]


def _about_digests(
    servers: Sequence[ServerStatus], leader: ServerStatus | None
) -> list[StatusFinding]:
    """Two trees of one zxid have to be equal; and each server has to be compared with another."""
    present = [server for server in servers if server.is_serving and server.role != "standalone"]
    if len(present) < 2:
        return []
    findings = []
    groups: dict[int, dict[int, list[ServerStatus]]] = {}
    for server in present:
        for zxid, digest in server.digests.items():
            groups.setdefault(zxid, {}).setdefault(digest, []).append(server)
    differing = sorted(zxid for zxid, found in groups.items() if len(found) > 1)
    if differing:
        at = differing[0]
        sides = "; ".join(
            f"{digest:#x} at {', '.join(map(_name, ones))}" for digest, ones in groups[at].items()
        )
        sentence = f"the trees differ at zxid {at:#x}: {sides}"
        findings.append(StatusFinding("digest-mismatch", Gravity.WRONG, sentence))
    compared = leader or present[0]
    for server in present:
        if server is not compared and not server.digests.keys() & compared.digests.keys():
            sentence = f"the tree of {_name(server)} could not be compared with {_name(compared)}'s"
            if not server.digests:
                sentence += ": it shows no digest (4lw.commands.whitelist: hash)"
            findings.append(
                StatusFinding("digest-unknown", Gravity.UNKNOWN, sentence, server.address)
            )
    return findings


def _name(server: ServerStatus) -> str:
    if server.server_id is None:
        return str(server.address)
    return f"server {server.server_id} ({server.address})"
