"""The examples of the manual are run, in order, and have to print what the manual says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apache import ApacheServer

pytestmark = pytest.mark.conformance

MANUAL = Path(__file__).parents[2] / "docs" / "shell.md"

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_TIME = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \S+ \d{4}|\d{4}-\d\d-\d\dT[\d:.]+Z"
)


def examples() -> list[tuple[str, str]]:
    """Every command of the manual with the output that is printed below it."""
    found: list[tuple[str, str]] = []
    for block in _BLOCK.findall(MANUAL.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_examples_of_the_manual(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "keepfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m keepfast "$@"\n')
    program.chmod(0o755)
    with ApacheServer(tmp_path / "data") as server:
        for command, output in examples():
            done = subprocess.run(
                ["sh", "-c", command.replace("localhost:2181", server.hosts)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
                env={"PATH": f"{program.parent}:/usr/bin:/bin", "TZ": "UTC"},
                timeout=120,
                check=False,
            )
            assert _TIME.sub("TIME", done.stdout) == _TIME.sub("TIME", output), command
    assert len(examples()) >= 8
