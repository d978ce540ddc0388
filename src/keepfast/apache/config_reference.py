"""Writes the tables of docs/configuration.md from the declarations of the settings.

    python -m keepfast.apache.config_reference docs/configuration.md

The text between the two marks is replaced; a test fails while it is out of date.
"""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Final

from keepfast.apache.config_prose import UNSUPPORTED, WITHOUT_MEANING
from keepfast.apache.config_server import ServerConfig
from keepfast.apache.config_settings import Scope, Setting, settings_of

BEGIN: Final = "<!-- tables: begin -->"
END: Final = "<!-- tables: end -->"

_TITLES: Final = {
    "client": "Clients connect",
    "timing": "Time",
    "data": "Data on disk",
    "sessions": "Local sessions",
    "limits": "Limits",
    "request_throttle": "Throttling of requests",
    "connection_throttle": "Throttling of connections",
    "features": "Switches",
    "auth": "Authentication of clients",
    "tls": "TLS with clients: `ssl.*`",
    "admin": "Admin server and four-letter words",
    "metrics": "Metrics",
    "audit": "Audit log",
    "ensemble": "Ensemble",
    "quorum_auth": "SASL between servers",
    "quorum_tls": "TLS between servers: `ssl.quorum.*`",
}


def render_tables() -> str:
    """All tables: the settings group by group, keys without meaning, keys that are refused."""
    parts: list[str] = []
    for item in fields(ServerConfig):
        if "prefix" in item.metadata:
            prefix = item.metadata["prefix"]
            rows = [
                _row(prefix, name, one, item.default) for name, one in settings_of(item.default)
            ]
            parts += ["", f"### {_TITLES[item.name]}", ""]
            parts += ["| key | default | meaning | small, or off | large, or on |"]
            parts += ["|---|---|---|---|---|", *rows]
    parts += ["", "### Accepted, without a meaning here", "", "| keys | why |", "|---|---|"]
    for reason, keys in groupby(WITHOUT_MEANING, WITHOUT_MEANING.__getitem__):
        parts.append(f"| {', '.join(f'`{key}`' for key in keys)} | {reason} |")
    parts += ["", "### Refused", "", "| key | accepted values | why |", "|---|---|---|"]
    for key, one in UNSUPPORTED.items():
        accepted = ", ".join(f"`{value}`" if value else "nothing" for value in one.accepted)
        parts.append(f"| `{key}` | {accepted or 'none'} | {one.why} |")
    return "\n".join(parts[1:])


def renew(page: str) -> str:
    """A page with the tables between its marks brought up to date."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render_tables()}\n\n{END}{after}"


def _row(prefix: str, name: str, declared: Setting, group: object) -> str:
    # A derived default is described in words; the field holds what it came out as.
    default = declared.prose.default_text or declared.prose.derived
    default = default or f"`{declared.show(getattr(group, name))}`"
    if default == "``":
        default = "none"
    what = declared.prose.what
    unit = getattr(declared.kind, "unit", "")
    if unit and not re.search(rf"\b{unit}\b", what):
        what = f"{unit}; {what}"
    if declared.scope is Scope.PROPERTY:
        what = f"{what} (-D only)"
    if declared.prose.danger:
        what = f"{what}. **Unsafe: `{declared.kind.show(declared.unsafe)}`**"
    cells = (f"`{prefix}{declared.key}`", default, what, declared.prose.low, declared.prose.high)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m keepfast.apache.config_reference PAGE", file=sys.stderr)
        return 2
    page = Path(arguments[0])
    page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
