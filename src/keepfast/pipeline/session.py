"""A Spark session that starts quickly, says nothing, and knows this package.

Theory of operation.  A plain session costs thirty seconds of CPU before its first answer and
prints a dozen lines about itself. Most of that is loading classes (cured by an archive of classes,
java.py), compiling them (C1 is enough for jobs whose work is done in Python), and Python workers
that import PySpark from a zip file, which never caches bytecode (cured by a wrapper around the
interpreter that takes the zip off their path). The JVM and all that it starts inherit a log file
as standard output and error; its path is named when a job fails, and it is removed otherwise.

Where a session runs already (a notebook, spark-submit) that one is used as it is.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from keepfast.pipeline.java import find_java, make_launcher, write_script, write_whole
from keepfast.wire import KeepfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"

_WRAPPER = """#!/bin/sh
# Takes Spark's own archives off the path: the packages are installed, and an import from a
# zip file compiles every module anew in every process; see keepfast.pipeline.session.
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | *.jar) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
PYTHONPATH=$kept
# Keep freed memory instead of giving it back: a scan frees and takes its buffers all the time,
# and taking pages from the kernel anew costs more than comparing what is read into them.
: "${{MALLOC_TRIM_THRESHOLD_:=134217728}}" "${{MALLOC_MMAP_THRESHOLD_:=33554432}}"
export PYTHONPATH MALLOC_TRIM_THRESHOLD_ MALLOC_MMAP_THRESHOLD_
exec {python} "$@"
"""
_LOG4J = """status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class JobFailed(KeepfastError):  # noqa: N818 - says what is wrong, as all errors here
    """A Spark job, or Spark itself, failed; `str()` is one sentence that names the log."""

    def __init__(self, reason: str, log_path: str | None) -> None:
        super().__init__(reason, log_path)
        self.reason = reason
        self.log_path = log_path

    def __str__(self) -> str:
        where = f" Spark's log: {self.log_path}" if self.log_path else ""
        return f"Spark failed: {self.reason}{where}"


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How the embedded Spark is started; nothing here changes what a job finds."""

    # Where jobs run: local[*], local[2], spark://host:7077, yarn, k8s://... An unreachable one
    # fails after Spark's own retries, about a minute.
    master: str = LOCAL_MASTER
    # Quick start, slower JVM: right for all jobs whose records never enter the JVM. A job that
    # shuffles or writes hundreds of millions of rows wants False.
    is_quick: bool = True
    # Heap of the driver's JVM. Below 500 Spark refuses to start; the audit needs no more.
    memory_mb: int = 1024
    # Further Spark settings; they win over ours.
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master == "local" or self.master.startswith("local[")


@dataclass(slots=True)
class _Log:
    """The file that takes what Spark prints."""

    path: str
    is_wanted: bool = False

    def discard(self) -> None:
        if not self.is_wanted:
            Path(self.path).unlink(missing_ok=True)


_log: _Log | None = None


def log_path() -> str | None:
    """Where Spark's output goes in this process; None before the first session."""
    return None if _log is None else _log.path


def keep_log() -> str | None:
    """Keep the log beyond the end of this process, because something failed; gives its path."""
    if _log is not None:
        _log.is_wanted = True
    return log_path()


@contextmanager
def spark_session(options: SessionOptions | str | None = None) -> Iterator[SparkSession]:
    """A session with our data sources; stopped at the end if it was started here.

    `options` may be just the master's address. Failures of Spark come out as JobFailed, with the
    path of Spark's log; those of our own code pass unchanged.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    options = SessionOptions(options) if isinstance(options, str) else options or SessionOptions()
    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = open_session(options)
        try:
            yield spark
        finally:
            if is_ours:
                with _output_in_log():
                    spark.stop()
    except (PySparkException, Py4JError) as error:
        raise JobFailed(_first_line(error), keep_log()) from error


def _first_line(error: Exception) -> str:
    """The sentence in a failure of Spark; the rest is a Java trace, and is in the log."""
    for line in str(error).splitlines():
        text = line.strip()
        if text and not text.startswith(("at ", "An error occurred while calling")):
            return text.removeprefix(": ")[:500]
    return type(error).__name__


def open_session(options: SessionOptions | None = None) -> SparkSession:
    """The running session if there is one, else a new one; with our data sources registered."""
    from pyspark.sql import SparkSession

    from keepfast.pipeline.sources import register

    options = options or SessionOptions()
    spark = SparkSession.getActiveSession()
    if spark is None:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            # Below spark-submit the JVM runs, and the user decided how.
            spark = SparkSession.builder.getOrCreate()
            _ship_package(spark)
        else:
            spark = _start(options)
    register(spark)
    return spark


def _start(options: SessionOptions) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    cache = cache_directory()
    settings = dict(_common_settings(options))
    environment = {"SPARK_LOCAL_IP": "127.0.0.1"} if options.is_local else {}
    environment |= _java_environment(options, cache, settings)
    environment["PYSPARK_PYTHON"] = _worker_python(options, cache)
    settings.update(options.settings)
    conf = SparkConf(loadDefaults=False).setMaster(options.master).setAppName("keepfast")
    for key, value in settings.items():
        conf.set(key, value)
    # Spark reads these when the JVM and, later, when workers start.
    os.environ["PYSPARK_PYTHON"] = environment.pop("PYSPARK_PYTHON")
    with _environment(environment), _output_in_log():
        try:
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except PySparkRuntimeError as error:
            raise JobFailed(_first_line(error), keep_log()) from error
        if not options.is_local:
            _ship_package(spark)
    return spark


def _common_settings(options: SessionOptions) -> Iterator[tuple[str, str]]:
    yield "spark.ui.enabled", "false"
    yield "spark.ui.showConsoleProgress", "false"
    yield "spark.sql.catalogImplementation", "in-memory"
    yield "spark.sql.session.timeZone", "UTC"
    # Readers that take filters are refused while this is off, as it is by default.
    yield "spark.sql.python.filterPushdown.enabled", "true"
    yield "spark.sql.execution.arrow.maxRecordsPerBatch", "50000"
    if options.is_local:
        yield "spark.driver.host", "127.0.0.1"
        yield "spark.driver.bindAddress", "127.0.0.1"
        cores = str(_local_cores(options.master))
        # The default of 200 tasks a shuffle is meant for clusters: here it is 200 times overhead.
        yield "spark.sql.shuffle.partitions", cores
        yield "spark.default.parallelism", cores
        yield "spark.sql.adaptive.enabled", "false"


def _local_cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return (os.cpu_count() or 1) if inside == "*" else 1


def _java_environment(
    options: SessionOptions, cache: Path, settings: dict[str, str]
) -> dict[str, str]:
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    java = find_java()
    launcher = make_launcher(java, cache, pyspark.__version__, os.path.join(home, "jars"))
    log4j = cache / "log4j2.properties"
    write_whole(log4j, _LOG4J)
    java_options = [*launcher.options, f"-Dlog4j2.configurationFile={log4j}"]
    # One collector thread: a driver whose records stay in Python has little to collect.
    java_options += ["-XX:+UseSerialGC", "-Xss2m"]
    if options.is_quick:
        java_options.append("-XX:TieredStopAtLevel=1")
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    settings["spark.driver.memory"] = f"{options.memory_mb}m"
    return {"JAVA_HOME": launcher.home, "SPARK_HOME": home}


def _worker_python(options: SessionOptions, cache: Path) -> str:
    """The interpreter of workers: this one, so that they find what is installed here.

    On a cluster the user's own choice wins: there the same path may not exist.
    """
    if not options.is_local:
        return os.environ.get("PYSPARK_PYTHON") or sys.executable
    wrapper = cache / f"python-{zlib.crc32(sys.executable.encode()):x}"
    write_script(wrapper, _WRAPPER.format(python=shlex.quote(sys.executable)))
    return str(wrapper)


def cache_directory() -> Path:
    """The directory of launchers and archives: in the user's cache, else one for this run only."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(base, "keepfast", version("pyspark"))
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # What lies here is executed: nobody else may have written it.
        if directory.stat().st_uid == os.getuid() and os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    temporary = tempfile.TemporaryDirectory(prefix="keepfast-cache-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _output_in_log() -> Iterator[None]:
    """Let whatever is started inside inherit the log as its standard output and error."""
    global _log  # noqa: PLW0603 - standard output belongs to the process, and so does its log
    if _log is None:
        descriptor, path = tempfile.mkstemp(prefix="keepfast-spark-", suffix=".log")
        os.close(descriptor)
        _log = _Log(path)
        atexit.register(_log.discard)
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(_log.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    saved = [os.dup(1), os.dup(2)]
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, descriptor in zip((1, 2), saved, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)


def _ship_package(spark: SparkSession) -> None:
    """Have every executor import this package, the very files that run here."""
    directory = tempfile.TemporaryDirectory(prefix="keepfast-package-")
    atexit.register(directory.cleanup)
    spark.sparkContext.addPyFile(package_zip(Path(directory.name)))


def package_zip(directory: Path) -> str:
    """A zip file of this package, for ``--py-files``; written into `directory`."""
    import keepfast

    root = Path(keepfast.__file__).parent
    path = directory / "keepfast.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                package.write(file, Path("keepfast", file.relative_to(root)))
    return str(path)
