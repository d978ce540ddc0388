"""The options by which commands say where and how Spark runs."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.cli.output import CommandFailed
from keepfast.pipeline import SessionOptions


def session_options(master: str | None, conf: Sequence[str] | None) -> SessionOptions:
    """--master and --conf as the session takes them; ends the command on bad usage."""
    settings = []
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise CommandFailed(
                f"--conf {text}: a setting of Spark has the form spark.name=value, for instance "
                "spark.driver.memory=4g"
            )
        settings.append((key, value))
    return SessionOptions(master, settings=tuple(settings), is_last=True)
