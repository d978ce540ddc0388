"""Untrusted text, made safe to print.

Names of znodes, users and data may hold anything: escape sequences that move a terminal's cursor or
rename its window, characters that reverse the writing direction or end a line where a line-based
reader does not expect it. Whatever prints such text passes it through here.
"""

from __future__ import annotations

import re
from typing import Final

# What an indented JSON document may hold besides printable characters.
_OF_LAYOUT: Final = "\n\t"
_NOT_ASCII_PRINTABLE: Final = re.compile(r"[^ -~]")


def safe_text(text: str, keep: str = "") -> str:
    """The text with Python's escapes for every character that is neither printable nor kept."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in keep
        else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )


def safe_lines(text: str) -> str:
    """The same for several lines, which may hold tabs."""
    return safe_text(text, _OF_LAYOUT)


def safe_json(document: str) -> str:
    """A JSON document with JSON's escapes for what is not printable; its meaning is the same."""
    if document.isprintable():
        return document
    return _NOT_ASCII_PRINTABLE.sub(_json_escape, document)


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable() or character in _OF_LAYOUT:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
