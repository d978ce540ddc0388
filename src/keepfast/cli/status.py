"""`keepfast status`: the servers of an ensemble, and whether it is healthy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.client import (
    EnsembleStatus,
    Gravity,
    ServerAddress,
    ServerStatus,
    look_at,
    parse_target,
)

HEADS = ("server", "id", "role", "standing", "epoch", "zxid", "digest", "lag", "clients", "version")
NUMBERS = "id epoch lag clients"


@dataclass(frozen=True, slots=True)
class StatusArguments:
    """The command line of `keepfast status`."""

    servers: tuple[str, ...]
    timeout_s: float
    admin_port: int
    as_json: bool


def status(arguments: StatusArguments) -> int:
    """Ask the servers, print what they say, and return the exit code."""
    addresses = addresses_of(arguments.servers)
    verdict = look_at(addresses, arguments.timeout_s, arguments.admin_port)
    code = exit_code_of(verdict)
    out = Out()
    if arguments.as_json:
        print_document(out, document_of(verdict, code))
    else:
        _print(verdict, out)
    out.flush()
    return code


def addresses_of(texts: Sequence[str]) -> list[ServerAddress]:
    """The addresses of a command line: host:port, or several with commas; each once."""
    found: dict[ServerAddress, None] = {}
    for text in texts:
        try:
            found |= dict.fromkeys(parse_target(text).addresses)
        except ValueError as error:
            raise CommandFailed(str(error)) from error
    return list(found)


def exit_code_of(verdict: EnsembleStatus) -> ExitCode:
    """What a verdict means for scripts."""
    if verdict.is_wrong:
        return ExitCode.WRONG
    return ExitCode.OK if verdict.is_healthy else ExitCode.INCOMPLETE


def row_of(server: ServerStatus, verdict: EnsembleStatus) -> list[str]:
    """One server as the cells of a table."""
    lag = verdict.lag_of(server)
    return [
        str(server.address),
        _text(server.server_id),
        _role(server),
        server.standing or "-",
        _text(server.epoch),
        "-" if server.zxid is None else f"{server.zxid:#x}",
        "-" if server.digest is None else f"{server.digest:#x}",
        "-" if lag is None or server is verdict.leader else str(lag),
        _text(server.connections),
        server.version.partition(",")[0] or "-",
    ]


def _role(server: ServerStatus) -> str:
    if not server.is_reached:
        return "down"
    return server.role or "unknown"


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)


def summary_of(verdict: EnsembleStatus) -> str:
    """One sentence about the whole."""
    serving = [server for server in verdict.servers if server.is_serving]
    leader = verdict.leader
    count = f"{len(serving)} of {len(verdict.servers)} serve"
    if leader is None:
        return count
    name = leader.address if leader.server_id is None else f"server {leader.server_id}"
    text = f"{count}, {name} leads in epoch {_text(leader.epoch)}"
    if verdict.is_healthy and len(serving) > 1:
        text += ", all have the same tree"
    return text


def _print(verdict: EnsembleStatus, out: Out) -> None:
    out.table(HEADS, [row_of(server, verdict) for server in verdict.servers], NUMBERS)
    for server in verdict.servers:
        kind, reason = server.facts.get("catch_up"), server.facts.get("catch_up_reason")
        if kind:
            leader = server.facts.get("catch_up_leader", "?")
            out.line(f"server {server.server_id} last caught up by {kind} from {leader}: {reason}")
    out.line()
    out.line(out.paint(summary_of(verdict), "good" if verdict.is_healthy else "bold"))
    for finding in verdict.findings:
        is_wrong = finding.gravity is Gravity.WRONG
        label = out.paint(finding.gravity.value, "bad" if is_wrong else "warning")
        out.line(f"{label} [{finding.kind}] {finding.sentence}")


def document_of(verdict: EnsembleStatus, code: ExitCode) -> dict[str, object]:
    """The same for machines."""
    leader = verdict.leader
    return {
        "schema": "keepfast.status/1",
        "leader": None if leader is None else str(leader.address),
        "epoch": None if leader is None else leader.epoch,
        "servers": [_server_fields(server, verdict) for server in verdict.servers],
        "findings": [
            {
                "kind": finding.kind,
                "gravity": finding.gravity.value,
                "sentence": finding.sentence,
                "server": None if finding.server is None else str(finding.server),
            }
            for finding in verdict.findings
        ],
        "exit_code": int(code),
    }


def _server_fields(server: ServerStatus, verdict: EnsembleStatus) -> dict[str, object]:
    facts = server.facts
    catch_up = None
    if "catch_up" in facts:
        catch_up = {
            "kind": facts["catch_up"],
            "reason": facts.get("catch_up_reason", ""),
            "leader": int(facts.get("catch_up_leader", "0")),
        }
    return {
        "server": str(server.address),
        "id": server.server_id,
        "reached": server.is_reached,
        "serving": server.is_serving,
        "role": server.role or None,
        "problem": server.problem or None,
        "standing": server.standing or None,
        "epoch": server.epoch,
        "accepted_epoch": int(facts["accepted_epoch"]) if "accepted_epoch" in facts else None,
        "leader_id": int(facts["leader"]) if "leader" in facts else None,
        "ensemble": facts.get("ensemble") or None,
        "zxid": None if server.zxid is None else f"{server.zxid:#x}",
        "digest": None if server.digest is None else f"{server.digest:#x}",
        "state_digest": facts.get("state_digest"),
        "lag": verdict.lag_of(server),
        "connections": server.connections,
        "voters": sorted(server.voters),
        "last_catch_up": catch_up,
        "version": server.version or None,
        "asked": server.sources,
    }
