"""A line as it is typed, cut into words."""

from __future__ import annotations

import re

# A quote begins a quoted word only at the start of a word, and one that is not closed is dropped.
_WORD = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^"'\s]\S*))""", re.ASCII)


def split_line(line: str) -> list[str]:
    """The words of a line; quotes of either kind hold blanks together, and nothing escapes."""
    return [
        next(part for part in match.groups() if part is not None) for match in _WORD.finditer(line)
    ]
