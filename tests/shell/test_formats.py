"""How values look. What they look like in ZooKeeper's shell, test_conformance compares."""

from __future__ import annotations

import io
import time

import pytest

from keepfast.client import ClientEvent, InvalidPath, OperationFailed
from keepfast.shell.formats import (
    data_document,
    event_document,
    event_text,
    hex_dump,
    local_time,
    stat_document,
    utc_time,
)
from keepfast.shell.messages import exit_code, failure_message
from keepfast.shell.shell_failures import ShellExitCode
from keepfast.shell.shell_output import Output
from keepfast.wire import ErrorCode, EventType, KeeperState, Stat


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert local_time(1794767558195) == "Sun Nov 15 18:32:38 UTC 2026"
    assert local_time(0) == "Thu Jan 01 00:00:00 UTC 1970"
    monkeypatch.setenv("TZ", "CET-1CEST")
    time.tzset()
    assert local_time(1794767558195) == "Sun Nov 15 19:32:38 CET 2026"
    monkeypatch.undo()
    time.tzset()
    assert utc_time(1794767558195) == "2026-11-15T18:32:38.195Z"
    assert utc_time(1 << 62) == f"{1 << 62}ms"
    assert local_time(1 << 80) == f"{1 << 80} ms"


def test_hex_dump() -> None:
    assert hex_dump(b"") == ""
    lines = hex_dump(bytes(range(0x20, 0x31)) + b"\x00\x7f\xff").splitlines()
    assert lines[3] == (
        "|00000000| 20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f | !\"#$%&'()*+,-./|"
    )
    assert lines[4] == f"|00000010| 30 00 7f ff{' ' * 36} |0...{' ' * 12}|"
    assert {len(line) for line in lines[2:]} == {77}


def test_data_for_machines() -> None:
    assert data_document(None) is None
    assert data_document(b"") == {"length": 0, "text": ""}
    assert data_document("grüße".encode()) == {"length": 7, "text": "grüße"}
    assert data_document(b"\xff") == {"length": 1, "base64": "/w=="}


def test_stat_for_machines__has_numbers_in_hex_and_times_in_utc() -> None:
    document = stat_document(Stat(0x500000003, 2, 0, 1, 4, 5, 6, -1, 7, 8, 9))
    assert document["czxid"] == "0x500000003"
    assert document["ephemeral_owner"] == "0xffffffffffffffff"
    assert document["mtime"] == "1970-01-01T00:00:00.001Z"


def test_events() -> None:
    event = ClientEvent(EventType.NODE_CREATED, KeeperState.SYNC_CONNECTED, "/a", 7)
    assert event_text(event) == (
        "WatchedEvent state:SyncConnected type:NodeCreated path:/a zxid: 7"
    )
    assert event_document(event)["zxid"] == "0x7"
    own = ClientEvent(EventType.NONE, KeeperState.EXPIRED)
    assert event_text(own) == "WatchedEvent state:Expired type:None path:null zxid: -1"
    for type in EventType:
        for state in KeeperState:
            assert event_text(ClientEvent(type, state))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.OK])
def test_every_error__has_words_and_an_exit_code(code: ErrorCode) -> None:
    error = OperationFailed(code, "/a")
    assert failure_message(error)
    assert exit_code(error) in (ShellExitCode.FAILED, ShellExitCode.UNREACHABLE)


def test_errors__say_where_the_fault_lies() -> None:
    assert exit_code(OperationFailed(ErrorCode.NO_NODE, "/a")) is ShellExitCode.FAILED
    assert exit_code(OperationFailed(ErrorCode.CONNECTION_LOSS)) is ShellExitCode.UNREACHABLE
    assert exit_code(OperationFailed(ErrorCode.SESSION_EXPIRED)) is ShellExitCode.UNREACHABLE
    assert exit_code(InvalidPath("a", "why")) is ShellExitCode.USAGE


def test_output_on_a_terminal__cannot_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTerminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = FakeTerminal(), io.StringIO()
    monkeypatch.setattr("sys.stdout", terminal)
    Output().say("a\x1b[2J\tb\nc\x9b")
    assert terminal.getvalue() == "a\\x1b[2J\tb\nc\\x9b\n"
    monkeypatch.setattr("sys.stdout", file)
    Output().say("a\x1b[2J")
    assert file.getvalue() == "a\x1b[2J\n"
