"""Apache's settings of throttling reach the server, and what they do reaches the metrics."""

from __future__ import annotations

import socket
from pathlib import Path

from keepfast.apache import load_config
from keepfast.replica import ReplicaOptions, ThrottleOptions
from keepfast.server import options_of
from keepfast.server.metrics import collect, flat_values
from tests.server.live import TIMEOUT, live


def _options(tmp_path: Path, text: str) -> ThrottleOptions:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}\nclientPort=0\n{text}")
    return options_of(load_config(str(file))).replica.throttle


def test_no_settings__nothing_is_throttled_but_connections_without_a_session(
    tmp_path: Path,
) -> None:
    assert _options(tmp_path, "") == ThrottleOptions()


def test_settings__as_they_are_written(tmp_path: Path) -> None:
    text = """\
nio.sessionlessCnxnTimeout=7000
connection_throttle_tokens=20
connection_throttle_fill_time=10
connection_throttle_fill_count=2
connection_throttle_freeze_time=30
connection_throttle_drop_increase=0.1
connection_throttle_drop_decrease=0.01
connection_throttle_decrease_ratio=0.5
request_throttle_max_requests=40
throttled_op_wait_time=50
largeRequestThreshold=60000
largeRequestMaxBytes=7000000
"""
    assert _options(tmp_path, text) == ThrottleOptions(
        connection_tokens=20,
        fill_ms=10,
        fill_count=2,
        freeze_ms=30,
        drop_increase=0.1,
        drop_decrease=0.01,
        decrease_ratio=0.5,
        sessionless_ms=7000,
        max_requests=40,
        max_wait_ms=50,
        large_request_bytes=60_000,
        large_requests_max_bytes=7_000_000,
    )


def test_weights__tokens_are_counted_in_new_sessions(tmp_path: Path) -> None:
    text = "connection_throttle_tokens=10\nconnection_throttle_weight_enabled=true\n"
    options = _options(tmp_path, text)
    assert options.connection_tokens == 30
    assert options.fill_count == 3
    assert (options.new_session_weight, options.renewal_weight) == (3, 2)


def test_connection_that_says_nothing__is_closed_and_counted(tmp_path: Path) -> None:
    replica = ReplicaOptions(
        tick_ms=50,
        min_session_timeout_ms=4000,
        max_session_timeout_ms=60_000,
        throttle=ThrottleOptions(sessionless_ms=100),
    )
    with live(tmp_path / "data", replica=replica) as server:
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as silent:
            assert silent.recv(1) == b""
        # Not by a word: its connection has no session either, and may be too slow.
        metrics = dict(flat_values(server.call(lambda found: collect(found.running))))
        assert metrics["sessionless_connections_expired"] == 1
