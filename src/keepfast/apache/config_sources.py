"""All configuration sources, in order of precedence.

    command-line flag  >  -D  >  KEEPFAST_*  >  the file of secrets  >  -D in JVMFLAGS
        >  zoo.cfg (or ZOO_*)  >  default

This module knows where a value comes from, and which keys may come from where. What the values
mean is for others. Errors and warnings are collected here, each with the place of its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from keepfast.apache import config_keys as keys
from keepfast.apache.config_errors import ConfigError, ConfigWarning, ValueOrigin
from keepfast.apache.config_prose import UNSUPPORTED, VALUES_WITHOUT_MEANING, WITHOUT_MEANING
from keepfast.apache.config_settings import HIDDEN
from keepfast.apache.properties import (
    MalformedProperties,
    Property,
    edit_properties,
    format_property,
    parse_properties,
)

# A longer file is not a configuration: a log or a snapshot was named by mistake.
MAX_FILE_BYTES: Final = 1 << 20

# zkServer.sh passes both to Java, in this order: the last one wins.
_FLAG_VARIABLES: Final = ("SERVER_JVMFLAGS", "JVMFLAGS")

# Foreign keys that hold a secret, and what a comment may contain of one.
_SECRET_WORD: Final = re.compile(r"pass(?:word|wd|phrase)|secret|superDigest", re.IGNORECASE)
_SECRET_COMMENT: Final = re.compile(
    rf"^([ \t\f]*[#!][^\r\n]*?(?:{_SECRET_WORD.pattern})[^\r\n=:]*[=:])[^\r\n]*",
    re.IGNORECASE | re.MULTILINE,
)

# What Java's String.trim takes off: everything up to the space.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


class Rank(IntEnum):
    """Precedence; the greater one wins."""

    IMAGE_DEFAULT = 0
    FILE = 1
    JAVA_FLAGS = 2
    SECRETS_FILE = 3
    VARIABLE = 4
    DEFINITION = 5
    FLAG = 6


class GivenValue(NamedTuple):
    """A value that was given for a key."""

    key: str
    value: str
    origin: ValueOrigin
    rank: Rank


class Sources:
    """What was given, by canonical key, and what is wrong with it."""

    def __init__(self, file: str | None = None) -> None:
        self.file = file
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigWarning] = []
        self._given: dict[str, dict[Rank, GivenValue]] = {}
        self._derived: dict[str, str] = {}
        self._of_java: dict[str, str] = {}

    def find(self, key: str) -> GivenValue | None:
        """The value that counts; None if none was given."""
        by_rank = self._given.get(key)
        return by_rank[max(by_rank)] if by_rank else None

    def family(self, prefix: str) -> Iterator[tuple[str, GivenValue]]:
        """What stands after the prefix, and the value that counts, of all such keys."""
        for key in sorted(self._given):
            given = self.find(key)
            if key.startswith(prefix) and given is not None:
                yield key[len(prefix) :], given

    def set_origin(self, key: str, text: str) -> None:
        """Record where the value of a key came from that was not given under its own name."""
        self._derived[key] = text

    def set_family_origin(self, key: str, members: Iterable[GivenValue]) -> None:
        """Record where the members of a family were given, under one key."""
        places = ", ".join(given.origin.text for given in members)
        if places:
            self.set_origin(key, places)

    def origins(self) -> dict[str, str]:
        """Where the values that count were given, by key."""
        given = {key: ranks[max(ranks)].origin.text for key, ranks in self._given.items()}
        return given | self._derived

    def warn(self, origin: ValueOrigin, key: str, message: str) -> None:
        self.warnings.append(ConfigWarning.at(origin, key, message))

    def complain(self, key: str, reason: str, *, given: GivenValue | None = None) -> None:
        """Note an error about a key, at the place where its value was given, if it was."""
        given = given or self.find(key)
        if given is None:
            self.errors.append(ConfigError(reason, key=key, file=self.file))
            return
        value = HIDDEN if keys.is_secret(key) else given.value
        self.errors.append(ConfigError.at(given.origin, key, value, reason))

    def remark(self, key: str, message: str) -> None:
        """Note a warning about a key, at the place where its value was given, if it was."""
        given = self.find(key)
        origin = ValueOrigin(self.file or key, self.file) if given is None else given.origin
        self.warn(origin, key, message)

    def raise_errors(self) -> None:
        """Raise everything that was noted, as one ConfigError; nothing if nothing was."""
        if self.errors:
            first, *others = self.errors
            first.others = tuple(others)
            raise first

    # -- the sources -----------------------------------------------------------------------------

    def add_flag(self, key: str, value: str, flag: str) -> None:
        self._add(GivenValue(key, value, ValueOrigin(flag), Rank.FLAG))

    def add_properties(self, properties: Iterable[Property], file: str) -> None:
        """The lines of zoo.cfg or of a dynamic file."""
        for name, text, line in properties:
            origin = ValueOrigin(f"{file}:{line}", file, line)
            key, value = trim(name), trim(text)
            if not (key + value).isascii():
                # A path in UTF-8 would name another directory than the one that people see.
                self.warn(origin, key, "read as ISO-8859-1, as Java does; write \\uXXXX instead")
            if key in keys.PROPERTY_ONLY:
                self.warn(
                    origin, key, f"ignored here, as by Apache: give -D{key} to the command line"
                )
            else:
                self._add_named(key, value, origin, Rank.FILE)

    def add_secrets(self, properties: Iterable[Property], file: str) -> None:
        """The lines of the file that keepfast.secretsFile names."""
        for name, text, line in properties:
            key, origin = keys.canonical(trim(name)), ValueOrigin(f"{file}:{line}", file, line)
            if keys.is_secret(key):
                self._add(GivenValue(key, trim(text), origin, Rank.SECRETS_FILE))
            else:
                reason = "only passwords and superDigest may stand in the file of secrets"
                self.errors.append(ConfigError.at(origin, key, None, reason))

    def add_definitions(
        self, definitions: Mapping[str, str], rank: Rank = Rank.DEFINITION, place: str = ""
    ) -> None:
        """Java system properties by their full names, without the -D."""
        for name, text in definitions.items():
            value = trim(text)
            origin = ValueOrigin(f"{place}-D{name}")
            bare = name.removeprefix(keys.PROPERTY_PREFIX)
            is_bare_known = name in keys.PROPERTY_ONLY or name in keys.ALSO_BARE
            if is_bare_known or name.startswith(keys.OWN_PREFIX):
                self._add_named(name, value, origin, rank)
            elif bare == name:
                self._add_foreign(name, value, origin)
            elif bare in keys.PROPERTY_ONLY:
                self.warn(origin, bare, f"ignored, as by Apache: its name is -D{bare}")
            else:
                self._add_named(bare, value, origin, rank)

    def add_environment(self, environment: Mapping[str, str], *, has_file: bool) -> None:
        """KEEPFAST_*, -D in JVMFLAGS, and the official image's variables if there is no file."""
        for variable in _FLAG_VARIABLES:
            flags = [flag for flag in environment.get(variable, "").split() if flag[:2] == "-D"]
            self.add_definitions(split_definitions(flags), Rank.JAVA_FLAGS, f"{variable}: ")
        for name, text in sorted(environment.items()):
            value = trim(text)
            if not name.startswith(keys.VARIABLE_PREFIX) or not value:
                continue
            key = keys.key_of_variable(name)
            if key is None:
                meant = keys.nearest_variable(name)
                hint = "ignored" if meant is None else f"ignored; did you mean {meant}?"
                self.warn(ValueOrigin(name), name, f"unknown variable, {hint}")
            else:
                self._add_named(key, value, ValueOrigin(name), Rank.VARIABLE)
        self._add_image_variables(environment, has_file=has_file)

    def _add_image_variables(self, environment: Mapping[str, str], *, has_file: bool) -> None:
        names = (*keys.IMAGE_VARIABLES, keys.IMAGE_SERVERS, keys.IMAGE_EXTRA)
        given = [name for name in names if trim(environment.get(name, ""))]
        if has_file:
            # The official image looks at them only to write a file where there is none. Its own
            # defaults are such variables: they must not beat a file that somebody mounted.
            if given:
                names_given = ", ".join(given)
                self.warn(ValueOrigin(names_given), given[0], "ignored because there is a file")
            return
        if keys.IMAGE_SERVERS in given:
            for key, value in keys.IMAGE_DEFAULTS.items():
                origin = ValueOrigin("the image's default", is_of_many=True)
                self._add(GivenValue(key, value, origin, Rank.IMAGE_DEFAULT))
        for name in given:
            text = trim(environment[name])
            if name in keys.IMAGE_VARIABLES:
                self._add_named(keys.IMAGE_VARIABLES[name], text, ValueOrigin(name), Rank.FILE)
                continue
            for line in text.split():
                for key, value, _ in parse_text(line, name):
                    origin = ValueOrigin(name, is_of_many=True)
                    self._add_named(trim(key), trim(value), origin, Rank.FILE)

    # -- what a name means -----------------------------------------------------------------------

    def _add_named(self, name: str, value: str, origin: ValueOrigin, rank: Rank) -> None:
        key = keys.canonical(name)
        if keys.is_known(key):
            self._add(GivenValue(key, value, origin, rank))
        elif key in WITHOUT_MEANING:
            values = VALUES_WITHOUT_MEANING.get(key)
            if values is not None and value.lower() not in values:
                reason = f"must be {' or '.join(values)}"
                self.errors.append(ConfigError.at(origin, key, value, reason))
            self.warn(origin, key, f"has no meaning here: {WITHOUT_MEANING[key]}")
        elif key in UNSUPPORTED:
            unsupported = UNSUPPORTED[key]
            if value.lower() not in unsupported.accepted:
                reason = f"not supported: {unsupported.why}"
                self.errors.append(ConfigError.at(origin, key, value, reason))
        else:
            self._warn_unknown(key, origin)

    def _warn_unknown(self, key: str, origin: ValueOrigin) -> None:
        meant = keys.nearest(key)
        if meant is None:
            hint = "ignored"
        elif origin.file is not None or origin.is_of_many:
            hint = f"ignored; did you mean {meant}?"
        else:
            hint = f"ignored; did you mean -D{keys.property_name(meant)}?"
        self.warn(origin, key, f"unknown key, {hint}")

    def _add_foreign(self, name: str, value: str, origin: ValueOrigin) -> None:
        if keys.is_of_java(name):
            self._of_java[name] = value
            return
        meant = name if keys.is_known(keys.canonical(name)) else keys.nearest(name)
        hint = "" if meant is None else f"; did you mean -D{keys.property_name(meant)}?"
        self.warn(origin, name, f"unknown system property, ignored{hint}")

    def _add(self, given: GivenValue) -> None:
        by_rank = self._given.setdefault(given.key, {})
        before = by_rank.get(given.rank)
        if before is not None and before.value != given.value and given.rank is Rank.FILE:
            self.warn(given.origin, given.key, f"replaces the one of {before.origin.text}")
        by_rank[given.rank] = given

    def finish(self) -> None:
        """Add warnings that need all sources."""
        if self._of_java:
            names = ", ".join(f"-D{name}" for name in sorted(self._of_java))
            origin = ValueOrigin(names)
            self.warn(origin, names, "no meaning here: there is no Java virtual machine")
        for by_rank in self._given.values():
            in_file, winner = by_rank.get(Rank.FILE), by_rank[max(by_rank)]
            if winner.rank is Rank.DEFINITION and keys.is_secret(winner.key):
                self.warn(
                    winner.origin,
                    winner.key,
                    "every user of this machine can read it in the list of processes: use "
                    f"{keys.SECRETS_FILE_KEY} or the variable {keys.variable_name(winner.key)}",
                )
            if (
                in_file is not None
                and in_file.value != winner.value
                and winner.rank in (Rank.DEFINITION, Rank.JAVA_FLAGS)
            ):
                self.warn(
                    winner.origin,
                    winner.key,
                    f"counts more than {in_file.origin.text}; in Apache the file would win",
                )


def trim(text: str) -> str:
    """Java's String.trim, which ZooKeeper applies to keys and values."""
    return text.strip(_TRIMMED)


def split_definitions(arguments: Iterable[str]) -> dict[str, str]:
    """Names and values of `-Dname=value` arguments; the -D may be missing; the last one wins."""
    pairs = (argument.removeprefix("-D").partition("=") for argument in arguments)
    return {name: value for name, _, value in pairs}


def without_secrets(text: str) -> str:
    """The text of a configuration file, fit to be shown: without passwords, also in comments."""

    def edit(name: str) -> str | None:
        key = keys.canonical(trim(name))
        if keys.is_secret(key) or (not keys.is_known(key) and _SECRET_WORD.search(key)):
            return f"{format_property(name, HIDDEN)}\n"
        return None

    return _SECRET_COMMENT.sub(rf"\1{HIDDEN}", edit_properties(text, edit))


def read_text(path: str, what: str) -> bytes:
    """The content of a configuration file; ConfigError if it is not one."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}", file=path) from error
    except ValueError as error:  # a character that no file name has
        raise ConfigError(f"{what} cannot be read: {error}", file=path) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{what} is longer than {MAX_FILE_BYTES} bytes", file=path)
    return content


def parse_text(text: str | bytes, file: str) -> list[Property]:
    """The properties of a text; ConfigError where Java would refuse it."""
    try:
        return parse_properties(text)
    except MalformedProperties as error:
        place = f"{file}:{error.line}"
        raise ConfigError(error.reason, file=file, line=error.line, origin=place) from error
