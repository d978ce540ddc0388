"""`keepfast inspect blame`: which transactions changed a znode, when, and by which session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from keepfast.cli.output import DocumentStream, ExitCode, Out, to_json, worst_code
from keepfast.cli.record_lines import body_fields, body_text, type_name
from keepfast.cli.recovery_view import NamedDirectory, exit_code_of
from keepfast.cli.tree_view import znode_fields
from keepfast.cli.values import counted, hexadecimal, utc
from keepfast.storage import (
    DataDirectory,
    Disk,
    Frame,
    LogReader,
    Recovery,
    Standing,
    list_directory,
    load_tree,
    parse_log_name,
    recover,
)
from keepfast.tree import Kind, Tree, kind_of_owner, parent_of, persisted
from keepfast.wire import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    LogEntry,
    MalformedRecord,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    StorageError,
    TxnBody,
    decode_entry,
    decode_header,
    decode_txn_body,
    encode_text,
    format_zxid,
    has_failed,
    safe_text,
)

_CREATES = (CreateTxn, CreateTxnV0, CreateTTLTxn, CreateContainerTxn)


class BlamedChange(NamedTuple):
    """One change of the znode, or of its children."""

    entry: LogEntry
    action: str  # created, deleted, data set, ACL set, child created, child deleted
    path: str  # the znode itself, or the child
    body: TxnBody | None  # of the operation; None for a session's end that lists no paths
    operation: int | None  # its number in a multi, from 1


class RecordedChange(NamedTuple):
    """A change and where it is recorded."""

    change: BlamedChange
    file: str
    offset: int
    place: str  # what the record is to the proven history


class _Tracker:
    """Finds the records that changed one znode, and optionally its children."""

    def __init__(self, path: str, with_children: bool, seed: Callable[[], dict[str, int]]) -> None:
        """`seed` gives ephemerals that were there before the first record, with their sessions."""
        self._path = path
        self._with_children = with_children
        self._seed: Callable[[], dict[str, int]] | None = seed
        # Ephemerals that are looked for -> session. Before 3.6 the end of a session did not say
        # what it deleted.
        self._owners: dict[str, int] = {}
        self._touched: set[str] = set()  # came or went since the first record
        self._needle = encode_text(path if path != "/" else "")

    def changes(self, frame: Frame) -> Iterator[BlamedChange]:
        """Every change that a record makes."""
        is_close = decode_header(frame.entry).type == OpCode.CLOSE_SESSION
        if self._needle not in frame.entry and not is_close:
            return
        try:
            entry = decode_entry(frame.entry)
        except MalformedRecord:
            return
        if is_close:
            for path in self._closed(entry):
                yield BlamedChange(entry, self._named("deleted", path), path, entry.body, None)
            return
        for number, body in _operations(entry):
            path = getattr(body, "path", "")
            if path == self._path:
                action = self._own(entry, body)
            elif self._with_children and path and parent_of(path) == self._path:
                action = self._childs(entry, body)
            else:
                continue
            if action:
                yield BlamedChange(entry, action, path, body, number)

    def _named(self, action: str, path: str) -> str:
        return action if path == self._path else f"child {action}"

    def _own(self, entry: LogEntry, body: TxnBody) -> str:
        if isinstance(body, SetDataTxn):
            return "data set"
        if isinstance(body, SetACLTxn):
            return "ACL set"
        return self._exists(entry, body)

    def _childs(self, entry: LogEntry, body: TxnBody) -> str:
        action = self._exists(entry, body)
        return f"child {action}" if action else ""

    def _exists(self, entry: LogEntry, body: TxnBody) -> str:
        """Note that a znode comes or goes."""
        if isinstance(body, _CREATES):
            self._touched.add(body.path)
            if getattr(body, "ephemeral", False):
                self._owners[body.path] = entry.header.session_id
            return "created"
        if isinstance(body, DeleteTxn):
            self._touched.add(body.path)
            self._owners.pop(body.path, None)
            return "deleted"
        return ""

    def _closed(self, entry: LogEntry) -> list[str]:
        """The paths that went with a session."""
        listed = entry.body.paths or () if isinstance(entry.body, CloseSessionTxn) else ()
        if entry.body is None and self._seed is not None:
            for path, owner in self._seed().items():
                if path not in self._touched:
                    self._owners[path] = owner
            self._seed = None
        session_id = entry.header.session_id
        gone = {path for path, owner in self._owners.items() if owner == session_id}
        for path in listed:
            if path == self._path or (self._with_children and parent_of(path) == self._path):
                gone.add(path)
        for path in gone:
            self._owners.pop(path, None)
        self._touched |= gone
        return sorted(gone)


def _operations(entry: LogEntry) -> Iterator[tuple[int | None, TxnBody]]:
    """What a txn does; nothing if it failed."""
    body = entry.body
    if not isinstance(body, MultiTxn):
        if body is not None:
            yield None, body
        return
    if has_failed(body):
        return
    for number, sub in enumerate(body.txns or (), 1):
        try:
            yield number, decode_txn_body(sub.type, sub.data)
        except MalformedRecord:
            continue


@dataclass(slots=True)
class _Proven:
    """Whether a record is part of the proven history."""

    recovery: Recovery
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.recovery.manifest.segments:
            if self.recovery.tree is not None and entry.seal is not None:
                self.ranges.setdefault(entry.name, []).append((entry.start, entry.seal.end))

    def place(self, name: str, frame: Frame) -> str:
        if any(start <= frame.offset < end for start, end in self.ranges.get(name, ())):
            return "history"
        base = self.recovery.base
        if base is not None and frame.zxid <= base.zxid:
            return "before the base"
        return "not in the proven history"


@dataclass(frozen=True, slots=True)
class BlameOptions:
    """What to show, and how."""

    path: str
    with_children: bool = False
    limit: int | None = None
    redact: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class BlamedServer:
    """A server whose files are read; `name` distinguishes it from the others of its ensemble."""

    name: str
    directory: DataDirectory
    target: NamedDirectory


def blame(disk: Disk, servers: Sequence[BlamedServer], options: BlameOptions, out: Out) -> ExitCode:
    """Print every change of a znode in the order of the zxids, by server; returns the exit code."""
    code = ExitCode.OK
    documents = []
    for number, server in enumerate(servers):
        blamed = _blame_server(disk, server, options)
        code = worst_code((code, blamed.code))
        if options.as_json:
            documents.append(blamed)
            continue
        if len(servers) > 1:
            out.line(f"{'' if number == 0 else chr(10)}server {server.name}, {server.target.path}")
        _print_server(blamed, options, out)
    if not options.as_json:
        return code
    document = DocumentStream(out)
    if len(servers) == 1:
        document.fields({"schema": "keepfast.blame/1", **_server_fields(documents[0], options)})
    else:
        document.fields({"schema": "keepfast.blame-servers/1", "path": options.path})
        document.array(
            "servers",
            (
                to_json({"server": one.server.name, **_server_fields(one, options)})
                for one in documents
            ),
        )
    document.fields({"exit_code": int(code)})
    document.end()
    return code


class _Blamed(NamedTuple):
    """What the files of one server say about a znode."""

    server: BlamedServer
    recovery: Recovery
    events: list[RecordedChange]
    now: dict[str, object] | None
    code: ExitCode

    @property
    def is_whole(self) -> bool:
        return self.recovery.standing is Standing.WHOLE


def _blame_server(disk: Disk, server: BlamedServer, options: BlameOptions) -> _Blamed:
    recovery = recover(disk, server.directory)
    events = list(islice(_events(disk, server.directory, recovery, options), options.limit))
    # Warnings on a whole history are about other things.
    is_whole = recovery.standing is Standing.WHOLE
    code = ExitCode.OK if is_whole else exit_code_of(recovery)
    tree, path = recovery.tree, options.path
    node = None if tree is None else tree.find(path)
    now = None
    if tree is not None and node is not None:
        now = znode_fields(tree, path, node, options.redact)
    return _Blamed(server, recovery, events, now, code)


def _server_fields(blamed: _Blamed, options: BlameOptions) -> dict[str, object]:
    recovery = blamed.recovery
    return {
        "directory": blamed.server.target.path,
        "path": options.path,
        "standing": recovery.standing.value,
        "head": None if recovery.tree is None else format_zxid(recovery.head),
        "events": [_event_fields(event, options.redact) for event in blamed.events],
        "now": blamed.now,
    }


def _print_server(blamed: _Blamed, options: BlameOptions, out: Out) -> None:
    _print_events(blamed.events, options.path, options.redact, out)
    out.line(_closing_line(blamed.recovery, options, blamed.now, len(blamed.events)))
    if not blamed.is_whole:
        standing = blamed.recovery.standing.value
        out.line(f"The history is {standing}: {blamed.server.target.command('verify')}")


def _events(
    disk: Disk, directory: DataDirectory, recovery: Recovery, options: BlameOptions
) -> Iterator[RecordedChange]:
    """All changes; a record that lies in two files counts once."""
    tracker = _Tracker(
        options.path,
        options.with_children,
        lambda: _early_ephemerals(disk, directory, options),
    )
    proven = _Proven(recovery)
    seen: set[tuple[int, int, int | None, str]] = set()
    for name in list_directory(disk, directory).logs:
        path = directory.in_logs(name)
        try:
            with disk.open_read(path) as file:
                for frame in LogReader(file):
                    for change in tracker.changes(frame):
                        key = (frame.zxid, crc32(frame.entry), change.operation, change.path)
                        if key not in seen:
                            seen.add(key)
                            yield RecordedChange(
                                change, path, frame.offset, proven.place(name, frame)
                            )
        except OSError:
            continue  # recovery has said so


def _early_ephemerals(
    disk: Disk, directory: DataDirectory, options: BlameOptions
) -> dict[str, int]:
    """Ephemerals in question that are older than every record, by the oldest snapshot."""
    listing = list_directory(disk, directory)
    first = min((parse_log_name(name) or 0 for name in listing.logs), default=0)
    for name in listing.snapshots:
        try:
            tree, _, _ = load_tree(disk, directory.in_snapshots(name), is_fuzzy=True)
        except StorageError:
            continue
        return _ephemerals(tree, options, first)
    return {}


def _ephemerals(tree: Tree, options: BlameOptions, before: int) -> dict[str, int]:
    found = {}
    node = tree.find(options.path)
    children = (node.children or ()) if node is not None and options.with_children else ()
    for path in (options.path, *children):
        candidate = tree.find(path)
        if candidate is not None:
            stat = persisted(candidate)
            if stat.czxid < before and kind_of_owner(stat.ephemeral_owner) is Kind.EPHEMERAL:
                found[path] = stat.ephemeral_owner
    return found


def _what(event: RecordedChange) -> str:
    change = event.change
    header = change.entry.header
    text = type_name(header.type)
    return text if change.operation is None else f"{text}[{change.operation}]"


def _print_events(events: list[RecordedChange], path: str, redact: bool, out: Out) -> None:
    if not events:
        return
    rows = []
    for event in events:
        header = event.change.entry.header
        details = ""
        if not isinstance(event.change.body, CloseSessionTxn | None):
            details = body_text(event.change.body, redact)
            if event.change.path == path:
                details = details.removeprefix(safe_text(path)).strip()
        elif event.change.path != path:
            details = safe_text(event.change.path)
        if event.place != "history":
            details += f"  [{event.place}]"
        rows.append(
            (
                *(format_zxid(header.zxid), utc(header.time_ms), hexadecimal(header.session_id)),
                *(str(header.cxid), event.change.action, _what(event), details.strip()),
            )
        )
    heads = ("zxid", "time", "session", "cxid", "change", "by", "details")
    out.table(heads, rows, right="cxid")


def _closing_line(
    recovery: Recovery, options: BlameOptions, now: dict[str, object] | None, count: int
) -> str:
    text = f"{counted(count, 'change')} of {safe_text(options.path)}"
    text += " shown (--limit)" if count == options.limit else " in the records that are left"
    if recovery.tree is None:
        return f"{text}; no state is proven in which to look for it"
    text += f"; at the head, {format_zxid(recovery.head)}, it "
    if now is None:
        return f"{text}does not exist"
    return f"{text}has version {now['version']} and was created by {now['czxid']}"


def _event_fields(event: RecordedChange, redact: bool) -> dict[str, object]:
    change = event.change
    header = change.entry.header
    details = {} if change.body is None else body_fields(change.body, redact)
    details.pop("path", None)
    return {
        "zxid": format_zxid(header.zxid),
        "time": utc(header.time_ms),
        "session": hexadecimal(header.session_id),
        "cxid": header.cxid,
        "type": type_name(header.type),
        "operation": change.operation,
        "change": change.action,
        "path": change.path,
        "details": details,
        "file": event.file,
        "offset": event.offset,
        "place": event.place,
    }
