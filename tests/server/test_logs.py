"""Lines of the log: key=value for people, JSON for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.server.logs import AUDIT_LOGGER, ROOT_LOGGER, EventLog, LogFormat, configure_logs


@pytest.fixture(autouse=True)
def _restored_loggers() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (ROOT_LOGGER, AUDIT_LOGGER)]
    before = [(found.handlers[:], found.level, found.propagate) for found in loggers]
    yield
    for found, (handlers, level, propagate) in zip(loggers, before, strict=True):
        for handler in found.handlers:
            if handler not in handlers:
                handler.close()
        found.handlers[:], found.propagate = handlers, propagate
        found.setLevel(level)


def event_log() -> EventLog:
    return EventLog(
        lambda: {"server": 1, "role": "standalone", "epoch": 4}, f"{ROOT_LOGGER}.server"
    )


def test_text_has_context_and_fields_and_quotes_what_needs_it() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, stream=stream)
    event_log().warning("refused", address="10.0.0.7", reason='too many "x"', empty="", path="a=b")
    line = stream.getvalue()
    time, _, rest = line.partition(" ")
    assert time.endswith("Z")
    assert rest == (
        "WARNING refused server=1 role=standalone epoch=4 address=10.0.0.7 "
        'reason="too many \\"x\\"" empty="" path="a=b"\n'
    )


def test_line_feed_in_a_value_does_not_begin_a_line() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, stream=stream)
    event_log().error("closed", reason="a\nb")
    assert stream.getvalue().count("\n") == 1


def test_closes_of_one_kind_are_one_line_a_minute() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, stream=stream)
    log = event_log()
    for number in range(1000):
        log.info("closed", address=f"10.0.0.{number % 250}", reason="no leader")
        log.info("closed", reason=f"client has seen zxid {number:#x}")
    assert len(stream.getvalue().splitlines()) == 2


def test_votes_that_a_peer_repeats_while_there_is_no_leader__are_one_line_a_minute() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, stream=stream)
    log = event_log()
    for _ in range(30):
        log.info("vote-without-history", sender=2)
    assert len(stream.getvalue().splitlines()) == 1


def test_closes_are_all_there_for_those_who_debug() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, level=logging.DEBUG, stream=stream)
    log = event_log()
    for _ in range(10):
        log.info("closed", reason="no leader")
    assert len(stream.getvalue().splitlines()) == 10


def test_json_is_one_object_a_line() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.JSON, stream=stream)
    event_log().info("serving", port=2181, error=ValueError("x"))
    logging.getLogger(f"{ROOT_LOGGER}.other").critical("plain %s", "text")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "keepfast.server",
        "event": "serving",
        "server": 1,
        "role": "standalone",
        "epoch": 4,
        "port": 2181,
        "error": "x",
    }
    assert (second["level"], second["event"]) == ("critical", "plain text")


def test_exception_is_shown_in_both_formats() -> None:
    for format in LogFormat:
        stream = io.StringIO()
        configure_logs(format, stream=stream)
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger(f"{ROOT_LOGGER}.x").exception("failed")
        assert "ValueError: why" in stream.getvalue()


def test_level_is_obeyed_and_nothing_is_formatted_below_it() -> None:
    stream = io.StringIO()
    configure_logs(LogFormat.TEXT, logging.WARNING, stream)
    event_log().info("serving")
    event_log().critical("disk-failed")
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["disk-failed"]


def test_audit_log_has_a_file_of_its_own_if_one_is_named(tmp_path: Path) -> None:
    stream = io.StringIO()
    file = tmp_path / "audit.log"
    configure_logs(LogFormat.TEXT, logging.ERROR, stream, str(file))
    logging.getLogger(AUDIT_LOGGER).info("a change")
    assert file.read_text().endswith(" INFO a change\n")
    assert stream.getvalue() == ""
    configure_logs(LogFormat.TEXT, stream=stream)
    logging.getLogger(AUDIT_LOGGER).info("another")
    assert stream.getvalue().endswith("another\n")
