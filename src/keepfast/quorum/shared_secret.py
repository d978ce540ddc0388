"""The secret of an ensemble's session passwords, as servers of our kind pass it on.

A leader says it with UPTODATE and with pings, where Apache's servers do not look; a learner that
has it on disk says so by a packet of its own, which only a leader that said it is sent.

    the secret, as the data of PING, or of UPTODATE  the receipt, as the data of a PING
    after the leader's state (hello.py)
    4    "KFss"                                      4    "KFsr"
    32   secret                                      8    its fingerprint
    8    since: wall clock in ms; 0: not in use      8    since, as the learner has it
                                                     8    the learner's wall clock in ms
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

SECRET_BYTES: Final = 32
_MAGIC: Final = b"KFss"
_OFFER: Final = Struct(f">4s{SECRET_BYTES}sq")
_RECEIPT_MAGIC: Final = b"KFsr"
# Not a multiple of 12, as the tables of sessions are that learners answer pings with.
_RECEIPT: Final = Struct(">4s8sqq")
# In the year 6429: what calendars can still show.
_MAX_TIME_MS: Final = 1 << 47


class SharedSecret(NamedTuple):
    """A secret, and from when on it counts."""

    secret: bytes
    # Sessions whose ids were given out from then on have passwords by it; 0: it is not in use.
    since_ms: int = 0

    @property
    def fingerprint(self) -> bytes:
        """Distinguishes secrets, and shows nothing else of them."""
        return sha256(b"fingerprint" + self.secret).digest()[:8]

    def __repr__(self) -> str:
        return f"SharedSecret(***, {self.since_ms})"


class Receipt(NamedTuple):
    """What a learner has on disk."""

    fingerprint: bytes
    since_ms: int
    wall_ms: int


def encode_offer(offer: SharedSecret) -> bytes:
    """What a leader says."""
    return _OFFER.pack(_MAGIC, offer.secret, offer.since_ms)


def decode_offer(data: bytes | None) -> SharedSecret | None:
    """What a leader said; None: nothing of the kind."""
    if data is None or len(data) != _OFFER.size or not data.startswith(_MAGIC):
        return None
    _, secret, since_ms = _OFFER.unpack(data)
    return SharedSecret(secret, since_ms) if 0 <= since_ms <= _MAX_TIME_MS else None


def encode_receipt(receipt: Receipt) -> bytes:
    """What a learner answers."""
    return _RECEIPT.pack(_RECEIPT_MAGIC, *receipt)


def decode_receipt(data: bytes | None) -> Receipt | None:
    """What a learner answered; None: nothing of the kind."""
    if data is None or len(data) != _RECEIPT.size or not data.startswith(_RECEIPT_MAGIC):
        return None
    _, fingerprint, since_ms, wall_ms = _RECEIPT.unpack(data)
    if not (0 <= since_ms <= _MAX_TIME_MS and 0 <= wall_ms <= _MAX_TIME_MS):
        return None
    return Receipt(fingerprint, since_ms, wall_ms)
