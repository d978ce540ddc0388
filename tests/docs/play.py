"""Run a page; `python -m tests.docs.play docs/cli.md` also writes into it what was printed."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.machine import Ended, Machine
from tests.docs.pages import PROJECT, Block, Command, blocks, is_shown, renewed
from tests.docs.scenes import set_scene

_INTERRUPTED: Final = 130
# Its blocks are parts of one program, in a session that is not ours.
_OTHER_TEST: Final = {
    "docs/spark.md": "tests/pipeline/test_spark_page.py",
    "docs/questions.md": "tests/pipeline/test_questions.py",
}
# Lines that are not run, and what shows that they are true: the wheel with every extra is installed
# by tests/packaging, and a target of make would run the tests inside of themselves.
# test_commands.py sees that the extra, or the target, exists.
_SHOWN_ELSEWHERE: Final = re.compile(r"(pip install|make) ")


class Played(NamedTuple):
    """What a block of commands did."""

    block: Block
    printed: list[str]
    complaints: list[str]


def is_run(block: Block) -> bool:
    """Whether a block is something that a reader runs, and the tests too."""
    if block.not_run_because is not None or block.page in _OTHER_TEST:
        return False
    return block.language == "python" or any(map(is_run_here, block.commands()))


def is_run_here(command: Command) -> bool:
    """Whether a line of a block that is run is itself run."""
    return _SHOWN_ELSEWHERE.match(command.line) is None


def play(page: str, folder: Path) -> list[Played]:
    """Run every block of a page that is run, in order, on one machine."""
    with Machine(folder) as machine:
        set_scene(machine, page)
        return [_play_block(machine, block) for block in blocks(page) if is_run(block)]


def _play_block(machine: Machine, block: Block) -> Played:
    if block.language == "python":
        return _play_python(machine, block)
    printed, complaints = [], []
    for command in filter(is_run_here, block.commands()):
        ended = machine.run(command)
        printed.append(ended.printed)
        complaints += _complaints(command, ended)
    return Played(block, printed, complaints)


def _complaints(command: Command, ended: Ended) -> list[str]:
    if command.shown:
        if is_shown(command.shown, ended.printed):
            return []
        return [f"{command.line}\nis said to print\n{command.shown}\nand prints\n{ended.printed}"]
    if ended.code == 0 or (command.is_endless and ended.code == _INTERRUPTED):
        return []
    return [f"{command.line}\nended with {ended.code}:\n{ended.printed}"]


def _play_python(machine: Machine, block: Block) -> Played:
    is_test = "def test_" in block.text
    file = "test_page.py" if is_test else "page.py"
    machine.script(f"printf %s {shlex.quote(block.text)} >{file}")
    runner = "pytest -q -p no:cacheprovider -p no:xdist" if is_test else "python"
    ended = machine.run(Command(f"{runner} {file}", ""))
    return Played(block, [ended.printed], _complaints(Command(file, ""), ended))


def main(page: str) -> int:
    """Run a page, write what was printed into it, and print what else is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        played = play(page, Path(folder))
    printed = {one.block.text: one.printed for one in played if one.block.language == "console"}
    (PROJECT / page).write_text(renewed(page, printed), encoding="utf-8")
    complaints = [text for one in played for text in one.complaints]
    print(*complaints, sep="\n\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
