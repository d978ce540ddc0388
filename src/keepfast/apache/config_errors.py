"""Errors in a configuration, with the place where the value was given."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.wire import KeepfastError


class ValueOrigin(NamedTuple):
    """Where a value was given: a line of a file, a flag, a -D, a variable; or a default."""

    text: str
    file: str | None = None
    line: int | None = None
    # Whether `text` does not name the key: a file, or a variable with several keys in it.
    is_of_many: bool = False

    def place(self, key: str) -> str:
        """How a message about the key begins."""
        return f"{self.text}: {key}" if self.file is not None or self.is_of_many else self.text


class ConfigError(KeepfastError):
    """A configuration that cannot work; nothing was started.

    `reason` says what is allowed or missing. `others` are further errors that were found in the
    same configuration: an operator should not have to find them one start at a time.
    """

    def __init__(
        self,
        reason: str,
        *,
        key: str | None = None,
        value: str | None = None,
        file: str | None = None,
        line: int | None = None,
        origin: str | None = None,
        others: tuple[ConfigError, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key
        self.value = value
        self.file = file
        self.line = line
        self.origin = origin
        self.others = others

    @classmethod
    def at(cls, origin: ValueOrigin, key: str, value: str | None, reason: str) -> ConfigError:
        """An error about a value that was given somewhere."""
        return cls(
            reason,
            key=key,
            value=value,
            file=origin.file,
            line=origin.line,
            origin=origin.place(key),
        )

    @property
    def message(self) -> str:
        """This error alone, in one line."""
        place = self.origin
        if place is None:
            where = [part for part in (self.file, self.key) if part is not None]
            place = ": ".join(where)
        if self.value is not None:
            place = f"{place}={self.value}"
        return f"{place}: {self.reason}" if place else self.reason

    def __str__(self) -> str:
        return "\n".join(error.message for error in (self, *self.others))


class ConfigWarning(NamedTuple):
    """Something that works, but probably not as meant."""

    message: str
    key: str
    file: str | None = None
    line: int | None = None

    @classmethod
    def at(cls, origin: ValueOrigin, key: str, message: str) -> ConfigWarning:
        return cls(f"{origin.place(key)}: {message}", key, origin.file, origin.line)

    def __str__(self) -> str:
        return self.message
