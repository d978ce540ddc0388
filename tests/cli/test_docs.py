"""Every example in docs/cli.md prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.examples import PAGE, blocks, make_folder, play


@pytest.mark.slow
def test_examples__are_true(tmp_path: Path) -> None:
    """If one is not, and the new output is right: python -m tests.cli.examples."""
    make_folder(tmp_path)
    count = 0
    for block in blocks(PAGE.read_text()):
        assert play(block, tmp_path) == block
        count += 1
    assert count > 5
