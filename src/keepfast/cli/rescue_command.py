"""`keepfast ensemble rescue`: accept the loss of data, explicitly, so that a server votes again."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.places import check_owner
from keepfast.cli.recovery_view import NamedDirectory, problem_fields
from keepfast.cli.tree_view import head_text
from keepfast.cli.values import optional_zxid
from keepfast.harness import MARKER_NAME
from keepfast.storage import (
    DataDirectory,
    RealDisk,
    Recovery,
    RescueKind,
    RescuePlan,
    apply_rescue,
    data_directory,
    disk_views,
    plan_rescue,
    use_of,
)
from keepfast.storage import repair as repairs
from keepfast.wire import format_zxid

_MEANINGS = {
    RescueKind.UNPROVEN: "the history is accepted as it is, although its files do not prove it",
    RescueKind.TREE: "a leader had begun to send what this server lacks, or a repair ended its "
    "history: what is here is accepted as all that there was, although more may have been "
    "acknowledged",
    RescueKind.EPOCHS: "the history stays as it is; the epoch it was committed in is lost, and the "
    "one of its last record takes its place",
    RescueKind.CUT: "the history ends after its last proven record; everything after it is moved "
    "aside and given up",
    RescueKind.EMPTY: "nothing can be kept: this server begins with an empty tree, and takes over "
    "what a server with more data has",
}


@dataclass(frozen=True, slots=True)
class RescueArguments:
    """The command line of `keepfast ensemble rescue`."""

    places: tuple[str, ...]
    log_dir: str | None
    is_accepted: bool
    as_json: bool


def rescue(arguments: RescueArguments) -> int:
    """Show the plans, and carry them out if the loss is accepted."""
    if arguments.log_dir is not None and len(arguments.places) > 1:
        raise CommandFailed("--log-dir belongs to one directory; rescue one after another")
    out = Out()
    found = [_one(arguments, place, out) for place in arguments.places]
    is_needed = any(plan.kind is not RescueKind.NOTHING for plan, _, _ in found)
    is_done = arguments.is_accepted or not is_needed
    code = ExitCode.OK if is_done else ExitCode.WRONG
    if arguments.as_json:
        rescued = [
            _document(place, one) for place, one in zip(arguments.places, found, strict=True)
        ]
        print_document(
            out, {"schema": "keepfast.rescue/1", "directories": rescued, "exit_code": int(code)}
        )
    elif not is_done:
        places = " ".join(map(shlex.quote, arguments.places))
        log_dir = f" --log-dir {shlex.quote(arguments.log_dir)}" if arguments.log_dir else ""
        out.line("Nothing was changed. First look for the data of the other servers: a server with")
        out.line("whole data needs no rescue, and a majority of those loses nothing.")
        out.line(f"To accept the loss: keepfast ensemble rescue {places}{log_dir} --yes")
    elif is_needed:
        out.line("Start the server now. It votes, and follows whoever has more.")
    out.flush()
    return code


def _one(
    arguments: RescueArguments, place: str, out: Out
) -> tuple[RescuePlan, Recovery | None, DataDirectory]:
    disk = RealDisk()
    directory = _directory(disk, place, arguments.log_dir)
    if use := use_of(disk, directory, is_patient=True):
        raise CommandFailed(
            f"refused: a server is running on {place}: {use}; stop it first", ExitCode.REFUSED
        )
    plan = plan_rescue(disk_views.ReadOnlyDisk(disk), directory)
    if not arguments.as_json:
        _print(plan, place, out)
        out.flush()
    if not arguments.is_accepted or plan.kind is RescueKind.NOTHING:
        return plan, None, directory
    check_owner(place)
    try:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        after = apply_rescue(disk, directory, plan, at)
    except repairs.RepairRefused as error:
        raise CommandFailed(
            f"refused: {error.reason}; stop the server", ExitCode.REFUSED
        ) from error
    if not arguments.as_json:
        out.line(f"Done. The directory is now {after.standing.value} at {format_zxid(after.head)}.")
        out.line()
    return plan, after, directory


def _directory(disk: RealDisk, place: str, log_dir: str | None) -> DataDirectory:
    for path in (place, *([log_dir] if log_dir is not None else [])):
        if not os.path.isdir(path):
            raise CommandFailed(
                f"{path} is no directory; name the dataDir of a stopped server; it may be empty"
            )
    if os.path.exists(os.path.join(place, MARKER_NAME)):
        raise CommandFailed(
            f"{place} holds a whole ensemble; name the directories of its servers, such as "
            f"{os.path.join(place, '1')}"
        )
    return data_directory(disk, place, log_dir)


def _print(plan: RescuePlan, place: str, out: Out) -> None:
    before = plan.before
    out.line(f"{place}: {out.paint(before.standing.value.upper(), 'bold')}")
    for problem in before.problems:
        out.line(f"    {problem}")
    if plan.kind is RescueKind.NOTHING:
        out.line(f"    at {head_text(plan.head)}: it may vote as it is; there is nothing to rescue")
        out.line()
        return
    stays = "the empty tree" if plan.kind is RescueKind.EMPTY else head_text(plan.head)
    facts = [("stays", stays)]
    if plan.lost is not None:
        text = f"everything after that; {head_text(plan.lost)} is known to have been acknowledged"
        facts.append(("lost", text))
    elif plan.kind in (RescueKind.EMPTY, RescueKind.CUT):
        facts.append(("lost", "everything after that; how far it went is not known"))
    facts.append(("means", _MEANINGS[plan.kind]))
    out.facts(facts)
    out.line()


def _document(
    place: str, found: tuple[RescuePlan, Recovery | None, DataDirectory]
) -> dict[str, object]:
    plan, after, _ = found
    target = NamedDirectory(place)
    return {
        "directory": place,
        "standing": plan.before.standing.value,
        "kind": plan.kind.value,
        "applied": after is not None,
        "head": optional_zxid(plan.head),
        "lost_acknowledged_zxid": optional_zxid(plan.lost),
        "problems": [problem_fields(problem, target) for problem in plan.before.problems],
    }
