"""The verifying scan: its sums are equal where servers agree, and only there."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from keepfast.pipeline.decode import FileOrigin, frames, open_file
from keepfast.pipeline.scan.summaries import ScanSummary, add_hashes, as_batch, summarize
from keepfast.pipeline.schemas import BUCKET_BITS, SUMMARY_SCHEMA
from keepfast.storage import BytesFile, RealDisk, data_directory, survey_log
from keepfast.wire import ErrorTxn, MultiTxn, OpCode, SetDataTxn, SubTxn, encode_txn_body
from tests.cases import CASES_DIR, case_names
from tests.pipeline.histories import entry, log_of, random_entries, random_multi


def sums(rows: list[ScanSummary]) -> dict[int, tuple[int, int]]:
    """Records and hash of each bucket."""
    found: dict[int, list[ScanSummary]] = defaultdict(list)
    for row in rows:
        if row.bucket is not None:
            found[row.bucket].append(row)
    return {
        bucket: (
            sum(row.records for row in part),
            add_hashes(*(row.content_hash for row in part), *(row.digest_hash for row in part)),
        )
        for bucket, part in found.items()
    }


def content_of(*entries: bytes) -> int:
    return add_hashes(*(row.content_hash for row in summarize(BytesFile(log_of(list(entries))))))


@pytest.mark.parametrize("name", case_names("healthy-plain"))
def test_servers_that_agree__have_equal_sums(name: str) -> None:
    by_server = []
    for server in sorted((CASES_DIR / name).glob("[0-9]")):
        rows: list[ScanSummary] = []
        for path in sorted(server.glob("version-2/log.*"), key=lambda p: int(p.suffix[1:], 16)):
            with open_file(str(path)) as file:
                rows += summarize(file)
        by_server.append(sums(rows))
    # The newest epoch ends where each server was stopped.
    newest = max(max(found) for found in by_server)
    for found in by_server:
        found.pop(newest, None)
    assert by_server[0]
    assert by_server[0] == by_server[1] == by_server[2]


@pytest.mark.parametrize("name", case_names())
def test_runs__are_those_of_the_survey(name: str) -> None:
    disk = RealDisk()
    for server in sorted((CASES_DIR / name).glob("[0-9]")):
        directory = data_directory(disk, str(server))
        for path in sorted(server.glob("version-2/log.*")):
            survey = survey_log(disk, directory, path.name)
            with open_file(str(path)) as file:
                rows = summarize(file)
            runs: list[tuple[int, int, int, int]] = []
            for row in rows:
                if row.kind != "run":
                    break
                assert row.first_zxid is not None
                assert row.last_zxid is not None
                assert row.first_zxid >> BUCKET_BITS == row.last_zxid >> BUCKET_BITS == row.bucket
                last = runs[-1] if runs else None
                if last is not None and last[1] + 1 == row.first_zxid & ~0:
                    runs[-1] = (last[0], row.last_zxid, last[2], row.end_offset)
                else:
                    runs.append((row.first_zxid, row.last_zxid, row.start_offset, row.end_offset))
            assert runs == [(run.first, run.last, run.start, run.end) for run in survey.runs]
            ending = survey.ending
            stop = next(row for row in rows if row.kind != "run")
            assert (stop.start_offset, stop.problem or "") == (ending.offset, ending.reason)
            assert (stop.is_torn, stop.valid_after) == (ending.torn, ending.valid_after)


def test_sums_do_not_depend_on_files_windows_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [e for e in random_entries(9, 400) if b"nonsense" not in e]
    whole = sums(summarize(BytesFile(log_of(entries))))
    two = summarize(BytesFile(log_of(entries[:123]))) + summarize(BytesFile(log_of(entries[123:])))
    assert sums(two) == whole
    monkeypatch.setattr(frames, "WINDOW_SIZE", 300)
    data = log_of(entries, padding=100)
    rows = summarize(BytesFile(data))
    assert sums(rows) == whole
    parts = [
        row
        for start in range(0, len(data), 999)
        for row in summarize(BytesFile(data), start, start + 999)
    ]
    assert sums(parts) == whole
    assert all(a.end_offset == b.start_offset for a, b in pairwise(rows))


def test_adler_does_not_tell_them_apart__the_scan_does() -> None:
    def write(data: bytes) -> bytes:
        return entry(0x100000001, OpCode.SET_DATA, SetDataTxn("/a", data, 1))

    log_a, log_b = log_of([write(b"121")]), log_of([write(b"202")])
    assert log_a[16:24] == log_b[16:24], "equal sums in the log"
    assert content_of(write(b"121")) != content_of(write(b"202"))


def test_one_flipped_bit_anywhere__changes_the_sum() -> None:
    choose = random.Random(1)
    for size in (36, 61, 200, 2100, 5000):
        base = entry(0x100000001, OpCode.SET_DATA, SetDataTxn("/a", choose.randbytes(size), 1))
        seen = {content_of(base)}
        places = range(len(base)) if size < 300 else sorted(choose.sample(range(len(base)), 60))
        for place in places:
            changed = bytearray(base)
            changed[place] ^= 1 << choose.randrange(8)
            seen.add(content_of(bytes(changed)))
        assert len(seen) == len(places) + 1


def test_both_forms_of_a_failed_multi__have_one_sum() -> None:
    choose = random.Random(2)
    for number in range(1, 20):
        multi = random_multi(choose)
        real = [sub for sub in multi.txns or () if sub.type != OpCode.ERROR]
        failed = SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-110)))
        proposed = MultiTxn((*real, failed))
        applied = MultiTxn((*(SubTxn(OpCode.ERROR, sub.data) for sub in real), failed))
        first = entry(number, OpCode.MULTI, proposed, 5)
        second = entry(number, OpCode.MULTI, applied, 5)
        assert content_of(first) == content_of(second)
        other = SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-101)))
        assert content_of(entry(number, OpCode.MULTI, MultiTxn((*real, other)), 5)) != content_of(
            first
        )


def test_digests_count_apart() -> None:
    body = SetDataTxn("/a", b"x", 1)
    bare = entry(7, OpCode.SET_DATA, body)
    (row, _) = summarize(BytesFile(log_of([entry(7, OpCode.SET_DATA, body, 12345)])))
    assert row.content_hash == content_of(bare)
    assert row.digests == 1
    assert row.digest_hash != 0


def test_records_without_a_number_of_their_own__are_left_out_of_the_sum() -> None:
    first = entry(0x100000001, OpCode.SET_DATA, SetDataTxn("/a", b"x", 1))
    second = entry(0x100000002, OpCode.SET_DATA, SetDataTxn("/a", b"y", 2))
    unnumbered = entry(0x100000001, OpCode.ERROR, ErrorTxn(-5))
    (row, _) = summarize(BytesFile(log_of([first, unnumbered, second])))
    assert (row.records, row.unnumbered) == (2, 1)
    assert row.content_hash == content_of(first, second)
    # The same txn twice is not that: it counts, and it starts a run.
    assert len(summarize(BytesFile(log_of([first, first, second])))) == 3


def test_steps_and_damage__are_rows() -> None:
    def write(zxid: int) -> bytes:
        return entry(zxid, OpCode.SET_DATA, SetDataTxn("/a", b"x", 1))

    zxids = [0x100000001, 0x100000002, 0x100000005, 0x200000001, 0x200000002, 0x1FFFFFFFF, 5]
    data = bytearray(log_of([write(zxid) for zxid in zxids], padding=50))
    rows = summarize(BytesFile(bytes(data)))
    assert [(row.first_zxid, row.last_zxid) for row in rows if row.kind == "run"] == [
        (0x100000001, 0x100000002),
        (0x100000005, 0x100000005),
        (0x200000001, 0x200000002),
        (0x1FFFFFFFF, 0x1FFFFFFFF),
        (5, 5),
    ]
    data[rows[1].start_offset + 40] ^= 1
    kinds = [row.kind for row in summarize(BytesFile(bytes(data)))]
    assert kinds == ["run", "damage", "run", "run", "run", "end"]
    batch = as_batch(rows, FileOrigin("e", "s", "f"))
    assert batch.schema == SUMMARY_SCHEMA
    batch.validate(full=True)


def test_garbage_between_two_records__ends_a_run_although_none_is_missing() -> None:
    records = [
        entry(zxid, OpCode.SET_DATA, SetDataTxn("/a", b"x", 1))
        for zxid in (0x100000001, 0x100000002)
    ]
    first = log_of(records[:1])
    # Reading continues behind something like an end mark.
    data = first + b"\xff" * 39 + b"B" + log_of(records)[len(first) :]
    rows = summarize(BytesFile(data))
    assert [(row.kind, row.first_zxid) for row in rows] == [
        ("run", 0x100000001),
        ("damage", None),
        ("run", 0x100000002),
        ("end", None),
    ]


@pytest.mark.timeout(60)
def test_log_that_is_cut_while_it_is_read__ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Keepfast server cuts off the padding when it seals a log; a watch never ended then."""
    monkeypatch.setattr(frames, "WINDOW_SIZE", 1 << 14)
    path = tmp_path / "log.100000001"
    path.write_bytes(log_of(random_entries(5, 1000), padding=1 << 16))
    with open_file(str(path)) as file:
        pieces = frames.read_frames(file)
        first = next(pieces)
        assert isinstance(first, frames.Frames)
        os.truncate(path, first.end)
        (rest,) = pieces
    assert isinstance(rest, frames.Damage)
    assert rest.ending.offset == first.end
