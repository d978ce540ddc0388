"""Zxids: parts, order, and the two ways they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.wire import (
    InvariantViolation,
    counter_of,
    epoch_of,
    follows_in_epoch,
    format_zxid,
    make_zxid,
    parse_zxid,
)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_parts(epoch: int, counter: int) -> None:
    zxid = make_zxid(epoch, counter)
    assert (epoch_of(zxid), counter_of(zxid)) == (epoch, counter)
    assert zxid < 2**63


@pytest.mark.parametrize(("epoch", "counter"), [(-1, 0), (2**31, 0), (0, -1), (0, 2**32)])
def test_parts_out_of_range__our_own_bug(epoch: int, counter: int) -> None:
    with pytest.raises(InvariantViolation):
        make_zxid(epoch, counter)


def test_no_history() -> None:
    assert epoch_of(-1) == -1
    assert format_zxid(-1) == "0xffffffffffffffff"


@pytest.mark.parametrize(
    ("zxid", "previous", "follows"),
    [
        (0x500000003, 0x500000002, True),
        (0x500000001, 0x500000000, True),
        (0x500000003, 0x500000001, False),
        (0x500000003, 0x500000003, False),
        (0x500000002, 0x500000003, False),
        (0x600000001, 0x500000003, False),
        (0x600000000, 0x5FFFFFFFF, False),
        (0, -1, False),
    ],
)
def test_follows_in_epoch(zxid: int, previous: int, follows: bool) -> None:
    assert follows_in_epoch(zxid, previous) is follows


@given(st.integers(-(2**63), 2**63 - 1))
def test_text_round_trip(zxid: int) -> None:
    assert parse_zxid(format_zxid(zxid)) == zxid
    assert parse_zxid(format_zxid(zxid).removeprefix("0x")) == zxid


def test_text_as_in_file_names_and_messages() -> None:
    assert format_zxid(0x500000003) == "0x500000003"
    assert parse_zxid("0x500000003") == parse_zxid("500000003") == 0x500000003
    assert parse_zxid("0") == 0


@pytest.mark.parametrize(
    "text", ["", "0x", "x5", "5g", "-1", "+1", " 1", "1\n", "1_0", "0x0x1", "1" * 17, "٣"]
)
def test_text_that_is_no_zxid__refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a zxid"):
        parse_zxid(text)
