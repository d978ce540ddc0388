"""The commands on the files of all servers that run on Spark, and their arguments; see app.py."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from keepfast.cli.arguments import AsJson, MetricsFile, Places, Work
from keepfast.cli.output import MAX_SECONDS

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark: spark://..., yarn, k8s://...; else embedded."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable."),
]


def audit_command(
    places: Places,
    engine: Annotated[
        Literal["spark", "local"],
        typer.Option(help="local: in this process, without a JVM; the same result."),
    ] = "spark",
    master: Master = None,
    conf: Conf = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write report.html, findings.json and Parquet tables."),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables/--no-tables", help="With --out: the Parquet tables, too.")
    ] = True,
    delta: Annotated[
        bool, typer.Option("--delta", help="With --out: the tables as Delta tables, too.")
    ] = False,
    audit_logs: Annotated[
        list[str] | None,
        typer.Option("--audit-log", metavar="FILE", help="Who the sessions were. Repeatable."),
    ] = None,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> Work:
    """Prove that all servers of one or many ensembles agree, or report where they diverged.

    Reads every log and snapshot, by Spark. Names the server that is wrong, the first zxid, the
    znodes, the likely cause, and what to do. Changes nothing.
    """
    from keepfast.cli.audit_command import AuditCommand, run_audit
    from keepfast.cli.spark_options import session_options

    session = session_options(master, conf)
    logs = tuple(audit_logs or ())
    return lambda: run_audit(
        AuditCommand(
            *(tuple(places), engine, session, out, tables, as_json),
            *(metrics, logs, delta),
        )
    )


def history_command(
    places: Places,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where the feed is written.")],
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Keep following while the servers write; resumes where it ended."
        ),
    ] = False,
    quorum: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, metavar="N", help="Servers that must hold a record; else a majority."
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, max=MAX_SECONDS, metavar="SECONDS", help="Between two looks, with --follow."
        ),
    ] = 1.0,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> Work:
    """Write every transaction as a change feed: old and new value, session, time.

    Parquet, by Spark. What a majority of the servers holds, each transaction once.
    """

    def work() -> int:
        from keepfast.cli.pipeline_input import check_places, explained
        from keepfast.pipeline import check_out

        # Before anything large is imported: a wrong name costs a moment.
        with explained():
            check_out(out, places)
            check_places(places)
        from keepfast.cli.history_command import HistoryOptions, run_history
        from keepfast.cli.spark_options import session_options

        session = session_options(master, conf)
        options = HistoryOptions(tuple(places), out, follow, quorum, interval, session, as_json)
        return run_history(options)

    return work


def add_pipeline_commands(app: typer.Typer) -> None:
    """Add them to the program."""
    app.command("audit")(audit_command)
    app.command("history")(history_command)
