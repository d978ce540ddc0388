"""What the Tab key offers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepfast.shell.completion import complete

TREE = {"/": ("b", "a", "zookeeper"), "/a": ("x", "y"), "/a/x": ()}


def children_of(path: str) -> Sequence[str]:
    return TREE.get(path, ())


@pytest.mark.parametrize(
    ("text", "token", "words"),
    [
        ("set", "set", ["set", "setAcl", "setquota"]),
        ("  his", "his", ["history"]),
        ("nosuch", "nosuch", []),
        ("ls /", "/", ["/a", "/b", "/zookeeper"]),
        ("ls /z", "/z", ["/zookeeper"]),
        ("ls -s /a/", "/a/", ["/a/x", "/a/y"]),
        ("ls /a/x/", "/a/x/", []),
        ("ls /none/", "/none/", []),
        ("ls -", "-", ["-R", "-s", "-w"]),
        ("reconfig -a", "-a", ["-add"]),
        ("printwatches ", "", ["off", "on"]),
        ("addWatch -m PERSISTENT_", "PERSISTENT_", ["PERSISTENT_RECURSIVE"]),
        ("help get", "get", ["get", "getAcl", "getAllChildrenNumber", "getEphemerals"]),
        ("set /a x", "x", []),
    ],
)
def test_completion(text: str, token: str, words: list[str]) -> None:
    assert complete(text, children_of) == (token, words)


def test_a_million_children__are_not_all_offered() -> None:
    _, words = complete("ls /", lambda path: [f"{number:07d}" for number in range(1_000_000)])
    assert len(words) == 1000
