"""Stretches that are recognised: the same rows as without them, whatever the other log holds."""

from __future__ import annotations

import random

import pytest

from keepfast.pipeline.decode import frames
from keepfast.pipeline.decode.known import LARGEST_STRETCH, STRETCH_RECORDS, Known, Stretch
from keepfast.pipeline.scan.summaries import ScanSummary, summarize
from keepfast.storage import BytesFile
from keepfast.wire import ErrorTxn, OpCode, SetDataTxn
from tests.pipeline.histories import entry, log_of

FIRST = 0x100000001
COUNT = 5 * STRETCH_RECORDS


def history(seed: int = 1, count: int = COUNT, first: int = FIRST) -> list[bytes]:
    """Writes, errors, and records without a number of their own."""
    choose = random.Random(seed)
    found = []
    for zxid in range(first, first + count):
        if choose.random() < 0.05:
            found.append(entry(zxid, OpCode.ERROR, ErrorTxn(-101)))
        else:
            body = SetDataTxn("/a", choose.randbytes(choose.randrange(60)), zxid & 0xFFFF)
            found.append(entry(zxid, OpCode.SET_DATA, body, choose.getrandbits(60)))
        if choose.random() < 0.02:
            found.append(entry(zxid, OpCode.ERROR, ErrorTxn(-5)))
    return found


def taught(*logs: bytes) -> Known[ScanSummary]:
    known: Known[ScanSummary] = Known()
    for log in logs:
        summarize(BytesFile(log), known=known)
    return known


def passed(log: bytes, known: Known[ScanSummary]) -> int:
    items = frames.read_pieces(BytesFile(log), known)
    return sum(isinstance(item, frames.Passed) for item in items)


@pytest.mark.parametrize("window", [20_000, 4 << 20])
def test_the_same_records_in_other_files__are_recognised_and_told_alike(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(frames, "WINDOW_SIZE", window)
    monkeypatch.setattr(frames, "_PASSING_SIZE", 4 * window)
    entries = history()
    known = taught(log_of(entries))
    for start in (0, 1, 300, 1400):
        log = log_of(entries[start:], padding=200)
        assert summarize(BytesFile(log), known=known) == summarize(BytesFile(log))
    if window == 4 << 20:
        # The first stretch lacks counter 0.
        assert passed(log_of(entries), known) == COUNT // STRETCH_RECORDS - 1


def test_parts_of_a_log__own_the_same_records() -> None:
    log = log_of(history(), padding=99)
    known = taught(log)
    for start in range(0, len(log), 33_333):
        alone = summarize(BytesFile(log), start, start + 33_333)
        assert summarize(BytesFile(log), start, start + 33_333, known) == alone


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_differs_anywhere__is_told_as_if_nothing_were_known(seed: int) -> None:
    choose = random.Random(seed)
    entries = history()
    known = taught(log_of(entries))
    other = list(entries)
    for _ in range(choose.randrange(1, 4)):
        index = choose.randrange(len(other))
        change = choose.randrange(4)
        if change == 0:
            del other[index : index + choose.randrange(1, 700)]
        elif change == 1:
            other.insert(index, other[index])
        elif change == 2:
            other[index:index] = other[index : index + choose.randrange(1, 1500)]
        else:
            zxid = int.from_bytes(other[index][12:20])
            other[index] = entry(zxid, OpCode.SET_DATA, SetDataTxn("/b", b"other", 1))
    log = bytearray(log_of(other, padding=choose.randrange(300)))
    if choose.random() < 0.5:
        log[choose.randrange(16, len(log))] ^= 1 << choose.randrange(8)
    assert summarize(BytesFile(bytes(log)), known=known) == summarize(BytesFile(bytes(log)))


def test_an_error_under_the_zxid_before__is_not_taken_for_the_start_of_a_stretch() -> None:
    first = 0x100000000 + STRETCH_RECORDS
    entries = history(first=first, count=STRETCH_RECORDS)
    entries[0] = entry(first, OpCode.ERROR, ErrorTxn(-101))
    before = [entry(first - 1, OpCode.SET_DATA, SetDataTxn("/a", b"", 1))]
    known = taught(log_of(before + entries))
    # Behind a record of the same zxid, the first of them has no number of its own.
    log = log_of([*before, entry(first, OpCode.SET_DATA, SetDataTxn("/a", b"", 1)), *entries])
    assert summarize(BytesFile(log), known=known) == summarize(BytesFile(log))


def test_large_records__are_not_kept() -> None:
    body = SetDataTxn("/a", bytes(LARGEST_STRETCH // STRETCH_RECORDS), 1)
    zxids = range(FIRST, FIRST + 2 * STRETCH_RECORDS)
    log = log_of([entry(zxid, OpCode.SET_DATA, body) for zxid in zxids])
    assert passed(log, taught(log)) == 0


def test_old_stretches_make_room() -> None:
    known: Known[int] = Known(max_bytes=250)
    firsts = [0x100000000 + number * STRETCH_RECORDS for number in range(1, 5)]
    datas = [bytes(24) + first.to_bytes(8) + bytes(68) for first in firsts]
    for first, data in zip(firsts, datas, strict=True):
        known.add(Stretch(first, first + STRETCH_RECORDS - 1, data, first))
    assert [[s.note for s in known.at_start(data, 100, None)] for data in datas] == [
        [],
        [],
        [firsts[2]],
        [firsts[3]],
    ]
    known.forget_before(firsts[3])
    assert not list(known.at_start(datas[2], 100, None))
    assert list(known.at_start(datas[3], 100, None))
    assert not list(known.at_start(datas[3], 99, None)), "it ends behind what was asked for"
    assert not list(known.at_start(datas[3], 100, firsts[3] - 2)), "it does not follow"
