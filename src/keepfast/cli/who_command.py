"""The arguments of `keepfast who`; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import AsJson, Work, Znode
from keepfast.cli.output import MAX_COUNT


def who_command(
    path: Znode,
    places: Annotated[
        list[str],
        typer.Argument(metavar="DIR", help="Data directories of all servers of one ensemble."),
    ],
    since: Annotated[
        str | None,
        typer.Option(metavar="7d", help="Only changes within this time: 15m, 12h, 7d."),
    ] = None,
    below: Annotated[bool, typer.Option("--below", help="Also the znodes below it.")] = False,
    audit_logs: Annotated[
        list[str] | None,
        typer.Option(
            "--audit-log",
            metavar="FILE",
            help="A server's audit log: who the sessions were. Repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=MAX_COUNT, metavar="N", help="Only the last N changes."),
    ] = None,
    as_json: AsJson = False,
) -> Work:
    """Show who changed a znode, when, and from where, by the files of all servers.

    Only what a majority holds. Users and addresses come from the servers' audit logs. Changes
    nothing.
    """
    from keepfast.cli.who import WhoOptions, show_who

    logs = tuple(audit_logs or ())
    return lambda: show_who(WhoOptions(path, tuple(places), since, below, logs, limit, as_json))
