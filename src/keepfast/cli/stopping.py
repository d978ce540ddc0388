"""Commands that continue until somebody ends them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Event]:
    """Set when somebody presses Ctrl-C or sends SIGTERM: both are the ordinary end.

    An exception instead would come in the middle of a talk with the JVM, and leave it confused.
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
