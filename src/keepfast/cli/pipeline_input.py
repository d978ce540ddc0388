"""What commands do before the pipeline works, and what its errors about the input end them with.

Little is imported here: a wrong name should cost a moment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from keepfast.cli.output import CommandFailed, ExitCode
from keepfast.pipeline import PlaceError, discover, list_place, running_session
from keepfast.wire import KeepfastError


@contextmanager
def explained() -> Iterator[None]:
    """Turn the pipeline's input errors into the end of the command."""
    try:
        yield
    except KeepfastError as error:
        # Only now: these know half of the package.
        from keepfast.pipeline import as_named

        code = _exit_code_of(error)
        if code is None:
            raise
        raise CommandFailed(as_named(str(error)), code) from error


def _exit_code_of(error: KeepfastError) -> ExitCode | None:
    """How a command ends for an error of the pipeline; None if it is no such error."""
    from keepfast.pipeline import JavaNotFound, SparkNotUsable

    if isinstance(error, PlaceError):
        return ExitCode.UNUSABLE
    if isinstance(error, JavaNotFound | SparkNotUsable):
        return ExitCode.REFUSED
    from keepfast.pipeline import HistoryBroken, HistoryGone, ServersDisagree, StateUnknown

    if isinstance(error, ServersDisagree | HistoryBroken):
        return ExitCode.WRONG
    return ExitCode.REFUSED if isinstance(error, StateUnknown | HistoryGone) else None


def check_places(places: Sequence[str]) -> None:
    """Find a wrong name before a JVM starts; what only Spark can list is Spark's to find."""
    try:
        discover(places, list_place)
    except PlaceError as error:
        if "://" not in error.place:
            raise


def announce_spark() -> None:
    """Say on a terminal why nothing happens for some seconds."""
    if running_session() is None and sys.stderr.isatty():
        print("starting Spark ...", file=sys.stderr)
