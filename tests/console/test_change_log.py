"""The audit log of the console."""

from __future__ import annotations

from pathlib import Path

from keepfast.console.change_log import ChangeLog


def test_path_that_attacks__is_one_line_without_commands(tmp_path: Path) -> None:
    file = tmp_path / "changes.log"
    path = "/a\tresult=success\n2026\r\x1b]0;x\x07\x9b31m\u2028\u202e\x7f"
    ChangeLog(str(file)).write("digest:eve\u202e", "127.0.0.1", "setData", path, "failure")
    (line,) = file.read_text("utf-8").split("\n")[:-1]
    assert line.count("\t") == 5
    assert line.replace("\t", "").isprintable()
