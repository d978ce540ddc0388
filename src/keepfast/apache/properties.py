"""Java's `.properties` text, read and written as `java.util.Properties` does.

zoo.cfg and its dynamic file are such text. Its rules, from `Properties.load(InputStream)` of
Java 17, which is what Apache ZooKeeper runs:

- Bytes are ISO-8859-1, whatever the locale; other characters need a `\\uXXXX` escape.
- A line ends with `\\n`, `\\r` or `\\r\\n`. Blanks are space, tab and form feed, nothing else.
- A line whose first character that is not blank is `#` or `!` is a comment; it cannot be continued.
- An odd number of backslashes at its end joins a line to the next one, whose leading blanks go.
- The key ends at the first unescaped `=`, `:` or blank. Blanks around it, and one `=` or `:` among
  them, belong to neither key nor value. Blanks at the end of a value belong to it.
- `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are what they say; before any other character a backslash
  is dropped. A `\\u` without four hexadecimal digits is an error.

A key that stands twice is given twice: the caller knows which one counts, and may want to say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from keepfast.wire import KeepfastError

_BLANKS: Final = " \t\f"
_NATURAL_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_TRAILING_BACKSLASHES: Final = re.compile(r"\\*\Z")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_NAMED_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES_OF_ESCAPES: Final = {character: name for name, character in _NAMED_ESCAPES.items()}
_FIRST_PRINTABLE: Final = 0x20
_LAST_PRINTABLE: Final = 0x7E
_LAST_OF_16_BITS: Final = 0xFFFF


class Property(NamedTuple):
    """One key and its value, and the line on which the key begins (the first line is 1)."""

    key: str
    value: str
    line: int


class MalformedProperties(KeepfastError):  # noqa: N818 - like its siblings in wire/errors.py
    """Text that `java.util.Properties` refuses; `line` says where."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def parse_properties(text: str | bytes) -> list[Property]:
    """Every property in the order of the text, also those that a later one replaces.

    Raises MalformedProperties for a broken `\\u` escape; nothing else is an error.
    """
    if isinstance(text, bytes):
        text = text.decode("iso-8859-1")
    found = []
    for logical, line, _ in _logical_lines(text):
        key = _KEY.match(logical)
        key_end = 0 if key is None else key.end()
        separator = _SEPARATOR.match(logical, key_end)
        value_start = key_end if separator is None else separator.end()
        found.append(
            Property(
                _unescape(logical[:key_end], line), _unescape(logical[value_start:], line), line
            )
        )
    return found


def format_property(key: str, value: str) -> str:
    """One line, without its end, that every reader of such text takes for `key` and `value`.

    Only ASCII: the reader's encoding does not matter.
    """
    return f"{_escape(key, blanks_everywhere=True)}={_escape(value, blanks_everywhere=False)}"


def without_properties(text: str, is_dropped: Callable[[str], bool]) -> str:
    """The same text without the properties whose keys are to go; everything else stays as it is.

    Raises MalformedProperties.
    """
    return edit_properties(text, lambda key: "" if is_dropped(key) else None)


def edit_properties(text: str, edit: Callable[[str], str | None]) -> str:
    """The same text with other lines for some properties; everything else stays as it is.

    `edit` gets a key and gives what stands instead of its lines; None: they stay. Raises
    MalformedProperties.
    """
    spans = [(first, last) for _, first, last in _logical_lines(text)]
    lines = [match[0] for match in _NATURAL_LINE.finditer(text) if match[0]]
    for (key, _, _), (first, last) in zip(parse_properties(text), spans, strict=True):
        edited = edit(key)
        if edited is not None:
            lines[first - 1 : last] = [edited, *[""] * (last - first)]
    return "".join(lines)


def _logical_lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Comments and empty lines removed, continued lines joined; each with first and last line."""
    logical = ""
    start = 0
    natural = [match.groups() for match in _NATURAL_LINE.finditer(text) if match[0]]
    for line, (content, end) in enumerate(natural, start=1):
        rest = content.lstrip(_BLANKS)
        # Nothing but backslashes at line ends so far: Java still takes this for the beginning
        # of a line, where a comment may stand.
        if not logical:
            if not rest or rest[0] in "#!":
                continue
            start = line
        backslashes = _TRAILING_BACKSLASHES.search(rest)
        if backslashes is None or len(backslashes[0]) % 2 == 0:
            yield logical + rest, start, line
            logical = ""
            continue
        logical += rest[:-1]
        # A lone backslash at the very end of the text is an empty key to Java, unless the
        # text ends with two characters.
        if not logical and line == len(natural) and end != "\r\n":
            yield "", start, line
    if logical:
        yield logical, start, len(natural)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise MalformedProperties("\\u needs four hexadecimal digits", line)
        return _NAMED_ESCAPES.get(escaped, escaped)

    plain = _ESCAPE.sub(character, text)
    # Java's strings are UTF-16: two escapes make one character beyond the 16 bits.
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), plain
    )


def _escape(text: str, *, blanks_everywhere: bool) -> str:
    written = []
    for position, character in enumerate(text):
        code = ord(character)
        if character in _NAMES_OF_ESCAPES:
            written.append("\\" + _NAMES_OF_ESCAPES[character])
        elif character in "\\=:#!" or (character == " " and (blanks_everywhere or position == 0)):
            written.append("\\" + character)
        elif _FIRST_PRINTABLE <= code <= _LAST_PRINTABLE:
            written.append(character)
        elif code <= _LAST_OF_16_BITS:
            written.append(f"\\u{code:04X}")
        else:
            halves = character.encode("utf-16-be").hex().upper()
            written.append(f"\\u{halves[:4]}\\u{halves[4:]}")
    return "".join(written)
