"""Frames: a stream cut into payloads, whatever the pieces it arrives in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.wire import DEFAULT_MAX_FRAME, FrameParser, MalformedRecord, encode_frame


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_stream_cut_anywhere__the_same_payloads(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, payloads))
    parser = FrameParser()
    seen: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += parser.feed(stream[:size])
        stream = stream[size:]
    assert seen == payloads


def test_longest_frame_passes_and_one_byte_more_does_not() -> None:
    parser = FrameParser()
    payload = bytes(DEFAULT_MAX_FRAME)
    assert parser.feed(encode_frame(payload)) == [payload]
    # Refused by the length alone: no byte of the payload is there yet.
    with pytest.raises(MalformedRecord, match="frame of 1048576 bytes") as caught:
        parser.feed((DEFAULT_MAX_FRAME + 1).to_bytes(4, "big"))
    assert caught.value.offset == DEFAULT_MAX_FRAME + 4


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "7fffffff"])
def test_unreasonable_length__refused(length: str) -> None:
    with pytest.raises(MalformedRecord):
        FrameParser().feed(bytes.fromhex(length))


def test_long_frame_in_small_pieces__copied_once() -> None:
    payload = bytes(1_000_000)
    stream = encode_frame(payload)
    parser = FrameParser()
    seen: list[bytes] = []
    for start in range(0, len(stream), 64):
        seen += parser.feed(stream[start : start + 64])
    assert seen == [payload]
