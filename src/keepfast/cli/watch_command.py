"""The arguments of `keepfast watch`; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import Places, Work


def watch_command(
    places: Places,
    every: Annotated[
        str, typer.Option("--every", metavar="10s", help="How often to check for new data.")
    ] = "10s",
    once: Annotated[
        bool, typer.Option("--once", help="Look once, print the open findings, and exit.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="What is known so far; else in $STATE_DIRECTORY, or ~/.local/state/keepfast.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where a finding that opens or closes is posted."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Address on which to serve Prometheus metrics."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON value per line; with --once, one document.")
    ] = False,
) -> Work:
    """Audit ensembles continuously: only new bytes are read, and a divergence is reported at once.

    Servers may run, lag, roll and purge their logs, take snapshots and be killed meanwhile. A line
    when a finding opens or closes, nothing else. Changes nothing in the directories.
    """
    from keepfast.cli.watch import WatchCommand, run_watch

    return lambda: run_watch(
        WatchCommand(tuple(places), every, once, checkpoint, webhook, metrics, as_json)
    )
