"""`keepfast restore`: a state as a data directory that servers start on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from keepfast.cli.ensembles import (
    exit_code_of_state,
    moment_at,
    open_ensemble,
    state_fields,
    state_rows,
)
from keepfast.cli.output import CommandFailed, ExitCode, print_document
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import reading
from keepfast.cli.values import hexadecimal, zxid_fields
from keepfast.pipeline import (
    BackupRefused,
    Moment,
    RestoreRefused,
    chain_at,
    chain_here,
    ensemble_state,
    is_object_store,
    list_chains,
    restore_state,
)


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The command line."""

    places: tuple[str, ...]
    at: str | None
    target: str
    as_json: bool


@contextmanager
def _sources(places: tuple[str, ...], moment: Moment) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Whose directories to read, and which: of backups, the one that holds the moment."""
    place = places[0]
    if len(places) != 1 or not (os.path.isdir(place) or is_object_store(place)):
        yield "server", places
        return
    try:
        if not list_chains(place):
            yield "server", places
            return
        with chain_here(chain_at(place, moment.zxid, moment.time_ms)) as chain:
            yield "backup", (chain.path,)
    except BackupRefused as error:
        raise CommandFailed(f"refused: {error}", ExitCode.REFUSED) from error


def run_restore(options: RestoreOptions) -> int:
    """Write the directory, and say what it holds; returns the exit code."""
    moment = moment_at(options.at)
    with _sources(options.places, moment) as (of, places):
        return _restore(options, moment, of, places)


def _restore(options: RestoreOptions, moment: Moment, of: str, places: tuple[str, ...]) -> int:
    ensemble = open_ensemble(places)
    sources = tuple(server.data_directory for server in ensemble.servers)
    with reading("replaying") as (disk, out), explained():
        state = ensemble_state(disk, ensemble, moment)
        try:
            done = restore_state(state.chosen, options.target, sources)
        except RestoreRefused as error:
            raise CommandFailed(f"refused: {error}", ExitCode.REFUSED) from error
        code = exit_code_of_state(state)
        if options.as_json:
            document: dict[str, object] = {"schema": "keepfast.restore/1"}
            document |= state_fields(state, moment)
            document["restored"] = {
                "path": done.path,
                "head": zxid_fields(done.head),
                "tree_digest": hexadecimal(done.tree_digest),
                "state_digest": hexadecimal(done.state_digest),
                "znodes": done.znodes,
                "sessions": done.sessions,
                "snapshot": done.snapshot,
                "epoch": done.epoch,
            }
            document["exit_code"] = int(code)
            print_document(out, document)
            return code
        out.facts(state_rows(state, of))
        out.line()
        out.line(
            f"Restored to {options.target}: written, read back as a server would, and found to be "
            "this very state."
        )
        if done.epoch is not None:
            out.line(
                "Members of an ensemble must all start on copies of it, or empty: a member that "
                "keeps its newer files would bring them back."
            )
        out.line(f"next: keepfast verify {shlex.quote(options.target)}")
        return code
