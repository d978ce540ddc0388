"""Which servers can be put under test, and how they are started.

keepfast        this very package
apache          Apache ZooKeeper as it lies among PySpark's jars
apache:3.6.3    another release, from the jars of an older PySpark, fetched by pip on demand
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from keepfast.wire import KeepfastError

KEEPFAST: Final = "keepfast"
APACHE: Final = "apache"
_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_PURGE_CLASS: Final = "org.apache.zookeeper.server.PurgeTxnLog"
# The release of ZooKeeper -> the release of PySpark whose archive on PyPI carries its jars.
_CARRIERS: Final = {"3.4.14": "3.1.3", "3.6.2": "3.2.4", "3.6.3": "3.5.9", "3.9.3": "4.0.1"}
_APACHE_WRITE_ERROR: Final = "Severe unrecoverable error"
_KEEPFAST_WRITE_ERROR: Final = "disk-failed"
_NEEDED_JARS: Final = (
    "zookeeper",
    "slf4j",
    "log4j",
    "reload4j",
    "netty",
    "commons-cli",
    "commons-io",
    "commons-lang",
    "metrics-core",
    "snappy",
    "jackson",
    "audience-annotations",
)
_LOGGING: Final = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
"""
# The same for Log4j 1, which releases up to 3.6.2 come with here.
_OLD_LOGGING: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} - %m%n
"""


class ReleaseError(KeepfastError):
    """A server that is not available; `str()` says what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A kind of server and the command that starts one."""

    name: str
    java: str = ""
    jars: str = ""

    @property
    def is_keepfast(self) -> bool:
        return self.name == KEEPFAST

    @property
    def write_error(self) -> str:
        """What a server prints when it could not write its log."""
        return _KEEPFAST_WRITE_ERROR if self.is_keepfast else _APACHE_WRITE_ERROR

    def command(self, config: Path, properties: Mapping[str, str]) -> list[str]:
        """What to run for a server with this configuration file and these Java properties."""
        definitions = [f"-D{name}={value}" for name, value in properties.items()]
        if self.is_keepfast:
            return [sys.executable, "-m", "keepfast", "serve", str(config), *definitions]
        logging = config.with_name("log4j2.properties")
        logging.write_text(_LOGGING)
        old_logging = config.with_name("log4j.properties")
        old_logging.write_text(_OLD_LOGGING)
        return [
            self.java,
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={logging}",
            f"-Dlog4j.configuration=file:{old_logging}",
            "-Dzookeeper.jmx.log4j.disable=true",
            *definitions,
            *("-cp", self.jars, _MAIN_CLASS, str(config)),
        ]

    def purge_command(self, data_dir: Path, keep: int) -> list[str]:
        """What purges a directory from outside; none where a server does that itself."""
        if self.is_keepfast:
            return []
        place = str(data_dir)
        return [self.java, *("-cp", self.jars, _PURGE_CLASS, place, place, "-n", str(keep))]


def find_release(name: str) -> Release:
    """The release of that name; fetched by pip if need be. Raises ReleaseError."""
    kind, _, version = name.partition(":")
    if name == KEEPFAST:
        return Release(name)
    if kind != APACHE or (version and version not in _CARRIERS):
        known = ", ".join([KEEPFAST, APACHE, *(f"{APACHE}:{one}" for one in _CARRIERS)])
        raise ReleaseError(f'there is no server "{name}" to test; known are {known}')
    # Here: our servers are run where the pipeline is not installed.
    from keepfast.pipeline import JavaNotFound, find_java

    try:
        java = find_java().executable
    except JavaNotFound as error:
        raise ReleaseError(f"Apache's servers need Java: {error}") from error
    folder = _carried_jars(version) if version else _own_jars()
    jars = [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_NEEDED_JARS)]
    if not any(Path(jar).name.startswith("zookeeper") for jar in jars):
        raise ReleaseError(f"no jar of ZooKeeper was found in {folder}")
    return Release(name, java, os.pathsep.join(jars))


def _own_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ReleaseError(
            "Apache ZooKeeper comes with PySpark: pip install 'keepfast[pipeline]' first"
        )
    return Path(spec.origin).parent / "jars"


def _carried_jars(version: str) -> Path:
    """The jars of another release, kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "keepfast"
    folder = cache / f"apache-{version}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        fetched = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                # The archive carries all jars; what pip needs to look into it may be binary.
                *("--no-binary", "pyspark", "--dest", place),
                f"pyspark=={_CARRIERS[version]}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        archives = list(Path(place).glob("pyspark-*.tar.gz"))
        if not archives:
            last = (fetched.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ReleaseError(f"pip could not fetch Apache ZooKeeper {version}: {last}")
        with tarfile.open(archives[0]) as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name.endswith(".jar") and name.startswith(_NEEDED_JARS):
                    source = archive.extractfile(member)
                    if source is not None:
                        (folder / name).write_bytes(source.read())
    (folder / "complete").touch()
    return folder
