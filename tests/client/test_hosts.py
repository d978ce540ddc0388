"""Connection strings and paths."""

from __future__ import annotations

import pytest

from keepfast.client import InvalidPath, ServerAddress, Target, parse_target, validate_path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("zk1", Target((ServerAddress("zk1", 2181),))),
        ("zk1:2182", Target((ServerAddress("zk1", 2182),))),
        ("zk1:", Target((ServerAddress("zk1", 2181),))),
        ("a:1,b:2", Target((ServerAddress("a", 1), ServerAddress("b", 2)))),
        ("a:1, b:2/", Target((ServerAddress("a", 1), ServerAddress("b", 2)))),
        ("a:1/app/x", Target((ServerAddress("a", 1),), "/app/x")),
        ("[::1]:5", Target((ServerAddress("::1", 5),))),
        ("[::1]", Target((ServerAddress("::1", 2181),))),
        ("::1", Target((ServerAddress("::1", 2181),))),
    ],
)
def test_connection_string(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", ",", "/x", "a:b", "a:0", "a:70000", "a:1/x/", "a:1/x//y", "a:1:2", "[::1"]
)
def test_bad_connection_string__is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_target(text)


def test_address__is_written_as_it_is_read() -> None:
    assert [str(address) for address in parse_target("a:1,[::1]:2").addresses] == [
        "a:1",
        "[::1]:2",
    ]


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a..b/...", "/ä/漢", "/a b"])
def test_path(path: str) -> None:
    validate_path(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "Path length must be > 0"),
        ("a", "Path must start with / character"),
        ("/a/", "Path must not end with / character"),
        ("//", "Path must not end with / character"),
        ("/a//b", "empty node name specified @3"),
        ("//a", "empty node name specified @1"),
        ("/.", "relative paths not allowed @1"),
        ("/a/../b", "relative paths not allowed @4"),
        ("/a\0", "null character not allowed @2"),
        ("/a\x1f", "invalid character @2"),
        ("/\x7f", "invalid character @1"),
        ("/\ue000", "invalid character @1"),
        ("/\ufff0", "invalid character @1"),
        ("/\U0001f600", "invalid character @1"),
    ],
)
def test_bad_path__is_refused_with_the_reason(path: str, reason: str) -> None:
    with pytest.raises(InvalidPath) as failure:
        validate_path(path)
    assert failure.value.detail.endswith(reason)
