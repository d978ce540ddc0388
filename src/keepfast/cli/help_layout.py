"""The layout of help: commands in groups, whole sentences, no Python types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

# The groups, in this order; a command in none of them is shown at the end.
COMMAND_GROUPS: Final = {
    "Run": ("serve", "ensemble", "ensemble rescue", "shell", "status", "console", "bench"),
    "Look": ("inspect", "inspect blame", "who", "state", "diff", "history", "undelete"),
    "Prove": ("verify", "audit", "watch", "repair", "backup", "backup list", "restore"),
    "Learn": ("lab", "simulate"),
    "About": ("version", "completion", "manual"),
}
_MORE: Final = "More"
# What the parser shows for a value that has no name of its own.
_TYPE: Final = re.compile(r" ?<([^<>]*)>")
_RANGE: Final = re.compile(r"(?:(?P<low>-?[\d.]+)<=)?x(?:(?P<sign><=|>=)(?P<bound>-?[\d.]+))?")


def grouped(names: list[str]) -> dict[str, list[str]]:
    """The commands by their groups."""
    found = {
        title: [name for name in known if name in names] for title, known in COMMAND_GROUPS.items()
    }
    shown = {name for members in found.values() for name in members}
    found[_MORE] = [name for name in names if name not in shown]
    return {title: members for title, members in found.items() if members}


def summary(command: Any) -> str:
    """The first sentence of a command's help, whole."""
    paragraph = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


class CommandGroups(TyperGroup):
    """The program: its help lists the commands by purpose."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        visible = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        for title, names in grouped(visible).items():
            with formatter.section(title):
                formatter.write_dl([(name, summary(self.commands[name])) for name in names])


class PlainCommand(TyperCommand):
    """A command: its help names values as its users would."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [plain_piece(piece) for piece in super().collect_usage_pieces(ctx)]

    def records(self, ctx: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """What --help shows of each argument and of each option: its names, and its text."""
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                (arguments if is_argument else options).append(
                    plain_record(record, is_argument=is_argument)
                )
        return arguments, options

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, records in zip(("Arguments", "Options"), self.records(ctx), strict=True):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class ShellHelp(PlainCommand):
    """`keepfast shell`, which reads its options by itself, spelled as ZooKeeper's shell does."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        from keepfast.shell import SYNOPSIS

        return SYNOPSIS.split()

    def records(self, ctx: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        from keepfast.shell import OPTIONS

        return [], list(OPTIONS)


def plain_piece(piece: str) -> str:
    """One word of the usage line: `DIR...` instead of the parser's `{DIR...}...`."""
    word = re.sub(r"^\{(.*)\}", r"\1", piece)
    word = re.sub(r"^\[\[(.*)\]\]", r"[\1]", word)
    return word.replace("......", "...")


def plain_record(record: tuple[str, str], *, is_argument: bool) -> tuple[str, str]:
    """One line of help without Python types and range formulas."""
    name, text = record

    def value(found: re.Match[str]) -> str:
        if is_argument:
            return ""
        words = found[1]
        if "|" in words:
            return f" {words}"
        return " N" if words.startswith(("int", "float")) else " VALUE"

    return _TYPE.sub(value, name), _RANGE.sub(_in_words, text)


def _in_words(found: re.Match[str]) -> str:
    low, sign, bound = found["low"], found["sign"], found["bound"]
    if sign is None:
        return found[0]
    if sign == ">=":
        return f"at least {bound}"
    return f"{low} to {bound}" if low is not None else f"at most {bound}"


class Commands(typer.Typer):
    """The commands of the program, each with help of this layout."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        options.setdefault("cls", PlainCommand)
        return super().command(name, **options)
