"""Arguments and options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from keepfast.cli.output import MAX_COUNT

# What a command's function returns: its work, which `app.run` calls.
Work = Callable[[], int]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
LogDir = Annotated[
    str | None,
    typer.Option("--log-dir", metavar="DIR", help="The dataLogDir, if logs are stored separately."),
]
Redact = Annotated[
    bool, typer.Option("--redact", help="Show data as its length and the start of its SHA-256.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=0, max=MAX_COUNT, metavar="N", help="Show at most N entries."),
]
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A dataDir, or the version-2 inside it.")
]
Places = Annotated[
    list[str],
    typer.Argument(
        metavar="DIR",
        help="Data directories, one per server, or a root with <ensemble>/<server>/...; "
        "DIR:LOGDIR if logs are stored separately.",
    ),
]
Znode = Annotated[str, typer.Argument(metavar="/path", help="The path of a znode.")]
Below = Annotated[
    str | None, typer.Option("--path", metavar="/a", help="Only this znode and those below it.")
]
Moment = Annotated[
    str | None,
    typer.Option("--at", metavar="ZXID|TIME", help="The moment; without it, the newest state."),
]
MetricsFile = Annotated[
    str | None,
    typer.Option("--metrics", metavar="FILE", help="Metrics for Prometheus' textfile collector."),
]
