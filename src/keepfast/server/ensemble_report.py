"""What a server reports about its data and its place in an ensemble.

The four-letter word `kfst` and the admin command `standing` show these facts, also while the server
does not serve: that is when they are needed most.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from keepfast.quorum import Standing
from keepfast.replica import Member, Role, census_of, why_not_serving
from keepfast.server.reports import VERSION_TEXT
from keepfast.server.running_server import RunningServer
from keepfast.wire import format_zxid

# How many are shown of the digests that are kept: servers are never asked at the same moment.
_RECENT_DIGESTS: Final = 8
# Of the facts below, those that are no numbers and that mntr shows.
_MONITORED: Final = ("standing", "ensemble", "catch_up", "catch_up_reason", "digest")


def member_of(server: RunningServer) -> Member | None:
    """The state machine of a member of an ensemble; None: standalone, or not started yet."""
    return server.member


def standing_of(server: RunningServer) -> Standing:
    """The current standing of this server's data."""
    member = member_of(server)
    if member is None:
        return server.store.standing
    if member.following is not None and member.state.standing is not Standing.WHOLE:
        return Standing.CATCHING_UP
    return member.state.standing


def reason_of(server: RunningServer) -> str:
    """Why clients are not served, and what to do if that persists; "" if they are."""
    if server.failure is not None:
        return str(server.failure)
    if server.is_serving:
        return ""
    member = member_of(server)
    if member is None:
        return "the server is stopping"
    return why_not_serving(member) + rescue_advice(server, member)


def rescue_advice(server: RunningServer, member: Member) -> str:
    """Which command accepts which loss, where nothing else helps; else ""."""
    if member.state.role is not Role.LOOKING:
        return ""
    census = census_of(member)
    if not census.is_majority_lost:
        return ""
    directory = shlex.quote(server.options.data_dir)
    if not census.whole and not census.barred:
        unheard = ", ".join(map(str, sorted(census.unheard)))
        return (
            f". If it is not new and server {unheard} does not come back with data, keepfast "
            f"ensemble rescue {directory} accepts that all is lost"
        )
    ways = "Bring their data back, or accept the loss"
    if member.state.server_id not in census.lost:
        lost = ", ".join(map(str, sorted(census.lost)))
        return (
            f". {ways}: stop one of the servers {lost} and run keepfast ensemble rescue on its "
            "data directory; this server's data stay and lead"
        )
    kept = "it then begins with an empty tree and takes over what a server with more data has"
    if member.state.standing is not Standing.EMPTY:
        kept = "it keeps what its files prove, shows how far that goes, and loses the rest"
    return f". {ways}: stop this server and run keepfast ensemble rescue {directory} ({kept})"


def ensemble_facts(server: RunningServer) -> Mapping[str, str | int]:
    """Names and values, in a fixed order; an unknown one is left out."""
    facts: dict[str, str | int] = {
        "version": VERSION_TEXT,
        "server_id": server.server_id,
        "role": server.mode,
        "serving": int(server.is_serving),
        "standing": standing_of(server).value,
    }
    reason = reason_of(server)
    if reason:
        facts["reason"] = reason
    tree = server.core.tree
    if tree is not None:
        facts["zxid"] = format_zxid(tree.last_zxid)
        facts["digest"] = f"{tree.digest:#x}"
        facts["state_digest"] = f"{tree.shared_digest:#x}"
    recent = list(server.replica.statistics.digests)[-_RECENT_DIGESTS:]
    facts["recent_digests"] = ",".join(f"{zxid:#x}:{digest:#x}" for zxid, digest in recent)
    facts["connections"] = server.connection_count
    facts["writable"] = int(server.replica.service.is_writable)
    if server.is_serving:
        facts |= _snapshot_facts(server)
    member = member_of(server)
    if member is not None:
        facts |= _member_facts(member)
    return facts


def _snapshot_facts(server: RunningServer) -> dict[str, str | int]:
    """The newest snapshot, if there is one; a purge may just have deleted it."""
    snapshot = server.last_snapshot()
    if snapshot is None:
        return {}
    try:
        time_ms = int(server.time_of(snapshot) * 1000)
    except OSError:
        return {}
    return {"snapshot_zxid": format_zxid(snapshot.zxid), "snapshot_ms": time_ms}


def _member_facts(member: Member) -> dict[str, str | int]:
    facts: dict[str, str | int] = {
        "accepted_epoch": member.state.accepted_epoch,
        "current_epoch": member.state.current_epoch,
        "ensemble": member.state.ensemble or "",
    }
    leader = member.state.server_id if member.state.role is Role.LEADING else member.state.leader_id
    if leader is not None:
        facts["leader"] = leader
    if member.state.catch_up is not None:
        facts["catch_up"] = member.state.catch_up.kind
        facts["catch_up_reason"] = member.state.catch_up.reason
        facts["catch_up_leader"] = member.state.catch_up.leader
    current = member.state.quorums.current
    facts["config_version"] = format_zxid(current.version)
    facts["voters"] = ",".join(map(str, sorted(current.voters)))
    facts["observers"] = ",".join(
        str(one.server_id) for one in current.members if one.server_id not in current.voters
    )
    if member.leader is not None:
        for learner in member.leader.learners.values():
            plan = learner.plan
            how = "" if plan is None else f" {plan.kind.value}: {plan.reason}"
            facts[f"learner.{learner.server_id}"] = f"{learner.step.name.lower()}{how}"
    return facts


def monitor_facts(server: RunningServer) -> Mapping[str, str]:
    """What mntr and the admin command of that name show besides numbers, in its order."""
    shown = {"version": VERSION_TEXT, "server_state": server.mode}
    if server.member is not None:
        shown["peer_state"] = peer_state(server)
    facts = ensemble_facts(server)
    return shown | {f"keepfast_{name}": str(facts[name]) for name in _MONITORED if name in facts}


def peer_state(server: RunningServer) -> str:
    """Role and phase in Apache's words, such as `leading - broadcast`; "" if standalone."""
    member = member_of(server)
    if member is None:
        return ""
    role = "looking" if member.state.role is Role.SETTLING else member.state.role.value
    if role == "looking":
        return f"{role} - election"
    if server.is_serving:
        return f"{role} - broadcast"
    return f"{role} - {'discovery' if member.leader is not None else 'synchronization'}"
