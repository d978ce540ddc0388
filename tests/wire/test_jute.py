"""Primitives: strings as Java writes them, the reader and its errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.wire import (
    InvariantViolation,
    MalformedRecord,
    Reader,
    decode_text,
    encode_buffer,
    encode_int,
    encode_long,
    encode_string,
    encode_text,
)
from keepfast.wire.jute import decode_exact_text


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("", ""),
        ("/a", "2f61"),
        ("\0", "00"),
        ("ä", "c3a4"),
        ("漢", "e6bca2"),
        ("\uffff", "efbfbf"),
        ("\U0001f600", "eda0bdedb880"),
        ("\U00010000", "eda080edb080"),
        ("\U0010ffff", "edafbfedbfbf"),
        ("a\U0001f600ä", "61eda0bdedb880c3a4"),
    ],
)
def test_text_as_java_writes_it(text: str, raw: str) -> None:
    assert encode_text(text).hex() == raw
    assert decode_text(bytes.fromhex(raw)) == text
    assert decode_exact_text(bytes.fromhex(raw)) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("f09f9880", "\U0001f600"),  # plain UTF-8: understood, written back as two surrogates
        ("fffe", "\ufffd\ufffd"),
        ("c080", "\ufffd\ufffd"),  # Java's modified UTF-8 for NUL is not in use here
        ("eda0bd", "\ufffd"),  # half a pair: one replacement, as in Java
        ("eda0", "\ufffd"),
        ("edbdedc3e0", "\ufffd\ufffd\ufffd\ufffd"),
        ("edb880eda0bd", "\ufffd\ufffd"),  # a pair the wrong way round
        ("eda0bd61edb880", "\ufffda\ufffd"),
        ("eda0bdeda0bdedb880", "\ufffd\U0001f600"),
        ("e6bc", "\ufffd"),
        ("ff eda0bdedb880", "\ufffd\U0001f600"),
    ],
)
def test_text_that_java_does_not_write__read_but_not_exact(raw: str, text: str) -> None:
    assert decode_text(bytes.fromhex(raw)) == text
    assert decode_exact_text(bytes.fromhex(raw)) is None


@given(st.text())
def test_text_round_trip(text: str) -> None:
    assert decode_text(encode_text(text)) == text
    assert decode_exact_text(encode_text(text)) == text


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"\xed", b"\xa0", b"\xbd", b"\xb8", b"\x80", b"a"])).map(b"".join)
)
def test_arbitrary_bytes_as_text__never_a_surrogate_and_never_an_error(raw: bytes) -> None:
    text = decode_text(raw)
    text.encode()
    exact = decode_exact_text(raw)
    assert exact is None or encode_text(exact) == raw


def test_lone_surrogate_in_a_string_of_ours__written_as_java_would() -> None:
    assert encode_text("\ud83d").hex() == "eda0bd"
    assert encode_text("\ud83d\U0001f600").hex() == "eda0bdeda0bdedb880"


def test_primitives() -> None:
    raw = (
        encode_int(-2)
        + encode_long(-(2**63))
        + encode_string("ä")
        + encode_string(None)
        + encode_buffer(b"")
        + encode_buffer(None)
        + encode_int(3)
        + b"abc"
    )
    reader = Reader(raw)
    assert reader.read_int() == -2
    assert reader.read_long() == -(2**63)
    assert reader.read_string() == "ä"
    assert reader.read_string() is None
    assert reader.read_buffer() == b""
    assert reader.read_buffer() is None
    assert reader.read_count() == 3
    assert reader.remaining == 3
    assert reader.read_bytes(3) == b"abc"
    assert reader.remaining == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_whatever_is_read_from__buffers_are_bytes(
    kind: type[bytes] | type[bytearray] | type[memoryview],
) -> None:
    reader = Reader(kind(encode_buffer(b"abc")))
    value = reader.read_buffer()
    assert value == b"abc"
    assert type(value) is bytes


@pytest.mark.parametrize(
    "method",
    ["read_int", "read_long", "read_buffer", "read_string", "read_count"],
)
def test_nothing_left__error_and_the_reader_stays(method: str) -> None:
    reader = Reader(b"xx", 2)
    with pytest.raises(MalformedRecord) as caught:
        getattr(reader, method)()
    assert caught.value.offset == 2
    assert reader.offset == 2


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("fffffffe", "unreasonable length -2"),
        ("80000000", "unreasonable length -2147483648"),
        ("00000065", "length 101 exceeds the limit 100"),
        ("00000004616263", "input ends, 4 bytes needed, 3 left"),
    ],
)
def test_bad_length(raw: str, reason: str) -> None:
    reader = Reader(b"\0" + bytes.fromhex(raw), 1, max_field=100)
    with pytest.raises(MalformedRecord, match=reason):
        reader.read_buffer()
    assert reader.offset == 1


def test_bad_count__refused_by_the_space_that_elements_need() -> None:
    assert Reader(encode_int(-1)).read_count() is None
    assert Reader(encode_int(2) + bytes(8)).read_count(element_size=4) == 2
    with pytest.raises(MalformedRecord, match="2 elements cannot fit into 7 bytes"):
        Reader(encode_int(2) + bytes(7)).read_count(element_size=4)
    with pytest.raises(MalformedRecord, match="unreasonable count -2"):
        Reader(encode_int(-2)).read_count()


def test_end_of_the_reader_is_not_the_end_of_the_buffer() -> None:
    reader = Reader(encode_string("abc") + b"next", 0, 6)
    with pytest.raises(MalformedRecord, match="3 bytes needed, 2 left at offset 4"):
        reader.read_string()


def test_our_own_mistakes_are_told_apart_from_malformed_input() -> None:
    with pytest.raises(InvariantViolation):
        Reader(b"abc", 4)
    with pytest.raises(InvariantViolation):
        Reader(b"abc", 0, 4)
    with pytest.raises(InvariantViolation):
        encode_int(2**31)
    with pytest.raises(InvariantViolation):
        encode_long(2**63)
