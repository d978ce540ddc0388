"""What the commands on the files of an ensemble have in common: places, moments, states."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from keepfast.cli.output import CommandFailed, ExitCode
from keepfast.cli.pipeline_input import explained
from keepfast.cli.tree_view import head_text
from keepfast.cli.values import counted, hexadecimal, parse_moment, zxid_fields
from keepfast.pipeline import (
    EnsembleFiles,
    EnsembleState,
    JobFailed,
    Moment,
    one_ensemble,
)


def open_ensemble(places: Sequence[str]) -> EnsembleFiles:
    """The one ensemble at the places; ends the command if there is none, or more."""
    try:
        with explained():
            return one_ensemble(places)
    except JobFailed as error:
        # Only Spark can read these.
        raise CommandFailed(str(error), ExitCode.REFUSED) from error


def moment_at(text: str | None, option: str = "--at") -> Moment:
    """The moment that an option names; without it, the head."""
    if text is None:
        return Moment()
    try:
        zxid, time_ms = parse_moment(text)
    except CommandFailed as error:
        raise CommandFailed(error.sentence.replace("--at", option, 1)) from error
    return Moment(zxid, time_ms)


def exit_code_of_state(state: EnsembleState) -> ExitCode:
    """1 if servers have different states, 3 if this one is not proven or not the one asked for."""
    if state.is_contradicted:
        return ExitCode.WRONG
    if not state.chosen.reaches or not state.chosen.is_proven:
        return ExitCode.INCOMPLETE
    return ExitCode.OK


def state_rows(state: EnsembleState, of: str = "server") -> list[tuple[str, str]]:
    """A state, for people; `of` says whose files were read: servers', or a backup."""
    chosen = state.chosen
    base = chosen.prefix.base_name or "the empty tree"
    replayed = counted(chosen.prefix.replay.applied, "record")
    rows = [
        ("tree at", head_text(state.head)),
        ("from", f"{of} {chosen.server}, {base} and {replayed} after it"),
        ("the same on", ", ".join(f"{of} {name}" for name in state.agreeing)),
        ("tree digest", hexadecimal(state.tree.digest)),
        ("state digest", hexadecimal(state.tree.state_digest)),
        ("znodes", str(state.tree.node_count)),
    ]
    if state.differing:
        names = ", ".join(f"server {name}" for name in state.differing)
        why = "keepfast audit shows why"
        if state.is_past:
            why = "records that were never committed may lie in its files; keepfast audit shows it"
        rows.append(("another on", f"{names}: {why}"))
    rows += [(f"server {name}", why) for name, why in state.silent.items()]
    rows += [("note", note) for note in (chosen.note, state.caution) if note]
    return rows


def state_fields(state: EnsembleState, asked: Moment) -> dict[str, object]:
    """A state, for JSON."""
    return {
        "ensemble": state.ensemble,
        "asked": str(asked),
        "head": zxid_fields(state.head),
        "server": state.chosen.server,
        "agreeing": list(state.agreeing),
        "differing": list(state.differing),
        "silent": [{"server": name, "why": why} for name, why in state.silent.items()],
        "base": state.chosen.prefix.base_name,
        "records_replayed": state.chosen.prefix.replay.applied,
        "reaches": state.chosen.reaches,
        "proven": state.chosen.is_proven,
        "note": state.chosen.note,
        "caution": state.caution,
    }


def command(verb: str, places: Sequence[str]) -> str:
    """A command on the same places, to run next."""
    return f"keepfast {verb} {' '.join(shlex.quote(place) for place in places)}"
