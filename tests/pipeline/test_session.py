"""The embedded Spark as a person meets it: silent, on a Java from a wheel, its log named."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from keepfast.pipeline.session import SessionOptions, package_zip

_PROGRAM = """
import sys
from keepfast.pipeline.session import JobFailed, log_path, spark_session
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


def test_options() -> None:
    assert SessionOptions().is_local
    assert SessionOptions("local[2]").is_local
    assert not SessionOptions("local-cluster[2,1,1024]").is_local
    assert not SessionOptions("spark://host:7077").is_local


def test_package__goes_to_executors_whole(tmp_path: Path) -> None:
    names = zipfile.ZipFile(package_zip(tmp_path)).namelist()
    assert "keepfast/pipeline/columns/frames.py" in names
    assert "keepfast/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name]
