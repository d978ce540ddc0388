"""Commands in pages, checked without running them: names, options, targets, extras."""

from __future__ import annotations

import re
import tomllib
from typing import Final

import pytest
import typer

from keepfast.cli.app import app
from keepfast.cli.completion_scripts import command_words
from tests.docs.pages import PROJECT, Block, blocks, page_names

# Every block that the tests do not run, with what it needs. docs/deploy.md's are walked through in
# parts by tests/deploy: units, container, manifests and rules.
_NOT_RUN: Final = [
    ("docs/backup.md", "needs systemd"),
    ("docs/deploy.md", "needs systemd, root and PyPI"),
    ("docs/deploy.md", "needs systemd"),
    ("docs/deploy.md", "needs systemd"),
    ("docs/deploy.md", "needs root and Debian's archive"),
    ("docs/deploy.md", "needs systemd"),
    ("docs/deploy.md", "needs Docker"),
    ("docs/deploy.md", "needs a Kubernetes cluster"),
    ("docs/deploy.md", "needs systemd"),
    ("docs/lab.md", "takes five minutes"),
]
_PROGRAMS: Final = "keepfast|make|pip|curl|docker|systemctl|kubectl|apt-get|python3?"
_COMMAND_LINE: Final = re.compile(rf"^(\$ |({_PROGRAMS}) )", re.MULTILINE)
_FENCED: Final = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_COMMANDS: Final = {one.name: one for one in command_words(typer.main.get_command(app))}
# Options of all commands together.
_EVERYWHERE: Final = {"--help", "--version"}


def _unknown(line: str) -> str | None:
    """What does not exist in a line that begins with `keepfast`."""
    line = re.split(r"[;|&>]|\s#\s", line)[0]
    words = line.split()
    if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
        return None
    command = _COMMANDS.get(" ".join(words[1:3])) or _COMMANDS.get(words[1])
    if command is None:
        return f"there is no command {words[1]}: {line}"
    known = {name for option in command.options for name in option.names}
    lacking = set(_OPTION.findall(line)) - known - _EVERYWHERE
    return f"{command.name} has no {', '.join(sorted(lacking))}: {line}" if lacking else None


def _lines_that_name(page: str, program: str) -> list[str]:
    """Every line of a block, and every inline code, of a page that begins with a program."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for block in blocks(page) for line in block.text.splitlines()]
    lines += _INLINE.findall(_FENCED.sub("", text))
    return [line for line in lines if line.startswith(f"{program} ")]


def test_blocks_that_are_not_run__say_so_and_are_these() -> None:
    every = [block for page in page_names() for block in blocks(page)]
    marked = [(one.page, one.not_run_because) for one in every if one.not_run_because is not None]
    assert marked == _NOT_RUN


def test_commands_are_in_blocks_that_are_run() -> None:
    """A block without a language, or in another one, would never be run."""

    def hides_commands(block: Block) -> bool:
        is_synopsis = block.language == "text" and block.text.startswith("keepfast ")
        is_other = block.language not in ("sh", "console") and not is_synopsis
        return is_other and _COMMAND_LINE.search(block.text) is not None

    every = [block for page in page_names() for block in blocks(page)]
    assert [(one.page, one.text) for one in every if hides_commands(one)] == []


@pytest.mark.parametrize("page", page_names())
def test_commands_and_options_exist(page: str) -> None:
    unknown = [_unknown(line) for line in _lines_that_name(page, "keepfast")]
    assert [text for text in unknown if text] == []


def test_what_does_not_exist_is_noticed() -> None:
    assert _unknown("keepfast frobnicate DIR") is not None
    assert _unknown("keepfast verify DIR --frobnicate") is not None
    assert _unknown("keepfast verify DIR --json | grep --count x") is None


@pytest.mark.parametrize("page", page_names())
def test_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word
        for line in _lines_that_name(page, "make")
        for word in line.split()[1:2]
        if re.fullmatch(r"[a-z-]+", word)
    }
    assert named - targets == set()


@pytest.mark.parametrize("page", page_names())
def test_extras_exist(page: str) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    text = (PROJECT / page).read_text(encoding="utf-8")
    named = {one for many in re.findall(r"keepfast\[([a-z,-]+)\]", text) for one in many.split(",")}
    assert named - set(project["optional-dependencies"]) == set()
