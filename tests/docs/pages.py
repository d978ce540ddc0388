"""Pages of the documentation, taken apart into blocks and commands.

| block | what it is |
|---|---|
| sh | commands; each has to end with exit code 0 |
| console | lines that begin with "$ " are commands, the others are what they print |
| text | a synopsis, if it begins with "keepfast" |
| python | a test, or a script |

In what a command prints, a line of three dots stands for any lines, and three dots within a line
for any text.

A block of commands that cannot be run here says so where every reader sees it, in its title:
`Not run by the tests: needs systemd`. A command that runs until it is interrupted says "Ctrl-C" in
its comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).parents[2]
NOT_RUN: Final = "Not run by the tests: "

_FENCE: Final = re.compile(
    r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL
)
_TITLE: Final = re.compile(r'title="([^"]*)"')
_COMMENT: Final = re.compile(r"\s+# .*$")
_TIME: Final = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \S+ \d{4}|\d{4}-\d\d-\d\dT[\d:.]+Z"
)
_DOTS: Final = "..."


class Command(NamedTuple):
    """One line that a reader types, and what the page says it prints."""

    line: str
    shown: str

    @property
    def is_endless(self) -> bool:
        """Whether it runs until it is interrupted."""
        comment = _COMMENT.search(self.line)
        return comment is not None and "Ctrl-C" in comment[0]

    @property
    def bare(self) -> str:
        """The line without its comment."""
        return _COMMENT.sub("", self.line)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    title: str
    text: str

    @property
    def not_run_because(self) -> str | None:
        """What it needs that the tests do not have."""
        return self.title.removeprefix(NOT_RUN) if self.title.startswith(NOT_RUN) else None

    def commands(self) -> list[Command]:
        """What a reader types, in order."""
        if self.language == "sh":
            return [Command(line, "") for line in self.text.splitlines() if line.strip()]
        if self.language != "console":
            return []
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def page_names() -> list[str]:
    """Every page that people read, by its path in the project."""
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("deploy/**/*.md")]
    return sorted(str(page.relative_to(PROJECT)) for page in pages)


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for match in _FENCE.finditer((PROJECT / page).read_text(encoding="utf-8")):
        language, _, rest = match["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        yield Block(page, language, title[1] if title else "", match["text"])


def is_shown(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows."""
    lines = []
    for line in _TIME.sub("TIME", shown).splitlines(keepends=True):
        if line.strip() == _DOTS:
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*?".join(re.escape(part) for part in line.split(_DOTS)))
    return re.fullmatch("".join(lines), _TIME.sub("TIME", printed)) is not None


def renewed(page: str, printed: dict[str, list[str]]) -> str:
    """The text of a page, its console blocks as they were printed unless they leave out parts."""

    def replace(match: re.Match[str]) -> str:
        text = match["text"]
        if match["info"].strip() != "console" or _DOTS in text or text not in printed:
            return match[0]
        commands = Block(page, "console", "", text).commands()
        pairs = zip(commands, printed[text], strict=True)
        body = "".join(f"$ {command.line}\n{output}" for command, output in pairs)
        return f"{match['fence']}console\n{body}{match['fence']}"

    return _FENCE.sub(replace, (PROJECT / page).read_text(encoding="utf-8"))
