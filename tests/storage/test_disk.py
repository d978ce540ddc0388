"""One suite for both disks, then what only the real one can show, then `replace_file`."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepfast.sim.disk_faults import DiskCall, PowerLoss
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.storage.disk import (
    Disk,
    RealDisk,
    directory_of,
    make_directory_durably,
    read_file,
    replace_file,
    temporary_of,
)


class Place(NamedTuple):
    """A disk and an empty directory on it."""

    disk: Disk
    base: str

    def at(self, name: str) -> str:
        return f"{self.base}/{name}"

    def write(self, name: str, data: bytes) -> None:
        with self.disk.create(self.at(name)) as file:
            file.write_at(0, data)

    def read(self, name: str) -> bytes:
        return read_file(self.disk, self.at(name), 1 << 20)


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealDisk(), str(tmp_path))
    disk = MemoryDisk()
    disk.make_directory("/base")
    return Place(disk, "/base")


# -- both disks ----------------------------------------------------------------------------------


def test_written_bytes__read_back_anywhere_and_short_only_at_the_end(place: Place) -> None:
    place.write("a", b"0123456789")
    with place.disk.open_read(place.at("a")) as file:
        assert file.size() == 10
        assert file.read_at(0, 10) == b"0123456789"
        assert file.read_at(3, 4) == b"3456"
        assert file.read_at(8, 5) == b"89"
        assert file.read_at(10, 5) == b""
        assert file.read_at(99, 5) == b""
        assert file.read_at(0, 0) == b""
        assert file.read_at(4, 5 << 30) == b"456789"
        assert file.read_at(99, 5 << 30) == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer__is_written(
    place: Place, kind: Callable[[bytes], bytes | bytearray | memoryview]
) -> None:
    with place.disk.create(place.at("a")) as file:
        file.write_at(0, kind(b"abc"))
        file.write_at(3, kind(b""))
    assert place.read("a") == b"abc"


def test_write_behind_the_end__the_gap_is_zeros(place: Place) -> None:
    with place.disk.create(place.at("a")) as file:
        file.write_at(0, b"ab")
        file.write_at(5, b"cd")
        file.write_at(1, b"X")
    assert place.read("a") == b"aX\0\0\0cd"
    assert place.disk.size(place.at("a")) == 7


def test_truncate__cuts_and_grows_with_zeros(place: Place) -> None:
    place.write("a", b"abcdef")
    with place.disk.open_write(place.at("a")) as file:
        file.truncate(2)
        assert place.read("a") == b"ab"
        file.truncate(4)
    assert place.read("a") == b"ab\0\0"


def test_allocate__grows_with_zeros_and_never_cuts(place: Place) -> None:
    place.write("a", b"abc")
    with place.disk.open_write(place.at("a")) as file:
        file.allocate(3000)
        assert place.read("a") == b"abc" + bytes(2997)
        file.allocate(5)
        file.write_at(3, b"def")
        file.fsync()
        file.datasync()
    assert place.read("a") == b"abcdef" + bytes(2994)


def test_create_of_an_existing_file__empties_it(place: Place) -> None:
    place.write("a", b"abc")
    place.disk.create(place.at("a")).close()
    assert place.read("a") == b""


def test_list__is_sorted_and_has_files_and_directories(place: Place) -> None:
    for name in ("b", "a", "c10", "c9"):
        place.write(name, b"")
    place.disk.make_directory(place.at("b2/deep"))
    place.disk.make_directory(place.at("b2"))
    assert place.disk.list(place.base) == ["a", "b", "b2", "c10", "c9"]
    assert place.disk.list(place.at("b2")) == ["deep"]
    assert place.disk.is_directory(place.at("b2/deep"))
    assert not place.disk.is_directory(place.at("a"))
    assert not place.disk.is_directory(place.at("none"))
    assert place.disk.exists(place.at("a"))
    assert place.disk.exists(place.at("b2"))
    assert not place.disk.exists(place.at("none"))
    assert not place.disk.exists(place.at("a/below"))


def test_rename__replaces_the_file_of_that_name(place: Place) -> None:
    place.write("old", b"new content")
    place.write("target", b"to be replaced")
    place.disk.rename(place.at("old"), place.at("target"))
    assert place.disk.list(place.base) == ["target"]
    assert place.read("target") == b"new content"
    place.disk.rename(place.at("target"), place.at("target"))
    assert place.read("target") == b"new content"


def test_rename__moves_between_directories_and_renames_directories(place: Place) -> None:
    place.disk.make_directory(place.at("one"))
    place.disk.make_directory(place.at("two"))
    place.write("one/f", b"x")
    place.disk.rename(place.at("one/f"), place.at("two/g"))
    place.disk.rename(place.at("two"), place.at("three"))
    assert place.disk.list(place.base) == ["one", "three"]
    assert place.read("three/g") == b"x"
    place.disk.fsync_directory(place.at("one"))
    place.disk.fsync_directory(place.base)


def test_open_handles__outlive_their_name(place: Place) -> None:
    place.write("a", b"abc")
    with (
        place.disk.open_read(place.at("a")) as reader,
        place.disk.open_write(place.at("a")) as writer,
    ):
        place.disk.remove(place.at("a"))
        writer.write_at(3, b"def")
        assert reader.read_at(0, 10) == b"abcdef"
        assert not place.disk.exists(place.at("a"))


def test_closed_handle__refuses_and_closes_again(place: Place) -> None:
    writer = place.disk.create(place.at("a"))
    writer.close()
    writer.close()
    with pytest.raises(OSError) as caught:
        writer.write_at(0, b"a")
    assert caught.value.errno == errno.EBADF
    reader = place.disk.open_read(place.at("a"))
    reader.close()
    reader.close()
    with pytest.raises(OSError) as caught:
        reader.read_at(0, 1)
    assert caught.value.errno == errno.EBADF


def test_free_bytes__is_positive(place: Place) -> None:
    assert place.disk.free_bytes(place.base) > 0


def test_lock__is_held_once_until_it_is_released(place: Place) -> None:
    path = place.at("lock")
    assert not place.disk.is_locked(path)
    place.disk.lock(path)
    assert place.disk.is_locked(path)
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    place.disk.unlock(path)
    place.disk.unlock(path)
    assert not place.disk.is_locked(path)
    place.disk.lock(path)
    place.disk.unlock(path)


def test_mtime__is_a_number(place: Place) -> None:
    place.write("a", b"")
    assert place.disk.mtime(place.at("a")) >= 0


FAILURES: dict[str, tuple[Callable[[Disk, str], object], int]] = {
    "list missing": (lambda disk, base: disk.list(f"{base}/none"), errno.ENOENT),
    "list file": (lambda disk, base: disk.list(f"{base}/file"), errno.ENOTDIR),
    "size missing": (lambda disk, base: disk.size(f"{base}/none"), errno.ENOENT),
    "mtime missing": (lambda disk, base: disk.mtime(f"{base}/none"), errno.ENOENT),
    "read missing": (lambda disk, base: disk.open_read(f"{base}/none"), errno.ENOENT),
    "read directory": (lambda disk, base: disk.open_read(f"{base}/full"), errno.EISDIR),
    "read below file": (lambda disk, base: disk.open_read(f"{base}/file/x"), errno.ENOTDIR),
    "write missing": (lambda disk, base: disk.open_write(f"{base}/none"), errno.ENOENT),
    "write directory": (lambda disk, base: disk.open_write(f"{base}/full"), errno.EISDIR),
    "create nowhere": (lambda disk, base: disk.create(f"{base}/none/x"), errno.ENOENT),
    "create below file": (lambda disk, base: disk.create(f"{base}/file/x"), errno.ENOTDIR),
    "create directory": (lambda disk, base: disk.create(f"{base}/full"), errno.EISDIR),
    "mkdir on file": (lambda disk, base: disk.make_directory(f"{base}/file"), errno.EEXIST),
    "mkdir below file": (lambda disk, base: disk.make_directory(f"{base}/file/x"), errno.ENOTDIR),
    "remove missing": (lambda disk, base: disk.remove(f"{base}/none"), errno.ENOENT),
    "remove directory": (lambda disk, base: disk.remove(f"{base}/full"), errno.EISDIR),
    "rmdir missing": (lambda disk, base: disk.remove_directory(f"{base}/none"), errno.ENOENT),
    "rmdir file": (lambda disk, base: disk.remove_directory(f"{base}/file"), errno.ENOTDIR),
    "rmdir full": (lambda disk, base: disk.remove_directory(f"{base}/full"), errno.ENOTEMPTY),
    "sync missing": (lambda disk, base: disk.fsync_directory(f"{base}/none"), errno.ENOENT),
    "sync file": (lambda disk, base: disk.fsync_directory(f"{base}/file"), errno.ENOTDIR),
    "free missing": (lambda disk, base: disk.free_bytes(f"{base}/none"), errno.ENOENT),
    "rename missing": (
        lambda disk, base: disk.rename(f"{base}/none", f"{base}/new"),
        errno.ENOENT,
    ),
    "rename nowhere": (
        lambda disk, base: disk.rename(f"{base}/file", f"{base}/none/new"),
        errno.ENOENT,
    ),
    "rename missing below file": (
        lambda disk, base: disk.rename(f"{base}/none", f"{base}/file/new"),
        errno.ENOTDIR,
    ),
    "onto the directory it is in": (
        lambda disk, base: disk.rename(f"{base}/full/below", f"{base}/full"),
        errno.ENOTEMPTY,
    ),
    "directory into itself": (
        lambda disk, base: disk.rename(f"{base}/full", f"{base}/full/below/x"),
        errno.EINVAL,
    ),
    "file onto directory": (
        lambda disk, base: disk.rename(f"{base}/file", f"{base}/empty"),
        errno.EISDIR,
    ),
    "directory onto file": (
        lambda disk, base: disk.rename(f"{base}/empty", f"{base}/file"),
        errno.ENOTDIR,
    ),
    "directory onto full": (
        lambda disk, base: disk.rename(f"{base}/empty", f"{base}/full"),
        errno.ENOTEMPTY,
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failure__has_the_errno_and_a_path_and_changes_nothing(place: Place, case: str) -> None:
    place.disk.make_directory(place.at("full/below"))
    place.disk.make_directory(place.at("empty"))
    place.write("file", b"content")
    call, code = FAILURES[case]
    with pytest.raises(OSError) as caught:
        call(place.disk, place.base)
    assert caught.value.errno == code
    assert caught.value.filename is not None
    assert place.disk.list(place.base) == ["empty", "file", "full"]
    assert place.read("file") == b"content"


def test_empty_directory__can_be_removed(place: Place) -> None:
    place.disk.make_directory(place.at("a/b"))
    place.disk.remove_directory(place.at("a/b"))
    place.disk.remove_directory(place.at("a"))
    assert place.disk.list(place.base) == []


def test_read_file__refuses_more_than_the_limit(place: Place) -> None:
    place.write("a", b"12345")
    assert read_file(place.disk, place.at("a"), 5) == b"12345"
    with pytest.raises(OSError) as caught:
        read_file(place.disk, place.at("a"), 4)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == place.at("a")


def test_replace_file__replaces_and_leaves_no_other_file(place: Place) -> None:
    replace_file(place.disk, place.at("currentEpoch"), b"7")
    assert place.read("currentEpoch") == b"7"
    replace_file(place.disk, place.at("currentEpoch"), b"")
    assert place.read("currentEpoch") == b""
    assert place.disk.list(place.base) == ["currentEpoch"]


def test_make_directory_durably__makes_all_levels(place: Place) -> None:
    make_directory_durably(place.disk, place.at("a/b/c"))
    make_directory_durably(place.disk, place.at("a/b/c"))
    assert place.disk.is_directory(place.at("a/b/c"))


_NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b"])
_OFFSETS = st.integers(0, 1200)
_STEPS = st.one_of(
    st.tuples(st.just("write"), _NAMES, _OFFSETS, st.binary(max_size=700)),
    st.tuples(st.just("truncate"), _NAMES, _OFFSETS),
    st.tuples(st.just("allocate"), _NAMES, _OFFSETS),
    st.tuples(st.just("create"), _NAMES),
    st.tuples(st.just("mkdir"), _NAMES),
    st.tuples(st.just("remove"), _NAMES),
    st.tuples(st.just("rmdir"), _NAMES),
    st.tuples(st.just("rename"), _NAMES, _NAMES),
    st.tuples(st.just("sync"), _NAMES),
)


def _play(place: Place, step: tuple[object, ...]) -> int | None:
    """Do one step; returns the errno if it failed."""
    disk = place.disk
    try:
        match step:
            case ("write", str(name), int(offset), bytes(data)):
                with disk.open_write(place.at(name)) as file:
                    file.write_at(offset, data)
            case ("truncate", str(name), int(size)):
                with disk.open_write(place.at(name)) as file:
                    file.truncate(size)
            case ("allocate", str(name), int(size)):
                with disk.open_write(place.at(name)) as file:
                    file.allocate(size)
            case ("create", str(name)):
                disk.create(place.at(name)).close()
            case ("mkdir", str(name)):
                disk.make_directory(place.at(name))
            case ("remove", str(name)):
                disk.remove(place.at(name))
            case ("rmdir", str(name)):
                disk.remove_directory(place.at(name))
            case ("rename", str(old), str(new)):
                # Directories stay where they are, and a path is never moved below itself.
                if disk.is_directory(place.at(old)) and directory_of(old) != directory_of(new):
                    return None
                disk.rename(place.at(old), place.at(new))
            case ("sync", str(name)):
                with disk.open_write(place.at(name)) as file:
                    file.datasync()
    except OSError as error:
        return error.errno
    return None


def _all_files(disk: Disk, path: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.list(path):
        below = f"{path}/{name}"
        if disk.is_directory(below):
            found[name] = None
            found.update({f"{name}/{key}": data for key, data in _all_files(disk, below).items()})
        else:
            found[name] = read_file(disk, below, 1 << 20)
    return found


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(_STEPS, max_size=25))
def test_any_calls__both_disks_show_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    real = Place(RealDisk(), str(tmp_path_factory.mktemp("real")))
    memory = Place(MemoryDisk(), "/base")
    memory.disk.make_directory("/base")
    for step in steps:
        assert _play(memory, step) == _play(real, step), step
    assert _all_files(memory.disk, memory.base) == _all_files(real.disk, real.base)


# -- the real disk -------------------------------------------------------------------------------


def test_short_writes_and_reads__are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write, real_read = os.pwrite, os.pread

    def short_write(descriptor: int, data: bytes, offset: int) -> int:
        return real_write(descriptor, bytes(data)[:7], offset)

    def short_read(descriptor: int, size: int, offset: int) -> bytes:
        return real_read(descriptor, min(size, 11), offset)

    monkeypatch.setattr(os, "pwrite", short_write)
    monkeypatch.setattr(os, "pread", short_read)
    place = Place(RealDisk(), str(tmp_path))
    data = bytes(range(100))
    place.write("a", data)
    assert place.read("a") == data


def test_disk_that_takes_no_bytes__is_an_error_and_not_an_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: 0)
    with RealDisk().create(str(tmp_path / "a")) as file, pytest.raises(OSError) as caught:
        file.write_at(0, b"a")
    assert caught.value.errno == errno.EIO
    assert caught.value.filename == str(tmp_path / "a")


def test_allocate_without_support__writes_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    path = str(tmp_path / "a")
    with RealDisk().create(path) as file:
        file.write_at(0, b"abc")
        file.allocate((1 << 20) + 5000)
    assert os.stat(path).st_size == (1 << 20) + 5000
    # Blocks, not a hole: a hole would let a later write run out of space.
    assert os.stat(path).st_blocks * 512 >= 1 << 20
    assert read_file(RealDisk(), path, 2 << 20) == b"abc" + bytes((1 << 20) + 4997)


def test_allocate_on_a_full_disk__gives_back_what_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(descriptor: int, offset: int, size: int) -> None:
        os.ftruncate(descriptor, offset + size // 2)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", half, raising=False)
    place = Place(RealDisk(), str(tmp_path))
    place.write("a", b"abc")
    with place.disk.open_write(place.at("a")) as file, pytest.raises(OSError) as caught:
        file.allocate(1000)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == place.at("a")
    assert place.read("a") == b"abc"


@pytest.mark.parametrize("call", ["fsync", "datasync"])
def test_failed_fsync__the_handle_never_says_yes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    with RealDisk().create(str(tmp_path / "a")) as file:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            patch.setattr(os, "fdatasync", broken, raising=False)
            with pytest.raises(OSError) as caught:
                getattr(file, call)()
        assert caught.value.filename == str(tmp_path / "a")
        for again in (file.fsync, file.datasync):
            with pytest.raises(OSError) as caught:
                again()
            assert caught.value.errno == errno.EIO


def test_pipe_under_a_file_name__is_refused_without_waiting(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    for call in (RealDisk().open_read, RealDisk().open_write):
        with pytest.raises(OSError) as caught:
            call(path)
        assert caught.value.errno == errno.EINVAL
        assert caught.value.filename == path


# -- replace_file, judged by crashes -------------------------------------------------------------


def test_directory_of__any_form_of_path() -> None:
    assert directory_of("/a/b") == "/a"
    assert directory_of("/a/") == "/"
    assert directory_of("/") == "/"
    assert directory_of("a/b") == "a"
    assert directory_of("a") == "."


@pytest.mark.parametrize("name", ["snapshot.5", "log.5", "currentEpoch"])
def test_temporary_name__is_no_name_that_apache_reads(name: str) -> None:
    temporary = temporary_of(f"/data/version-2/{name}")
    assert directory_of(temporary) == "/data/version-2"
    assert not os.path.basename(temporary).startswith(("snapshot", "log."))


def _outcomes_of_replacing(disk: MemoryDisk, old: bytes | None, new: bytes) -> list[bytes | None]:
    """What a crash around any call of `replace_file`, and after it, leaves under the name."""
    disk.make_directory("/d")
    if old is not None:
        disk.put("/d/epoch", old)
    disk.settle()
    found: list[bytes | None] = []

    def look(call: DiskCall) -> None:
        found.extend(state.files().get("/d/epoch") for state in disk.crash_states(5))

    disk.on_call = look
    replace_file(disk, "/d/epoch", new)
    disk.on_call = None
    return found


@pytest.mark.parametrize("old", [None, b"old" * 300])
@pytest.mark.parametrize("new", [b"new", b"new" * 400])
def test_power_loss_in_replace_file__old_or_new_and_new_once_it_returned(
    old: bytes | None, new: bytes
) -> None:
    disk = MemoryDisk()
    found = _outcomes_of_replacing(disk, old, new)
    assert len(found) > 20
    assert set(found) == {old, new}
    assert [state.files() for state in disk.crash_states()] == [{"/d/epoch": new}]


@pytest.mark.parametrize("call", ["fsync", "fsync_directory"])
def test_replace_file_without_one_of_its_syncs__the_crash_test_fails(call: str) -> None:
    disk = MemoryDisk()
    disk.ignored = frozenset({call})
    found = _outcomes_of_replacing(disk, b"old" * 300, b"new" * 400)
    finals = {state.files().get("/d/epoch") for state in disk.crash_states()}
    assert set(found) - {b"old" * 300, b"new" * 400} or finals != {b"new" * 400}


@pytest.mark.parametrize("room", [0, 1, 511, 512, 700])
def test_disk_full_in_replace_file__old_content_and_no_temporary_file(room: int) -> None:
    disk = MemoryDisk()
    disk.put("/d/epoch", b"old")
    disk.capacity = disk.used_bytes() + room
    with pytest.raises(OSError) as caught:
        replace_file(disk, "/d/epoch", bytes(701))
    assert caught.value.errno == errno.ENOSPC
    assert disk.files() == {"/d/epoch": b"old"}
    assert disk.free_bytes("/d") == room
    disk.capacity += 701
    replace_file(disk, "/d/epoch", bytes(701))
    assert disk.contents("/d/epoch") == bytes(701)


def test_write_that_rots_in_replace_file__is_read_back_and_refused() -> None:
    disk = MemoryDisk()
    disk.put("/d/epoch", b"old")
    disk.inject("write_at", "*.tmp", None, kept=2)
    with pytest.raises(OSError) as caught:
        replace_file(disk, "/d/epoch", b"new!")
    assert caught.value.errno == errno.EIO
    assert disk.files() == {"/d/epoch": b"old"}


def test_failed_fsync_in_replace_file__old_content_stays() -> None:
    disk = MemoryDisk()
    disk.put("/d/epoch", b"old")
    disk.inject("fsync", "*.tmp")
    with pytest.raises(OSError):
        replace_file(disk, "/d/epoch", b"new!")
    assert disk.files() == {"/d/epoch": b"old"}


def test_power_loss_in_make_directory_durably__whole_path_once_it_returned() -> None:
    disk = MemoryDisk()
    make_directory_durably(disk, "/a/b/c")
    assert [state.is_directory("/a/b/c") for state in disk.crash_states()] == [True]
    disk = MemoryDisk()
    disk.make_directory("/a/b/c")
    assert {state.is_directory("/a/b/c") for state in disk.crash_states()} == {True, False}


@pytest.mark.parametrize("place", ["/", "/a", "/a/b"])
def test_failed_sync_in_make_directory_durably__the_next_try_is_durable(place: str) -> None:
    """The names that a failed sync lost are seen until a crash: they must be rebuilt."""
    disk = MemoryDisk()
    disk.inject("fsync_directory", place)
    with pytest.raises(OSError):
        make_directory_durably(disk, "/a/b/c")
    disk.heal()
    make_directory_durably(disk, "/a/b/c")
    assert [state.is_directory("/a/b/c") for state in disk.crash_states()] == [True]


def test_power_loss_passes_through_error_handling__nothing_is_cleaned_up() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.fail_at(disk.calls + 3, PowerLoss())
    with pytest.raises(PowerLoss):
        replace_file(disk, "/d/epoch", b"new")
    assert list(disk.files()) == ["/d/keepfast.epoch.tmp"]
