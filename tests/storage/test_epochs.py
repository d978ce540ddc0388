"""Epoch files against the manifest: the greater number holds, nothing is guessed."""

from __future__ import annotations

import pytest

from keepfast.sim import MemoryDisk
from keepfast.storage import DataDirectory, Epochs, Manifest, Problem, Severity
from keepfast.storage.epochs import check_epochs, read_epochs, write_epoch_files
from keepfast.wire import Zxid, make_zxid

DIRECTORY = DataDirectory("/d", "/d")


def disk_with(accepted: bytes | None, current: bytes | None) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    for name, data in (("acceptedEpoch", accepted), ("currentEpoch", current)):
        if data is not None:
            disk.put(f"/d/{name}", data)
    return disk


def read(
    accepted: bytes | None, current: bytes | None, manifest: Manifest | None = None
) -> tuple[Epochs, list[Problem]]:
    problems: list[Problem] = []
    found = read_epochs(disk_with(accepted, current), DIRECTORY, manifest, problems)
    return found, problems


def test_apache_files_alone__hold() -> None:
    assert read(b"7", b"5") == (Epochs(7, 5), [])
    assert read(b"7\n", b"5\n") == (Epochs(7, 5), [])
    assert read(None, None) == (Epochs(None, None), [])


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"1.0", b"\xff", b"9" * 11, b"9" * 40, b"1 2"])
def test_unreadable__damage_unless_the_manifest_knows(data: bytes) -> None:
    found, problems = read(data, b"5")
    assert found == Epochs(None, 5)
    assert [problem.severity for problem in problems] == [Severity.DAMAGE]
    found, problems = read(data, b"5", Manifest(accepted_epoch=6, current_epoch=5))
    assert found == Epochs(6, 5)
    assert [problem.severity for problem in problems] == [Severity.WARNING]


def test_files_behind_the_manifest__a_crash_cut_the_change_short() -> None:
    assert read(b"4", b"4", Manifest(accepted_epoch=6, current_epoch=5)) == (Epochs(6, 5), [])


def test_files_ahead_of_the_manifest__hold_and_it_is_said() -> None:
    found, problems = read(b"8", b"7", Manifest(accepted_epoch=6, current_epoch=5))
    assert found == Epochs(8, 7)
    assert [problem.code for problem in problems] == ["epoch-ahead", "epoch-ahead"]


def test_files_missing__manifest_holds_and_it_is_said() -> None:
    found, problems = read(None, b"5", Manifest(accepted_epoch=6, current_epoch=5))
    assert found == Epochs(6, 5)
    assert [problem.code for problem in problems] == ["epoch-missing"]


@pytest.mark.parametrize(
    ("epochs", "head", "is_fine", "is_fine_if_listed"),
    [
        (Epochs(None, None), make_zxid(3, 1), True, True),
        (Epochs(5, 5), None, True, True),
        (Epochs(5, 4), make_zxid(4, 9), True, True),
        (Epochs(5, 5), Zxid(0), True, True),
        (Epochs(4, 5), make_zxid(4, 9), False, False),
        (Epochs(5, None), make_zxid(4, 9), False, False),
        (Epochs(None, 5), make_zxid(4, 9), False, False),
        # A learner makes the history of a new epoch durable before it agrees to that epoch.
        (Epochs(5, 4), make_zxid(5, 1), False, True),
        (Epochs(5, 4), make_zxid(6, 1), False, False),
    ],
)
def test_epochs_against_each_other_and_the_history(
    epochs: Epochs, head: Zxid | None, is_fine: bool, is_fine_if_listed: bool
) -> None:
    for is_listed, expected in ((False, is_fine), (True, is_fine_if_listed)):
        problems: list[Problem] = []
        assert check_epochs(epochs, head, problems, is_listed=is_listed) == expected
        assert any(problem.severity is Severity.DAMAGE for problem in problems) == (not expected)


def test_written__only_where_they_differ() -> None:
    disk = disk_with(b"6", b"4")
    write_epoch_files(disk, DIRECTORY, Epochs(6, 5))
    assert disk.contents("/d/currentEpoch") == b"5"
    calls = disk.calls
    write_epoch_files(disk, DIRECTORY, Epochs(None, None))
    assert disk.calls == calls
    before = disk.fingerprint()
    disk.inject("create", times=None)
    write_epoch_files(disk, DIRECTORY, Epochs(6, 5))
    assert disk.fingerprint() == before
