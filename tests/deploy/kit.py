"""Where the kit's files are, and the programs that judge them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
_TOOLS = PROJECT / ".venv-tools" / "bin"


def find_tool(name: str, package: str) -> str:
    """The path of a program; skips the test where it is missing."""
    found = shutil.which(name, path=f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"needs {name} ({package})")
    return found


def run_tool(*command: str | Path, cwd: Path | None = None, text: str = "") -> str:
    """What a program prints; the test fails if the program does."""
    done = subprocess.run(
        [str(word) for word in command],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def read_yaml(path: Path) -> list[Any]:
    """The documents of a YAML file, by the parser of the tools' environment."""
    python = _TOOLS / "python"
    if not python.exists():
        pytest.skip("needs PyYAML (make tools)")
    program = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    documents = json.loads(run_tool(python, "-c", program, text=path.read_text()))
    assert isinstance(documents, list)
    return documents
