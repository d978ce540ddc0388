"""Flags of a command, read as ZooKeeper's shell reads them (by Apache Commons CLI's rules).

A flag may stand anywhere; `-sw` is `-s -w`; a value follows (`-v 5`, `-v5`, `-v=5`) and may be a
negative number; `--` ends the flags. The wording of complaints is that library's too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from keepfast.shell.shell_failures import UsageError

_NEGATIVE_NUMBER: Final = re.compile(r"-\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    meaning: str
    takes_value: bool = False


@dataclass(frozen=True, slots=True)
class Syntax:
    """The flags of one command; of those in `one_of` at most one is given, exactly one if
    required."""

    flags: tuple[Flag, ...] = ()
    one_of: tuple[str, ...] = ()
    is_required: bool = False

    def find(self, name: str) -> Flag | None:
        return next((flag for flag in self.flags if flag.name == name), None)


@dataclass(slots=True)
class Given:
    """What was typed: the flags with their values ("" for those without), and the rest."""

    flags: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.flags

    def argument(self, index: int) -> str | None:
        return self.arguments[index] if index < len(self.arguments) else None


def parse_flags(words: list[str], syntax: Syntax) -> Given:
    """Separate flags, their values and arguments; UsageError for what the syntax lacks."""
    given = Given()
    waiting: Flag | None = None
    for index, word in enumerate(words):
        if waiting is not None and not _looks_like_flag(word, syntax):
            given.flags[waiting.name] = word
            waiting = None
        elif word == "--":
            _refuse_missing(waiting)
            given.arguments += words[index + 1 :]
            break
        elif word.startswith("-") and word != "-":
            _refuse_missing(waiting)
            waiting = _take_flag(word, syntax, given)
        else:
            given.arguments.append(word)
    _refuse_missing(waiting)
    if syntax.is_required and not any(name in given.flags for name in syntax.one_of):
        wanted = [syntax.find(name) for name in syntax.one_of]
        listed = ", ".join(f"-{flag.name} {flag.meaning}" for flag in wanted if flag)
        raise UsageError(f"Missing required option: [{listed}]")
    return given


def _looks_like_flag(word: str, syntax: Syntax) -> bool:
    """Whether a word in the place of a value is not that value."""
    if not word.startswith("-") or word == "-" or _NEGATIVE_NUMBER.fullmatch(word):
        return False
    name = word[1:].partition("=")[0]
    return word == "--" or syntax.find(name) is not None or syntax.find(name[:1]) is not None


def _refuse_missing(waiting: Flag | None) -> None:
    if waiting is not None:
        raise UsageError(f"Missing argument for option: {waiting.name}")


def _take_flag(word: str, syntax: Syntax, given: Given) -> Flag | None:
    """Note the flag or flags in a word; the one whose value is still to come, if any."""
    name, equals, value = word[1:].partition("=")
    whole = syntax.find(name)
    if whole is not None and not equals:
        return _note(whole, None, syntax, given)
    if whole is not None and whole.takes_value:
        return _note(whole, value, syntax, given)
    letters = word[1:]
    for index, letter in enumerate(letters):
        flag = syntax.find(letter)
        if flag is None:
            raise UsageError(f"Unrecognized option: {word}")
        rest = letters[index + 1 :]
        if flag.takes_value:
            return _note(flag, rest or None, syntax, given)
        _note(flag, None, syntax, given)
    return None


def _note(flag: Flag, value: str | None, syntax: Syntax, given: Given) -> Flag | None:
    if flag.name in syntax.one_of:
        for other in syntax.one_of:
            if other != flag.name and other in given.flags:
                raise UsageError(
                    f"The option '{flag.name}' was specified but an option from this group "
                    f"has already been selected: '{other}'"
                )
    given.flags[flag.name] = value or ""
    return flag if flag.takes_value and value is None else None
