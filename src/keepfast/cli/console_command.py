"""The command of the console, and its arguments; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import Work
from keepfast.cli.output import MAX_SECONDS

Servers = Annotated[
    list[str],
    typer.Argument(metavar="HOST:PORT...", help="Client ports; others are found."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="DIR...", help="The servers' data directories: history, past, proof."
    ),
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the page is served.")]
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Let people change znodes; else read-only.")
]
Certificate = Annotated[
    str | None,
    typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM); needed beyond loopback."),
]
Key = Annotated[
    str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")
]
LoginZnode = Annotated[
    str,
    typer.Option(
        "--login-znode",
        metavar="/PATH",
        help="Whoever may read it may log in; needed beyond loopback.",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host-name", metavar="NAME", help="A name by which browsers reach it. Repeatable."
    ),
]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark for audits; else embedded.")]
Audits = Annotated[str, typer.Option(metavar="DIR", help="Where audits are kept.")]
Interval = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=MAX_SECONDS,
        metavar="SECONDS",
        help="Time between two requests to each server.",
    ),
]
AuditLog = Annotated[
    str | None, typer.Option("--audit-log", metavar="FILE", help="A log of who changed what.")
]


def console_command(
    servers: Servers,
    data: Data = None,
    listen: Listen = "127.0.0.1:8180",
    allow_writes: AllowWrites = False,
    certificate: Certificate = None,
    key: Key = None,
    login_znode: LoginZnode = "",
    host_names: HostNames = None,
    master: Master = None,
    audits: Audits = "keepfast-audits",
    audit_log: AuditLog = None,
    interval: Interval = 2.0,
) -> Work:
    """Show an ensemble, of Keepfast or Apache, in a browser.

    Servers, tree, sessions, changes as they happen; with --data the past and the proof, too.
    """
    from keepfast.cli.console import ConsoleArguments, console, sorted_out

    hosts, places = sorted_out(servers, data or [])
    return lambda: console(
        ConsoleArguments(
            hosts,
            places,
            listen,
            allow_writes,
            certificate,
            key,
            login_znode,
            tuple(host_names or ()),
            master,
            audits,
            audit_log,
            interval,
        )
    )
