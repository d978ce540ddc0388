"""Foreign text wherever it is printed: nothing of it reaches a terminal as a command."""

from __future__ import annotations

import io
import json
import logging
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.cli.output import Out, to_json
from keepfast.pipeline.replay.undelete import Creation
from keepfast.server.audit_log import AuditEvent
from keepfast.server.logs import LogEvent, LogFormat, TextFormatter, configure_logs
from keepfast.shell.shell_output import Output
from keepfast.tree import Kind
from keepfast.wire import OPEN_ACL, safe_json, safe_lines, safe_text

# ESC, BEL, one-byte CSI, line separators, bidirectional overrides, zero-width characters.
ATTACKS = "\x1b]0;owned\x07\x9b31m\u2028\u2029\u202e\u2066\u200b\x00\x7f\r\U000e0041"


class Terminal(io.StringIO):
    """Collects what a terminal would be sent."""

    def isatty(self) -> bool:
        return True


def is_safe(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


@given(st.text())
def test_anything__is_safe_and_json_means_the_same(text: str) -> None:
    assert safe_text(text).isprintable()
    assert is_safe(safe_lines(text))
    document = json.dumps(text, ensure_ascii=False)
    assert is_safe(safe_json(document))
    assert json.loads(safe_json(document)) == text


def test_command_line__colours_are_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    out = Out(terminal)
    out.line(f"/{ATTACKS} {out.paint('bad', 'bad')}")
    out.table(["name"], [[ATTACKS]])
    out.flush()
    shown = terminal.getvalue()
    assert "\x1b[31mbad\x1b[0m" in shown
    for ours in ("\x1b[31m", "\x1b[0m", "\x1b[1m"):
        shown = shown.replace(ours, "")
    assert is_safe(shown)
    assert is_safe(to_json({"path": ATTACKS}, indent=2))
    assert json.loads(to_json({"path": ATTACKS})) == {"path": ATTACKS}


@pytest.mark.parametrize("is_json", [False, True])
def test_shell__on_a_terminal(monkeypatch: pytest.MonkeyPatch, is_json: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    output = Output(is_json=is_json)
    output.say(f"data {ATTACKS}")
    output.document({"data": ATTACKS})
    assert terminal.getvalue()
    assert is_safe(terminal.getvalue())


def test_logs__fields_exceptions_and_foreign_lines() -> None:
    stream = io.StringIO()
    assert is_safe(str(LogEvent("closed", {"reason": ATTACKS})))
    try:
        raise ValueError(ATTACKS)
    except ValueError as error:
        failure = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "path %s", (ATTACKS,), failure)
    assert is_safe(TextFormatter().format(record))
    logger = logging.getLogger("keepfast")
    before = logger.handlers[:], logger.level, logger.propagate
    try:
        configure_logs(LogFormat.JSON, stream=stream)
        logger.warning("path %s", ATTACKS)
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    assert is_safe(stream.getvalue())


def test_audit_log__one_line_and_no_forged_field() -> None:
    line = str(AuditEvent({"user": f"eve\tresult=success{ATTACKS}", "result": "failure"}))
    assert line.count("\t") == 1
    assert is_safe(line)


HOSTILE_WORDS = (
    "$(touch owned)",
    "`touch owned`",
    "a;touch owned",
    "a & touch owned",
    "$(touch owned)'`touch owned`",
    '"; touch owned; "',
    "'; touch owned; '",
    "a\n touch owned",
    "!touch",
    "\\';touch owned;'",
)


@pytest.mark.parametrize("word", HOSTILE_WORDS, ids=range(len(HOSTILE_WORDS)))
def test_undelete__its_lines_do_nothing_in_another_shell(word: str, tmp_path: Path) -> None:
    for creation in (
        Creation(f"/{word}", b"x", OPEN_ACL, Kind.PERSISTENT),
        Creation("/a", word.encode(), OPEN_ACL, Kind.PERSISTENT),
    ):
        lines = creation.commands()
        assert lines or creation.path != "/a"
        for shell in ("sh", "bash"):
            subprocess.run([shell], input="\n".join(lines), text=True, cwd=tmp_path, check=False)
            assert list(tmp_path.iterdir()) == []
