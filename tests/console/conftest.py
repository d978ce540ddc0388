"""A browser for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console.harness import CHROMIUM, WHY_SKIPPED, open_browser


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Chromium; tests that want it are skipped where there is none.

    Opened anew for each test: while the driver is open, its event loop counts as the one that runs
    in this thread, so no other test of the process could run a loop of its own beside it.
    """
    if CHROMIUM is None:
        pytest.skip(WHY_SKIPPED)
    with open_browser() as found:
        yield found
