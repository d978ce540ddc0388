"""Every example in docs/pipeline.md prints what the page says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.cli import examples
from tests.cli.examples import blocks, make_folder, play

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipeline.md"


@pytest.mark.slow
def test_examples__are_true(tmp_path: Path) -> None:
    """If one is not, and the new output is right: python -m tests.pipeline.test_docs."""
    make_folder(tmp_path)
    found = list(blocks(PAGE.read_text()))
    assert len(found) > 5
    for block in found:
        assert play(block, tmp_path) == block


def main() -> None:
    """Renew the page."""
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder))
        renewed = examples._BLOCK.sub(
            lambda match: f"```console\n{play(match[1], Path(folder))}```", PAGE.read_text()
        )
    PAGE.write_text(renewed)


if __name__ == "__main__":
    main()
