"""Zxids: the epoch of a leader in the high 32 bits, a counter in the low 32 bits.

On the wire and on disk a zxid is a signed 64-bit integer, and so it is here: -1 stands for "no
history" (quorum protocol). Counter 0 never names a txn: it marks the start of an epoch.
"""

from __future__ import annotations

import re
from typing import NewType

from keepfast.wire.errors import InvariantViolation

Zxid = NewType("Zxid", int)
SessionId = NewType("SessionId", int)
ServerId = NewType("ServerId", int)

COUNTER_BITS = 32
MAX_COUNTER = 0xFFFFFFFF
MAX_EPOCH = 0x7FFFFFFF

# At most 16 digits: a zxid has 64 bits, and a longer name must not pass for one by wrapping round.
_HEX_ZXID = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})\Z")


def make_zxid(epoch: int, counter: int) -> Zxid:
    """The zxid of `counter` in `epoch`; both must be in range."""
    if not 0 <= epoch <= MAX_EPOCH or not 0 <= counter <= MAX_COUNTER:
        raise InvariantViolation(f"no zxid has epoch {epoch} and counter {counter}")
    return Zxid(epoch << COUNTER_BITS | counter)


def epoch_of(zxid: int) -> int:
    """The epoch of a zxid; -1 for the zxid -1."""
    return zxid >> COUNTER_BITS


def counter_of(zxid: int) -> int:
    """The position of a zxid inside its epoch."""
    return zxid & MAX_COUNTER


def follows_in_epoch(zxid: int, previous: int) -> bool:
    """Whether `zxid` is the txn right after `previous` in the same epoch.

    The first txn of an epoch (counter 1) follows the epoch's start (counter 0).
    """
    return zxid == previous + 1 and counter_of(zxid) != 0


def format_zxid(zxid: int) -> str:
    """A zxid as people read it: `0x500000003`; negative ones as 64-bit two's complement."""
    return f"{zxid & 0xFFFFFFFFFFFFFFFF:#x}"


def parse_zxid(text: str) -> Zxid:
    """Read `0x500000003`, or the form of file names, `500000003`. Always hexadecimal.

    Raises ValueError for anything else, so that a stray file name never becomes a zxid.
    """
    match = _HEX_ZXID.match(text)
    if match is None:
        raise ValueError(f"not a zxid: {text!r}")
    value = int(match.group(1), 16)
    return Zxid(value - (1 << 64) if value >> 63 else value)
