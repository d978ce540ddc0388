"""Every command of every page does what the page says, on a machine of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.machine import why_no_machine
from tests.docs.pages import blocks, is_shown, page_names
from tests.docs.play import is_run, play

_WHY_NOT = why_no_machine()
_PAGES = [page for page in page_names() if any(map(is_run, blocks(page)))]


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.timeout(1500)
@pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
@pytest.mark.parametrize("page", _PAGES)
def test_commands__do_what_the_page_says(page: str, tmp_path: Path) -> None:
    """If one does not, and what it prints now is right: python -m tests.docs.play PAGE."""
    complaints = [text for one in play(page, tmp_path) for text in one.complaints]
    assert complaints == [], "\n\n".join(complaints)


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("in .../log.1, offset 16\n", "in x/version-2/log.1, offset 16\n", True),
        ("in .../log.1, offset 16\n", "in x/version-2/log.1, offset 17\n", False),
        ("at 2026-11-15T10:49:30.962Z\n", "at 2027-01-01T00:00:00.000Z\n", True),
        ("1.5 (a|b)\n", "1x5 a\n", False),
    ],
)
def test_what_is_shown(shown: str, printed: str, is_right: bool) -> None:
    assert is_shown(shown, printed) == is_right
