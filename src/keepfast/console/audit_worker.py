"""One audit in a separate process: `python -m keepfast.console.audit_worker OUT MASTER PLACE...`

Spark's JVM, its memory and its output belong to this process and go with it, however it ends. It
prints one JSON document per line: progress, and finally the outcome.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from keepfast import __version__
from keepfast.console.audit_jobs import OVERVIEW_NAME
from keepfast.pipeline import (
    ReportFacts,
    audit_overview,
    audit_places,
    check_out,
    exit_code_of,
    spark_session,
    tasks_of,
    write_documents,
)
from keepfast.wire import KeepfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.3


def _report(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def _watch(spark: SparkSession, is_over: threading.Event) -> None:
    while not is_over.wait(_LOOK_SECONDS):
        done, total = tasks_of(spark)
        _report(step="auditing", done=done, total=total)


def run(out: str, master: str | None, places: list[str]) -> None:
    """Audit, and leave overview.json, findings.json and report.html in `out`."""
    started = time.monotonic()
    check_out(out, places)
    _report(step="starting Spark", done=0, total=0)
    with spark_session(master) as spark:
        is_over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, is_over), daemon=True)
        watcher.start()
        try:
            result = audit_places(spark, places)
        finally:
            is_over.set()
            watcher.join()
    seconds = time.monotonic() - started
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    command = "keepfast audit " + shlex.join(places)
    write_documents(result, out, ReportFacts(command, __version__, finished, seconds))
    overview = {
        **audit_overview(result),
        "finished": finished,
        "seconds": round(seconds, 1),
        "exit_code": exit_code_of(result),
    }
    path = os.path.join(out, OVERVIEW_NAME)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(overview, file)
    os.replace(path + ".tmp", path)


def main(arguments: list[str]) -> int:
    """Run one audit; returns an exit code."""
    out, master, *places = arguments
    try:
        run(out, master or None, places)
    except (KeepfastError, OSError) as error:
        _report(step="failed", error=str(error))
        return 4
    _report(step="done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
