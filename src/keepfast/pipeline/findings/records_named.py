"""When something happened, and by whom, as values: a record in a few words, writes that are lacked.

Times are the leaders' clocks, in milliseconds since 1970, and ISO 8601 in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from keepfast.wire import format_zxid

_MASK = (1 << 64) - 1


def time_text(time_ms: int) -> str | None:
    """A time as ISO 8601, UTC; None where no calendar has it."""
    second, millisecond = divmod(time_ms, 1000)
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millisecond:03d}Z"


def session_text(note: RecordNote) -> str:
    """The session of a record, as everything prints sessions."""
    return f"{note.session_id & _MASK:#x}"


@dataclass(frozen=True, slots=True)
class RecordNote:
    """One record: when, what, on which znodes, by which session, and whose that was."""

    zxid: int
    time_ms: int
    op: str
    session_id: int
    paths: tuple[str, ...] = ()
    user: str | None = None  # by an audit log, as the address
    address: str | None = None

    @property
    def text(self) -> str:
        """In words."""
        paths = ", ".join(self.paths[:3])
        if len(self.paths) > 3:
            paths += f" and {len(self.paths) - 3} more"
        text = f"{time_text(self.time_ms) or f'{self.time_ms} ms'} {self.op}"
        text += f" {paths}" if paths else ""
        text += f", session {session_text(self)}"
        text += f", user {self.user}" if self.user else ""
        return text + (f" from {self.address}" if self.address else "")

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "zxid": format_zxid(self.zxid),
            "time": time_text(self.time_ms),
            "op": self.op,
            "session": session_text(self),
            "paths": list(self.paths),
            "user": self.user,
            "address": self.address,
        }


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Records, each once, and where they can be read; `servers` are all that hold them."""

    first: int
    last: int
    file: str
    start: int
    end: int
    servers: tuple[str, ...]
    # "agreed", "tail", "stale", "doubtful", "buried"; "different": not what most servers have.
    standing: str


@dataclass(frozen=True, slots=True)
class LackedWrites:
    """Committed writes that a server does not have; `server` is None where no server has them."""

    server: str | None
    first_zxid: int
    last_zxid: int
    records: int  # committed records in there, sessions and failed writes included
    writes: tuple[RecordNote, ...]  # the first of them that change a znode
    is_all: bool  # whether these are all that do

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "server": self.server,
            "first_zxid": format_zxid(self.first_zxid),
            "last_zxid": format_zxid(self.last_zxid),
            "records": self.records,
            "writes": [write.to_json() for write in self.writes],
            "all_listed": self.is_all,
        }
