"""Errors: their place in the tree, their text, and their way through pickle."""

from __future__ import annotations

import pickle

import pytest

from keepfast import wire
from keepfast.wire import (
    CorruptLog,
    ErrorCode,
    InvariantViolation,
    KeeperError,
    KeepfastError,
    MalformedRecord,
    PeerProtocolError,
    StorageError,
    invariant,
)

ERRORS: list[tuple[KeepfastError, str]] = [
    (MalformedRecord("SetDataTxn.path: null is not allowed", 32), "allowed at offset 32"),
    (KeeperError(ErrorCode.NO_NODE), "NO_NODE (-101)"),
    (KeeperError(ErrorCode.NO_NODE, "/a"), "NO_NODE (-101): /a"),
    (PeerProtocolError("no"), "no"),
    (StorageError("unreadable"), "unreadable"),
    (CorruptLog("bad checksum", "log.1", 16, 0x500000003), "(log.1, offset 16, zxid 0x500000003)"),
    (CorruptLog("bad checksum", "log.1"), "bad checksum (log.1)"),
    (InvariantViolation("ours"), "ours"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda value: type(value).__name__)
def test_error_tells_and_survives_pickle(error: KeepfastError, text: str) -> None:
    assert text in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error)


def test_every_error_is_below_a_branch() -> None:
    branches = (
        MalformedRecord,
        KeeperError,
        PeerProtocolError,
        StorageError,
        InvariantViolation,
    )
    for name in wire.__all__:
        value = getattr(wire, name)
        if isinstance(value, type) and issubclass(value, Exception) and value is not KeepfastError:
            assert issubclass(value, branches)


def test_error_codes_of_the_protocol() -> None:
    assert {code.value for code in ErrorCode} == {
        *range(0, -9, -1),
        *(-12, -13, -14, -100, -101, -102, -103, -108, -110, -111, -112, -113, -114, -115),
        *(-118, -119, -120, -121, -122, -123, -124, -125, -127),
    }


def test_invariant() -> None:
    invariant(True, "holds")
    with pytest.raises(InvariantViolation, match="broken"):
        invariant(False, "broken")
