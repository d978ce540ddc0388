"""The manual page, keepfast(1), made of the same text as --help."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from keepfast import __version__
from keepfast.cli.help_layout import grouped


def manual_page(group: Any) -> str:
    """The page as roff, for `man -l` or a directory of manual pages."""
    context = group.make_context("keepfast", [], resilient_parsing=True)
    lines = [
        f'.TH KEEPFAST 1 "" "keepfast {__version__}" "Keepfast"',
        *(".SH NAME", f"keepfast \\- {_text(group.help)}"),
        *(".SH SYNOPSIS", ".B keepfast", r"COMMAND [ARGUMENTS]"),
    ]
    visible = [name for name, command in group.commands.items() if not command.hidden]
    for title, names in grouped(visible).items():
        lines.append(f".SH {title.upper()}")
        for name in names:
            lines += _command(name, group.commands[name], context)
    lines += [".SH EXIT STATUS", _text(group.epilog)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any, parent: Any) -> list[str]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f".SS keepfast {name} {_text(usage)}"]
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        lines += [".PP", _text(paragraph)]
    for shown, text in chain(*command.records(context)):
        lines += [".TP", rf"\fB{_text(shown)}\fR", _text(text)]
    return lines


def _text(words: str | None) -> str:
    """Text on one line, with roff commands escaped."""
    found = " ".join((words or "").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{found}" if found.startswith((".", "'")) else found
