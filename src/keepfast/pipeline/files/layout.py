"""From the directories a person names to ensembles, servers and files.

A place is a directory of one server, or a root laid out ``<ensemble>/<server>/...``; each
server's directory may hold ``version-2`` or be it, and its logs may lie elsewhere:

    DIR                         DIR/version-2/{log.*,snapshot.*}, or DIR/{log.*,snapshot.*}
    DIR:LOGDIR                  Apache's dataDir and dataLogDir
    DIR/{data,datalog}/...      both below one directory: snapshots in one, logs in the other
    ROOT                        ROOT/<server>/..., or ROOT/<ensemble>/<server>/...
    ROOT:LOGROOT                two such roots with the same names below them

Servers that are named one by one are one ensemble. Recognition works on a listing alone, so it is
the same for a local disk and for a bucket; nothing is opened here, and nothing is ever written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from keepfast.storage import DataDirectory, is_data_name, parse_log_name, parse_snapshot_name
from keepfast.wire import KeepfastError

FileKind = Literal["log", "snapshot", "epoch", "config", "other"]

VERSION_DIRECTORY = "version-2"
# Files that a Keepfast server put out of use: evidence for a person, not a part of the history.
_ASIDE = "keepfast.aside"
_IGNORED = {_ASIDE, "lost+found"}
_EPOCH_NAMES = {"acceptedEpoch", "currentEpoch", "updatingEpoch"}
_CONFIG_NAMES = {"myid", "initialize"}
# A directory of this name does not show whose it is; its parent's name does.
_NAMELESS = re.compile(
    r"(?:version-2|(?:zk|zoo|zookeeper)?[-_.]?(?:data|datadir|snap|snapshots?)|zk|zookeeper)\Z",
    re.IGNORECASE,
)
_LOG_HINT = re.compile(r"log|txn|wal", re.IGNORECASE)
_SNAPSHOT_HINT = re.compile(r"snap|data", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# ROOT/<ensemble>/<server>/<data or datalog>/version-2, and one level to spare.
_MAX_DEPTH = 6
# Ten times the largest fleet that is meant; somebody who names "/" must not wait for an hour.
_MAX_DIRECTORIES = 200_000


class PlaceError(KeepfastError):
    """A place that cannot be audited; `str()` is one sentence for the person who named it."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a server; `zxid` is what the name of a log or a snapshot claims."""

    path: str
    kind: FileKind
    zxid: int | None
    size: int
    mtime: float  # seconds since 1970

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The files of one server: logs and snapshots by zxid, then the others by name.

    `snapshots_dir` and `logs_dir` are the directories down to ``version-2``, mostly the same one.
    `unreadable` says, a sentence each, what below them could not be listed.
    """

    ensemble: str
    server: str
    snapshots_dir: str
    logs_dir: str
    files: tuple[FileEntry, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def data_directory(self) -> DataDirectory:
        """Both directories."""
        return DataDirectory(self.snapshots_dir, self.logs_dir)

    @property
    def logs(self) -> tuple[FileEntry, ...]:
        """The logs, by the zxids of their names."""
        return tuple(entry for entry in self.files if entry.kind == "log")

    @property
    def snapshots(self) -> tuple[FileEntry, ...]:
        """The snapshots, by the zxids of their names."""
        return tuple(entry for entry in self.files if entry.kind == "snapshot")


@dataclass(frozen=True, slots=True)
class EnsembleFiles:
    """The servers of one ensemble, in the natural order of their names."""

    name: str
    servers: tuple[ServerFiles, ...]


@dataclass(slots=True)
class Directory:
    """One listed directory: sizes and times of its files, its sub-directories, by name."""

    path: str
    files: dict[str, tuple[int, float]] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)
    error: str = ""  # why it could not be listed
    broken: list[str] = field(default_factory=list)  # files that are links to nothing, as sentences

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


Lister = Callable[[str], Directory]


def is_remote(place: str) -> bool:
    """Whether a path is an address of another file system than the local one."""
    return _SCHEME.match(place) is not None and not place.startswith("file://")


def local_path(place: str) -> str:
    """A local path, absolute: executors do not share the working directory of the driver."""
    if place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    return os.path.abspath(os.path.expanduser(place))


def list_local(place: str) -> Directory:
    """A local directory and what lies below it; raises PlaceError if there is none."""
    path = local_path(place)
    if not os.path.exists(path):
        raise PlaceError(place, "there is no such directory")
    if not os.path.isdir(path):
        raise PlaceError(place, "is a file; name the directory of a server, or a root of several")
    root = Directory(path)
    pending = [(root, 0)]
    seen = 0
    while pending:
        directory, depth = pending.pop()
        seen += 1
        if seen > _MAX_DIRECTORIES:
            raise PlaceError(place, f"holds more than {_MAX_DIRECTORIES} directories; name less")
        _scan(directory)
        is_data = directory.name == VERSION_DIRECTORY
        for name in list(directory.directories):
            if is_data or name in _IGNORED or depth >= _MAX_DEPTH:
                del directory.directories[name]
            else:
                pending.append((directory.directories[name], depth + 1))
    if root.error:
        raise PlaceError(place, root.error)
    return root


def _scan(directory: Directory) -> None:
    try:
        with os.scandir(directory.path) as entries:
            for entry in entries:
                try:
                    _add_entry(directory, entry)
                except OSError as error:
                    # Purged by its server a moment ago, unless it is a link.
                    if entry.is_symlink():
                        _add_broken(directory, entry, error)
    except FileNotFoundError:
        return  # deleted a moment ago, or a link to nothing: as empty as that
    except OSError as error:
        directory.error = f"{directory.path} cannot be listed: {error.strerror}"


def _add_entry(directory: Directory, entry: os.DirEntry[str]) -> None:
    if not entry.is_dir():
        status = entry.stat()
        directory.files[entry.name] = (status.st_size, status.st_mtime)
    elif not (entry.is_symlink() and _leads_up(entry.path)):
        directory.directories[entry.name] = Directory(entry.path)


def _leads_up(link: str) -> bool:
    """Whether a link leads to a directory above it: it would be listed again and again."""
    target = os.path.realpath(link)
    return os.path.commonpath((target, os.path.realpath(os.path.dirname(link)))) == target


def _add_broken(directory: Directory, entry: os.DirEntry[str], error: OSError) -> None:
    """A link that cannot be followed: one file that is missing, or what may be a whole server."""
    if not is_data_name(entry.name):
        directory.directories[entry.name] = Directory(entry.path)
    elif isinstance(error, FileNotFoundError):
        directory.broken.append(f"{entry.path} is a link to nothing")
    else:
        directory.broken.append(f"{entry.path} cannot be read: {error.strerror}")


def list_entries(place: str, entries: Iterable[tuple[str, int, float]]) -> Directory:
    """A directory made of a flat listing (path, size, mtime), as remote file systems give it."""
    root = Directory(place.rstrip("/"))
    base = _without_scheme(root.path) + "/"
    for path, size, mtime in entries:
        plain = _without_scheme(path)
        if not plain.startswith(base):
            continue
        *parents, name = plain[len(base) :].split("/")
        if _ASIDE in parents:
            continue
        directory = root
        for part in parents:
            below = Directory(f"{directory.path}/{part}")
            directory = directory.directories.setdefault(part, below)
        directory.files[name] = (size, mtime)
    return root


def _without_scheme(path: str) -> str:
    """Hadoop gives ``file:/x`` where one asked for ``file:///x``, and the like."""
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:/*", "/", path)


def split_place(place: str) -> tuple[str, str | None]:
    """``DIR:LOGDIR`` as its two parts; a directory that exists under the whole text is one part."""
    if ":" not in place or os.path.isdir(place):
        return place, None
    # Not the colon of a scheme, nor the one before a port.
    pattern = r":(?!//)(?!\d+/)" if "://" in place or place.startswith("file:") else r":"
    for match in reversed(list(re.finditer(pattern, place))):
        left, right = place[: match.start()], place[match.end() :]
        if left and right and left != "file":
            return left, right
    return place, None


@dataclass(slots=True)
class _Server:
    """A recognised server: its own directory and the two that hold the data.

    `home`: a directory between them, which may hold `myid`.
    """

    directory: Directory
    snapshots: Directory
    logs: Directory
    home: Directory | None = None


@dataclass(slots=True)
class _ServerGroup:
    """Servers below one directory."""

    path: str
    name: str
    servers: list[tuple[str, _Server]]


def discover(places: Sequence[str], lister: Lister = list_local) -> list[EnsembleFiles]:
    """All ensembles at `places`, by name; raises PlaceError for one that holds no server's data.

    Names of ensembles are unique in the result, and names of servers inside each ensemble.
    """
    loose: list[_Server] = []
    groups: list[_ServerGroup] = []
    for place in places:
        data, log = split_place(place)
        root = lister(data)
        found = list(_groups(root))
        single = _resolve(root)
        if log is not None:
            _join_logs(place, found if single is None else [], single, lister(log))
        if single is not None:
            loose.append(single)
        elif found:
            groups += found
        else:
            raise PlaceError(place, _nothing_here(root))
    if loose:
        groups.append(_loose_group(loose))
    _check_named_once(groups)
    names = _distinct([group.path for group in groups], [group.name for group in groups])
    ensembles = [
        EnsembleFiles(
            name,
            tuple(_server_files(name, server, parts) for server, parts in _sorted(group.servers)),
        )
        for name, group in zip(names, groups, strict=True)
    ]
    return sorted(ensembles, key=lambda ensemble: _natural(ensemble.name))


def _check_named_once(groups: list[_ServerGroup]) -> None:
    """Refuse one directory as two servers of one ensemble: they would agree, and prove nothing."""
    for group in groups:
        seen: dict[str, str] = {}
        for _, server in group.servers:
            path = server.snapshots.path
            real = path if is_remote(path) else os.path.realpath(path)
            if real in seen:
                own, other = server.directory.path, seen[real]
                reason = "is named twice" if own == other else f"is the same directory as {other}"
                raise PlaceError(own, f"{reason}; name each server once")
            seen[real] = server.directory.path


def _nothing_here(root: Directory) -> str:
    if not root.files and not root.directories:
        return "is empty; there is nothing to read"
    return (
        "holds no ZooKeeper data; expected log.* and snapshot.* files in it, in its version-2, "
        "or below it as <server>/version-2 or <ensemble>/<server>/version-2"
    )


def _groups(directory: Directory) -> Iterator[_ServerGroup]:
    """The ensembles below a directory that is not itself a server's."""
    servers: list[tuple[str, _Server]] = []
    others: list[Directory] = []
    for name, child in directory.directories.items():
        server = _resolve(child)
        if server is None:
            others.append(child)
        else:
            servers.append((name, server))
    if servers:
        shapes = {_shape(name) for name, _ in servers}
        missing = [child for child in others if child.error or _is_wiped(child, shapes)]
        servers += [(child.name, _Server(child, child, child)) for child in missing]
        yield _ServerGroup(directory.path, directory.name or "ensemble", servers)
    for child in others:
        if child.error and not servers:
            # Who may not look into it must not take what is left for everything.
            unread = _Server(child, child, child)
            yield _ServerGroup(child.path, child.name, [(child.name, unread)])
        yield from _groups(child)


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _is_wiped(directory: Directory, shapes: set[str]) -> bool:
    """Whether an empty directory is named as the servers beside it are: then it is one, too."""
    is_empty = not directory.files and all(
        _is_wiped(child, {_shape(child.name)}) for child in directory.directories.values()
    )
    return is_empty and not directory.error and _shape(directory.name) in shapes


def _loose_group(servers: list[_Server]) -> _ServerGroup:
    """The ensemble of servers that were named one by one."""
    paths = [_named_directory(server.directory.path) for server in servers]
    parents = {path.rpartition("/")[0] for path in paths}
    name = next(iter(parents)).rpartition("/")[2] if len(parents) == 1 else ""
    names = _distinct(paths, [path.rpartition("/")[2] or path for path in paths])
    return _ServerGroup(paths[0], name or "ensemble", list(zip(names, servers, strict=True)))


def _named_directory(path: str) -> str:
    """`path`, or the nearest directory above it whose name says something."""
    named = path.rstrip("/")
    while _NAMELESS.match(named.rpartition("/")[2]):
        parent = named.rpartition("/")[0]
        if not parent or parent.endswith(("/", ":")):
            return path.rstrip("/")
        named = parent
    return named


def _data_below(directory: Directory) -> Directory | None:
    """The ``version-2`` of a directory: below it, or the directory itself."""
    inner = directory.directories.get(VERSION_DIRECTORY)
    if inner is not None:
        return inner
    if directory.name == VERSION_DIRECTORY or any(map(is_data_name, directory.files)):
        return directory
    return None


def _resolve(directory: Directory) -> _Server | None:
    """The server whose directory this is; None if it is not one server's."""
    children = {
        name: data
        for name, child in directory.directories.items()
        if name != VERSION_DIRECTORY and (data := _data_below(child)) is not None
    }
    own = _data_below(directory)
    if own is not None:
        logs = [data for name, data in children.items() if _is_log_directory(name, data)]
        split = len(logs) == 1 and not any(parse_log_name(name) is not None for name in own.files)
        return _Server(directory, own, logs[0] if split else own)
    if len(children) == 1:
        ((name, data),) = children.items()
        if _NAMELESS.match(name):
            return _Server(directory, data, data, directory.directories[name])
    if len(children) == 2:
        (first, left), (second, right) = children.items()
        if _is_log_directory(first, left) and _is_snapshot_directory(second, right):
            return _Server(directory, right, left, directory.directories[second])
        if _is_log_directory(second, right) and _is_snapshot_directory(first, left):
            return _Server(directory, left, right, directory.directories[first])
    return None


def _is_log_directory(name: str, data: Directory) -> bool:
    """Whether this is the second directory of a server: logs, and nothing that a first one has."""
    return (
        _LOG_HINT.search(name) is not None
        and not any(parse_snapshot_name(file) is not None for file in data.files)
        and _EPOCH_NAMES.isdisjoint(data.files)
    )


def _is_snapshot_directory(name: str, data: Directory) -> bool:
    return _SNAPSHOT_HINT.search(name) is not None and not any(
        parse_log_name(file) is not None for file in data.files
    )


def _join_logs(
    place: str, groups: list[_ServerGroup], single: _Server | None, logs: Directory
) -> None:
    """Give each server the directory of its logs in a second root."""
    if single is not None:
        single.logs = _log_directory(place, logs)
        return
    for group in groups:
        for name, server in group.servers:
            below = logs
            inner = server.directory.path[len(group.path) :].strip("/").split("/")
            for parts in ([group.name, *inner], inner):
                step: Directory | None = logs
                for part in parts:
                    step = step.directories.get(part) if step is not None else None
                if step is not None:
                    below = step
                    break
            else:
                raise PlaceError(place, f"the second directory holds no {group.name}/{name}")
            server.logs = _log_directory(place, below)


def _log_directory(place: str, directory: Directory) -> Directory:
    data = _data_below(directory)
    if data is None and directory.files:
        raise PlaceError(place, f"{directory.path} holds no transaction logs")
    return directory if data is None else data


def _server_files(ensemble: str, name: str, server: _Server) -> ServerFiles:
    entries: dict[str, FileEntry] = {}
    errors: list[str] = []
    for directory in (server.directory, server.home, server.snapshots, server.logs):
        if directory is None:
            continue
        if directory.error and directory.error not in errors:
            errors.append(directory.error)
        errors += [one for one in directory.broken if one not in errors]
        is_data = directory in (server.snapshots, server.logs)
        for file, (size, mtime) in directory.files.items():
            kind, zxid = kind_of(file)
            if is_data or kind == "config":
                path = f"{directory.path}/{file}"
                entries[path] = FileEntry(path, kind, zxid, size, mtime)
    order = {"log": 0, "snapshot": 1, "epoch": 2, "config": 3, "other": 4}
    files = sorted(
        entries.values(),
        key=lambda entry: (order[entry.kind], (entry.zxid or 0) & (1 << 64) - 1, entry.path),
    )
    return ServerFiles(
        ensemble, name, server.snapshots.path, server.logs.path, tuple(files), tuple(errors)
    )


def kind_of(name: str) -> tuple[FileKind, int | None]:
    """What a file is by its name, and the zxid in the name of a log or a snapshot."""
    log = parse_log_name(name)
    if log is not None:
        return "log", log
    snapshot = parse_snapshot_name(name)
    if snapshot is not None:
        return "snapshot", snapshot[0]
    if name.removesuffix(".tmp") in _EPOCH_NAMES:
        return "epoch", None
    if name in _CONFIG_NAMES or name.startswith("zoo.cfg"):
        return "config", None
    return "other", None


def _sorted(servers: list[tuple[str, _Server]]) -> list[tuple[str, _Server]]:
    return sorted(servers, key=lambda pair: _natural(pair[0]))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts ``server-10`` after ``server-9``."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]


def _distinct(paths: list[str], names: list[str]) -> list[str]:
    """The names, each with as many directories before it as it takes to tell them apart."""
    result = list(names)
    depth = 1
    while len(set(result)) < len(result) and depth < 20:
        depth += 1
        clashing = {name for name in result if result.count(name) > 1}
        for index, name in enumerate(result):
            if name in clashing:
                result[index] = "/".join(paths[index].rstrip("/").split("/")[-depth:])
    # Still the same: two names all the same, so that nobody's rows are merged in silence.
    for index, name in enumerate(result):
        earlier = result[:index].count(name)
        if earlier:
            result[index] = f"{name}#{earlier + 1}"
    return result
