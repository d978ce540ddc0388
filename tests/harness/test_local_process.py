"""Servers as processes of this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from keepfast.harness import LocalProcess, stop_all

TIMEOUT_SECONDS = 30.0
COUNTER = """
import threading, time
def count():
    while True:
        print("tick", flush=True)
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pause__every_thread_stands_still_until_resumed(tmp_path: Path) -> None:
    process = LocalProcess(tmp_path / "log")
    process.launch([sys.executable, "-c", COUNTER])
    try:
        wait_for(lambda: process.last_words() == "tick")
        process.pause()
        size = process.log_path.stat().st_size
        tasks = Path(f"/proc/{process.pid}/task")
        if tasks.exists():
            states = [(task / "stat").read_text().split()[2] for task in tasks.iterdir()]
            assert len(states) > 1
            assert set(states) <= set("Tt")
        assert process.log_path.stat().st_size == size
        process.resume()
        wait_for(lambda: process.log_path.stat().st_size > size)
    finally:
        process.kill()
    assert not process.is_running
    assert process.exit_code == -9


def test_stop_all__ends_those_that_hang_too(tmp_path: Path) -> None:
    processes = [LocalProcess(tmp_path / name) for name in ("one", "two")]
    for process in processes:
        process.launch([sys.executable, "-c", COUNTER])
    processes[0].pause()
    stop_all(processes)
    assert not any(process.is_running or process.is_wanted for process in processes)
