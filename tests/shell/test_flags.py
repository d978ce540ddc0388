"""Lines cut into words, and words told apart into flags and arguments."""

from __future__ import annotations

import pytest

from keepfast.shell.flags import Flag, Given, Syntax, parse_flags
from keepfast.shell.lines import split_line
from keepfast.shell.shell_failures import UsageError

SYNTAX = Syntax((Flag("s", "stat"), Flag("w", "watch"), Flag("v", "version", takes_value=True)))
GROUP = Syntax(
    (Flag("n", "soft", takes_value=True), Flag("N", "hard", takes_value=True)),
    one_of=("n", "N"),
    is_required=True,
)
LONG = Syntax((Flag("v", "", takes_value=True), Flag("file", "", takes_value=True)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        (" \t ", []),
        ("ls /", ["ls", "/"]),
        ("  ls   -s  /a ", ["ls", "-s", "/a"]),
        ("set /a 'two words'", ["set", "/a", "two words"]),
        ('set /a "it\'s"', ["set", "/a", "it's"]),
        ('set /a ""', ["set", "/a", ""]),
        ('set /a x"y z"', ["set", "/a", 'x"y', 'z"']),
        ('set /a "open end', ["set", "/a", "open", "end"]),
        ("set /a a\\nb", ["set", "/a", "a\\nb"]),
    ],
)
def test_line(line: str, words: list[str]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize(
    ("words", "flags", "arguments"),
    [
        (["/a"], {}, ["/a"]),
        (["-s", "/a", "-w"], {"s": "", "w": ""}, ["/a"]),
        (["-sw", "/a"], {"s": "", "w": ""}, ["/a"]),
        (["-v", "5", "/a"], {"v": "5"}, ["/a"]),
        (["-v5", "/a"], {"v": "5"}, ["/a"]),
        (["-v=5", "/a"], {"v": "5"}, ["/a"]),
        (["-sv5", "/a"], {"s": "", "v": "5"}, ["/a"]),
        (["-v", "-1", "/a"], {"v": "-1"}, ["/a"]),
        (["/a", "--", "-s"], {}, ["/a", "-s"]),
        (["/a", "-"], {}, ["/a", "-"]),
    ],
)
def test_flags(words: list[str], flags: dict[str, str], arguments: list[str]) -> None:
    assert parse_flags(words, SYNTAX) == Given(flags, arguments)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-z"], "Unrecognized option: -z"),
        (["-sz"], "Unrecognized option: -sz"),
        (["--s"], "Unrecognized option: --s"),
        (["/a", "-5"], "Unrecognized option: -5"),
        (["-v"], "Missing argument for option: v"),
        (["-v", "-s"], "Missing argument for option: v"),
        (["-v", "--", "5"], "Missing argument for option: v"),
    ],
)
def test_wrong_flags__are_named(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse_flags(words, SYNTAX)
    assert str(failure.value) == complaint


def test_group__takes_one_of_its_flags() -> None:
    assert parse_flags(["-n", "5", "/a"], GROUP).flags == {"n": "5"}
    with pytest.raises(UsageError, match=r"'N' was specified but .* already been selected: 'n'"):
        parse_flags(["-n", "5", "-N", "6", "/a"], GROUP)
    with pytest.raises(UsageError, match=r"Missing required option: \[-n soft, -N hard\]"):
        parse_flags(["/a"], GROUP)


def test_long_names__have_one_dash() -> None:
    assert parse_flags(["-file", "x", "-v", "1"], LONG).flags == {"file": "x", "v": "1"}
    assert parse_flags(["-file=x"], LONG).flags == {"file": "x"}
