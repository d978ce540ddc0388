"""The watermark: the newest sound statement holds, and nothing else is a statement."""

from __future__ import annotations

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, truncate_file, zero_sector
from keepfast.storage import DataDirectory
from keepfast.storage.watermark import SYNC_EVERY, WatermarkFile, read_watermark
from keepfast.storage.watermark import Watermark as Statement
from keepfast.wire import Zxid

DIRECTORY = DataDirectory("/d", "/d")
OLD, NEW = Statement(3, 100, Zxid(7)), Statement(3, 200, Zxid(9))


def watermark() -> tuple[MemoryDisk, WatermarkFile]:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.settle()
    return disk, WatermarkFile(disk, DIRECTORY, None)


def spoken() -> MemoryDisk:
    disk, writer = watermark()
    writer.record(*OLD_FIELDS)
    writer.record(*NEW_FIELDS)
    return disk


OLD_FIELDS = (OLD.serial, OLD.end, OLD.zxid)
NEW_FIELDS = (NEW.serial, NEW.end, NEW.zxid)


def test_no_watermark_or_a_new_one__says_nothing() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    assert read_watermark(disk, DIRECTORY) is None
    WatermarkFile(disk, DIRECTORY, None)
    assert read_watermark(disk, DIRECTORY) is None


def test_recorded__newest_statement() -> None:
    disk, writer = watermark()
    for number in range(1, 6):
        writer.record(2, number * 10, Zxid(number))
        assert read_watermark(disk, DIRECTORY) == Statement(2, number * 10, Zxid(number))


def test_new_watermark__what_an_older_one_said_is_gone() -> None:
    disk = spoken()
    WatermarkFile(disk, DIRECTORY, None)
    assert read_watermark(disk, DIRECTORY) is None


def test_any_byte_changed_or_cut__an_older_statement_and_never_another() -> None:
    size = len(spoken().contents(DIRECTORY.watermark))
    for at in (*range(60), *range(4090, 4150)):
        disk = spoken()
        flip_bit(disk, DIRECTORY.watermark, at, at % 8)
        assert read_watermark(disk, DIRECTORY) in (OLD, NEW)
    for at in range(0, size, 11):
        disk = spoken()
        truncate_file(disk, DIRECTORY.watermark, at)
        assert read_watermark(disk, DIRECTORY) in (None, OLD, NEW)
    for index in range(size // 512):
        disk = spoken()
        zero_sector(disk, DIRECTORY.watermark, index)
        assert read_watermark(disk, DIRECTORY) in (OLD, NEW)


def test_loss_of_power__a_statement_that_was_true() -> None:
    disk, writer = watermark()
    said: set[Statement | None] = {None}
    for number in range(1, 4):
        writer.record(2, number, Zxid(number))
        said.add(Statement(2, number, Zxid(number)))
    found = {read_watermark(state, DIRECTORY) for state in disk.crash_states()}
    assert found <= said
    writer.sync()
    assert {read_watermark(state, DIRECTORY) for state in disk.crash_states()} == {
        Statement(2, 3, Zxid(3))
    }


def test_many_statements__never_far_behind_on_the_device() -> None:
    disk, writer = watermark()
    for number in range(1, SYNC_EVERY + 3):
        writer.record(2, number, Zxid(number))
    for state in disk.crash_states():
        found = read_watermark(state, DIRECTORY)
        assert found is not None
        assert found.end >= SYNC_EVERY
