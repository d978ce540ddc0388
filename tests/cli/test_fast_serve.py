"""The short way to `keepfast serve`, which has to mean what the parser means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keepfast.cli import app, serve_command
from keepfast.cli.fast_serve import run_without_parser


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["zoo.cfg"],
        ["-Dzookeeper.snapCount=5", "zoo.cfg"],
        ["zoo.cfg", "-D", "a=b", "-Dc=d=e"],
        ["-D", "-x=y"],
    ],
)
def test_plain_command__the_same_arguments_as_from_the_parser(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def note(arguments: Any) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr(serve_command, "serve", note)
    assert run_without_parser(words) == 0
    assert app.run(["serve", *words]) == 0
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "words", [["--help"], ["--check", "zoo.cfg"], ["a", "b"], ["-D"], ["--port", "1"], ["--"]]
)
def test_anything_else__is_left_to_the_parser(words: Sequence[str]) -> None:
    assert run_without_parser(words) is None


def test_failure__is_explained_as_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_without_parser([str(tmp_path / "missing.cfg")]) == 2
    assert "the configuration file cannot be read" in capsys.readouterr().err


def test_server__does_not_carry_the_parser() -> None:
    code = (
        "import sys; import keepfast.cli.serve_command; "
        "from keepfast.cli.fast_serve import run_without_parser; "
        "sys.exit(any(m.partition('.')[0] in ('typer', 'pydantic', 'rich') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
