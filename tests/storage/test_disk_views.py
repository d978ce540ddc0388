"""Nothing can be written through a view, and a plan reads as if it had been carried out."""

from __future__ import annotations

import errno

import pytest

from keepfast.sim import MemoryDisk
from keepfast.storage import DataDirectory, Manifest, Retired, load_manifest
from keepfast.storage.disk_views import PlannedDisk, ReadOnlyDisk

PLACE = DataDirectory("/d", "/d")


def disk_with_files() -> MemoryDisk:
    disk = MemoryDisk()
    disk.put("/d/log.1", b"0123456789")
    disk.put("/d/log.5", b"later")
    return disk


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("make_directory", ("/e",)),
        ("create", ("/d/new",)),
        ("open_write", ("/d/log.1",)),
        ("rename", ("/d/log.1", "/d/log.2")),
        ("remove", ("/d/log.1",)),
        ("remove_directory", ("/d",)),
        ("fsync_directory", ("/d",)),
        ("lock", ("/d/lock",)),
    ],
)
def test_change_through_a_view__refused(method: str, arguments: tuple[str, ...]) -> None:
    disk = disk_with_files()
    before = disk.fingerprint()
    with pytest.raises(OSError) as caught:
        getattr(ReadOnlyDisk(disk), method)(*arguments)
    assert caught.value.errno == errno.EROFS
    assert disk.fingerprint() == before


def test_reads__are_told() -> None:
    told: list[tuple[str, int]] = []
    view = ReadOnlyDisk(disk_with_files(), lambda path, size: told.append((path, size)))
    with view.open_read("/d/log.1") as file:
        assert file.read_at(4, 100) == b"456789"
    assert told == [("/d/log.1", 6)]


def test_length_that_only_damage_claims__not_read() -> None:
    disk = MemoryDisk()
    disk.put("/d/log.1", bytes(300 << 20))
    with ReadOnlyDisk(disk).open_read("/d/log.1") as file, pytest.raises(OSError, match="claims"):
        file.read_at(0, 299 << 20)


def test_planned_disk__shows_the_directory_as_it_will_be() -> None:
    disk = disk_with_files()
    disk.put("/d/keepfast.manifest", b"old")
    manifest = Manifest(retired=(Retired("log.5", delete=False),))
    view = PlannedDisk(disk, PLACE, manifest, {"log.1": 4}, is_listed=True)
    assert view.list("/d") == ["keepfast.manifest", "log.1"]
    assert (view.exists("/d/log.5"), view.size("/d/log.1")) == (False, 4)
    with view.open_read("/d/log.1") as file:
        assert (file.size(), file.read_at(2, 100)) == (4, b"23")
    assert load_manifest(view, PLACE) == manifest
    with pytest.raises(FileNotFoundError):
        view.open_read("/d/log.5")


def test_planned_disk_without_manifest__there_is_none() -> None:
    disk = disk_with_files()
    disk.put("/d/keepfast.manifest", b"old")
    view = PlannedDisk(disk, PLACE, Manifest(), {}, is_listed=False)
    assert load_manifest(view, PLACE) is None
    assert view.list("/d") == ["log.1", "log.5"]
