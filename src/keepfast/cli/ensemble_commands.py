"""The commands about ensembles, and their arguments; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import AsJson, LogDir, Work
from keepfast.cli.console_command import console_command
from keepfast.cli.output import MAX_SECONDS


def ensemble_command(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR", help="Holds configuration, data and logs of the servers."),
    ],
    size: Annotated[
        int | None, typer.Option("-n", min=2, max=9, metavar="N", help="How many servers; 3.")
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option("--base-port", min=1, max=65000, metavar="P", help="The first port; 2181."),
    ] = None,
) -> Work:
    """Run an ensemble of real processes on this machine, until Ctrl-C.

    Started again with the same DIR, it continues where it stopped. `keepfast ensemble rescue DIR`
    accepts the loss of data where nothing else helps.
    """
    from keepfast.cli.ensemble_command import EnsembleArguments, ensemble

    return lambda: ensemble(EnsembleArguments(directory, size, base_port))


def rescue_command(
    places: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Data directories of stopped servers.")
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept the loss; without it, only show what it is.")
    ] = False,
    log_dir: LogDir = None,
    as_json: AsJson = False,
) -> Work:
    """Let a server whose data was lost, damaged or not proven vote again.

    Shows what its directory holds and up to which zxid; what was acknowledged beyond that is given
    up. Nothing is deleted. For ensembles that lost a majority, and for nothing else.
    """
    from keepfast.cli.rescue_command import RescueArguments, rescue

    return lambda: rescue(RescueArguments(tuple(places), log_dir, yes, as_json))


def status_command(
    servers: Annotated[
        list[str], typer.Argument(metavar="HOST:PORT...", help="Client ports of its servers.")
    ],
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            max=MAX_SECONDS,
            metavar="SECONDS",
            help="Timeout of each request.",
        ),
    ] = 2.0,
    admin_port: Annotated[
        int,
        typer.Option(
            "--admin-port", min=1, max=65535, metavar="P", help="Where admin servers listen."
        ),
    ] = 8080,
    as_json: AsJson = False,
) -> Work:
    """Show the servers of a running ensemble, of Keepfast or Apache, and whether it is healthy.

    Exit code 1 if a server is down, nobody or more than one leads, or trees differ.
    """
    from keepfast.cli.status import StatusArguments, status

    return lambda: status(StatusArguments(tuple(servers), timeout_s, admin_port, as_json))


def add_ensemble_commands(app: typer.Typer) -> None:
    """Add them to the program."""
    app.command("ensemble")(ensemble_command)
    app.command("ensemble rescue")(rescue_command)
    app.command("status")(status_command)
    app.command("console")(console_command)
