"""Forms of paths; the refused ones are those of client-protocol, section 8."""

from __future__ import annotations

import pytest

from keepfast.tree import name_of, parent_of, path_problem


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a",
        "/a/b",
        "/a.b",
        "/..a",
        "/a..",
        "/...",
        "/a b",
        "/\u00e4",
        "/\ud7ff",
        "/\uf900",
        "/\uffef",
        "/\u00a0",
    ],
)
def test_good_path__has_no_problem(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *("", "a", "a/b", "/a/", "//", "//a", "/a//b"),
        *("/.", "/..", "/a/.", "/a/..", "/./a", "/../a", "/a/./b", "/a/../b"),
        *("/\0", "/a\0b", "/\x01", "/\x1f", "/\x7f", "/\x9f"),
        *(
            "/\ud800",
            "/\udfff",
            "/\ue000",
            "/\uf8ff",
            "/\ufff0",
            "/\ufffd",
            "/\uffff",
            "/\U0001f600",
        ),
    ],
)
def test_bad_path__has_a_problem(path: str) -> None:
    assert path_problem(path) is not None


def test_parent_and_name() -> None:
    assert (parent_of("/"), name_of("/")) == ("/", "")
    assert (parent_of("/a"), name_of("/a")) == ("/", "a")
    assert (parent_of("/a/b"), name_of("/a/b")) == ("/a", "b")
