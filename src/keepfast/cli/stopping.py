"""Commands that run until they are stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Event]:
    """Set on Ctrl-C or SIGTERM: both are the normal way to stop.

    An exception would interrupt the conversation with the JVM, and leave it inconsistent.
    """
    asked = Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {sign: signal.signal(sign, stop) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
