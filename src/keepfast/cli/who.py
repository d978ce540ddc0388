"""`keepfast who`: the changes of a znode, with time, session, user and address."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from keepfast.cli.audit_logs import read_people
from keepfast.cli.ensembles import open_ensemble
from keepfast.cli.output import ExitCode, Out, print_document
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import check_znode, reading
from keepfast.cli.values import counted, hexadecimal, parse_duration, utc
from keepfast.pipeline import EnsembleHistory, NamedChange, changes_of
from keepfast.wire import format_zxid, safe_text


@dataclass(frozen=True, slots=True)
class WhoOptions:
    """The command line."""

    path: str
    places: tuple[str, ...]
    since: str | None
    is_below: bool
    audit_logs: tuple[str, ...]
    limit: int | None
    as_json: bool


def show_who(options: WhoOptions) -> int:
    """Print the changes; returns the exit code."""
    check_znode(options.path)
    since_ms = None
    if options.since is not None:
        since_ms = int((time.time() - parse_duration(options.since, "--since")) * 1000)
    people = read_people(options.audit_logs)
    ensemble = open_ensemble(options.places)
    with reading("replaying") as (disk, out), explained():
        history = EnsembleHistory(disk, ensemble)
        changes = changes_of(
            history,
            options.path,
            is_below=options.is_below,
            since_ms=since_ms,
            people=people,
        )
        found = list(deque(changes, maxlen=options.limit))
        gaps = [(one.change.new_data or b"").decode() for one in found if one.change.path is None]
        found = [one for one in found if one.change.path is not None]
        unchecked = list(history.unread)
        code = ExitCode.INCOMPLETE if gaps or unchecked else ExitCode.OK
        if options.as_json:
            document = {
                "schema": "keepfast.who/1",
                "path": options.path,
                "changes": [_fields(one) for one in found],
                "gaps": gaps,
                "unchecked": unchecked,
                "exit_code": int(code),
            }
            print_document(out, document)
        else:
            _print(out, options, found)
            for text in (*gaps, *unchecked):
                out.line(f"not everything is known: {text}")
        return code


def _print(out: Out, options: WhoOptions, found: list[NamedChange]) -> None:
    heads = ["time", "zxid", "change", "session", "user", "address"]
    rows = []
    for one in found:
        change = one.change
        row = [
            utc(change.time_ms),
            format_zxid(change.zxid),
            change.change,
            hexadecimal(change.session_id),
            safe_text(one.person.user or "-"),
            safe_text(one.person.address or "-"),
        ]
        rows.append([*row, safe_text(change.path or "")] if options.is_below else row)
    out.table([*heads, "path"] if options.is_below else heads, rows)
    out.line(f"{counted(len(found), 'change')} of {safe_text(options.path)}")


def _fields(one: NamedChange) -> dict[str, object]:
    change = one.change
    return {
        "time": utc(change.time_ms),
        "zxid": format_zxid(change.zxid),
        "operation": change.op,
        "change": change.change,
        "path": change.path,
        "session": hexadecimal(change.session_id),
        "version": change.new_version,
        "user": one.person.user,
        "address": one.person.address,
    }
