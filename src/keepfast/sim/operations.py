"""What simulated clients do, as records for the checkers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keepfast.tree import WatchKind
from keepfast.wire import OpCode


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

    def __str__(self) -> str:
        return f"{self.type.name} {self.path}"


@dataclass(slots=True, eq=False)
class Watch:
    """A watch that a client believes to be set."""

    kind: WatchKind
    path: str
    # The state in which it was set; what happens after it must be told.
    zxid: int
    # Set on a znode that was not there.
    is_exist: bool = False


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
    watches: dict[tuple[WatchKind, str], Watch] = field(default_factory=dict)
