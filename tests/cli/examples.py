"""The examples in docs/cli.md: run, compared, and renewed by `python -m tests.cli.examples`.

An example is a block that begins with ```console. Its lines that begin with "$ " are commands, the
others are what they print. They are run in a folder that holds the cases of tests/data/cases.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cases import CASES_DIR
from tests.cli.runs import run

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = '; echo "exit code $?"'


def blocks(text: str) -> Iterator[str]:
    """The examples of a page."""
    for match in _BLOCK.finditer(text):
        yield match[1]


def make_folder(folder: Path) -> None:
    """Put all cases into a folder."""
    for case in CASES_DIR.iterdir():
        (folder / case.name).symlink_to(case)


def play(block: str, folder: Path) -> str:
    """Run the commands of an example and give what it should read."""
    lines = []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        lines.append(line)
        command = line.removeprefix("$ ")
        arguments = shlex.split(command.removesuffix(_CODE))
        if arguments[0] == "cp":
            shutil.copytree(folder / arguments[2], folder / arguments[3])
            continue
        result = run(*arguments[1:], cwd=folder)
        lines += (result.out + result.err).splitlines()
        if command.endswith(_CODE):
            lines.append(f"exit code {result.code}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Renew the page."""
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder))
        renewed = _BLOCK.sub(lambda match: f"```console\n{play(match[1], Path(folder))}```", text)
    PAGE.write_text(renewed)


if __name__ == "__main__":
    main()
