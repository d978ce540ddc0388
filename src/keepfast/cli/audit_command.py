"""`keepfast audit`: do the servers of an ensemble agree, and if not, where did they part."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from keepfast import __version__
from keepfast.cli.audit_logs import read_people
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.pipeline_input import announce_spark, check_places, explained
from keepfast.pipeline import (
    AuditResult,
    JobFailed,
    People,
    SessionOptions,
    check_out,
    exit_code_of,
    is_remote,
    spark_tasks,
)

if TYPE_CHECKING:
    from keepfast.pipeline import AuditStamp, ReportFacts, Spark

_QUIET_SECONDS = 2.0
_LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class AuditCommand:
    """The command line."""

    places: tuple[str, ...]
    engine: Literal["spark", "local"]
    session: SessionOptions
    out: str | None
    has_tables: bool
    as_json: bool
    metrics: str | None = None
    audit_logs: tuple[str, ...] = ()
    is_delta: bool = False


def run_audit(command: AuditCommand) -> int:
    """Audit, print, write; returns the exit code."""
    try:
        with explained():
            if command.is_delta:
                _check_delta(command)
            if command.out is not None:
                check_out(command.out, command.places)
            # Before anything large is imported: a wrong name costs a moment.
            check_places(command.places)
            people = read_people(command.audit_logs)
            result = (
                _audit_here(command, people)
                if command.engine == "local"
                else _audit_on_spark(command, people)
            )
    except JobFailed as error:
        raise CommandFailed(str(error), ExitCode.REFUSED) from error
    except ModuleNotFoundError as error:
        if command.engine != "spark" or error.name not in ("pyspark", "py4j"):
            raise
        sentence = "Spark is not installed: pip install 'keepfast[pipeline]'"
        # The other engine reads into the same columns.
        if all(map(importlib.util.find_spec, ("numpy", "pyarrow"))):
            sentence += ", or audit without it: --engine local"
        raise CommandFailed(sentence, ExitCode.REFUSED) from error
    code = ExitCode(exit_code_of(result))
    if command.metrics is not None:
        from keepfast.cli.metrics_file import write_audit_metrics

        write_audit_metrics(command.metrics, result, code)
    out = Out()
    if command.as_json:
        print_document(out, result.to_json() | {"exit_code": int(code)})
    else:
        from keepfast.cli.audit_view import print_audit

        print_audit(out, result, command.out)
    out.flush()
    return code


def _audit_here(command: AuditCommand, people: People) -> AuditResult:
    """In this process: no JVM, and only as many cores as one process has."""
    started = time.monotonic()
    from keepfast.pipeline import audit_here, with_people, write_documents

    result = with_people(audit_here(command.places), people)
    if command.out is not None:
        write_documents(result, command.out, _facts(command, started))
        if command.has_tables and not command.as_json:
            print("the tables are not written: they need --engine spark", file=sys.stderr)
    return result


def _audit_on_spark(command: AuditCommand, people: People) -> AuditResult:
    started = time.monotonic()
    announce_spark()
    with spark_tasks(command.session) as spark:
        from keepfast.pipeline import audit_places, with_people

        with _progress(spark):
            result = with_people(audit_places(spark, command.places), people)
        if command.out is not None:
            # Only now: what writes tables knows half of PySpark and PyArrow.
            from keepfast.pipeline import session_of, write_documents, write_tables

            write_documents(result, command.out, _facts(command, started), spark)
            if command.has_tables:
                stamp = write_tables(session_of(spark), command.places, command.out, result)
                if command.is_delta:
                    _add_to_delta(command.out, stamp)
    return result


def _check_delta(command: AuditCommand) -> None:
    """Refuse at once what would fail at the end."""
    if command.out is None or not command.has_tables or command.engine != "spark":
        raise CommandFailed("--delta is about the tables: it needs --out, and --engine spark")
    if is_remote(command.out):
        raise CommandFailed("--delta writes to this machine only; copy the tables, or leave it out")
    if importlib.util.find_spec("deltalake") is None:
        raise CommandFailed("--delta needs deltalake: pip install 'keepfast[delta]'")


def _add_to_delta(out: str, stamp: AuditStamp) -> None:
    from keepfast.pipeline import add_to_delta

    add_to_delta(out, stamp)


def _facts(command: AuditCommand, started: float) -> ReportFacts:
    from keepfast.pipeline import ReportFacts

    finished = datetime.now(UTC).isoformat(timespec="seconds")
    text = "keepfast audit " + shlex.join(command.places)
    return ReportFacts(text, __version__, finished, time.monotonic() - started)


@contextmanager
def _progress(spark: Spark) -> Iterator[None]:
    """Show on a terminal how many tasks are done, once the work takes a while."""
    if not sys.stderr.isatty():
        yield
        return
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, is_over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _watch(spark: Spark, is_over: threading.Event) -> None:
    if is_over.wait(_QUIET_SECONDS):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    from keepfast.pipeline import tasks_of

    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("auditing", total=None)
        while not is_over.wait(_LOOK_SECONDS):
            done, total = tasks_of(spark)
            bar.update(task, completed=done, total=total or None)
