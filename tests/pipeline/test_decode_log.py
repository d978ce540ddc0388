"""The columnar decoder of logs against `storage.LogReader` and `wire.decode_entry`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from keepfast.pipeline.decode import (
    FileOrigin,
    Frames,
    decode_log,
    frames,
    open_file,
    read_frames,
    walk,
)
from keepfast.pipeline.schemas import TXN_SCHEMA
from keepfast.storage import BytesFile, Ending, LogReader, ReadFile
from keepfast.wire import OPEN_ACL, CreateTxn, DeleteTxn, MalformedRecord, OpCode, SetDataTxn
from tests.cases import CASES_DIR, case_names
from tests.pipeline.histories import entry, expected_row, frame, header_row, log_of, random_entries

ORIGIN = FileOrigin("e", "s", "log.1")


def rows_of(file: ReadFile, **arguments: Any) -> list[dict[str, Any]]:
    batches = list(decode_log(file, ORIGIN, **arguments))
    return [row for batch in batches for row in batch.to_pylist()]


def by_storage(file: ReadFile) -> tuple[list[tuple[int, bytes]], list[Ending]]:
    """All sound records as (offset, entry), and what stands between and behind them."""
    found: list[tuple[int, bytes]] = []
    endings: list[Ending] = []
    start: int | None = 16
    while start is not None:
        reader = LogReader(file, start)
        found += [(record.offset, record.entry) for record in reader]
        endings.append(reader.ending)
        start = reader.ending.valid_after
    return found, endings


def check_equal(file: ReadFile) -> None:
    """The rows of a file are those that the decoders of the server give."""
    found, endings = by_storage(file)
    rows = rows_of(file)
    sound = [row for row in rows if row["checksum"] is not None]
    damaged = [row for row in rows if row["checksum"] is None]
    assert [row["offset"] for row in sound] == [offset for offset, _ in found]
    for row, (offset, raw) in zip(sound, found, strict=True):
        given = {name: value for name, value in row.items() if value is not None}
        place = {"ensemble": "e", "server": "s", "file": "log.1", "offset": offset}
        for name, value in (place | {"size": len(raw) + 13}).items():
            assert given.pop(name) == value
        given.pop("checksum")
        assert given == expected_or_problem(raw, given.get("problem"))
    expected_endings = [(ending.offset, ending.reason) for ending in endings if ending.reason]
    assert [
        (row["offset"], row["problem"].removeprefix("torn tail: ")) for row in damaged
    ] == expected_endings
    assert [item.ending for item in read_frames(file) if not isinstance(item, Frames)] == endings


def expected_or_problem(raw: bytes, problem: str | None) -> dict[str, Any]:
    """The row of an entry; of one that cannot be decoded, its header and that problem."""
    try:
        return expected_row(raw)
    except MalformedRecord as error:
        assert problem is not None
        assert error.reason in problem  # noqa: PT017 - it is about the row
        return header_row(raw) | {"problem": problem}


@pytest.mark.parametrize("name", case_names())
def test_logs_of_apache_servers(name: str) -> None:
    paths = sorted((CASES_DIR / name).glob("*/version-2/log.*"))
    assert paths
    for path in paths:
        with open_file(str(path)) as file:
            check_equal(file)


@pytest.mark.parametrize("window", [8 << 20, 700, 64])
def test_every_kind_of_record__whatever_the_window(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "WINDOW_SIZE", window)
    for seed in range(3):
        check_equal(BytesFile(log_of(random_entries(seed, 150), padding=5000)))


def test_walkers_that_start_at_wrong_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data full of what looks like the start of a record leads no walker astray."""
    monkeypatch.setattr(frames, "_GUESS_DISTANCE", 100)
    monkeypatch.setattr(walk, "_MIN_WALKERS", 2)
    raw = random_entries(7, 60)
    inner = log_of(raw)[16:] + frame(bytes(40))
    nested = [
        entry(0x100000001 + number, OpCode.SET_DATA, SetDataTxn("/n", inner[number:], number), 5)
        for number in range(9)
    ]
    check_equal(BytesFile(log_of(nested + raw)))


def damaged(data: bytes, choose: random.Random) -> bytes:
    """A log with one random fault of a random kind."""
    changed = bytearray(data)
    place = choose.randrange(len(data))
    kind = choose.randrange(5)
    if kind == 0:
        changed[place] ^= 1 << choose.randrange(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        start = place // 512 * 512
        changed[start : start + 512] = bytes(len(changed[start : start + 512]))
    elif kind == 3:
        del changed[place : place + choose.randrange(1, 60)]
    else:
        changed[place : place + 4] = choose.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"))
    return bytes(changed)


@pytest.mark.parametrize("walkers", [24, 2])
def test_damaged_logs__told_as_storage_tells_them(
    walkers: int, tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_MIN_WALKERS", walkers)
    monkeypatch.setattr(frames, "_GUESS_DISTANCE", 400)
    choose = random.Random(11 + walkers)
    clean = log_of(random_entries(3, 25), padding=1200)
    for _ in range(80):
        data = damaged(clean, choose)
        if choose.random() < 0.3:
            data = damaged(data, choose)
        check_equal(BytesFile(data))
    tell("80 damaged logs decoded alike")


def test_bodies_with_changed_bytes__are_read_or_refused_as_wire_does() -> None:
    """Sound frames around nonsense: the sums are right, so only the decoder stands guard."""
    choose = random.Random(17)
    changed = []
    for raw in random_entries(21, 60) * 12:
        body = bytearray(raw)
        for _ in range(choose.choice((1, 1, 2))):
            place = choose.randrange(28, len(body))
            body[place] = choose.choice((0, 1, 2, 7, 0x7F, 0x80, 0xED, 0xF0, 0xFF))
        changed.append(
            bytes(body if choose.random() < 0.8 else body[: choose.randrange(32, len(raw) + 1)])
        )
    check_equal(BytesFile(log_of(changed)))


def test_bytes_that_only_one_check_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end mark, a boolean that is neither, a character that Java writes in another way."""
    monkeypatch.setattr(walk, "_MIN_WALKERS", 2)
    monkeypatch.setattr(frames, "_GUESS_DISTANCE", 120)
    create = bytearray(entry(0x100000001, OpCode.CREATE, CreateTxn("/a", b"", OPEN_ACL, True, 1)))
    create[-5] = 7
    delete = entry(0x100000002, OpCode.DELETE, DeleteTxn("/xABCD"))
    refused = [bytes(create), delete.replace(b"ABCD", "\U0001f600".encode())]
    check_equal(BytesFile(log_of(refused)))
    assert all(row["problem"] for row in rows_of(BytesFile(log_of(refused))))
    sound = random_entries(5, 12)
    data = log_of(sound)
    mark = 15
    for raw in sound:
        mark += len(raw) + 13
        assert data[mark : mark + 1] == b"B"
        check_equal(BytesFile(data[:mark] + b"C" + data[mark + 1 :]))


def test_sound_records__are_proven_by_one_sum_not_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_: Frames) -> int:
        raise AssertionError("the sum of the chunk was not foretold")

    monkeypatch.setattr(frames, "_first_bad", never)
    for seed in range(5):
        assert rows_of(BytesFile(log_of(random_entries(seed, 100), padding=10)))


def test_parts_of_a_file__own_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "WINDOW_SIZE", 900)
    choose = random.Random(5)
    for size in (400, 1313, 4000):
        data = log_of(random_entries(size, 60), padding=1000)
        for _ in range(4):
            file = BytesFile(data)
            whole = rows_of(file)
            parts = [
                row
                for start in range(0, len(data), size)
                for row in rows_of(file, part=(start, start + size))
            ]
            assert parts == whole
            data = damaged(data, choose)


def test_wanted_columns_only() -> None:
    data = log_of(random_entries(1, 80))
    whole = rows_of(BytesFile(data))
    for columns in (["zxid"], ["path", "zxid"], ["ops", "digest"], ["problem"], ["acl", "op"]):
        rows = rows_of(BytesFile(data), columns=columns)
        assert rows == [{name: row[name] for name in columns} for row in whole]
    assert [batch.schema for batch in decode_log(BytesFile(data), ORIGIN)] == [TXN_SCHEMA]


def test_a_length_of_gigabytes__costs_nothing() -> None:
    sound = random_entries(2, 5)
    data = log_of(sound) + (b"\0\0\0\0\1\2\3\4" + b"\x7f\xff\xff\xff" + b"x" * 100)
    rows = rows_of(BytesFile(data))
    assert "2147483647" in rows[-1]["problem"]


def test_sparse_padding_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log.1"
    data = log_of(random_entries(4, 30))
    with path.open("wb") as file:
        file.write(data)
        file.truncate(64 << 20)
    with open_file(str(path)) as opened:
        items = list(read_frames(opened))
    assert items[-1] == frames.Damage(Ending(len(data)))


def test_a_huge_record__larger_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "WINDOW_SIZE", 4096)
    entries = [
        entry(0x100000000 + i, 5, SetDataTxn("/h", b"h" * 9000 * i, i), 1) for i in range(1, 6)
    ]
    check_equal(BytesFile(log_of(entries, padding=10_000)))


def test_other_files_become_rows_too() -> None:
    for data in (b"", b"ZKLG", bytes(40), b"<html>" * 10):
        rows = rows_of(BytesFile(data))
        assert len(rows) == 1
        assert rows[0]["problem"]
        assert rows[0]["zxid"] is None


def test_batches_are_arrow_of_the_documented_types() -> None:
    batch = next(iter(decode_log(BytesFile(log_of(random_entries(1, 20))), ORIGIN)))
    batch.validate(full=True)
    assert batch.schema.field("time").type == pa.timestamp("us", "UTC")
