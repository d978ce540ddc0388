"""The crash model itself: what may be lost, and what may not."""

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.sim.disk_damage import (
    set_mtime,
)
from keepfast.sim.disk_faults import CHANGING_CALLS, DiskCall, PowerLoss
from keepfast.sim.memory_disk import MemoryDisk
from tests.storage.small_disks import NEW, OLD, ZERO, disk_with, outcomes, trees, write

# -- bytes ---------------------------------------------------------------------------------------


def test_unsynced_write__may_be_kept_lost_or_torn_by_sector() -> None:
    disk = disk_with(f=OLD * 2)
    write(disk, 0, NEW * 2)
    assert disk.contents("/d/f") == NEW * 2
    assert outcomes(disk) == {OLD + OLD, NEW + OLD, OLD + NEW, NEW + NEW}


def test_unaligned_write__a_sector_is_never_torn_inside() -> None:
    disk = disk_with(f=OLD * 2)
    write(disk, 500, b"n" * 20)
    first, second = b"o" * 500 + b"n" * 12, b"n" * 8 + b"o" * 504
    assert outcomes(disk) == {OLD + OLD, first + OLD, OLD + second, first + second}


def test_two_writes_to_one_sector__the_later_never_comes_without_the_earlier() -> None:
    disk = disk_with(f=OLD)
    write(disk, 0, b"1")
    write(disk, 1, b"2")
    assert outcomes(disk) == {OLD, b"1" + OLD[1:], b"12" + OLD[2:]}


def test_two_writes_to_two_sectors__come_in_any_order() -> None:
    disk = disk_with(f=OLD * 2)
    write(disk, 0, NEW)
    write(disk, 512, NEW)
    assert OLD + NEW in outcomes(disk)


def test_unsynced_growth__size_and_bytes_arrive_apart() -> None:
    disk = disk_with(f=OLD)
    write(disk, 512, b"n" * 600)
    tail = b"n" * 88
    assert outcomes(disk) == {
        OLD,
        OLD + ZERO,
        OLD + ZERO + bytes(88),
        OLD + ZERO + tail,
        OLD + NEW,
        OLD + NEW + bytes(88),
        OLD + NEW + tail,
    }


def test_lost_append_before_a_kept_one__is_a_hole_of_zeros() -> None:
    disk = disk_with(f=b"")
    write(disk, 0, OLD)
    write(disk, 512, NEW)
    assert ZERO + NEW in outcomes(disk)
    assert NEW not in outcomes(disk)


def test_append_into_allocated_space__changes_no_size() -> None:
    disk = disk_with(f=b"")
    with disk.open_write("/d/f") as file:
        file.allocate(1024)
        file.datasync()
        file.write_at(0, b"record")
    assert outcomes(disk) == {bytes(1024), b"record" + bytes(1018)}


def test_unsynced_truncate__the_old_tail_may_be_back() -> None:
    disk = disk_with(f=OLD * 3)
    with disk.open_write("/d/f") as file:
        file.truncate(512)
        assert outcomes(disk) == {OLD, OLD * 3}
        file.write_at(512, b"new")
        # Lost truncate, kept write: the written sector has zeros behind the bytes, and the
        # truncated one behind it is back.
        assert OLD + b"new" + bytes(509) + OLD in outcomes(disk)
        file.fsync()
    assert outcomes(disk) == {OLD + b"new"}


def test_truncate_and_allocate__a_kept_one_brings_the_earlier_along() -> None:
    disk = disk_with(f=b"o" * 1000)
    with disk.open_write("/d/f") as file:
        file.truncate(600)
        file.allocate(800)
    assert outcomes(disk) == {b"o" * 1000, b"o" * 600, b"o" * 600 + bytes(200)}


@pytest.mark.parametrize("call", ["fsync", "datasync"])
def test_synced_file__is_whole_in_every_outcome(call: str) -> None:
    disk = disk_with(f=OLD)
    with disk.open_write("/d/f") as file:
        file.write_at(100, b"x" * 2000)
        file.truncate(1500)
        getattr(file, call)()
    assert outcomes(disk) == {OLD[:100] + b"x" * 1400}
    assert disk.pending_count() == 0


# -- names ---------------------------------------------------------------------------------------


def test_synced_file_without_its_directory__the_name_may_be_lost() -> None:
    disk = disk_with()
    with disk.create("/d/f") as file:
        file.write_at(0, b"data")
        file.fsync()
    assert outcomes(disk) == {None, b"data"}
    disk.fsync_directory("/d")
    assert outcomes(disk) == {b"data"}


def test_synced_directory_without_its_file__the_bytes_may_be_lost() -> None:
    disk = disk_with()
    with disk.create("/d/f") as file:
        file.write_at(0, b"data")
    disk.fsync_directory("/d")
    assert outcomes(disk) == {b"", b"data", bytes(4)}


def test_rename_before_fsync__leaves_an_empty_file_in_some_outcome() -> None:
    disk = disk_with(f=b"old")
    with disk.create("/d/tmp") as file:
        file.write_at(0, b"new")
    disk.rename("/d/tmp", "/d/f")
    found = trees(disk)
    assert {"/d/f": b""} in found
    assert {"/d/f": b"old"} in found
    assert {"/d/f": b"old", "/d/tmp": b"new"} in found
    assert {"/d/f": b"new"} in found
    assert all("/d/f" in files for files in found)


def test_rename_kept_while_the_create_was_lost__only_the_new_name() -> None:
    disk = disk_with()
    disk.create("/d/tmp").close()
    disk.rename("/d/tmp", "/d/f")
    assert sorted(map(sorted, trees(disk))) == [[], ["/d/f"], ["/d/tmp"]]


def test_unsynced_rename__is_atomic() -> None:
    disk = disk_with(f=b"old", tmp=b"new")
    disk.rename("/d/tmp", "/d/f")
    assert len(trees(disk)) == 2
    assert {"/d/f": b"old", "/d/tmp": b"new"} in trees(disk)
    assert {"/d/f": b"new"} in trees(disk)
    disk.fsync_directory("/d")
    assert trees(disk) == [{"/d/f": b"new"}]


def test_removed_file__may_come_back_until_the_directory_is_synced() -> None:
    disk = disk_with(f=b"data")
    write(disk, 0, b"X")
    disk.remove("/d/f")
    assert outcomes(disk) == {None, b"data", b"Xata"}
    disk.fsync_directory("/d")
    assert outcomes(disk) == {None}
    assert disk.pending_count() == 0


def test_directory_operations__are_lost_one_by_one() -> None:
    disk = disk_with(a=b"", b=b"")
    disk.remove("/d/a")
    disk.remove("/d/b")
    disk.create("/d/c").close()
    assert len(trees(disk)) == 8
    assert {"/d/a": b"", "/d/c": b""} in trees(disk)


def test_new_directory__takes_its_files_along_when_lost() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a/b")
    with disk.create("/a/b/f") as file:
        file.fsync()
    disk.fsync_directory("/a/b")
    assert outcomes(disk, "/a/b/f") == {None, b""}
    disk.fsync_directory("/")
    disk.fsync_directory("/a")
    assert outcomes(disk, "/a/b/f") == {b""}


def test_rename_between_directories__shows_both_names_but_never_none() -> None:
    disk = disk_with(f=b"data")
    disk.put("/e/other", b"")
    disk.rename("/d/f", "/e/f")

    def names(of: MemoryDisk) -> set[tuple[str, ...]]:
        return {tuple(sorted(set(files) - {"/e/other"})) for files in trees(of)}

    assert names(disk) == {("/d/f",), ("/d/f", "/e/f"), ("/e/f",)}
    new_synced = disk.clone()
    new_synced.fsync_directory("/e")
    assert names(new_synced) == {("/d/f", "/e/f"), ("/e/f",)}
    old_synced = disk.clone()
    old_synced.fsync_directory("/d")
    assert names(old_synced) == {("/e/f",)}


def test_two_names_of_one_file_after_a_crash__count_once_and_live_apart() -> None:
    disk = disk_with(f=b"data")
    disk.put("/e/other", b"")
    disk.rename("/d/f", "/e/f")
    both = next(state for state in disk.crash_states() if len(state.files()) == 3)
    assert both.used_bytes() == 4
    both.rename("/d/f", "/e/f")
    assert sorted(both.files()) == ["/d/f", "/e/f", "/e/other"]
    both.remove("/d/f")
    assert both.used_bytes() == 4
    assert both.contents("/e/f") == b"data"


def test_moving_a_directory_elsewhere__is_refused() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    disk.make_directory("/b")
    with pytest.raises(OSError) as caught:
        disk.rename("/a", "/b/a")
    assert caught.value.errno == errno.EXDEV


# -- enumeration ---------------------------------------------------------------------------------


def test_outcomes__each_content_once_and_the_disk_lives_on() -> None:
    disk = disk_with(f=OLD)
    write(disk, 0, OLD)
    assert len(trees(disk)) == 1
    write(disk, 0, NEW)
    fingerprints = [state.fingerprint() for state in disk.crash_states()]
    assert len(fingerprints) == len(set(fingerprints)) == 2
    write(disk, 0, b"still alive")


def test_outcomes__are_whole_disks_on_their_own() -> None:
    disk = disk_with(f=OLD)
    write(disk, 0, NEW)
    first, second = disk.crash_states()
    write(first, 0, b"first")
    write(second, 0, b"second")
    assert first.contents("/d/f")[:6] in (b"firsto", b"firstn")
    assert second.contents("/d/f")[:6] == b"second"
    assert disk.contents("/d/f") == NEW
    assert first.pending_count() == second.pending_count() == 1


def test_many_pending_operations__prefixes_single_losses_and_samples() -> None:
    disk = disk_with(f=ZERO * 40)
    for index in range(40):
        write(disk, index * 512, NEW)
    found = outcomes(disk)
    assert ZERO * 40 in found
    assert NEW * 40 in found
    assert NEW * 39 + ZERO in found
    assert ZERO + NEW * 39 in found
    assert NEW + ZERO * 39 in found
    assert 40 < len(found) < 100
    assert found == outcomes(disk)


def test_long_write__is_torn_at_its_ends_and_in_its_middle() -> None:
    disk = disk_with(f=ZERO * 100)
    write(disk, 0, NEW * 100)
    found = outcomes(disk)
    assert NEW * 50 + ZERO * 50 in found
    assert ZERO * 50 + NEW * 50 in found
    assert NEW * 99 + ZERO in found
    assert ZERO + NEW * 99 in found


def test_random_crash__is_one_of_the_outcomes_and_follows_its_seed() -> None:
    disk = disk_with(f=OLD * 2)
    write(disk, 0, NEW * 2)
    disk.create("/d/g").close()
    legal = {state.fingerprint() for state in disk.crash_states()}
    drawn = [disk.crash(random.Random(seed)).fingerprint() for seed in range(200)]
    assert set(drawn) == legal
    assert drawn == [disk.crash(random.Random(seed)).fingerprint() for seed in range(200)]


_Operation = tuple[str, int, int]
_PLAYS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "truncate", "allocate", "sync"]),
        st.integers(0, 2500),
        st.integers(1, 1200),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(plays=_PLAYS, seed=st.integers(0, 1 << 32))
def test_any_history__every_sector_is_as_it_was_at_some_moment(
    plays: list[_Operation], seed: int
) -> None:
    """Judged by a record of whole contents, which knows nothing of pending operations."""
    disk = disk_with(f=b"")
    history = [b""]
    cuts: list[int] = []
    with disk.open_write("/d/f") as file:
        for fill, (kind, offset, size) in enumerate(plays, start=1):
            match kind:
                case "write":
                    file.write_at(offset, bytes([fill]) * size)
                case "truncate":
                    file.truncate(offset)
                    cuts.append(offset)
                case "allocate":
                    file.allocate(offset)
                case _:
                    file.datasync()
                    history.clear()
                    cuts.clear()
            history.append(disk.contents("/d/f"))
    content = disk.crash(random.Random(seed)).contents("/d/f")
    assert len(content) <= max(map(len, history))
    assert len(content) >= min(map(len, history))
    for start in range(0, len(content), 512):
        sector = content[start : start + 512]
        ends = [start + 512, *(cut for cut in cuts if start < cut < start + 512)]
        seen = {old[start:end].ljust(512, b"\0")[: len(sector)] for old in history for end in ends}
        assert sector in seen
    if len(history) == 1:
        assert content == history[0]


# -- power loss, calls and clones ----------------------------------------------------------------


def test_power_loss_at_a_call__before_it_or_after_it() -> None:
    for after, expected in ((False, OLD), (True, NEW)):
        disk = disk_with(f=OLD)
        disk.fail_at(disk.calls + 2, PowerLoss(), after=after)
        with pytest.raises(PowerLoss):
            write(disk, 0, NEW)
        assert disk.contents("/d/f") == expected


def test_after_power_loss__disk_and_handles_are_dead() -> None:
    disk = disk_with(f=OLD)
    reader, writer = disk.open_read("/d/f"), disk.open_write("/d/f")
    disk.crash(random.Random(1))
    dead_calls: list[Callable[[], object]] = [
        lambda: writer.write_at(0, b"x"),
        writer.fsync,
        lambda: reader.read_at(0, 1),
        reader.size,
        lambda: disk.list("/d"),
        lambda: disk.exists("/d/f"),
        lambda: disk.create("/d/g"),
        lambda: disk.fsync_directory("/d"),
    ]
    for call in dead_calls:
        with pytest.raises(PowerLoss):
            call()
    reader.close()
    writer.close()
    assert disk.files() == {"/d/f": OLD}


def test_hook__sees_every_call_and_may_cut_the_power() -> None:
    disk = disk_with(f=b"")
    seen: list[DiskCall] = []
    disk.on_call = seen.append
    first = disk.calls + 1
    with disk.open_write("d/f") as file:
        file.write_at(0, b"x")
        file.fsync()
    assert seen == [
        DiskCall(first, "open_write", "/d/f", False),
        DiskCall(first + 1, "write_at", "/d/f", False),
        DiskCall(first + 1, "write_at", "/d/f", True),
        DiskCall(first + 2, "fsync", "/d/f", False),
        DiskCall(first + 2, "fsync", "/d/f", True),
    ]
    assert {call.operation for call in seen if call.is_after} <= CHANGING_CALLS

    def cut(call: DiskCall) -> None:
        raise PowerLoss

    disk.on_call = cut
    with pytest.raises(PowerLoss):
        disk.list("/d")
    disk.on_call = None
    with pytest.raises(PowerLoss):
        disk.list("/d")


def test_error_at_a_call__is_raised_itself_and_once() -> None:
    disk = disk_with(f=OLD)
    error = OSError(errno.EMFILE, "too many")
    disk.fail_at(disk.calls + 1, error)
    with pytest.raises(OSError) as caught:
        disk.open_read("/d/f")
    assert caught.value is error
    disk.open_read("/d/f").close()


def test_clone__has_the_same_outcomes_and_its_own_future() -> None:
    disk = disk_with(f=OLD, g=b"g")
    write(disk, 0, NEW)
    disk.rename("/d/g", "/d/h")
    clone = disk.clone()
    assert clone.fingerprint() == disk.fingerprint()
    assert clone.calls == disk.calls
    assert trees(clone) == trees(disk)
    clone.settle()
    assert len(trees(clone)) == 1
    assert len(trees(disk)) == 4
    write(clone, 0, b"clone")
    assert disk.contents("/d/f") == NEW


def test_fingerprint__tells_names_bytes_and_directories_apart() -> None:
    disks = [disk_with(), disk_with(f=b""), disk_with(g=b""), disk_with(f=b"x")]
    nested = disk_with()
    nested.make_directory("/d/f")
    assert len({disk.fingerprint() for disk in [*disks, nested]}) == 5
    assert disk_with(f=b"1", g=b"2").fingerprint() == disk_with(g=b"2", f=b"1").fingerprint()


def test_paths__have_one_form() -> None:
    disk = disk_with(f=b"x")
    assert disk.contents("d/f") == disk.contents("//d/./f/") == b"x"
    with pytest.raises(OSError):
        disk.exists("/d/../d/f")


def test_clock__gives_the_times_of_changes() -> None:
    now = [5.0]
    disk = MemoryDisk(clock=lambda: now[0])
    disk.create("/f").close()
    assert disk.mtime("/f") == 5.0
    now[0] = 9.0
    write(disk, 0, b"x", "/f")
    assert disk.mtime("/f") == 9.0
    set_mtime(disk, "/f", 2.0)
    assert disk.mtime("/f") == 2.0
    assert disk.mtime("/") == 0.0
    assert disk.size("/") == 0
