"""The Spark that is started: the installed PySpark's own, or the one that the user set up.

An installation that SPARK_HOME names is used with all that it is set up with: its
``spark-defaults.conf`` (SPARK_CONF_DIR, or ``conf`` in it) wins over the settings that we would
choose, and what is given on the command line wins over both.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from keepfast.wire import KeepfastError

DEFAULTS_NAME = "spark-defaults.conf"


class SparkNotUsable(KeepfastError):  # noqa: N818 - says what is wrong, as all errors here
    """The Spark that was asked for cannot be used; `str()` says why, and what to do."""


@dataclass(frozen=True, slots=True)
class SparkHome:
    """A Spark installation, and what its owner set."""

    path: str
    jars: str
    defaults: dict[str, str]
    is_own: bool  # PySpark's, as it was installed


def find_spark_home(installed: str, version: str) -> SparkHome:
    """The installation to start; `installed` is PySpark's own directory, of this version."""
    _check_localhost()
    named = os.environ.get("SPARK_HOME")
    home = named or installed
    jars = os.path.join(home, "jars")
    if named and os.path.realpath(named) != os.path.realpath(installed):
        found = _version_of(jars)
        if found is None:
            raise SparkNotUsable(
                f"SPARK_HOME={named} holds no Spark (no {jars}/spark-core_*.jar); unset it, or let "
                "it name an installation"
            )
        if found.split(".")[:2] != version.split(".")[:2]:
            raise SparkNotUsable(
                f"SPARK_HOME={named} is Spark {found}, the installed PySpark is {version}: they do "
                f"not work together; pip install pyspark=={found}, or unset SPARK_HOME"
            )
    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    defaults = read_defaults(os.path.join(directory, DEFAULTS_NAME))
    return SparkHome(home, jars, defaults, is_own=home == installed)


def _check_localhost() -> None:
    # A new root may have no /etc/hosts. PySpark's own words would be "Name or service not known".
    try:
        socket.getaddrinfo("localhost", None)
    except socket.gaierror as error:
        raise SparkNotUsable(
            "Spark needs the name localhost, which cannot be resolved here: put the line"
            " '127.0.0.1 localhost' into /etc/hosts"
        ) from error


def _version_of(jars: str) -> str | None:
    for jar in sorted(Path(jars).glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jar.name)
        if found is not None:
            return found.group(1)
    return None


def read_defaults(path: str) -> dict[str, str]:
    """The settings in a file of Spark's; none if it is not there."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SparkNotUsable(f"{path} cannot be read: {error}; mend it, or remove it") from error
    found: dict[str, str] = {}
    for line in lines:
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            # Java's rule for properties: the name ends at a blank, = or :.
            name, _, value = re.sub(r"^([^\s=:]+)\s*[=:\s]\s*", "\\1\x00", text).partition("\x00")
            found[name] = value.strip()
    return found
