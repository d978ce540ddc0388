"""`keepfast state`: the tree as it was, by the files of all servers of an ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from keepfast.cli.ensembles import (
    exit_code_of_state,
    moment_at,
    open_ensemble,
    state_fields,
    state_rows,
)
from keepfast.cli.output import DocumentStream, Out
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import reading
from keepfast.cli.tree_view import (
    check_top,
    encoded_znodes,
    print_znodes,
    tree_fields,
    znodes,
)
from keepfast.cli.values import counted
from keepfast.pipeline import (
    EnsembleState,
    Moment,
    ensemble_state,
)
from keepfast.wire import format_zxid


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The command line."""

    places: tuple[str, ...]
    at: str | None
    path: str | None
    limit: int | None
    redact: bool
    as_json: bool


def show_state(options: StateOptions) -> int:
    """Print the tree at a moment; returns the exit code."""
    moment = moment_at(options.at)
    ensemble = open_ensemble(options.places)
    with reading("replaying") as (disk, out):
        with explained():
            state = ensemble_state(disk, ensemble, moment)
        code = exit_code_of_state(state)
        where = f"{ensemble.name} at {format_zxid(state.head)}"
        top = check_top(state.tree, options.path, where)
        if options.as_json:
            _print_json(out, state, moment, top, options, int(code))
            return code
        out.facts(state_rows(state))
        out.line()
        listed = islice(znodes(state.tree, top), options.limit)
        count = print_znodes(out, state.tree, listed, options.redact)
        out.line(f"{counted(count, 'znode')} shown")
        return code


def _print_json(
    out: Out, state: EnsembleState, moment: Moment, top: str, options: StateOptions, code: int
) -> None:
    document = DocumentStream(out)
    document.field("schema", "keepfast.state/1")
    document.fields(state_fields(state, moment))
    document.field("tree", tree_fields(state.tree))
    listed = islice(znodes(state.tree, top), options.limit)
    document.array("nodes", encoded_znodes(state.tree, listed, options.redact))
    document.field("exit_code", code)
    document.end()
