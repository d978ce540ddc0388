"""Log entries: byte for byte, the places where the format does not tell, files of real servers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import (
    OPEN_ACL,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    InvariantViolation,
    LogEntry,
    MalformedRecord,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnDigest,
    TxnHeader,
    Zxid,
    canonical_entry,
    decode_entry,
    decode_header,
    decode_txn_body,
    encode_entry,
    encode_entry_in_slices,
    encode_txn_body,
    has_failed,
)
from tests.cases import CASES_DIR, case_names, load_case
from tests.wire.record_table import Record, attempt, records

# Types of txns that stand alone, with their bodies.
ENTRIES: list[tuple[int, Record]] = [
    (OpCode.CREATE, wire.CreateTxn),
    (OpCode.CREATE2, wire.CreateTxn),
    (OpCode.CREATE_TTL, wire.CreateTTLTxn),
    (OpCode.CREATE_CONTAINER, wire.CreateContainerTxn),
    (OpCode.DELETE, wire.DeleteTxn),
    (OpCode.DELETE_CONTAINER, wire.DeleteTxn),
    (OpCode.SET_DATA, wire.SetDataTxn),
    (OpCode.RECONFIG, wire.SetDataTxn),
    (OpCode.SET_ACL, wire.SetACLTxn),
    (OpCode.CREATE_SESSION, wire.CreateSessionTxn),
    (OpCode.CLOSE_SESSION, wire.CloseSessionTxn),
    (OpCode.ERROR, wire.ErrorTxn),
    (OpCode.MULTI, wire.MultiTxn),
]
SUBS: list[tuple[int, Record]] = [
    (OpCode.CREATE, wire.CreateTxn),
    (OpCode.CREATE2, wire.CreateTxn),
    (OpCode.CREATE_TTL, wire.CreateTTLTxn),
    (OpCode.CREATE_CONTAINER, wire.CreateContainerTxn),
    (OpCode.DELETE, wire.DeleteTxn),
    (OpCode.DELETE_CONTAINER, wire.DeleteTxn),
    (OpCode.SET_DATA, wire.SetDataTxn),
    (OpCode.CHECK, wire.CheckVersionTxn),
    (OpCode.ERROR, wire.ErrorTxn),
]
DIGEST = TxnDigest(2, 0xFEDCBA9876543210)


def header(type_: int) -> TxnHeader:
    return TxnHeader(SessionId(0x100001234560000), 7, Zxid(0x500000003), 1_700_000_000_000, type_)


@st.composite
def entries(draw: st.DrawFn) -> LogEntry:
    type_, body = draw(st.sampled_from(ENTRIES))
    chosen = draw(records(wire.TxnHeader))._replace(type=type_)
    digest = draw(st.none() | records(wire.TxnDigest))
    longest = 40 if digest else 11
    trailing = draw(st.just(b"") | st.binary(max_size=longest))
    return LogEntry(chosen, draw(records(body)), digest, trailing)


def _is_unreadable(entry: LogEntry) -> bool:
    """Two empty paths in a closeSession: the one body that is taken for a digest."""
    return entry.body == CloseSessionTxn(("", "")) and not entry.digest and not entry.trailing


@given(entries().filter(lambda entry: not _is_unreadable(entry)))
@settings(max_examples=300)
def test_round_trip(entry: LogEntry) -> None:
    raw = encode_entry(entry)
    decoded = decode_entry(raw)
    assert decoded == entry
    assert [type(part) for part in decoded] == [type(part) for part in entry]
    assert decode_header(raw) == entry.header


@given(st.binary(max_size=120))
def test_arbitrary_bytes__the_same_bytes_again_or_an_error_with_an_offset(raw: bytes) -> None:
    _check_arbitrary(raw)


@given(st.sampled_from(ENTRIES), st.binary(max_size=90))
@settings(max_examples=400)
def test_arbitrary_body__the_same_bytes_again_or_an_error_with_an_offset(
    kind: tuple[int, Record], body: bytes
) -> None:
    _check_arbitrary(wire.encode(header(kind[0])) + body)


@given(entries(), st.data())
@settings(max_examples=400)
def test_damaged_entry__the_same_bytes_again_or_an_error_with_an_offset(
    entry: LogEntry, data: st.DataObject
) -> None:
    if _is_unreadable(entry):
        return
    raw = bytearray(encode_entry(entry))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _check_arbitrary(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    _check_arbitrary(bytes(raw))


def _check_arbitrary(raw: bytes) -> None:
    entry = attempt(decode_entry, raw, 1000)
    if isinstance(entry, MalformedRecord):
        assert 1000 <= entry.offset <= 1000 + len(raw)
    else:
        assert encode_entry(entry) == raw


def finished(slices: Generator[None, None, bytes]) -> tuple[bytes, int]:
    """What comes of it, and how many slices it took."""
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value, count
        count += 1


@pytest.mark.parametrize("digest", [None, TxnDigest(2, 99)])
def test_encoded_in_slices__the_same_bytes(digest: TxnDigest | None) -> None:
    header = TxnHeader(SessionId(5), 6, Zxid(7), 8, OpCode.CLOSE_SESSION)
    multi = header._replace(type=OpCode.MULTI)
    subs = [SubTxn(OpCode.DELETE, b"%d" % number) for number in range(31)]
    for entry in (
        LogEntry(header, CloseSessionTxn(tuple(f"/{number}" for number in range(31))), digest),
        LogEntry(multi, MultiTxn(tuple(subs)), digest),
        LogEntry(multi, MultiTxn(()), digest),
        LogEntry(multi, MultiTxn(None), digest),
    ):
        made, count = finished(encode_entry_in_slices(entry, 10))
        assert made == encode_entry(entry)
        assert count == (4 if entry.body[0] else 0)  # type: ignore[index]


def test_first_record_of_a_fresh_server() -> None:
    raw = bytes.fromhex(
        "0100001235 1e0000 00000000 0000000000000001 000001a1de801564 fffffff6"
        "00002710 00000002 0000000051c6d660"
    )
    entry = decode_entry(raw)
    assert entry == LogEntry(
        TxnHeader(SessionId(0x10000123_51E0000), 0, Zxid(1), 0x1A1DE801564, OpCode.CREATE_SESSION),
        CreateSessionTxn(10000),
        TxnDigest(2, 1371985504),
    )
    assert encode_entry(entry) == raw


def test_failed_multi_as_logged() -> None:
    create = CreateTxn("/m2", b"", OPEN_ACL, False, 1)
    subs = (
        SubTxn(OpCode.CREATE, encode_txn_body(create)),
        SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-101))),
        SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-2))),
    )
    raw = encode_entry(LogEntry(header(OpCode.MULTI), MultiTxn(subs), DIGEST))
    assert raw[32:].startswith(bytes.fromhex("00000003 00000001 0000002b"))
    assert raw.endswith(
        bytes.fromhex("ffffffff 00000004 ffffff9b ffffffff 00000004 fffffffe") + wire.encode(DIGEST)
    )
    body = decode_entry(raw).body
    assert isinstance(body, MultiTxn)
    assert has_failed(body)
    assert [decode_txn_body(*sub) for sub in body.txns or ()] == [
        create,
        ErrorTxn(-101),
        ErrorTxn(-2),
    ]


def test_error_txn_without_digest__36_bytes() -> None:
    entry = LogEntry(header(OpCode.ERROR), ErrorTxn(-110))
    assert len(encode_entry(entry)) == 36
    assert decode_entry(encode_entry(entry)) == entry


def test_create_of_3_3__recognised_by_its_end() -> None:
    body = CreateTxnV0("/a", None, OPEN_ACL, True)
    raw = encode_entry(LogEntry(header(OpCode.CREATE), body))
    assert decode_entry(raw).body == body
    # One to three bytes are no parentCVersion; Java falls back to the old form for these too.
    assert decode_entry(raw + b"abc") == LogEntry(header(OpCode.CREATE), body, None, b"abc")
    # Four are. Only type 1 has an old form.
    assert decode_entry(raw + b"\0\0\0\2").body == CreateTxn(*body, 2)
    with pytest.raises(MalformedRecord, match=r"CreateTxn\.ephemeral"):
        decode_entry(wire.encode(header(OpCode.CREATE2)) + raw[32:])


def test_bytes_of_a_digest_behind_a_create_of_3_3__are_what_java_takes_them_for() -> None:
    body = CreateTxnV0("/a", b"", OPEN_ACL, False)
    raw = encode_entry(LogEntry(header(OpCode.CREATE), body)) + wire.encode(DIGEST)
    entry = decode_entry(raw)
    assert entry.body == CreateTxn(*body, 2)
    assert entry.digest is None
    assert entry.trailing == wire.encode(DIGEST)[4:]
    assert encode_entry(entry) == raw


def test_create_that_is_broken_in_both_forms__the_error_of_the_current_form() -> None:
    raw = encode_entry(LogEntry(header(OpCode.CREATE), CreateTxn("/a", b"", OPEN_ACL, False, 1)))
    with pytest.raises(MalformedRecord, match=r"CreateTxn\.acl: 16777217 elements") as caught:
        decode_entry(raw[:42] + b"\1" + raw[43:], 5000)
    assert caught.value.offset == 5042
    with pytest.raises(MalformedRecord, match="0x02 is not a boolean at offset 69"):
        decode_entry(raw[:69] + b"\2" + raw[70:])


@pytest.mark.parametrize("digest", [None, TxnDigest(2, 0x51C6D660), TxnDigest(2, 2**64 - 1)])
def test_close_session_without_a_list(digest: TxnDigest | None) -> None:
    entry = LogEntry(header(OpCode.CLOSE_SESSION), None, digest)
    raw = encode_entry(entry)
    assert len(raw) == (44 if digest else 32)
    assert decode_entry(raw) == entry


@pytest.mark.parametrize("paths", [None, (), ("/abc",), ("/a", "/b"), ("",), ("/a", "/ä")])
@pytest.mark.parametrize("digest", [None, DIGEST])
def test_close_session_with_a_list(paths: tuple[str, ...] | None, digest: Any) -> None:
    entry = LogEntry(header(OpCode.CLOSE_SESSION), CloseSessionTxn(paths), digest)
    assert decode_entry(encode_entry(entry)) == entry


def test_trailing_bytes_are_kept() -> None:
    entry = LogEntry(header(OpCode.DELETE), DeleteTxn("/a"), DIGEST, b"from the future")
    assert decode_entry(encode_entry(entry)) == entry
    short = LogEntry(header(OpCode.DELETE), DeleteTxn("/a"), None, b"11 bytes...")
    assert decode_entry(encode_entry(short)) == short


@pytest.mark.parametrize(
    "entry",
    [
        LogEntry(header(OpCode.DELETE), DeleteTxn("/a"), None, bytes(12)),
        LogEntry(header(OpCode.DELETE), None),
        LogEntry(header(OpCode.DELETE), ErrorTxn(-1), DIGEST),
        LogEntry(header(OpCode.SET_DATA), DeleteTxn("/a")),
        LogEntry(header(OpCode.CLOSE_SESSION), None, None, b"x"),
        LogEntry(header(OpCode.CLOSE_SESSION), None, DIGEST, b"x"),
        LogEntry(header(OpCode.CLOSE_SESSION), None, TxnDigest(3, 0)),
        LogEntry(header(OpCode.CLOSE_SESSION), CloseSessionTxn(("", ""))),
        LogEntry(header(OpCode.CREATE), CreateTxnV0("/a", b"", OPEN_ACL, False), DIGEST),
        LogEntry(header(OpCode.CREATE), CreateTxnV0("/a", b"", OPEN_ACL, False), None, bytes(4)),
        LogEntry(header(OpCode.CREATE2), CreateTxnV0("/a", b"", OPEN_ACL, False)),
        LogEntry(header(99), DeleteTxn("/a")),
        LogEntry(header(OpCode.CHECK), wire.CheckVersionTxn("/a", 1), DIGEST),
        LogEntry(header(2**40), DeleteTxn("/a"), DIGEST),
        LogEntry(header(OpCode.SET_DATA), SetDataTxn("/a", b"", 2**31), DIGEST),
        LogEntry(header(OpCode.SET_DATA), SetDataTxn("/a", b"", 1), TxnDigest(2, 2**64)),
    ],
    ids=str,
)
def test_entry_that_would_be_read_as_another__never_written(entry: LogEntry) -> None:
    with pytest.raises(InvariantViolation):
        encode_entry(entry)


@pytest.mark.parametrize("type_", [0, 3, 4, 13, 22, 99, -2, -12, 2**31 - 1])
def test_unknown_type__error_at_the_type(type_: int) -> None:
    with pytest.raises(MalformedRecord, match=f"unknown txn type {type_} at offset 128"):
        decode_entry(wire.encode(header(type_)) + bytes(40), 100)


def test_header_cut__error() -> None:
    raw = wire.encode(header(OpCode.DELETE))
    for size in range(32):
        for function in (decode_entry, decode_header):
            with pytest.raises(MalformedRecord, match=f"32 bytes needed, {size} left"):
                function(raw[:size])


def test_null_path__refused() -> None:
    with pytest.raises(MalformedRecord, match=r"DeleteTxn\.path: null is not allowed at offset 32"):
        decode_entry(wire.encode(header(OpCode.DELETE)) + b"\xff\xff\xff\xff")


def test_text_that_would_not_come_back__refused() -> None:
    start = wire.encode(header(OpCode.DELETE))
    for name in (b"\xff", "\U0001f600".encode(), b"\xed\xa0\xbd"):
        with pytest.raises(MalformedRecord, match="not a string that Java writes"):
            decode_entry(start + wire.encode_buffer(b"/" + name))
    surrogates = start + wire.encode_buffer(b"/\xed\xa0\xbd\xed\xb8\x80")
    assert decode_entry(surrogates).body == DeleteTxn("/\U0001f600")
    assert encode_entry(decode_entry(surrogates)) == surrogates


def test_field_longer_than_the_default_limit__readable() -> None:
    # The length of an entry was checked by whoever read it, against the limit in force there.
    entry = LogEntry(header(OpCode.SET_DATA), SetDataTxn("/a", bytes(3_000_000), 1), DIGEST)
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(("type_", "record"), SUBS)
@given(data=st.data())
@settings(max_examples=30)
def test_sub_txn_round_trip(type_: int, record: Record, data: st.DataObject) -> None:
    body = data.draw(records(record))
    assert decode_txn_body(type_, encode_txn_body(body)) == body
    raw = data.draw(st.binary(max_size=60))
    result = attempt(decode_txn_body, type_, raw)
    assert not isinstance(result, MalformedRecord) or 0 <= result.offset <= len(raw)


def test_sub_txn_refusals() -> None:
    raw = encode_txn_body(DeleteTxn("/a"))
    with pytest.raises(MalformedRecord, match="1 bytes after DeleteTxn"):
        decode_txn_body(OpCode.DELETE, raw + b"x")
    with pytest.raises(MalformedRecord, match="no body for txn type 2"):
        decode_txn_body(OpCode.DELETE, None)
    for type_ in (OpCode.SET_ACL, OpCode.MULTI, OpCode.RECONFIG, OpCode.CLOSE_SESSION, 99):
        with pytest.raises(MalformedRecord, match="inside a multi"):
            decode_txn_body(type_, raw)
    # The old form of create is older than multi.
    with pytest.raises(MalformedRecord):
        decode_txn_body(OpCode.CREATE, wire.encode(CreateTxnV0("/a", b"", OPEN_ACL, False)))
    with pytest.raises(MalformedRecord, match="of no known kind"):
        decode_txn_body(OpCode.ERROR, b"no body")


def test_failed_multi__both_forms_that_apache_logs_are_one() -> None:
    create = encode_txn_body(CreateTxn("/a", b"2", OPEN_ACL, False, 28))
    failed = SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-103)))
    proposed = LogEntry(
        header(OpCode.MULTI), MultiTxn((SubTxn(OpCode.CREATE, create), failed)), DIGEST
    )
    overwritten = LogEntry(
        header(OpCode.MULTI), MultiTxn((SubTxn(OpCode.ERROR, create), failed)), DIGEST
    )
    assert decode_txn_body(OpCode.ERROR, create) == ErrorTxn(0)
    assert proposed != overwritten
    assert canonical_entry(proposed) == canonical_entry(overwritten)
    other_error = SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-101)))
    other = proposed._replace(body=MultiTxn((SubTxn(OpCode.CREATE, create), other_error)))
    assert canonical_entry(proposed) != canonical_entry(other)
    succeeded = proposed._replace(body=MultiTxn((SubTxn(OpCode.CREATE, create),)))
    for entry in (succeeded, LogEntry(header(OpCode.DELETE), DeleteTxn("/a"))):
        assert canonical_entry(entry) is entry


def read_log(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each entry before the first that is incomplete."""
    data = path.read_bytes()
    assert data[:8] == b"ZKLG\0\0\0\2"
    offset = 16
    while offset + 12 <= len(data):
        checksum, size = struct.unpack_from(">qi", data, offset)
        entry = data[offset + 12 : offset + 12 + size]
        if size <= 0 or data[offset + 12 + size : offset + 13 + size] != b"B":
            return
        assert zlib.adler32(entry) == checksum
        yield offset + 12, entry
        offset += 13 + size


def zxids_in_truth(ranges: list[str]) -> list[int]:
    zxids: list[int] = []
    for text in ranges:
        first, _, last = text.partition("-")
        zxids += range(wire.parse_zxid(first), wire.parse_zxid(last or first) + 1)
    return zxids


@pytest.mark.parametrize("name", case_names())
def test_logs_of_real_servers__decoded_and_encoded_back(name: str) -> None:
    case = load_case(name)
    canonical: dict[int, set[LogEntry]] = {}
    count = 0
    for path in sorted((CASES_DIR / name).glob("*/version-2/log.*")):
        zxids = []
        for offset, raw in read_log(path):
            entry = decode_entry(raw, offset)
            assert encode_entry(entry) == raw
            assert not entry.trailing
            assert (entry.digest is not None) <= (case.version >= "3.6")
            if isinstance(entry.body, MultiTxn):
                _check_multi(entry.body)
            canonical.setdefault(entry.header.zxid, set()).add(canonical_entry(entry))
            zxids.append(entry.header.zxid)
            count += 1
        known = case.truth["files"][path.parents[1].name].get(path.name)
        assert known is not None
        assert zxids == zxids_in_truth(known["zxids"])
    assert count > 0
    # A zxid stands for one txn on all servers; what diverges here diverges by absence.
    assert {zxid for zxid, versions in canonical.items() if len(versions) > 1} == set()


def _check_multi(body: MultiTxn) -> None:
    for sub in body.txns or ():
        decoded = decode_txn_body(sub.type, sub.data)
        is_overwritten = sub.type == OpCode.ERROR and sub.data is not None and len(sub.data) != 4
        assert is_overwritten or encode_txn_body(decoded) == sub.data
        assert not is_overwritten or has_failed(body)
