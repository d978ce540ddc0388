"""Reading a log: whatever happens to it, sound records come first, and the end is explained."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.sim import MemoryDisk
from keepfast.storage import Ending, LogReader, RealDisk, frame
from keepfast.storage.log_file import LOG_HEADER
from tests.storage.directories import log_bytes

SECTOR = 512
# Within a sector, over several, and one that ends where a sector does.
SIZES = (40, 700, 90, 1300, 60, 276, 500)


def entry(zxid: int, size: int) -> bytes:
    """An entry without a zero byte in its body: a sector of zeros is a lost one."""
    body = bytes(1 + (zxid * 31 + index) % 255 for index in range(size - 32))
    return struct.pack(">qiqqi", 7, 1, zxid, 1_700_000_000_000, 5) + body


ENTRIES = [entry(number, size) for number, size in enumerate(SIZES, 1)]
LOG = log_bytes(ENTRIES)
OFFSETS = [len(log_bytes(ENTRIES[:count])) for count in range(len(ENTRIES) + 1)]


def read(data: bytes, start: int = 16, stop: int | None = None) -> tuple[list[bytes], Ending]:
    disk = MemoryDisk()
    disk.put("/log", data)
    with disk.open_read("/log") as file:
        reader = LogReader(file, start, stop)
        entries = [found.entry for found in reader]
        assert reader.crc32 == zlib.crc32(data[start : reader.ending.offset])
        return entries, reader.ending


def zeroed(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + bytes(len(data[start:end])) + data[end:]


def is_damage(ending: Ending) -> bool:
    return not ending.is_plain and (not ending.torn or ending.valid_after is not None)


def test_sound_log__every_record_and_a_plain_end() -> None:
    assert OFFSETS[6] % SECTOR == 0
    for padding in (0, 1, 2000):
        entries, ending = read(log_bytes(ENTRIES, padding))
        assert entries == ENTRIES
        assert ending == Ending(OFFSETS[-1])


def test_frame__is_what_a_log_consists_of() -> None:
    assert LOG_HEADER + b"".join(frame(found) for found in ENTRIES) == LOG


def test_start_and_stop__records_in_between() -> None:
    entries, ending = read(LOG, OFFSETS[2], OFFSETS[4])
    assert entries == ENTRIES[2:4]
    assert ending == Ending(OFFSETS[4])


@pytest.mark.parametrize("padding", [0, 700])
def test_log_cut_anywhere__torn_tail_behind_the_whole_records(padding: int) -> None:
    for size in range(16, len(LOG)):
        entries, ending = read(LOG[:size] + bytes(padding))
        whole = sum(offset <= size for offset in OFFSETS) - 1
        assert entries == ENTRIES[:whole]
        assert ending.offset == OFFSETS[whole]
        assert ending.valid_after is None
        # The upper half of a checksum is zero: so far a record has not begun.
        assert ending.is_plain == (not any(LOG[OFFSETS[whole] : size]))
        # A whole record without its end mark inside one sector was not torn: the mark was changed.
        lacks_mark = padding > 0 and size == OFFSETS[whole + 1] - 1 and size % SECTOR != 0
        assert ending.is_plain or ending.torn != lacks_mark, (size, ending)


def test_header_cut__torn() -> None:
    for size in range(16):
        assert read(LOG[:size])[1].torn
    assert read(bytes(1000))[1].torn


def test_no_log__damage() -> None:
    for data in (b"ZKSN" + LOG[4:], zeroed(LOG, 0, 16)):
        ending = read(data)[1]
        assert not ending.is_plain
        assert not ending.torn


def test_sectors_lost_from_one_on__torn_tail() -> None:
    data = LOG + bytes(700)
    for start in range(SECTOR, len(LOG), SECTOR):
        entries, ending = read(zeroed(data, start, len(data)))
        whole = sum(offset <= start for offset in OFFSETS) - 1
        assert entries == ENTRIES[:whole]
        assert not is_damage(ending)


def test_one_sector_zeroed__records_behind_it_are_found() -> None:
    data = LOG + bytes(700)
    for start in range(SECTOR, len(LOG), SECTOR):
        entries, ending = read(zeroed(data, start, start + SECTOR))
        whole = sum(offset <= start for offset in OFFSETS) - 1
        assert entries == ENTRIES[:whole]
        assert ending.torn
        behind = [offset for offset in OFFSETS[:-1] if offset >= start + SECTOR]
        assert ending.valid_after == (behind[0] if behind else None)


@pytest.mark.parametrize("padding", [0, 100, 3000])
@pytest.mark.parametrize("flip", [0xFF, 0x01, 0x80])
def test_any_byte_of_a_record_changed__damage_and_not_a_torn_tail(flip: int, padding: int) -> None:
    data = LOG + bytes(padding)
    for at in range(16, len(LOG)):
        changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        entries, ending = read(changed)
        whole = sum(offset <= at for offset in OFFSETS) - 1
        assert entries == ENTRIES[:whole]
        assert is_damage(ending), (at, ending)


def test_length_field_wrong_before_a_torn_record__damage() -> None:
    """A whole record under a wrong length is told from a torn one by its own checksum."""
    data = LOG[: OFFSETS[3] + 30] + bytes(2000)
    for length in (91, 700, 3000, 1 << 20, 0x7FFFFFFF, 0, 1, 31, -1):
        at = OFFSETS[2] + 8
        changed = data[:at] + struct.pack(">i", length) + data[at + 4 :]
        entries, ending = read(changed)
        assert entries == ENTRIES[:2]
        assert is_damage(ending), (length, ending)


def test_nothing_but_the_end_mark_missing__what_a_killed_apache_leaves() -> None:
    log = LOG[: OFFSETS[5]]
    assert len(log) % SECTOR > 1, "a lost sector must not explain it"
    for padding in (1, 2000):
        entries, ending = read(log[:-1] + bytes(padding))
        assert entries == ENTRIES[:4]
        assert (ending.torn, ending.unmarked) == (False, True)
    # Bytes after it were written after it was whole.
    assert not read(log[:-1] + bytes(100) + b"x")[1].unmarked
    assert not read(zeroed(LOG, OFFSETS[5] - 1, OFFSETS[5]))[1].unmarked
    assert not read(log[:-2] + bytes(100))[1].unmarked


def test_checksum_and_length_zero__damage_where_bytes_follow() -> None:
    data = zeroed(LOG, OFFSETS[2], OFFSETS[2] + 12)
    entries, ending = read(data)
    assert entries == ENTRIES[:2]
    assert ending.valid_after == OFFSETS[3]


def test_record_that_reads_as_zeros__the_next_one_is_found() -> None:
    """The end mark before it is gone as well, so that no pattern shows where it begins."""
    for number in range(1, len(ENTRIES) - 1):
        entries, ending = read(zeroed(LOG, OFFSETS[number], OFFSETS[number + 1]))
        assert entries == ENTRIES[:number]
        assert ending.valid_after == OFFSETS[number + 1]


def test_absurd_length__costs_no_memory() -> None:
    class Counting:
        def __init__(self, data: bytes) -> None:
            self.data = data
            self.largest = 0

        def size(self) -> int:
            return len(self.data)

        def read_at(self, offset: int, size: int) -> bytes:
            self.largest = max(self.largest, size)
            return self.data[offset : offset + size]

        def close(self) -> None: ...

        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None: ...

    file = Counting(LOG[: OFFSETS[1] + 8] + b"\x7f\xff\xff\xff" + LOG[OFFSETS[1] + 12 :])
    reader = LogReader(file)
    assert len(list(reader)) == 1
    assert file.largest <= 1 << 20


@settings(max_examples=150)
@given(data=st.data())
def test_any_damage__sound_records_are_a_prefix(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(32, 1500), min_size=1, max_size=6))
    entries = [entry(number, size) for number, size in enumerate(sizes, 1)]
    log = bytearray(log_bytes(entries, data.draw(st.sampled_from([0, 1, 513]))))
    first = len(log)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(16, max(16, len(log) - 1)))
        first = min(first, at)
        match data.draw(st.sampled_from(["cut", "flip", "zeros", "junk"])):
            case "cut":
                del log[at:]
            case "flip" if at < len(log):
                log[at] ^= data.draw(st.integers(1, 255))
            case "zeros":
                log[at : at + 40] = bytes(len(log[at : at + 40]))
            case _:
                log[at : at + 20] = data.draw(st.binary(max_size=20))
    found, ending = read(bytes(log))
    # Damage may undo itself; it never makes a record that was not there.
    ends = [len(log_bytes(entries[:count])) for count in range(1, len(entries) + 1)]
    intact = entries[: sum(end <= first for end in ends)]
    assert found[: len(intact)] == intact
    assert found == entries[: len(found)]
    assert ending.offset == len(log_bytes(found))


# As long as the file, which has that many bytes, and the longest that can be told.
@pytest.mark.parametrize("claim", [160 << 20, 0x7FFFFFFF])
def test_huge_length__is_damage_at_once_and_takes_no_memory(tmp_path: Path, claim: int) -> None:
    path = tmp_path / "log.1"
    with path.open("wb") as file:
        file.write(LOG_HEADER + frame(entry(1, 40)) + struct.pack(">qi", 77, claim) + b"x" * 40)
        file.truncate(161 << 20)  # sparse
    tracemalloc.start()
    with RealDisk().open_read(str(path)) as opened:
        reader = LogReader(opened)
        assert len(list(reader)) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not reader.ending.torn
    assert str(claim) in reader.ending.reason
    assert peak < 64 << 20
