"""Apache's four-letter words on the client port: which exist, and which are allowed.

A connection whose first four bytes are one of these is answered with text and closed. The words
that are not on the whitelist are refused, as Apache refuses them: scripts look for that sentence.
The answers are up to the server.
"""

from __future__ import annotations

from collections.abc import Set
from struct import Struct
from typing import Final

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"

FOUR_LETTER_WORDS: Final = frozenset(
    (
        "conf",
        "cons",
        "crst",
        "dirs",
        "dump",
        "envi",
        "gtmk",
        "hash",
        "isro",
        "kfst",
        "mntr",
        "ruok",
        "srst",
        "srvr",
        "stat",
        "stmk",
        "wchc",
        "wchp",
        "wchs",
    )
)

_WORD_SIZE: Final = 4
_MASK: Final = Struct(">q")
# The only word with an argument.
_SET_MASK: Final = b"stmk"
_SET_MASK_SIZE: Final = _WORD_SIZE + _MASK.size

# What these answer does not depend on the data.
_ALWAYS: Final = frozenset(("ruok", "envi", "gtmk", "stmk", "kfst"))
# Our own word reveals no more than this one of Apache's: allowing one allows the other.
_SAME_AS: Final = {"kfst": "srvr"}


def word_of(data: bytes) -> str:
    """The first bytes of a connection as a word, which may be none."""
    return data[:_WORD_SIZE].decode("latin-1")


def is_word(data: bytes) -> bool:
    """Whether the first bytes of a connection are a word, whole or not."""
    return word_of(data) in FOUR_LETTER_WORDS


def is_complete_word(data: bytes) -> bool:
    """Whether everything that belongs to the word is there."""
    return data[:_WORD_SIZE] != _SET_MASK or len(data) >= _SET_MASK_SIZE


def trace_mask_of(data: bytes) -> int | None:
    """The argument of a complete word; None: it has none."""
    if data[:_WORD_SIZE] != _SET_MASK:
        return None
    mask: int = _MASK.unpack_from(data, _WORD_SIZE)[0]
    return mask


def word_refusal(word: str, whitelist: Set[str], *, is_serving: bool) -> str | None:
    """What is said instead of an answer; None: the word is answered."""
    if whitelist.isdisjoint(("*", word, _SAME_AS.get(word, word))):
        return f"{word} is not executed because it is not in the whitelist.\n"
    if word in _ALWAYS or is_serving:
        return None
    if word == "isro":
        return "null"
    return NOT_SERVING if word == "hash" else f"{NOT_SERVING}\n"
