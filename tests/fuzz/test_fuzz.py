"""A short run of every target, the same each time; `make fuzz` is the long one."""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import CORPUS, Explorer
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_of_strangers__raise_what_is_expected_or_nothing(name: str) -> None:
    explorer = Explorer(name, seed=1)
    for _ in range(200):
        explorer.step()
    assert explorer.lines


def test_corpus_has_a_folder_for_each_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
