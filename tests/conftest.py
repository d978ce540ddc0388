"""What every test may use: `tell` for figures that have to be seen, and Hypothesis' profiles."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores Ctrl-C for what it starts in the background, and whatever that starts inherits
    # it: the programs under test would not be interrupted by the tests that interrupt them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TOLD = "told"

# No deadline: a loaded machine must not turn a slow example into a failure. In CI the same
# examples every time, so that a red run is about the change and not about luck.
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "ci", parent=settings.get_profile("local"), derandomize=True, database=None
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _no_loop_left_running() -> None:
    """Name the cause where an earlier test left its event loop running in this thread.

    Which tests share a process is luck: without this, whichever came next would fail instead.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    pytest.fail(f"a test before this one left {loop!r} running: its fixture lives too long")


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line at once (`-s`) and again under the results, also where workers run the tests.

    For counts that prove a test did its work, such as the disk states that a campaign reached.
    """

    def say(line: str) -> None:
        print(line)
        request.node.user_properties.append((_TOLD, f"{request.node.name}: {line}"))

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        text
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
        for name, text in report.user_properties
        if name == _TOLD
    ]
    if lines:
        terminalreporter.section("what the tests counted")
        for line in lines:
            terminalreporter.write_line(line)
