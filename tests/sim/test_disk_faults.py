"""Faults and damage on request: a full disk, errors, failed syncs, rot, exchanged files."""

import errno
import random

import pytest

from keepfast.sim.disk_damage import (
    flip_bit,
    path_exists,
    remove_file,
    restore_file,
    sector_count_of,
    stale_sector,
    swap_files,
    truncate_file,
    zero_sector,
)
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.storage.disk import RealDisk
from tests.storage.small_disks import NEW, OLD, ZERO, disk_with, outcomes, trees, write

# -- faults --------------------------------------------------------------------------------------


def test_disk_full_in_a_write__a_part_of_it_and_an_error() -> None:
    disk = disk_with(f=b"1234")
    disk.capacity = 10
    assert disk.free_bytes("/d") == 6
    with disk.open_write("/d/f") as file:
        with pytest.raises(OSError) as caught:
            file.write_at(2, b"x" * 20)
        assert caught.value.errno == errno.ENOSPC
        assert disk.contents("/d/f") == b"12" + b"x" * 8
        assert disk.free_bytes("/d") == 0
        file.write_at(0, b"overwriting needs no room"[:10])
        for grow in (file.truncate, file.allocate):
            with pytest.raises(OSError) as caught:
                grow(11)
            assert caught.value.errno == errno.ENOSPC
        file.truncate(4)
        assert disk.free_bytes("/d") == 6
        disk.partial_writes = False
        with pytest.raises(OSError):
            file.write_at(4, b"x" * 20)
        assert disk.size("/d/f") == 4
        with pytest.raises(OSError):
            file.write_at(40, b"x")
        disk.capacity = None
        file.write_at(4, b"x" * 20)
    assert disk.size("/d/f") == 24


def test_space__comes_back_when_the_last_handle_of_a_removed_file_closes() -> None:
    disk = disk_with(f=b"1234", g=b"12")
    disk.capacity = 10
    with disk.open_read("/d/f"):
        disk.remove("/d/f")
        assert disk.free_bytes("/d") == 4
    assert disk.free_bytes("/d") == 8
    disk.put("/d/h", b"1")
    disk.rename("/d/h", "/d/g")
    assert disk.used_bytes() == 1
    disk.capacity = 0
    assert disk.free_bytes("/d") == 0
    assert disk.crash(random.Random(0)).capacity == 0


def test_failed_fsync__loses_the_bytes_while_readers_still_see_them() -> None:
    disk = disk_with(f=OLD)
    disk.inject("fsync", "/d/f")
    with disk.open_write("/d/f") as file:
        file.write_at(0, NEW + NEW)
        with pytest.raises(OSError) as caught:
            file.fsync()
        assert caught.value.errno == errno.EIO
        assert disk.contents("/d/f") == NEW + NEW
        # The kernel says yes to the second try, and the bytes are lost all the same.
        file.fsync()
    assert outcomes(disk) == {OLD}
    disk.drop_caches()
    assert disk.contents("/d/f") == OLD
    assert disk.used_bytes() == 512


def test_failed_fsync__may_have_written_a_part() -> None:
    disk = disk_with(f=ZERO * 2)
    with disk.open_write("/d/f") as file:
        file.write_at(0, NEW)
        file.write_at(512, NEW)
        disk.inject("datasync", kept=1)
        with pytest.raises(OSError):
            file.datasync()
        assert outcomes(disk) == {NEW + ZERO}
        file.write_at(512, OLD)
        disk.fail_at(disk.calls + 1, OSError(errno.EIO, "by number"))
        with pytest.raises(OSError, match="by number"):
            file.datasync()
    assert outcomes(disk) == {NEW + ZERO}


def test_failed_directory_fsync__loses_the_names() -> None:
    disk = disk_with(f=b"old", tmp=b"new")
    disk.rename("/d/tmp", "/d/f")
    disk.create("/d/g").close()
    disk.inject("fsync_directory", "/d", kept=1)
    with pytest.raises(OSError):
        disk.fsync_directory("/d")
    assert disk.list("/d") == ["f", "g"]
    disk.fsync_directory("/d")
    assert trees(disk) == [{"/d/f": b"new"}]


def test_ignored_syncs__succeed_and_make_nothing_durable() -> None:
    disk = disk_with(f=OLD)
    disk.ignored = frozenset({"fsync", "datasync", "fsync_directory"})
    with disk.open_write("/d/f") as file:
        file.write_at(0, NEW)
        file.fsync()
        file.datasync()
    disk.remove("/d/f")
    disk.fsync_directory("/d")
    assert outcomes(disk) == {None, OLD, NEW}


@pytest.mark.parametrize("operation", ["read_at", "open_read", "file_size", "exists", "rename"])
def test_injected_error__strikes_its_files_as_often_as_asked(operation: str) -> None:
    disk = disk_with(log=b"1", other=b"2")

    def touch(name: str) -> None:
        disk.exists(f"/d/{name}")
        with disk.open_read(f"/d/{name}") as file:
            file.size()
            file.read_at(0, 1)
        disk.rename(f"/d/{name}", f"/d/{name}")

    disk.inject(operation, "/d/lo*", errno.EACCES, times=2)
    touch("other")
    for _ in range(2):
        with pytest.raises(PermissionError) as caught:
            touch("log")
        assert caught.value.filename == "/d/log"
    touch("log")
    disk.inject(operation, times=None)
    for _ in range(3):
        with pytest.raises(OSError):
            touch("log")
    disk.heal()
    touch("log")


def test_write_error__may_leave_a_part() -> None:
    disk = disk_with(f=OLD)
    disk.inject("write_at", "/d/f", errno.EIO, kept=3)
    with pytest.raises(OSError):
        write(disk, 0, NEW)
    assert disk.contents("/d/f") == b"nnn" + OLD[3:]


# -- damage --------------------------------------------------------------------------------------


def test_damage__changes_what_readers_and_crashes_see() -> None:
    disk = disk_with(f=OLD * 2 + b"tail")
    earlier = disk.clone()
    write(disk, 0, NEW * 2)
    flip_bit(disk, "/d/f", 0, 1)
    damaged = b"l" + NEW[1:] + NEW + b"tail"
    assert disk.contents("/d/f") == damaged
    assert outcomes(disk) == {damaged}
    assert sector_count_of(disk, "/d/f") == 3
    flip_bit(disk, "/d/f", 0, 1)
    zero_sector(disk, "/d/f", 2)
    stale_sector(disk, "/d/f", 1, earlier)
    assert disk.contents("/d/f") == NEW + OLD + bytes(4)
    assert earlier.contents("/d/f") == OLD * 2 + b"tail"
    with pytest.raises(OSError):
        zero_sector(disk, "/d/f", 3)
    truncate_file(disk, "/d/f", 700)
    assert disk.contents("/d/f") == NEW + OLD[:188]
    assert disk.used_bytes() == 700
    assert disk.pending_count() == 0


def test_damage_to_whole_files() -> None:
    disk = disk_with(f=b"one", g=b"second")
    earlier = disk.clone()
    swap_files(disk, "/d/f", "/d/g")
    assert disk.files() == {"/d/f": b"second", "/d/g": b"one"}
    remove_file(disk, "/d/f")
    assert not path_exists(disk, "/d/f")
    disk.put("/d/new", b"new")
    assert trees(disk) == [{"/d/g": b"one", "/d/new": b"new"}]
    for path in ("/d/f", "/d/g", "/d/new", "/d/never"):
        restore_file(disk, path, earlier)
    assert disk.fingerprint() == earlier.fingerprint()
    assert disk.used_bytes() == earlier.used_bytes() == 9
    stale_sector(disk, "/d/f", 0, disk_with())
    assert disk.contents("/d/f") == bytes(3)


def test_copy_in__brings_a_real_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("source")
    (base / "version-2").mkdir()
    (base / "version-2" / "log.1").write_bytes(b"log")
    (base / "myid").write_bytes(b"1")
    disk = MemoryDisk()
    disk.copy_in(RealDisk(), str(base), "/data")
    assert disk.files() == {"/data/myid": b"1", "/data/version-2/log.1": b"log"}
    assert len(trees(disk)) == 1
    assert disk.mtime("/data/myid") == (base / "myid").stat().st_mtime
