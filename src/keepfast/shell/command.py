"""A command: its name, its flags, and the function that runs it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from keepfast.client import Client
from keepfast.shell.flags import Flag, Given, Syntax, parse_flags
from keepfast.shell.formats import Document
from keepfast.shell.shell_failures import UsageError
from keepfast.shell.shell_output import Output

_INT_BITS = 31
_DECIMAL = re.compile("[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Context:
    """What a command works with."""

    client: Client
    output: Output


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command. `run` prints text as it goes and returns the document for JSON."""

    name: str
    arguments: str
    run: Callable[[Context, Given], Document]
    syntax: Syntax = field(default_factory=Syntax)
    min_arguments: int = 0
    max_arguments: int | None = None
    # Some commands explain their flags when they are used wrongly.
    explains_flags: bool = False

    @property
    def usage(self) -> str:
        lines = [f"{self.name} {self.arguments}"]
        if self.explains_flags:
            lines += [*_explanations(self.syntax.flags), ""]
        return "\n".join(lines)

    def parse(self, words: list[str]) -> Given:
        """The words after the command's own; UsageError if they do not fit."""
        given = parse_flags(words, self.syntax)
        count = len(given.arguments)
        if count < self.min_arguments:
            raise UsageError(self.usage)
        if self.max_arguments is not None and count > self.max_arguments:
            raise UsageError(self.usage)
        return given


def flag(name: str, meaning: str = "") -> Flag:
    return Flag(name, meaning)


def value_flag(name: str, meaning: str = "") -> Flag:
    return Flag(name, meaning, takes_value=True)


def integer(given: Given, name: str, default: int, bits: int = _INT_BITS) -> int:
    """The value of a flag as a number that fits into the protocol's field."""
    if not given.has(name):
        return default
    kind = "an int" if bits == _INT_BITS else "a long"
    value = decimal(given.flags[name])
    if value is None or not -(1 << bits) <= value < 1 << bits:
        raise UsageError(f"-{name} argument must be {kind} value")
    return value


def decimal(text: str) -> int | None:
    """A number as Java reads one: digits and a sign, none of what Python allows besides."""
    return int(text) if _DECIMAL.fullmatch(text) else None


def _explanations(flags: tuple[Flag, ...]) -> list[str]:
    names = [f" -{flag.name}{' <arg>' if flag.takes_value else ''}" for flag in flags]
    width = max(map(len, names))
    return [f"{name:<{width}}   {flag.meaning}" for name, flag in zip(names, flags, strict=True)]
