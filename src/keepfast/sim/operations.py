"""What simulated clients do, as records for the checkers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.tree import WatchKind
from keepfast.wire import AddWatchMode, EventType, OpCode, WatcherType

# Watches that an event does not use up.
LASTING: Final = frozenset((WatchKind.PERSISTENT, WatchKind.RECURSIVE))
_ADDED: Final = {
    AddWatchMode.PERSISTENT: WatchKind.PERSISTENT,
    AddWatchMode.PERSISTENT_RECURSIVE: WatchKind.RECURSIVE,
}
_REMOVED: Final = {
    WatcherType.CHILDREN: (WatchKind.CHILD,),
    WatcherType.DATA: (WatchKind.DATA,),
    WatcherType.ANY: tuple(WatchKind),
    WatcherType.PERSISTENT: (WatchKind.PERSISTENT,),
    WatcherType.PERSISTENT_RECURSIVE: (WatchKind.RECURSIVE,),
}


@dataclass(slots=True, eq=False)
class Operation:
    """One request of a client, and its outcome."""

    client: int
    session_id: int
    xid: int
    type: OpCode
    path: str
    request: Any
    invoked_us: int
    # Of all writes that were answered before this was asked, the greatest zxid.
    floor_zxid: int
    # None: no answer came (yet); whether it was done is not known.
    completed_us: int | None = None
    zxid: int = -1
    error: int = 0
    reply: Any = None
    # Asked of a server that has no leader.
    is_read_only: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether the client knows what became of it."""
        return self.completed_us is not None

    @property
    def watch_kind(self) -> WatchKind | None:
        """The watch that it asks for."""
        if self.type is OpCode.ADD_WATCH:
            return _ADDED[AddWatchMode(self.request.mode)]
        if not getattr(self.request, "watch", False):
            return None
        is_child = self.type in (OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)
        return WatchKind.CHILD if is_child else WatchKind.DATA

    @property
    def removed_kinds(self) -> tuple[WatchKind, ...]:
        """The watches that it removes."""
        is_removal = self.type is OpCode.REMOVE_WATCHES
        return _REMOVED[WatcherType(self.request.type)] if is_removal else ()

    def __str__(self) -> str:
        return f"{self.type.name} {self.path}"


@dataclass(slots=True, eq=False)
class Watch:
    """A watch that a client believes to be set."""

    kind: WatchKind
    path: str
    # The state in which it was set; what happens after it must be told. Of a lasting watch: the
    # last state that was shown, as all up to there was told.
    zxid: int
    # Set on a znode that was not there.
    is_exist: bool = False
    # What was told since then, of a lasting watch: zxid, event and path.
    told: Counter[tuple[int, EventType, str]] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class SessionView:
    """One session as its client sees it."""

    client: int
    session_id: int
    timeout_ms: int
    password: bytes
    # The last zxid that the client was shown.
    last_zxid: int = 0
    is_over: bool = False
    # It has come back, and its watches are being set again.
    is_rewatching: bool = False
    # Of the last event on this connection.
    event_zxid: int = 0
    watches: dict[tuple[WatchKind, str], Watch] = field(default_factory=dict)
