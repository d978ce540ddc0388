"""Every record, encoded and decoded: round trips, the naive encoder, damage, null and empty."""

from __future__ import annotations

import tracemalloc
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import Id, InvariantViolation, MalformedRecord, codec_of, exact_codec_of
from keepfast.wire.layout import AT_END, Int, Long, layout_of
from tests.wire.record_table import (
    NOT_JUTE,
    RECORDS,
    Record,
    attempt,
    make,
    naive_encode,
    naive_encode_record,
    record_id,
    records,
)

every_record = pytest.mark.parametrize("record", RECORDS, ids=record_id)
few = settings(max_examples=25)


def test_the_table_holds_every_record_of_the_package() -> None:
    exported = {
        value
        for name in wire.__all__
        if isinstance(value := getattr(wire, name), type)
        and issubclass(value, tuple)
        and hasattr(value, "_fields")
    }
    assert exported == set(RECORDS) | NOT_JUTE


@every_record
@few
@given(data=st.data())
def test_round_trip(record: Record, data: st.DataObject) -> None:
    value = data.draw(records(record))
    encoded = wire.encode(value)
    assert encoded == naive_encode_record(record, value)
    for codec in (codec_of(record), exact_codec_of(record)):
        decoded = codec.decode_all(encoded)
        assert decoded == value
        assert type(decoded) is record
        assert codec.encode(value) == encoded
        if codec.fixed_size is not None:
            assert len(encoded) == codec.fixed_size


@every_record
@few
@given(data=st.data())
def test_record_inside_a_larger_buffer(record: Record, data: st.DataObject) -> None:
    # A field that may be absent at the end is there only if the end is not.
    value = data.draw(records(record).filter(lambda v: v[-1] is not None))
    encoded = wire.encode(value)
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    reader = wire.Reader(before + encoded + after, len(before), len(before) + len(encoded))
    assert codec_of(record).read(reader) == value
    assert reader.remaining == 0
    assert wire.decode(record, before + encoded + after, len(before)) == value


@every_record
@few
@given(data=st.data())
def test_input_cut_anywhere__error_with_an_offset(record: Record, data: st.DataObject) -> None:
    value = data.draw(records(record).filter(lambda v: v[-1] is not None))
    encoded = wire.encode(value)
    has_absent_field = RECORDS[record].endswith("*")
    for size in range(len(encoded)):
        result = attempt(wire.decode, record, encoded[:size])
        if isinstance(result, MalformedRecord):
            assert 0 <= result.offset <= size
        else:
            # Cut exactly before a field that older writers do not send.
            assert has_absent_field
            assert result == (*value[:-1], None)


@every_record
@settings(max_examples=60)
@given(data=st.data())
def test_arbitrary_bytes__a_record_or_an_error_with_an_offset(
    record: Record, data: st.DataObject
) -> None:
    raw = data.draw(st.binary(max_size=120) | _damaged(record))
    exact = attempt(exact_codec_of(record).decode_all, raw)
    if isinstance(exact, MalformedRecord):
        assert 0 <= exact.offset <= len(raw)
        assert exact.reason
    else:
        assert wire.encode(exact) == raw
    result = attempt(codec_of(record).unpack, raw, 0, len(raw), len(raw))
    if isinstance(result, MalformedRecord):
        assert 0 <= result.offset <= len(raw)
    else:
        lenient, stop = result
        assert stop <= len(raw)
        assert type(lenient) is record
        # What the lenient reader accepted is written strictly: a second reader sees the same.
        assert wire.decode(record, wire.encode(lenient)) == lenient


@st.composite
def _damaged(draw: st.DrawFn, record: Record) -> bytes:
    """The encoding of a record with a few bytes overwritten."""
    raw = bytearray(wire.encode(draw(records(record))))
    for _ in range(draw(st.integers(0, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@every_record
def test_null_and_empty_differ(record: Record) -> None:
    kinds = RECORDS[record].split()
    plain = _plain(record)
    for index, kind in enumerate(kinds):
        empty = {"buffer": b"", "ustring": "", "vector": ()}.get(kind.partition("<")[0].rstrip("?"))
        if empty is None:
            continue
        with_empty = make(record, (*plain[:index], empty, *plain[index + 1 :]))
        with_null = make(record, (*plain[:index], None, *plain[index + 1 :]))
        assert codec_of(record).decode_all(wire.encode(with_empty)) == with_empty
        if kind.endswith("?"):
            assert wire.encode(with_null) != wire.encode(with_empty)
            assert codec_of(record).decode_all(wire.encode(with_null)) == with_null
        else:
            null = _with_field(record, plain, index, b"\xff\xff\xff\xff")
            # The exact reader: the lenient one takes null for empty in one field (Id.id).
            with pytest.raises(MalformedRecord, match="null is not allowed"):
                exact_codec_of(record).decode(null)


@every_record
def test_unreasonable_lengths_are_refused_before_memory_is_allocated(record: Record) -> None:
    plain = _plain(record)
    for index, kind in enumerate(RECORDS[record].split()):
        if not kind.startswith(("buffer", "ustring", "vector")):
            continue
        for length in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe"):
            raw = _with_field(record, plain, index, length)
            tracemalloc.start()
            with pytest.raises(MalformedRecord) as caught:
                wire.decode(record, raw)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 1_000_000
            assert caught.value.offset == len(_with_field(record, plain, index, b"", is_cut=True))


def _plain(record: Record) -> Any:
    """Some record without nulls."""
    simple = {"int": 1, "long": 2, "ulong": 3, "boolean": True, "buffer": b"b", "ustring": "s"}
    names = {r.__name__: r for r in RECORDS}
    fields: list[Any] = []
    for kind in RECORDS[record].split():
        kind = kind.rstrip("?*")
        if kind.startswith("vector<"):
            element = kind[7:-1]
            fields.append(("e",) if element == "ustring" else (_plain(names[element]),))
        else:
            fields.append(simple[kind] if kind in simple else _plain(names[kind]))
    return make(record, tuple(fields))


def _with_field(
    record: Record, plain: tuple[Any, ...], index: int, raw: bytes, *, is_cut: bool = False
) -> bytes:
    """The record's encoding with one field replaced; if `cut`, without what follows it."""
    kinds = RECORDS[record].split()
    before = _encode_fields(kinds[:index], plain[:index])
    return (
        before if is_cut else before + raw + _encode_fields(kinds[index + 1 :], plain[index + 1 :])
    )


def _encode_fields(kinds: list[str], fields: tuple[Any, ...]) -> bytes:
    return b"".join(naive_encode(kind, field) for kind, field in zip(kinds, fields, strict=True))


def test_field_limit__longer_is_refused_and_equal_is_not() -> None:
    request = wire.SetDataRequest("/a", b"x" * 100, -1)
    raw = wire.encode(request)
    codec = codec_of(wire.SetDataRequest)
    assert codec.decode(raw, max_field=100) == request
    with pytest.raises(MalformedRecord, match="length 100 exceeds the limit 99") as caught:
        codec.decode(raw, max_field=99)
    assert caught.value.offset == 6


def test_default_field_limit_is_javas() -> None:
    codec = codec_of(wire.GetSASLRequest)
    longest = wire.encode(wire.GetSASLRequest(bytes(2097150)))
    assert codec.decode(longest).token == bytes(2097150)
    with pytest.raises(MalformedRecord, match="limit 2097150"):
        codec.decode(wire.encode(wire.GetSASLRequest(bytes(2097151))))


def test_bytes_after_a_record_are_ignored_unless_it_must_be_all() -> None:
    raw = wire.encode(wire.GetDataRequest("/a", True)) + b"more"
    assert wire.decode(wire.GetDataRequest, raw) == wire.GetDataRequest("/a", True)
    with pytest.raises(MalformedRecord, match="4 bytes after GetDataRequest at offset 7"):
        codec_of(wire.GetDataRequest).decode_all(raw)


def test_boolean_07__true_for_java_and_refused_where_bytes_matter() -> None:
    raw = b"\0\0\0\2/a\7"
    assert wire.decode(wire.GetDataRequest, raw) == wire.GetDataRequest("/a", True)
    with pytest.raises(MalformedRecord, match="0x07 is not a boolean at offset 6"):
        exact_codec_of(wire.GetDataRequest).decode(raw)


def test_malformed_text__replaced_for_java_and_refused_where_bytes_matter() -> None:
    raw = b"\0\0\0\3/\xff\xfe"
    assert wire.decode(wire.DeleteTxn, raw) == wire.DeleteTxn("/\ufffd\ufffd")
    with pytest.raises(MalformedRecord, match="not a string that Java writes at offset 0"):
        exact_codec_of(wire.DeleteTxn).decode(raw)


@pytest.mark.parametrize(
    "record",
    [
        wire.SetDataRequest("/a", b"", 2**31),
        wire.RequestHeader(1, -(2**31) - 1),
        wire.TxnDigest(2, -1),
        wire.ACL(2**40, wire.ANYONE),
    ],
    ids=str,
)
def test_value_out_of_range__our_own_bug(record: tuple[Any, ...]) -> None:
    with pytest.raises(InvariantViolation, match=type(record).__name__):
        wire.encode(record)


class _NullInt(NamedTuple):
    value: Int | None


class _NullRecord(NamedTuple):
    value: wire.Id | None


class _Float(NamedTuple):
    value: float


class _PlainInt(NamedTuple):
    value: int


class _Pair(NamedTuple):
    value: tuple[str, str]


class _Longs(NamedTuple):
    value: tuple[Long, ...]


class _Choice(NamedTuple):
    value: str | bytes


class _AbsentInTheMiddle(NamedTuple):
    value: Annotated[Long | None, AT_END]
    more: Int


class _AbsentButNeverNone(NamedTuple):
    value: Annotated[Long, AT_END]


class _UnknownMark(NamedTuple):
    value: Annotated[int, "wide"]


@pytest.mark.parametrize(
    "record",
    [
        _NullInt,
        _NullRecord,
        _Float,
        _PlainInt,
        _Pair,
        _Longs,
        _Choice,
        _AbsentInTheMiddle,
        _AbsentButNeverNone,
        _UnknownMark,
    ],
    ids=record_id,
)
def test_annotation_that_jute_cannot_express__refused(record: Record) -> None:
    with pytest.raises(TypeError, match="value: "):
        layout_of(record)


def test_generated_source_can_be_read() -> None:
    source = codec_of(wire.SetDataTxn).source
    assert "(path, data, version,) = _record" in source
    assert "raise _ends_early('SetDataTxn.version', 4, _pos, _end)" in source


def test_null_name_of_an_id__lenient_reader_takes_it_for_empty_exact_one_refuses_it() -> None:
    raw = b"\0\0\0\4auth\xff\xff\xff\xff"
    assert codec_of(Id).decode(raw) == Id("auth", "")
    with pytest.raises(MalformedRecord):
        exact_codec_of(Id).decode(raw)
