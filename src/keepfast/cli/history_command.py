"""`keepfast history`: every transaction as a change feed in Parquet, at rest or followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document, to_json, worst_code
from keepfast.cli.pipeline_input import announce_spark, explained
from keepfast.cli.stopping import stop_signals
from keepfast.cli.values import counted, optional_zxid, zxid_span
from keepfast.pipeline import (
    FeedRefused,
    FeedSummary,
    FollowOptions,
    JobFailed,
    SessionOptions,
    follow_history,
    our_failure,
    spark_session,
    write_history,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 1


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """The command line."""

    places: tuple[str, ...]
    out: str
    is_followed: bool
    quorum: int | None
    interval_s: float
    session: SessionOptions
    as_json: bool


def run_history(options: HistoryOptions) -> int:
    """Write the feed; returns the exit code."""
    out = Out()
    try:
        announce_spark()
        with explained(), spark_session(options.session) as spark:
            if options.is_followed:
                return _follow(spark, options, out)
            return _write(spark, options, out)
    except FeedRefused as error:
        raise CommandFailed(f"refused: {error}", ExitCode.REFUSED) from error
    except JobFailed as error:
        sentence = our_failure(error.__cause__ or error)
        if sentence is None:
            raise CommandFailed(str(error), ExitCode.REFUSED) from error
        raise CommandFailed(sentence, ExitCode.WRONG) from error


def _write(spark: SparkSession, options: HistoryOptions, out: Out) -> ExitCode:
    found = write_history(spark, options.places, options.out, options.quorum)
    code = worst_code(map(_exit_code, found))
    if options.as_json:
        document = {
            "schema": "keepfast.history/1",
            "out": options.out,
            "ensembles": [_fields(one) for one in found],
            "exit_code": int(code),
        }
        print_document(out, document)
    else:
        _print(out, found, options.out)
    out.flush()
    return code


def _exit_code(one: FeedSummary) -> ExitCode:
    if one.broken or one.end_kind == "conflict":
        return ExitCode.WRONG
    if one.gaps or one.end_kind == "hole":
        return ExitCode.INCOMPLETE
    return ExitCode.OK


def _print(out: Out, found: list[FeedSummary], target: str) -> None:
    rows = [
        (
            one.ensemble,
            "-"
            if one.first_zxid is None or one.last_zxid is None
            else zxid_span(one.first_zxid, one.last_zxid),
            str(one.transactions),
            str(one.rows),
        )
        for one in found
    ]
    out.table(("ensemble", "zxids", "transactions", "rows"), rows, right="transactions rows")
    for one in found:
        for text in (*one.gaps, *([one.broken] if one.broken else [])):
            out.line(f"{one.ensemble}: {text}")
        if one.end_kind != "end":
            out.line(f"{one.ensemble}: ends there: {one.end}")
        if one.caution:
            out.line(f"{one.ensemble}: {one.caution}")
    out.line(f"Written to {target}/changes (Parquet); docs/data-dictionary.md has the columns.")


def _fields(one: FeedSummary) -> dict[str, object]:
    return {
        "name": one.ensemble,
        "transactions": one.transactions,
        "rows": one.rows,
        "first_zxid": optional_zxid(one.first_zxid),
        "last_zxid": optional_zxid(one.last_zxid),
        "gaps": list(one.gaps),
        "broken": one.broken,
        "end": {"kind": one.end_kind, "text": one.end},
        "caution": one.caution,
    }


def _follow(spark: SparkSession, options: HistoryOptions, out: Out) -> ExitCode:
    def report(number: int, found: list[FeedSummary]) -> None:
        for one in found:
            if options.as_json:
                document = {"schema": "keepfast.history-batch/1", "batch": number, **_fields(one)}
                out.line(to_json(document))
            else:
                span = zxid_span(one.first_zxid or 0, one.last_zxid or 0)
                out.line(
                    f"{one.ensemble}: {counted(one.transactions, 'transaction')}, {span} "
                    f"(batch {number})"
                )
            for text in one.gaps:
                out.line(f"{one.ensemble}: {text}")
        out.flush()

    settings = FollowOptions(options.quorum, options.interval_s)
    with stop_signals() as is_asked_to_stop:
        feed = follow_history(spark, options.places, options.out, settings, report)
        try:
            while not is_asked_to_stop.is_set():
                feed.wait(_LOOK_SECONDS)
        finally:
            feed.stop()
    return ExitCode.OK
