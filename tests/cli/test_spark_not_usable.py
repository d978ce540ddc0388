"""Commands on a machine whose Spark cannot be used: one sentence, and what was done is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runs import run

# Processes of their own: where Spark runs already, nobody looks for it.


def said_of(folder: Path) -> str:
    """What is said where SPARK_HOME names a folder without Spark."""
    return f"keepfast: SPARK_HOME={folder} holds no Spark"


def test_simulate(tmp_path: Path) -> None:
    arguments = ("simulate", "--seeds", "1", "--master", "local[1]")
    result = run(*arguments, SPARK_HOME=str(tmp_path))
    assert result.code == 4
    assert result.err.startswith(said_of(tmp_path))


@pytest.mark.slow
def test_lab__what_was_played_is_shown(tmp_path: Path) -> None:
    result = run("lab", "zeroed-record", SPARK_HOME=str(tmp_path))
    assert result.code == 4
    assert result.err.splitlines()[-1].startswith(said_of(tmp_path))
    assert "not audited" in result.out
