"""Which servers can be tested, and how they are started."""

from __future__ import annotations

from pathlib import Path

from keepfast.harness import Release


def test_command_of_apache__sets_up_both_generations_of_its_logging(tmp_path: Path) -> None:
    release = Release("apache:3.4.14", "java", "zookeeper.jar")
    command = release.command(tmp_path / "zoo.cfg", {"zookeeper.snapCount": "60"})
    named = dict(part.split("=", 1) for part in command if part.startswith("-Dlog4j"))
    assert Path(named["-Dlog4j2.configurationFile"]).is_file()
    assert Path(named["-Dlog4j.configuration"].removeprefix("file:")).is_file()
    assert "-Dzookeeper.snapCount=60" in command
    assert command[-1] == str(tmp_path / "zoo.cfg")


def test_purge_of_ours__needs_no_command(tmp_path: Path) -> None:
    assert Release("keepfast").purge_command(tmp_path, 3) == []
    assert Release("apache", "java", "zookeeper.jar").purge_command(tmp_path, 3)[-1] == "3"
