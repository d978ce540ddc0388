"""docs/metrics.md lists every metric; `python -m tests.server.test_metrics_page` renews it."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast.cli import metrics_file
from keepfast.server.metric_help import HELP

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_TABLES = re.compile(r"(<!-- tables: begin -->\n).*(<!-- tables: end -->)", re.DOTALL)
_GAUGE = re.compile(r'"(keepfast_\w+)",\s*"([^"]+)"')


def tables() -> str:
    """The lists of metrics: of Keepfast, of Apache, of commands."""
    own = {name: text for name, text in HELP.items() if name.startswith("keepfast_")}
    parts = [("Of Keepfast alone", own)]
    parts.append(("Under Apache's names", {k: v for k, v in HELP.items() if k not in own}))
    source = Path(metrics_file.__file__).read_text()
    of_commands = dict(_GAUGE.findall(source))
    for what in ("audit", "backup"):
        of_commands[f"keepfast_{what}_timestamp_seconds"] = f"When the last {what} was finished."
        of_commands[f"keepfast_{what}_exit_code"] = "Its exit code; 0: all is well."
    parts.append(("Of `audit --metrics` and `backup --metrics`", of_commands))
    lines = []
    for title, rows in parts:
        lines += ["", f"## {title}", "", "| metric | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {text} |" for name, text in sorted(rows.items())]
    return "\n".join([*lines, "", ""])


def renewed(text: str) -> str:
    return _TABLES.sub(lambda match: match[1] + tables() + match[2], text)


def test_page__has_every_metric() -> None:
    text = PAGE.read_text()
    assert renewed(text) == text, "python -m tests.server.test_metrics_page"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
