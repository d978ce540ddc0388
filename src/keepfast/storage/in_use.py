"""Whether a data directory is in use right now: by Keepfast (its locks) or Apache (its process).

Apache locks nothing. While it runs it holds its log open, as `/proc` shows, or its command line
names a configuration with this directory; where neither can be seen (another user's process,
another container, no `/proc`), files that change between two checks show it.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final

import msgspec

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory
from keepfast.storage.locks import is_locked

_PROC: Final = "/proc"
_APACHE: Final = b"org.apache.zookeeper.server"
_DIRECTORY_LINE: Final = re.compile(rb"^\s*data(?:Log)?Dir\s*[=:]\s*(\S+)", re.MULTILINE)
_FLAGS_LINE: Final = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_MAX_CONFIG_BYTES: Final = 1 << 20
_LOOK_SECONDS: Final = 0.5

# Size and time of the last change of each file, by path.
Fingerprint = dict[str, tuple[int, float]]


class DirectoryUse(msgspec.Struct, frozen=True):
    """Who uses a directory; false if nobody was found."""

    is_locked: bool = False
    processes: tuple[tuple[int, str], ...] = ()  # id and name of the program
    is_changing: bool = False

    def __bool__(self) -> bool:
        return self.is_locked or bool(self.processes) or self.is_changing

    def __str__(self) -> str:
        if self.processes:
            named = ", ".join(f"{name} (process {pid})" for pid, name in self.processes)
            return f"{named} runs on it"
        return "a server holds its lock" if self.is_locked else "its files change"


def use_of(disk: Disk, directory: DataDirectory, *, is_patient: bool = False) -> DirectoryUse:
    """Check once; with `is_patient`, also whether files change within half a second."""
    processes = _processes(directory)
    is_held = is_locked(disk, directory)
    if processes or is_held or not is_patient:
        return DirectoryUse(is_held, processes)
    before = fingerprint(disk, directory)
    time.sleep(_LOOK_SECONDS)
    return DirectoryUse(is_changing=before != fingerprint(disk, directory))


def fingerprint(disk: Disk, directory: DataDirectory) -> Fingerprint:
    """What changes when somebody writes to the directory."""
    found: Fingerprint = {}
    for place in directory.both:
        try:
            names = disk.list(place)
        except OSError:
            continue
        for name in names:
            path = f"{place}/{name}"
            try:
                if not disk.is_directory(path):
                    found[path] = (disk.size(path), disk.mtime(path))
            except OSError:
                found[path] = (-1, 0.0)  # it has just gone
    return found


def open_files(directory: DataDirectory) -> set[str]:
    """Files of the directory that another process is writing, as far as that can be seen."""
    places = {os.path.realpath(place): place for place in directory.both}
    found = set()
    for pid in _pids():
        for target in _open_by(pid):
            place = places.get(os.path.dirname(target))
            if place is not None:
                found.add(f"{place}/{os.path.basename(target)}")
    return found


def _processes(directory: DataDirectory) -> tuple[tuple[int, str], ...]:
    places = {os.path.realpath(place) for place in directory.both}
    # A configuration names the directory above.
    roots = places | {os.path.dirname(place) for place in places}
    return tuple(
        (pid, _name_of(pid))
        for pid in _pids()
        if any(os.path.dirname(path) in places for path in _open_by(pid))
        or _is_apache_on(pid, roots)
    )


def _pids() -> list[int]:
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and int(name) != os.getpid())


def _open_by(pid: int) -> list[str]:
    """The files that a process has open for writing."""
    targets = []
    try:
        for name in os.listdir(f"{_PROC}/{pid}/fd"):
            try:
                target = os.readlink(f"{_PROC}/{pid}/fd/{name}")
            except OSError:
                continue  # closed meanwhile
            if target.startswith("/") and _is_writer(pid, name):
                targets.append(target)
    except OSError:
        return []  # it has ended, or belongs to another user
    return targets


def _is_writer(pid: int, name: str) -> bool:
    match = _FLAGS_LINE.search(_read(f"{_PROC}/{pid}/fdinfo/{name}"))
    return match is not None and int(match[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_apache_on(pid: int, roots: set[str]) -> bool:
    """Whether a process is an Apache server whose arguments lead to one of the directories."""
    arguments = _read(f"{_PROC}/{pid}/cmdline").split(b"\0")
    if not any(argument.startswith(_APACHE) for argument in arguments):
        return False
    try:
        folder = os.readlink(f"{_PROC}/{pid}/cwd")
    except OSError:
        folder = "/"
    for argument in filter(None, arguments):
        path = os.path.join(folder, os.fsdecode(argument))
        named = [path]
        if os.path.isfile(path):
            lines = _DIRECTORY_LINE.findall(_read(path))
            named = [os.path.join(folder, os.fsdecode(line)) for line in lines]
        if any(os.path.realpath(one) in roots for one in named):
            return True
    return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_CONFIG_BYTES)
    except OSError:
        return b""


def _name_of(pid: int) -> str:
    return _read(f"{_PROC}/{pid}/comm").decode("utf-8", "replace").strip() or "a program"
