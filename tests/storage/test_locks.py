"""One server at a time on a data directory, in whichever of its two places they meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.storage import DataDirectory, RealDisk, Store
from keepfast.storage.locks import is_locked, lock_directory, unlock_directory
from keepfast.wire import StorageError


def place(root: Path, data: str, logs: str) -> DataDirectory:
    return DataDirectory(f"{root}/{data}/version-2", f"{root}/{logs}/version-2")


def test_second_server_with_the_same_log_directory__refused(tmp_path: Path) -> None:
    first, _ = Store.open(RealDisk(), place(tmp_path, "one", "logs"))
    first.initialise()
    with pytest.raises(StorageError, match="another server") as caught:
        Store.open(RealDisk(), place(tmp_path, "two", "logs"))
    assert caught.value.file == f"{tmp_path}/logs/version-2"
    # Nothing is left locked by the one that was refused.
    assert not is_locked(RealDisk(), place(tmp_path, "two", "two"))
    first.close()
    second, _ = Store.open(RealDisk(), place(tmp_path, "two", "logs"))
    second.close()


def test_second_server_with_the_same_snapshots__refused(tmp_path: Path) -> None:
    first, _ = Store.open(RealDisk(), place(tmp_path, "data", "one"))
    with pytest.raises(StorageError, match="another server"):
        Store.open(RealDisk(), place(tmp_path, "data", "two"))
    first.close()
    assert not is_locked(RealDisk(), place(tmp_path, "data", "two"))


def test_log_directory_is_a_link_to_the_data__one_lock_for_both(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "data")
    directory = place(tmp_path, "data", "logs")
    store, _ = Store.open(RealDisk(), directory)
    with pytest.raises(StorageError, match="another server"):
        Store.open(RealDisk(), directory)
    store.close()
    assert not is_locked(RealDisk(), directory)
    disk = RealDisk()
    lock_directory(disk, directory)
    unlock_directory(disk, directory)
    assert not is_locked(RealDisk(), directory)
