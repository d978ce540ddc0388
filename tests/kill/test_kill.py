"""A sample of the kill campaign; `make kill-campaign` kills 200 times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kill.campaign import run
from tests.kill.writers import Writer


def test_killed_under_load__no_acknowledged_write_is_lost_and_no_refused_one_appears(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    tell(str(run(tmp_path, 4, seed=7)))


def test_state_that_cannot_be__is_noticed() -> None:
    """The judge itself: a lost write, a write that was refused, one that nobody sent."""
    writer = Writer(0, 1)
    acknowledged = {"/w0/a": (b"1", 0), "/w0/b": (b"2", 3)}
    writer._state = dict(acknowledged)
    for found in (
        {"/w0/a": (b"1", 0)},
        {**acknowledged, "/w0/b": (b"refused", 4)},
        {**acknowledged, "/w0/c": (b"", 0)},
    ):
        writer._read = lambda found=found: found  # type: ignore[method-assign, misc]
        with pytest.raises(AssertionError, match="possible states"):
            writer.check()
