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
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from keepfast.pipeline.engine.connect import connect, context_of, is_connect, session_of
from keepfast.pipeline.engine.failures import JobFailed, cause_of
from keepfast.pipeline.engine.java import (
    MAKES_ARCHIVE,
    find_java,
    make_launcher,
    write_script,
    write_whole,
)
from keepfast.pipeline.engine.launch import JvmLaunch, launch_jvm
from keepfast.pipeline.engine.shipping import package_zip
from keepfast.pipeline.engine.spark_home import SparkHome, find_spark_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from keepfast.pipeline.engine.connect import Spark

LOCAL_MASTER = "local[*]"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_WRAPPER = """#!/bin/sh
# Takes Spark's own archives off the path: the packages are installed, and an import from a
# zip file compiles every module anew in every process; see keepfast.pipeline.engine.session.
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


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How Spark is started; nothing here changes what a job finds."""

    # Where jobs run: local[*], local[2], spark://host:7077, yarn, k8s://..., or sc://host for Spark
    # Connect. None: what spark-defaults.conf says, else embedded. An unreachable one fails after
    # Spark's own retries, about a minute.
    master: str | None = None
    # Quick start, slower JVM: right for all jobs whose records never enter the JVM. A job that
    # shuffles or writes hundreds of millions of rows wants False.
    is_quick: bool = True
    # Heap of the driver's JVM, unless spark.driver.memory is set. Below 500 Spark refuses to
    # start; the audit needs no more.
    memory_mb: int = 1024
    # For one command, the last thing that its process does: the end is not waited for, and our data
    # sources are registered by what uses them. Each saves a second.
    is_last: bool = False
    # Further Spark settings; they win over ours and over those of spark-defaults.conf.
    settings: tuple[tuple[str, str], ...] = ()


def is_local(master: str) -> bool:
    """Whether driver and executors are one process on this machine."""
    return master == "local" or master.startswith("local[")


@dataclass(slots=True)
class _Log:
    """The file that takes what Spark prints."""

    path: str
    is_wanted: bool = False

    def discard(self) -> None:
        if not self.is_wanted:
            Path(self.path).unlink(missing_ok=True)


_log: _Log | None = None
_jvm: JvmLaunch | None = None
_ending: threading.Thread | None = None


def log_path() -> str | None:
    """Where Spark's output goes in this process; None before the first session."""
    return None if _log is None else _log.path


def keep_log() -> str | None:
    """Keep the log beyond the end of this process, because something failed; returns its path."""
    if _log is not None:
        _log.is_wanted = True
    return log_path()


@contextmanager
def spark_session(options: SessionOptions | str | None = None) -> Iterator[SparkSession]:
    """A session with our data sources; for the rest see `spark_tasks`."""
    options = SessionOptions(options) if isinstance(options, str) else options or SessionOptions()
    with spark_tasks(options) as spark:
        yield _with_sources(spark, options)


@contextmanager
def spark_tasks(options: SessionOptions) -> Iterator[Spark]:
    """What runs tasks, which is all that an audit needs; stopped at the end if started here.

    Failures of Spark come out as JobFailed, with the path of Spark's log; those of our own code
    pass unchanged.
    """
    is_ours = running_session() is None
    spark = _open(options)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        try:
            yield spark
        finally:
            if is_ours:
                _stop(spark, options.is_last)
    except (PySparkException, Py4JError) as error:
        raise JobFailed(cause_of(error), keep_log()) from error


def _stop(spark: Spark, is_last: bool) -> None:
    """Stop Spark; that of the last command of a process while the process runs to its end."""
    global _ending  # noqa: PLW0603 - a process has one session
    if is_last and context_of(spark) is not None:
        # PySpark waits up to a second for a thread of its own. The JVM ends with this process.
        _ending = threading.Thread(target=_stop_quietly, args=(spark,), daemon=True)
        _ending.start()
    else:
        with _output_in_log():
            spark.stop()


def _stop_quietly(spark: Spark) -> None:
    from py4j.protocol import Py4JError

    # Whatever the work of the session gave is there: that its JVM is gone already changes nothing.
    with suppress(Py4JError, OSError):
        spark.stop()


def running_session() -> SparkSession | None:
    """The session of this process, if it has one; PySpark is not imported to find that out."""
    if "pyspark.sql" not in sys.modules:
        return None
    if _ending is not None:
        _ending.join()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def open_session(options: SessionOptions | None = None) -> SparkSession:
    """The running session if there is one, else a new one; mostly with our data sources."""
    options = options or SessionOptions()
    return _with_sources(_open(options), options)


def _open(options: SessionOptions) -> Spark:
    spark = running_session()
    if spark is not None:
        return spark
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted()
    if is_connect(options.master):
        return connect(options.master or "", dict(options.settings))
    return _start(options)


def _with_sources(spark: Spark, options: SessionOptions) -> SparkSession:
    session = session_of(spark)
    if not options.is_last:
        _add_sources(session)
    return session


def _add_sources(spark: SparkSession) -> None:
    from keepfast.pipeline.engine.sources import register

    register(spark)


def _rehearse(context: SparkContext) -> None:
    """Use what jobs need: an archive has the classes of the run that makes it, and no others."""
    context.parallelize([(0, b""), (1, b"")], 2).partitionBy(2, int).collect()
    spark = session_of(context)
    _add_sources(spark)
    numbers = spark.range(0, 4, 1, 2)
    numbers.groupBy((numbers.id % 2).alias("key")).count().collect()


def _submitted() -> SparkSession:
    """Below spark-submit the JVM runs, and the user decided how."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    _ship_package(spark.sparkContext)
    return spark


def _start(options: SessionOptions) -> SparkContext:
    cache = cache_directory()
    home = find_spark_home(_installed(), version("pyspark"))
    given = dict(options.settings)
    master = options.master or given.get("spark.master") or home.defaults.get("spark.master")
    master = master or LOCAL_MASTER
    environment = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}
    environment |= {"SPARK_HOME": home.path}
    ours = dict(_common_settings(master)) | _java_settings(options, home, cache, environment)
    chosen = {**home.defaults, **given}
    settings = {key: value for key, value in ours.items() if key not in chosen} | given
    if _JAVA_OPTIONS in chosen:
        settings[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {chosen[_JAVA_OPTIONS]}"
    settings |= {"spark.master": master, "spark.app.name": "keepfast"}
    # Spark reads it when the JVM starts, and again for each kind of worker.
    os.environ["PYSPARK_PYTHON"] = _worker_python(master, cache)
    return _connected(home, settings, environment, master)


def _connected(
    home: SparkHome, settings: dict[str, str], environment: dict[str, str], master: str
) -> SparkContext:
    """A context on a JVM that starts while all that a job needs is imported."""
    global _jvm  # noqa: PLW0603 - PySpark has one JVM in a process too
    has_gateway = _has_gateway()
    if not has_gateway:
        recordings = cache_directory() if home.is_own and not home.defaults else None
        _jvm = launch_jvm(home.path, settings, environment, _log_file(), recordings)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    import keepfast.pipeline.engine.jobs  # noqa: F401 - imported while the JVM starts

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        gateway = {} if has_gateway or _jvm is None else _jvm.wait()
        with _environment({**environment, **gateway}), _output_in_log():
            context = SparkContext.getOrCreate(conf)
            if not is_local(master):
                _ship_package(context)
            if MAKES_ARCHIVE in settings[_JAVA_OPTIONS]:
                _rehearse(context)
    except JobFailed:
        keep_log()
        raise
    except PySparkException as error:
        raise JobFailed(cause_of(error), keep_log()) from error
    return context


def _has_gateway() -> bool:
    """Whether a JVM of an earlier session is there: PySpark never starts a second one."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _installed() -> str:
    """The directory of PySpark, which is not imported for it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return os.path.dirname(found.origin)


def _current_umask() -> int:
    """What this process keeps from files that it makes; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _common_settings(master: str) -> Iterator[tuple[str, str]]:
    yield "spark.ui.enabled", "false"
    # Hadoop has a mask of its own, and would let everybody read the tables of guarded data.
    yield "spark.hadoop.fs.permissions.umask-mode", f"{_current_umask():03o}"
    yield "spark.ui.showConsoleProgress", "false"
    yield "spark.sql.catalogImplementation", "in-memory"
    yield "spark.sql.session.timeZone", "UTC"
    # Times as INT64: Spark's default is a form that other readers have given up.
    yield "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
    # Readers that take filters are refused while this is off, as it is by default.
    yield "spark.sql.python.filterPushdown.enabled", "true"
    yield "spark.sql.execution.arrow.maxRecordsPerBatch", "50000"
    if is_local(master):
        yield "spark.driver.host", "127.0.0.1"
        yield "spark.driver.bindAddress", "127.0.0.1"
        cores = str(_local_cores(master))
        # The default of 200 tasks a shuffle is meant for clusters: here it is 200 times overhead.
        yield "spark.sql.shuffle.partitions", cores
        yield "spark.default.parallelism", cores
        yield "spark.sql.adaptive.enabled", "false"


def _local_cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return (os.cpu_count() or 1) if inside == "*" else 1


def _java_settings(
    options: SessionOptions, home: SparkHome, cache: Path, environment: dict[str, str]
) -> dict[str, str]:
    """The settings of the driver's JVM; what its launcher needs is added to the environment."""
    java = find_java()
    launcher = make_launcher(java, cache, version("pyspark"), home.jars)
    environment["JAVA_HOME"] = launcher.home
    log4j = cache / "log4j2.properties"
    write_whole(log4j, _LOG4J)
    java_options = [*launcher.options, f"-Dlog4j2.configurationFile={log4j}"]
    # One collector thread: a driver whose records stay in Python has little to collect.
    java_options += ["-XX:+UseSerialGC", "-Xss2m"]
    if options.is_quick:
        java_options.append("-XX:TieredStopAtLevel=1")
    return {
        _JAVA_OPTIONS: " ".join(java_options),
        "spark.driver.memory": f"{options.memory_mb}m",
    }


def _worker_python(master: str, cache: Path) -> str:
    """The interpreter of workers: this one, so that they find what is installed here.

    On a cluster the user's own choice wins: there the same path may not exist.
    """
    if not is_local(master):
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


def _log_file() -> str:
    global _log  # noqa: PLW0603 - the JVM belongs to the process, and so does its log
    if _log is None:
        descriptor, path = tempfile.mkstemp(prefix="keepfast-spark-", suffix=".log")
        os.close(descriptor)
        _log = _Log(path)
        atexit.register(_log.discard)
    return _log.path


@contextmanager
def _output_in_log() -> Iterator[None]:
    """Let whatever is started inside inherit the log as its standard output and error."""
    path = _log_file()
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
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


def _ship_package(context: SparkContext) -> None:
    """Have every executor import this package, the very files that run here."""
    directory = tempfile.TemporaryDirectory(prefix="keepfast-package-")
    atexit.register(directory.cleanup)
    context.addPyFile(package_zip(Path(directory.name)))
