"""The compiled build, up to its C code; `make test-compiled` compiles it and runs tests on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# In a process of its own: mypyc takes 300 MB, and ends with sys.exit.
EMIT = """
import sys
from pathlib import Path
from hatch_build import emit_c, listed_modules
root = Path(sys.argv[1])
modules = sys.argv[3:] or listed_modules(root)
extensions = emit_c(root, modules, Path(sys.argv[2]))
print(len(modules), len(extensions))
"""


def emit(root: Path, place: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", EMIT, str(root), str(place), *modules],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=False,
    )


def test_every_listed_module__can_be_compiled_without_a_warning(tmp_path: Path) -> None:
    done = emit(PROJECT, tmp_path)
    assert done.returncode == 0, done.stderr
    modules, extensions = map(int, done.stdout.split())
    # One for each, and one that holds the code of all.
    assert extensions == modules + 1


LAZY = """
from collections.abc import Iterator

def squares(n: int) -> Iterator[int]:
    made = (i * i for i in range(n))
    return made
"""
SUBCLASS = """
class Text(tuple[str, ...]):
    size: int = 1
"""
WRONG = """
def size(text: str) -> int:
    return text
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(LAZY, "mypyc warns of code that it compiles differently", id="warning"),
        pytest.param(SUBCLASS, "Inheriting from most builtin types", id="cannot be compiled"),
        pytest.param(WRONG, "Incompatible return value type", id="wrong type"),
    ],
)
def test_code_that_would_differ__ends_the_build(tmp_path: Path, code: str, reason: str) -> None:
    source = tmp_path / "src" / "differing.py"
    source.parent.mkdir()
    source.write_text(code)
    done = emit(tmp_path, tmp_path / "build", "differing")
    assert done.returncode == 1
    assert reason in done.stderr
