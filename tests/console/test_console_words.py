"""Which words of `keepfast console` are servers, and which are directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.cli.console import sorted_out


@pytest.mark.parametrize(
    ("words", "places", "expected"),
    [
        (["zk1:2181"], [], ("zk1:2181", ())),
        (["zk1:2181", "zk2:2181"], [], ("zk1:2181,zk2:2181", ())),
        (["zk1:2181,zk2:2181/app"], ["d1"], ("zk1:2181,zk2:2181/app", ("d1",))),
        (["zk1:2181", "/data/2", "./3"], ["/data/1"], ("zk1:2181", ("/data/1", "/data/2", "./3"))),
        (
            ["/data/2:/logs/2", "zk1:2181"],
            ["/data/1"],
            ("zk1:2181", ("/data/1", "/data/2:/logs/2")),
        ),
        # Without --data, a directory is a mistake that the parser of addresses names.
        (["zk1:2181", "/data/2"], [], ("zk1:2181,/data/2", ())),
    ],
)
def test_words_after_data__are_directories_too(
    words: list[str], places: list[str], expected: tuple[str, tuple[str, ...]]
) -> None:
    assert sorted_out(words, places) == expected


def test_folders_of_a_shell_pattern__are_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1", "2"):
        Path(name).mkdir()
    assert sorted_out(["zk1:2181", "2"], ["1"]) == ("zk1:2181", ("1", "2"))
