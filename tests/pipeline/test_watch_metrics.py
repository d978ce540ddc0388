"""The listener for metrics of a watch, and the file for those of commands that end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from keepfast.cli import metrics_file
from keepfast.cli.output import CommandFailed
from keepfast.pipeline.watch import watch_metrics
from keepfast.pipeline.watch.watch_metrics import WatchMetrics, serve_metrics

TIMEOUT = 60.0


def test_client_that_does_not_finish_its_request__is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a thread."""
    monkeypatch.setattr(watch_metrics, "_PATIENCE_SECONDS", 0.1)
    port = serve_metrics(WatchMetrics(), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as slow:
        slow.sendall(b"GET /metr")
        assert slow.recv(1) == b""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as other:
        other.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert other.recv(4096).startswith(b"HTTP/1.0 200")


def test_link_in_place_of_the_new_file__is_not_followed(tmp_path: Path) -> None:
    target, metrics = tmp_path / "target", tmp_path / "metrics.prom"
    target.write_text("mine")
    Path(f"{metrics}.{os.getpid()}").symlink_to(target)
    with pytest.raises(CommandFailed, match="cannot be written"):
        metrics_file._write(str(metrics), CollectorRegistry(), "audit", 0)
    assert target.read_text() == "mine"
    assert not metrics.exists()
