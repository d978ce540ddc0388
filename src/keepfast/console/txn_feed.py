"""Transactions as they are committed: from the servers' logs, or by watching the whole tree.

With the logs, each row says who changed what, with the value before and after it. Without them a
persistent recursive watch on the root shows which znodes changed; values are read as far as that is
cheap, and the feed says that changes made while the session was away were not seen.

A follower of either kind runs only while a page is open.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from keepfast.client import Client, ClientEvent, OperationFailed, Target
from keepfast.console.ensemble_session import EnsembleSession
from keepfast.console.hub import Document, Hub
from keepfast.console.past import Past, change_document
from keepfast.console.viewers import Viewer
from keepfast.console.znode_documents import data_document
from keepfast.pipeline import EnsembleHistory, ZnodeChange, origins
from keepfast.wire import (
    OPEN_ACL,
    AddWatchMode,
    ErrorCode,
    EventType,
    KeeperState,
    KeepfastError,
    format_zxid,
)

# Rows that a new page is shown at once.
MAX_ROWS: Final = 1000
_LOOK_SECONDS: Final = 0.4
_RETRY_SECONDS: Final = 3.0
# How long a follower continues after the last page was closed: one may be reopened.
_LINGER_SECONDS: Final = 30.0
# Values read per second for a watch's events; beyond it rows have none.
_MAX_READS: Final = 200
_MAX_PENDING: Final = 2000
_MAX_VALUES: Final = 2000
_VALUE_BYTES: Final = 4096
# In a row, for the console alone: the znode's ACL before and after the change.
_ACLS: Final = "_acls"
_WORDS: Final = {
    EventType.NODE_CREATED: "created",
    EventType.NODE_DELETED: "deleted",
    EventType.NODE_DATA_CHANGED: "data set",
}


class Feed:
    """The newest rows, and the thread that makes them."""

    def __init__(self, hub: Hub, past: Past | None, target: Target) -> None:
        self._hub = hub
        self._past = past
        self._target = target
        self._rows: deque[Document] = deque(maxlen=MAX_ROWS)
        self._lock = threading.Lock()
        self._lookers = 0
        self._left_s = 0.0
        self._is_over = False
        self._thread: threading.Thread | None = None

    @property
    def source(self) -> str:
        """Where rows come from: `logs` or `watches`."""
        return "watches" if self._past is None else "logs"

    def look(self, change: int) -> None:
        """A page was opened (+1) or closed (-1)."""
        with self._lock:
            self._lookers += change
            self._left_s = time.monotonic()
            if self._lookers and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="console-feed", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End it, and wait a moment: it may be in the middle of a large file."""
        self._is_over = True
        thread = self._thread
        if thread is not None:
            thread.join(5.0)

    def rows(self) -> list[Document]:
        """The newest rows, oldest first."""
        with self._lock:
            return list(self._rows)

    def _is_wanted(self) -> bool:
        with self._lock:
            lingers = time.monotonic() - self._left_s < _LINGER_SECONDS
            return not self._is_over and (self._lookers > 0 or lingers)

    def _run(self) -> None:
        follow = self._follow_watches if self._past is None else self._follow_logs
        while self._is_wanted():
            try:
                follow()
            except (KeepfastError, OSError) as error:
                self._publish_state(f"interrupted: {error}")
                self._pause(_RETRY_SECONDS)
        with self._lock:
            # What comes next is not what follows these rows.
            self._rows.clear()
        self._publish_state("")

    def _publish_state(self, text: str) -> None:
        self._hub.publish("feed-state", {"source": self.source, "text": text})

    def _add(self, row: Document) -> None:
        with self._lock:
            self._rows.append(row)
        self._hub.publish("feed", row)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_over:
            time.sleep(min(0.1, seconds))

    # -- by the logs -----------------------------------------------------------------------------

    def _follow_logs(self) -> None:
        past = self._past
        if past is None:
            return
        self._publish_state("reading the logs")
        ensemble = past.ensemble()
        newest = max((one.zxid for one in origins(past.disk, ensemble.servers)), default=None)
        history = EnsembleHistory(past.disk, ensemble, after=newest)
        backlog: deque[ZnodeChange] = deque(maxlen=MAX_ROWS)
        for rows in history.read():
            backlog.extend(rows)
            if not self._is_wanted():
                return
        with self._lock:
            self._rows.clear()
            for change in backlog:
                self._rows.append(_logged_row(change))
        self._hub.publish("feed-start", {})
        self._publish_state("following the logs")
        while self._is_wanted():
            for rows in history.read():
                for change in rows:
                    self._add(_logged_row(change))
            self._pause(_LOOK_SECONDS)

    # -- by watches ------------------------------------------------------------------------------

    def _follow_watches(self) -> None:
        watcher = _Watcher(self._target, self._add, self._publish_state)
        try:
            while self._is_wanted():
                watcher.turn()
        finally:
            watcher.close()


class _Watcher:
    """One session with a watch on everything."""

    def __init__(
        self,
        target: Target,
        add: Callable[[Document], None],
        publish_state: Callable[[str], None],
    ) -> None:
        self._add = add
        self._publish_state = publish_state
        self._pending: deque[tuple[ClientEvent, int]] = deque(maxlen=_MAX_PENDING)
        self._news = threading.Event()
        self._values: OrderedDict[str, bytes | None] = OrderedDict()
        self._session = EnsembleSession(target, None, self._heard)
        self._watching: Client | None = None
        self._reads_s = 0.0
        self._reads = 0

    def close(self) -> None:
        self._session.close()

    def _heard(self, event: ClientEvent) -> None:
        """On the client's thread, so it must not wait."""
        self._pending.append((event, round(time.time() * 1000)))
        self._news.set()

    def turn(self) -> None:
        """Wait for events, for a moment, and report them."""
        client = self._session.client()
        if client is not self._watching:
            client.wait_connected(is_patient=True)
            client.add_watch("/", AddWatchMode.PERSISTENT_RECURSIVE)
            self._watching = client
            self._publish_state("watching the whole tree")
        self._news.wait(_LOOK_SECONDS)
        self._news.clear()
        while self._pending:
            event, time_ms = self._pending.popleft()
            if event.type is EventType.NONE:
                self._about_connection(event)
            elif event.type in _WORDS and event.path is not None:
                self._about_znode(client, event, event.path, time_ms)

    def _about_connection(self, event: ClientEvent) -> None:
        if event.state is KeeperState.DISCONNECTED:
            self._publish_state("no server answers; what changes now is not seen")
        elif event.state is KeeperState.SYNC_CONNECTED:
            self._publish_state("watching the whole tree")

    def _about_znode(self, client: Client, event: ClientEvent, path: str, time_ms: int) -> None:
        change = _WORDS[event.type]
        is_known = path in self._values
        old = self._values.get(path)
        new, version = None, None
        if change == "deleted":
            self._values.pop(path, None)
        elif self._may_read():
            try:
                reply = client.get_data(path)
                new, version = reply.data, reply.stat.version
                self._keep(path, new)
            except OperationFailed as error:
                if error.code not in (ErrorCode.NO_NODE, ErrorCode.NO_AUTH):
                    raise
        row: dict[str, Any] = {
            "zxid": format_zxid(event.zxid) if event.zxid > 0 else None,
            "at": time_ms,
            "op": None,
            "change": change,
            "path": path,
            "session": None,
            "old": data_document(old, _VALUE_BYTES) if is_known else None,
            "new": data_document(new, _VALUE_BYTES) if version is not None else None,
            "old_version": None,
            "new_version": version,
            "kind": None,
            "error": None,
            "is_old_known": is_known,
            # What this session sees without credentials, everybody may.
            _ACLS: (OPEN_ACL, OPEN_ACL),
        }
        self._add(row)

    def _may_read(self) -> bool:
        """Whether one more value may be read this second."""
        now = time.monotonic()
        if now - self._reads_s >= 1.0:
            self._reads_s, self._reads = now, 0
        self._reads += 1
        return self._reads <= _MAX_READS

    def _keep(self, path: str, data: bytes | None) -> None:
        self._values[path] = None if data is None else data[:_VALUE_BYTES]
        self._values.move_to_end(path)
        while len(self._values) > _MAX_VALUES:
            self._values.popitem(last=False)


def _logged_row(change: ZnodeChange) -> Document:
    return {**change_document(change, None), _ACLS: (change.old_acl, change.acl)}


def feed_filter(query: Mapping[str, str], viewer: Viewer) -> Callable[[Document], Document | None]:
    """What a page is shown of each row: None if it does not want it or may not read the znode."""
    path, change, session = (query.get(name, "") for name in ("path", "change", "session"))
    below = path.rstrip("/") + "/"

    def shape(row: Document) -> Document | None:
        here = row["path"] or ""
        if path and here != path and not here.startswith(below):
            return None
        if change and row["change"] != change:
            return None
        if session and row["session"] != session:
            return None
        shown = {key: value for key, value in row.items() if key != _ACLS}
        if viewer.ids is None or not here:
            return shown
        may_read = dict(zip(("old", "new"), map(viewer.may_read, row[_ACLS]), strict=True))
        if not any(may_read.values()):
            return None
        for side, is_readable in may_read.items():
            if not is_readable and shown[side] is not None:
                shown[side] = {"is_hidden": True}
        return shown

    return shape
