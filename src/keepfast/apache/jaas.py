"""Java's login configuration (JAAS), as far as SASL users and a server's own principal are in it.

    Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_super="secret"
        user_bob="another one";
    };
    QuorumServer {
        com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true keyTab="/etc/keepfast/server.keytab"
        principal="zkquorum/host.example.org@EXAMPLE.ORG";
    };

A file has sections by name; a section has login modules; a module has a class, a flag and options.
Names and values may be quoted, with Java's escapes. `//` and `/* */` begin comments, and so does
`#` as the first thing in a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from keepfast.apache.config_errors import ConfigError

_USER_PREFIX: Final = "user_"
_KERBEROS: Final = "Krb5LoginModule"
_FLAGS: Final = frozenset(("required", "requisite", "sufficient", "optional"))

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   (?:\A|\n)[ \t]*\#[^\n]* | \n | [^\S\n]+ | //[^\n]* | /\*.*?\*/ )
    | (?P<mark>    [{};=] )
    | (?P<string>  "(?:[^"\\\n]|\\.)*" )
    | (?P<word>    [^\s{};="]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """One entry of a section."""

    class_name: str
    flag: str
    options: dict[str, str]


class KerberosLogin(NamedTuple):
    """A server's Kerberos principal, and where its key or ticket is."""

    principal: str
    # None: the system's own one.
    key_table: str | None
    # Of tickets that somebody else gets and renews; None: tickets are got by the key table.
    ticket_cache: str | None


class _Token(NamedTuple):
    text: str
    # Whether it is one of { } ; = and not a name or a value that looks like it.
    is_mark: bool
    line: int


Sections = dict[str, tuple[LoginModule, ...]]


def parse_jaas(text: str, file: str) -> Sections:
    """The sections of a file by name. Raises ConfigError with the line if it is none."""
    reader = _Reader(list(_tokens(text, file)), file, text.count("\n") + 1)
    sections: Sections = {}
    while not reader.is_at_end:
        name = reader.name("a section's name")
        if name in sections:
            raise reader.error(f"there are two sections {name}")
        reader.expect("{")
        modules = []
        while not reader.accept("}"):
            modules.append(_module(reader))
        reader.expect(";")
        sections[name] = tuple(modules)
    return sections


def read_jaas(file: str) -> Sections:
    """The same, from a file."""
    try:
        with open(file, encoding="utf-8") as stream:
            return parse_jaas(stream.read(), file)
    except OSError as error:
        reason = f"the JAAS file cannot be read: {error.strerror or error}"
        raise ConfigError(reason, file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigError("the JAAS file is not UTF-8", file=file) from error


def digest_users(modules: tuple[LoginModule, ...]) -> dict[str, str]:
    """The users of a section, with their passwords."""
    return {
        key.removeprefix(_USER_PREFIX): value
        for module in modules
        for key, value in module.options.items()
        if key.startswith(_USER_PREFIX)
    }


def kerberos_login(
    modules: tuple[LoginModule, ...], section: str, file: str
) -> KerberosLogin | None:
    """What a section about Kerberos says; None: it is about something else. Raises ConfigError."""
    options = next((m.options for m in modules if m.class_name.endswith(_KERBEROS)), None)
    if options is None:
        return None
    principal = options.get("principal", "")
    if not principal or principal == "*":
        raise ConfigError(f"section {section} needs the server's principal", file=file)
    has_table = options.get("useKeyTab", "").lower() == "true"
    has_cache = options.get("useTicketCache", "").lower() == "true"
    if not has_table and not has_cache:
        raise ConfigError(f"section {section} needs useKeyTab=true, and keyTab", file=file)
    return KerberosLogin(
        principal,
        options.get("keyTab", "").removeprefix("FILE:") or None,
        options.get("ticketCache", "") if has_cache and not has_table else None,
    )


def _module(reader: _Reader) -> LoginModule:
    class_name = reader.name("a login module's class")
    flag = reader.name("a flag").lower()
    if flag not in _FLAGS:
        raise reader.error(f"{flag}: must be one of {', '.join(sorted(_FLAGS))}")
    options: dict[str, str] = {}
    while not reader.accept(";"):
        key = reader.name("an option or ;")
        reader.expect("=")
        options[key] = reader.name("a value")
    return LoginModule(class_name, flag, options)


class _Reader:
    """Walks over the tokens and knows the line for messages."""

    def __init__(self, tokens: list[_Token], file: str, last_line: int) -> None:
        self._tokens = tokens
        self._file = file
        self._last_line = last_line
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._tokens)

    def name(self, what: str) -> str:
        """A word or a quoted text."""
        if self.is_at_end or self._tokens[self._position].is_mark:
            raise self._unexpected(what)
        self._position += 1
        return self._tokens[self._position - 1].text

    def accept(self, mark: str) -> bool:
        """Whether the mark is next; then it is taken."""
        if self.is_at_end:
            return False
        text, is_mark, _ = self._tokens[self._position]
        is_next = is_mark and text == mark
        self._position += is_next
        return is_next

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self._unexpected(mark)

    def error(self, reason: str) -> ConfigError:
        """An error about the token that was taken last."""
        return self._at(self._tokens[self._position - 1].line, reason)

    def _unexpected(self, wanted: str) -> ConfigError:
        if self.is_at_end:
            return self._at(self._last_line, f"{wanted} must follow, the file ends instead")
        text, is_mark, line = self._tokens[self._position]
        # A text that was quoted may be a password that is missing its `=`.
        found = text if is_mark else "a name or a value"
        return self._at(line, f"{wanted} must follow, there is {found} instead")

    def _at(self, line: int, reason: str) -> ConfigError:
        origin = f"{self._file}:{line}"
        return ConfigError(reason, file=self._file, line=line, origin=origin)


def _tokens(text: str, file: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            origin = f"{file}:{line}"
            raise ConfigError("a quote does not end", file=file, line=line, origin=origin)
        value = match[0]
        if match.lastgroup != "space":
            if match.lastgroup == "string":
                yield _Token(_ESCAPE.sub(_unescape, value[1:-1]), False, line)
            else:
                yield _Token(value, match.lastgroup == "mark", line)
        line += value.count("\n")
        position = match.end()


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)
