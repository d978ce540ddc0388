"""The arguments of `keepfast backup`; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import AsJson, MetricsFile, Work


def backup_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...|HOST:PORT",
            help="Data directories of all servers, running or not; or a running server.",
        ),
    ],
    place: Annotated[
        str,
        typer.Option(
            "--to", metavar="PLACE", help="A directory for the backups, or s3://BUCKET/PREFIX."
        ),
    ],
    full_every: Annotated[
        str, typer.Option("--full-every", metavar="7d", help="Begin a new chain after this time.")
    ] = "7d",
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="30d", help="Delete chains that no moment within this time needs."
        ),
    ] = None,
    admin_port: Annotated[
        int,
        typer.Option(
            "--admin-port", min=1, max=65535, metavar="P", help="HOST:PORT: its admin server."
        ),
    ] = 8080,
    auth: Annotated[
        str | None,
        typer.Option("--auth", metavar="digest:USER:PASSWORD", help="HOST:PORT: a superuser."),
    ] = None,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Object stores: keep a copy of the newest chain here, and download only the rest.",
        ),
    ] = None,
) -> Work:
    """Take a proven, incremental backup: only what a quorum holds, read back in full.

    From data directories: records since the last backup. From a running server: its snapshot.
    `keepfast backup list PLACE` reads all backups; `keepfast restore PLACE` takes one.
    """
    from keepfast.cli.backup import BackupArguments, backup

    arguments = BackupArguments(
        tuple(sources), place, full_every, keep, admin_port, auth, as_json, metrics, cache
    )
    return lambda: backup(arguments)


def list_backups_command(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="A directory, or s3://BUCKET/PREFIX.")
    ],
    as_json: AsJson = False,
) -> Work:
    """Read all backups of a place in full, and show what each holds."""
    from keepfast.cli.backup import list_backups

    return lambda: list_backups(place, as_json)


def add_backup_commands(app: typer.Typer) -> None:
    """Add them to the program."""
    app.command("backup")(backup_command)
    app.command("backup list")(list_backups_command)
