"""How one setting is declared: its key, the values it takes, and what they do.

A group of settings is a frozen dataclass whose fields are made by `setting()`. Everything else
follows from the declaration: parsing and its error messages, `serve --check`, the environment's
names, and the tables of docs/configuration.md. Nothing about a key is written down twice.

    tick_time_ms: int = setting("tickTime", Whole(1, MAX_INT, "ms"), 3000)

What it means, in words, is in `settings.json`.

A field is called like its key in snake case, with the unit at the end. Fields that derive their
default from another field hold the final value after construction (`__post_init__`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from keepfast.apache.config_prose import SETTING_PROSE, SettingProse

T = TypeVar("T")

MAX_INT: Final = 2**31 - 1
MIN_INT: Final = -(2**31)
MAX_LONG: Final = 2**63 - 1
MAX_PORT: Final = 65535
HIDDEN: Final = "***"

_OCTAL: Final = re.compile(r"[0-7]{3}\Z")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+\Z")
# What Java's Integer.decode takes: system properties such as jute.maxbuffer=0xfffff are read so.
_DECODABLE: Final = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|#([0-9a-fA-F]+)|0([0-7]+)|(0|[1-9][0-9]*))\Z"
)
_INTERVAL: Final = re.compile(r"([+-]?[0-9]+)(ms|s|m|h|d|)\Z", re.IGNORECASE)
_MS_OF: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?\Z")


class ValueKind(ABC, Generic[T]):
    """The values that a setting accepts, as text and as Python values."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """The allowed values, to follow the words "must be"."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """The value of a text; ValueError for one that is not allowed."""

    def show(self, value: T) -> str:
        """The text of a value, so that `parse(show(value))` is the value again."""
        return str(value)


class Whole(ValueKind[int]):
    """A whole number within bounds."""

    def __init__(self, low: int, high: int, unit: str = "", *, java_decode: bool = True) -> None:
        self.low = low
        self.high = high
        self.unit = unit
        # Keys with a field of their own in Apache are read by parseInt, decimal only. System
        # properties go through decode, where 010 is eight.
        self._decode = java_decode

    @property
    def allowed(self) -> str:
        if self.low == self.high:
            return str(self.low)
        of_unit = f" of {self.unit}" if self.unit else ""
        return f"a whole number{of_unit} from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        value = self._decoded(text) if self._decode else self._decimal(text)
        if not self.low <= value <= self.high:
            raise ValueError(text)
        return value

    @staticmethod
    def _decimal(text: str) -> int:
        if not _DECIMAL.match(text):
            raise ValueError(text)
        return int(text)

    @staticmethod
    def _decoded(text: str) -> int:
        match = _DECODABLE.match(text)
        if match is None:
            raise ValueError(text)
        sign, hexadecimal, hash_form, octal, decimal = match.groups()
        if octal is not None:
            value = int(octal, 8)
        elif decimal is not None:
            value = int(decimal)
        else:
            value = int(hexadecimal or hash_form, 16)
        return -value if sign == "-" else value


class FileMask(ValueKind[int]):
    """The permissions that new files and directories do not get, as `umask` takes them."""

    @property
    def allowed(self) -> str:
        return "three octal digits, such as 027"

    def parse(self, text: str) -> int:
        if not _OCTAL.match(text):
            raise ValueError(text)
        return int(text, 8)

    def show(self, value: int) -> str:
        return f"{value:03o}"


class Number(ValueKind[float]):
    """A number within bounds."""

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    @property
    def allowed(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def parse(self, text: str) -> float:
        # Python also reads 1_000 and nan.
        value = float(text) if "_" not in text else math.nan
        if not self.low <= value <= self.high:
            raise ValueError(text)
        return value

    def show(self, value: float) -> str:
        return f"{value:g}"


class Period(ValueKind[int]):
    """A time in ms, written in hours unless it has a unit of its own (30m, 12h, 1d)."""

    @property
    def allowed(self) -> str:
        return f"a whole number of hours up to {MAX_INT}, or one with a unit (ms, s, m, h, d)"

    def parse(self, text: str) -> int:
        match = _INTERVAL.match(text)
        if match is None:
            raise ValueError(text)
        count = int(match[1])
        if not MIN_INT <= count <= MAX_INT:
            raise ValueError(text)
        return count * _MS_OF[match[2].lower() or "h"]

    def show(self, value: int) -> str:
        if value == 0:
            return "0"
        unit = next(unit for unit, size in reversed(_MS_OF.items()) if value % size == 0)
        return f"{value // _MS_OF[unit]}{unit}"


class Switch(ValueKind[bool]):
    """Two words for on and off, in any case.

    Apache takes every other word for "off" where the switch is a system property. Here it is an
    error: `enforce.auth.enabled=yes` must not disable authentication.
    """

    def __init__(self, on: str = "true", off: str = "false") -> None:
        self._words = {on: True, off: False}

    @property
    def allowed(self) -> str:
        return " or ".join(self._words)

    def parse(self, text: str) -> bool:
        try:
            return self._words[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    def show(self, value: bool) -> str:
        return next(word for word, meaning in self._words.items() if meaning is value)


class FreeText(ValueKind[str]):
    """Any text; `pattern` narrows it, and `description` says to what."""

    def __init__(self, description: str = "some text", pattern: str = r".+") -> None:
        self._description = description
        self._pattern = re.compile(pattern, re.DOTALL)

    @property
    def allowed(self) -> str:
        return self._description

    def parse(self, text: str) -> str:
        if not self._pattern.fullmatch(text):
            raise ValueError(text)
        return text


class HostName(ValueKind[str]):
    """A host name or an address to listen on; never resolved here."""

    allowed = "a host name or an IP address"

    def parse(self, text: str) -> str:
        return parse_host(text)


class OneOf(ValueKind[T]):
    """One of some words, in any case."""

    def __init__(self, words: Mapping[str, T]) -> None:
        self._words = dict(words)
        self._lower = {word.lower(): value for word, value in words.items()}

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(word or "nothing" for word in self._words)

    def parse(self, text: str) -> T:
        try:
            return self._lower[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    def show(self, value: T) -> str:
        return next(word for word, meaning in self._words.items() if meaning == value)


class Words(ValueKind[tuple[str, ...]]):
    """Words separated by commas; blanks around them and empty ones do not count."""

    def __init__(self, description: str, choices: Mapping[str, str] | None = None) -> None:
        self._description = description
        self._choices = choices

    @property
    def allowed(self) -> str:
        if self._choices is None:
            return self._description
        return f"{self._description}: any of {', '.join(self._choices)}"

    def parse(self, text: str) -> tuple[str, ...]:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if self._choices is None:
            return tuple(words)
        lower = {word.lower(): value for word, value in self._choices.items()}
        try:
            return tuple(lower[word.lower()] for word in words)
        except KeyError:
            raise ValueError(text) from None

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class Scope(Enum):
    """Where a key may stand, besides the environment, where every key may."""

    FILE = "zoo.cfg, -Dzookeeper."
    # Apache never reads these from its file, where they would be taken for zookeeper.<key>.
    PROPERTY = "-D only"
    BOTH = "zoo.cfg, -Dzookeeper., -D"
    OWN = "zoo.cfg, -D"


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one key; see `setting`."""

    key: str
    kind: ValueKind[Any]
    prose: SettingProse
    scope: Scope = Scope.FILE
    aliases: tuple[str, ...] = ()
    # A lower value counts as this one, with a warning, as in Apache.
    floor: int | None = None
    # The value that endangers data or access, where the prose says how. It has to be acknowledged.
    unsafe: object = None
    # Never shown.
    is_secret: bool = False

    def show(self, value: object) -> str:
        """The value for people; a secret is hidden, what is not set is empty."""
        if value is None or value == "":
            return ""
        return HIDDEN if self.is_secret else self.kind.show(value)


def setting(
    key: str,
    kind: ValueKind[T],
    default: T | None,
    **options: Any,
) -> Any:
    """A field of a group. `options` are the other fields of Setting."""
    declared = Setting(key, kind, SETTING_PROSE[key], **options)
    # No secret may get into a log through a printed configuration.
    return field(default=default, repr=not declared.is_secret, metadata={"setting": declared})


def settings_of(group: object) -> Iterator[tuple[str, Setting]]:
    """The names and declarations of a group's settings, in order; of an instance or a class."""
    for item in dataclasses.fields(group):  # type: ignore[arg-type]
        declared = item.metadata.get("setting")
        if declared is not None:
            yield item.name, declared


def derive(group: object, name: str, value: object) -> None:
    """Give a field of a frozen group the value that follows from its other fields."""
    object.__setattr__(group, name, value)


def parse_host(text: str) -> str:
    """A host name, an IPv4 address, or an IPv6 address with or without brackets (removed)."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _IPV6.match(bare) or (bare == text and _HOST.match(text)):
        return bare
    raise ValueError(text)


def is_any_address(host: str) -> bool:
    """Whether a listener on this host takes connections to every address of the machine."""
    return host in ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")


def decimal(low: int, high: int, unit: str = "") -> Whole:
    """A number that Apache reads from zoo.cfg itself, not from a system property."""
    return Whole(low, high, unit, java_decode=False)


PATH: Final = FreeText("a path", r"[^\0]+")
TRUE_FALSE: Final = Switch()
YES_NO: Final = Switch("yes", "no")
