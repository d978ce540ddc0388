"""`keepfast undelete`: a deleted subtree as commands for `keepfast shell`."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.cli.ensembles import exit_code_of_state, moment_at, open_ensemble
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import check_znode, reading
from keepfast.cli.values import (
    acl_texts,
    counted,
    data_fields,
    hexadecimal,
    optional_zxid,
    utc,
)
from keepfast.pipeline import Undeletion, undelete_subtree
from keepfast.wire import format_zxid, safe_text

_SHOWN_PATHS = 5


@dataclass(frozen=True, slots=True)
class UndeleteOptions:
    """The command line."""

    places: tuple[str, ...]
    path: str
    at: str | None
    as_json: bool


def run_undelete(options: UndeleteOptions) -> int:
    """Print the commands; returns the exit code."""
    check_znode(options.path)
    if options.path == "/":
        raise CommandFailed("the root is never deleted; keepfast restore brings a whole tree back")
    moment = None if options.at is None else moment_at(options.at)
    ensemble = open_ensemble(options.places)
    with reading("replaying") as (disk, out), explained():
        found = undelete_subtree(disk, ensemble, options.path, moment)
        code = exit_code_of_state(found.state)
        if found.unsayable and code is ExitCode.OK:
            code = ExitCode.INCOMPLETE
        if options.as_json:
            print_document(out, _fields(found, int(code)))
        else:
            _print(out, found)
        return code


def _print(out: Out, found: Undeletion) -> None:
    """Commands, and comments, which the shell ignores."""
    out.line(f"# {safe_text(found.path)} as it was at {format_zxid(found.state.head)}")
    deletion = found.deletion
    if deletion is not None:
        out.line(
            f"# deleted by session {hexadecimal(deletion.session)} at {utc(deletion.time_ms)}, "
            f"{format_zxid(deletion.first_zxid)} to {format_zxid(deletion.last_zxid)}"
        )
    if found.state.is_contradicted:
        out.line(f"# WARNING: another state on server {', '.join(found.state.differing)}")
    if found.state.chosen.note:
        out.line(f"# note: {found.state.chosen.note}")
    out.line(f"# {counted(len(found.creations), 'znode')} to create; apply with: keepfast shell")
    out.line("# quoted for keepfast shell (keepfast shell HOST:PORT <FILE), not for sh or bash")
    out.line("# versions and zxids begin anew; ids in ACLs of the scheme digest are complete here")
    if found.present:
        out.line(f"# left as they are: {counted(found.present, 'znode')} that are there now")
    if found.ephemerals:
        names = ", ".join(map(safe_text, found.ephemerals[:_SHOWN_PATHS]))
        more = ", ..." if len(found.ephemerals) > _SHOWN_PATHS else ""
        out.line(f"# left out, their sessions are gone: ephemerals {names}{more}")
    if found.guarded:
        out.line(
            f"# below {safe_text(found.guarded[0])} not everybody may create: "
            "keepfast shell --auth SCHEME:CREDENTIAL"
        )
    unsayable = set(found.unsayable)
    for creation in found.creations:
        if creation.path in unsayable:
            out.line(f"# cannot be written as a command: {safe_text(creation.path)}")
        for line in creation.commands():
            out.line(line)


def _fields(found: Undeletion, code: int) -> dict[str, object]:
    deletion = found.deletion
    return {
        "schema": "keepfast.undelete/1",
        "path": found.path,
        "state_at": format_zxid(found.state.head),
        "deletion": deletion
        and {
            "first_zxid": optional_zxid(deletion.first_zxid),
            "last_zxid": optional_zxid(deletion.last_zxid),
            "session": hexadecimal(deletion.session),
            "time": utc(deletion.time_ms),
        },
        "creations": [
            {
                "path": one.path,
                "data": data_fields(one.data, redact=False),
                "acl": acl_texts(one.acl),
                "kind": one.kind.name.lower(),
                "ttl_ms": one.ttl_ms,
                "commands": one.commands(),
            }
            for one in found.creations
        ],
        "ephemerals_left_out": list(found.ephemerals),
        "present": found.present,
        "cannot_be_written": list(found.unsayable),
        "guarded": list(found.guarded),
        "note": found.state.chosen.note,
        "exit_code": code,
    }
