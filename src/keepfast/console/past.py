"""The past, from the servers' files: the tree at a point in time, differences, a znode's history.

Only files are read, and through a disk that writes nothing. Trees are large: two moments are kept,
and one is computed at a time.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from keepfast.client import OperationFailed, ServerAddress
from keepfast.console.console_options import ConsoleRefused
from keepfast.console.ensemble_overview import LocalFacts
from keepfast.console.server_watching import WatchedServer
from keepfast.console.viewers import Viewer
from keepfast.console.znode_documents import (
    NotShown,
    PageAsked,
    data_document,
    page_document,
    znode_document,
)
from keepfast.pipeline import (
    EnsembleFiles,
    EnsembleHistory,
    EnsembleState,
    ServerFiles,
    ZnodeChange,
    differences,
    ensemble_state,
    moment_of,
    one_ensemble,
    read_only_disk,
)
from keepfast.storage import LogReader, list_directory, parse_snapshot_name
from keepfast.tree import Kind, Node, Tree, kind_of, ttl_of, wire_stat
from keepfast.wire import ErrorCode, KeepfastError, Stat, StorageError, decode, format_zxid

_MAX_STATES: Final = 2
_MAX_POINTS: Final = 1000
_MAX_DIFFERENCES: Final = 1000
_MAX_CHANGES: Final = 500
# Reading a znode's history must end while a person waits for it.
_TIMELINE_SECONDS: Final = 45.0
# Logs that are larger are not read for the slider: their names say where they begin.
_MAX_INDEXED_BYTES: Final = 32 << 20
_TIME: Final = struct.Struct(">q")
_TIME_OFFSET: Final = 20  # in a record: session id, cxid and zxid stand before it


class Past:
    """The history in the directories at `places`."""

    def __init__(self, places: Sequence[str]) -> None:
        """Nothing is read yet."""
        self.places = tuple(places)
        self.disk = read_only_disk()
        self._states: OrderedDict[str, EnsembleState] = OrderedDict()
        self._state_lock = threading.Lock()
        # (file, its size) -> the zxids and times in it.
        self._points: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._points_lock = threading.Lock()

    def ensemble(self) -> EnsembleFiles:
        """The servers' files as they are now; raises PlaceError."""
        return one_ensemble(self.places)

    # -- the tree at a moment --------------------------------------------------------------------

    def state(self, at: str) -> EnsembleState:
        """The state at a zxid or a time; raises StateUnknown, with the reason, if there is none."""
        try:
            moment = moment_of(at)
        except ValueError as error:
            raise ConsoleRefused(
                f"{at} is no moment; 0x500000003 is one, or 2026-11-17T09:00:00Z"
            ) from error
        with self._state_lock:
            found = self._states.get(at)
            if found is None:
                found = ensemble_state(self.disk, self.ensemble(), moment)
                self._states[at] = found
                while len(self._states) > _MAX_STATES:
                    self._states.popitem(last=False)
            self._states.move_to_end(at)
            return found

    def about(self, at: str) -> dict[str, Any]:
        """Who proves the state at a moment."""
        state = self.state(at)
        return {
            "at": at,
            "zxid": format_zxid(state.head),
            "znodes": len(list(state.tree.paths())),
            "agreeing": list(state.agreeing),
            "differing": list(state.differing),
            "silent": dict(state.silent),
            "note": state.chosen.note,
            "is_proven": state.chosen.is_proven and state.chosen.is_exact,
            "caution": state.caution,
        }

    def znode(self, at: str, path: str, limit: int, viewer: Viewer) -> dict[str, Any]:
        """One znode as it was."""
        tree = self.state(at).tree
        node = _find(tree, path)
        acl = tree.acl_of(node)
        may_read = viewer.may_read(acl)
        data, shown_acl = (node.data, acl) if may_read else (None, None)
        document = znode_document(path, data, _stat(node), shown_acl, limit)
        document["data"]["is_hidden"] = not may_read
        kind = kind_of(node.stat)
        document["kind"] = kind.name.lower()
        document["ttl_ms"] = ttl_of(node.stat) if kind is Kind.TTL else None
        document["quota"] = None
        return document

    def children(self, at: str, path: str, asked: PageAsked, viewer: Viewer) -> dict[str, Any]:
        """One page of a znode's children as they were; as a server, only to who may read it."""
        tree = self.state(at).tree
        below = path.rstrip("/")
        parent = _find(tree, path)
        if not viewer.may_read(tree.acl_of(parent)):
            raise OperationFailed(ErrorCode.NO_AUTH, path)
        children = parent.children or ()
        names = sorted(child.rpartition("/")[2] for child in children)
        text = asked.text.casefold()
        matching = [name for name in names if text in name.casefold()] if text else names

        def stat_of(name: str) -> Stat | NotShown:
            node = tree.find(f"{below}/{name}")
            return NotShown.GONE if node is None else _stat(node)

        return page_document(path, len(names), matching, asked, stat_of)

    def count_below(self, at: str, path: str) -> int:
        """How many znodes were below one."""
        below = path.rstrip("/") + "/"
        return sum(one.startswith(below) and one != path for one in self.state(at).tree.paths())

    # -- differences -----------------------------------------------------------------------------

    def compare(self, first: str, second: str, top: str, viewer: Viewer) -> dict[str, Any]:
        """What differs between two moments, at or below a path, in what the viewer may read."""
        left, right = self.state(first).tree, self.state(second).tree
        shown: list[dict[str, Any]] = []
        total = 0
        for one in differences(left, right, top):
            old, new = viewer.may_read(one.left_acl), viewer.may_read(one.right_acl)
            if not old and not new:
                continue
            total += 1
            if len(shown) < _MAX_DIFFERENCES:
                shown.append(
                    {
                        "path": one.path,
                        "kind": _DIFFERENCE_WORDS[one.kind],
                        "fields": list(one.fields),
                        "old": _value(one.left, may_read=old),
                        "new": _value(one.right, may_read=new),
                    }
                )
        return {"from": first, "to": second, "total": total, "differences": shown}

    # -- history ---------------------------------------------------------------------------------

    def timeline(self, path: str, viewer: Viewer) -> dict[str, Any]:
        """Every change of one znode that the files still hold, the newest first."""
        deadline = time.monotonic() + _TIMELINE_SECONDS
        history = EnsembleHistory(self.disk, self.ensemble())
        begins = history.reached
        found: list[ZnodeChange] = []
        is_whole = True
        for rows in history.read():
            found += [row for row in rows if row.path == path]
            if time.monotonic() > deadline:
                is_whole = False
                break
        return {
            "path": path,
            "from": format_zxid(begins),
            "to": format_zxid(history.reached),
            "is_whole": is_whole,
            "end": history.stop.text if is_whole else "stopped: it takes too long to read all",
            "total": len(found),
            "changes": [change_document(row, viewer) for row in reversed(found[-_MAX_CHANGES:])],
        }

    def range(self) -> dict[str, Any]:
        """The zxids and times that a slider goes over."""
        points: dict[int, int] = {}
        with self._points_lock:
            known: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for server in self.ensemble().servers:
                for key, found in self._points_of(server):
                    known[key] = found
                    points |= dict(found)
            self._points = known
        ordered = sorted(points.items())
        step = max(len(ordered) // _MAX_POINTS, 1)
        chosen = ordered[::step]
        if ordered and chosen[-1] != ordered[-1]:
            chosen.append(ordered[-1])
        return {
            "records": len(ordered),
            "points": [[format_zxid(zxid), time_ms] for zxid, time_ms in chosen],
            "places": list(self.places),
        }

    def _points_of(
        self, server: ServerFiles
    ) -> Iterator[tuple[tuple[str, int], list[tuple[int, int]]]]:
        directory = server.data_directory
        try:
            names = list_directory(self.disk, directory).logs
        except StorageError:
            return  # no files at the moment
        for name in names:
            path = directory.in_logs(name)
            try:
                facts = os.stat(path)
                key = (path, facts.st_mtime_ns)
                # A log is filled with zeros ahead; what is on the disk is what was written.
                is_small = min(facts.st_size, facts.st_blocks * 512) <= _MAX_INDEXED_BYTES
                found = self._points.get(key)
                if found is None:
                    found = list(self._records_of(path)) if is_small else []
                yield key, found
            except (OSError, StorageError):
                continue  # purged, or damaged: the audit says so

    def _records_of(self, path: str) -> Iterator[tuple[int, int]]:
        with self.disk.open_read(path) as file:
            for frame in LogReader(file):
                yield frame.zxid, _TIME.unpack_from(frame.entry, _TIME_OFFSET)[0]

    # -- what the overview wants -----------------------------------------------------------------

    def local_facts(self, servers: Sequence[WatchedServer]) -> dict[ServerAddress, LocalFacts]:
        """Disk and newest snapshot of those servers whose directories are here."""
        found: dict[ServerAddress, LocalFacts] = {}
        by_directory = {os.path.realpath(one.snapshots_dir): one for one in self._servers()}
        for server in servers:
            directory = server.settings.get("dataDir", "")
            files = by_directory.get(os.path.realpath(directory)) if directory else None
            if files is None:
                continue
            try:
                found[server.address] = _facts_of(files)
            except OSError:
                continue  # its disk was wiped a moment ago: there are no facts
        return found

    def _servers(self) -> Sequence[ServerFiles]:
        try:
            return self.ensemble().servers
        except (KeepfastError, OSError):
            return ()  # none of them has files now


_DIFFERENCE_WORDS: Final = {
    "only left": "deleted",
    "only right": "created",
    "changed": "changed",
}


def change_document(row: ZnodeChange, viewer: Viewer | None) -> dict[str, Any]:
    """One change for the page; values only if the viewer may read them (None: later)."""
    may_read_old = viewer is None or viewer.may_read(row.old_acl)
    may_read_new = viewer is None or viewer.may_read(row.acl)
    return {
        "zxid": format_zxid(row.zxid),
        "at": row.time_ms,
        "op": row.op,
        "change": row.change,
        "path": row.path,
        "session": format_zxid(row.session_id),
        "old": _data_of(row.old_data, row.old_version, may_read=may_read_old),
        "new": _data_of(row.new_data, row.new_version, may_read=may_read_new),
        "old_version": row.old_version,
        "new_version": row.new_version,
        "kind": row.kind,
        "error": row.error,
        "is_old_known": row.is_old_known,
    }


def _data_of(data: bytes | None, version: int | None, *, may_read: bool) -> dict[str, Any] | None:
    if version is None:
        return None
    return data_document(data, 4096) if may_read else {"is_hidden": True}


def _value(node: Node | None, *, may_read: bool) -> dict[str, Any] | None:
    if node is None:
        return None
    return data_document(node.data, 4096) if may_read else {"is_hidden": True}


def _find(tree: Tree, path: str) -> Node:
    node = tree.find(path)
    if node is None:
        raise OperationFailed(ErrorCode.NO_NODE, path)
    return node


def _stat(node: Node) -> Stat:
    return decode(Stat, wire_stat(node))


def _facts_of(server: ServerFiles) -> LocalFacts:
    directory = server.data_directory
    newest = max(
        (
            (parsed[0], entry)
            for entry in os.listdir(directory.snapshots)
            if (parsed := parse_snapshot_name(entry))
        ),
        default=None,
    )
    usage = os.statvfs(directory.snapshots)
    free = usage.f_bavail * usage.f_frsize
    if newest is None:
        return LocalFacts(directory.snapshots, free)
    changed = os.stat(directory.in_snapshots(newest[1])).st_mtime
    return LocalFacts(directory.snapshots, free, newest[0], round(changed * 1000))
