"""Who is connected, from where, since when, with which ephemerals and watches.

Servers report it by four-letter words: `cons` on each of them (its own connections), `dump` on one
(all sessions and their ephemerals), `wchc` on each (watches by session). The last one is asked for
only where `wchs` says that there are few: it stops an Apache server for as long as it lists them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.client import ServerAddress
from keepfast.console.measurements import ask
from keepfast.wire import format_zxid

_ASK_SECONDS: Final = 3.0
_CONNECTION: Final = re.compile(r" /(.+)\[\w*\]\((.*)\)")
_TOTAL_WATCHES: Final = re.compile(r"Total watches:(\d+)")
# Beyond this the watches are counted and not listed.
_MAX_WATCHES: Final = 50_000
_MAX_PATHS: Final = 200
_MAX_SESSIONS: Final = 500


@dataclass(slots=True)
class ListedSession:
    """A session, connected or not."""

    session_id: int
    server: ServerAddress | None = None
    address: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    ephemerals: list[str] = field(default_factory=list)
    watches: list[str] = field(default_factory=list)


def connections_in(answer: str) -> list[tuple[str, dict[str, str]]]:
    """The lines of `cons`: the client's address, and what is said about it."""
    found = []
    for line in answer.splitlines():
        match = _CONNECTION.fullmatch(line)
        if match is not None:
            pairs = (pair.partition("=") for pair in match[2].split(","))
            found.append((match[1], {name: value for name, _, value in pairs}))
    return found


def sessions_in(answer: str) -> tuple[set[int], dict[int, list[str]]]:
    """What `dump` says: all sessions that are tracked, and the ephemerals that they own."""
    tracked, _, rest = answer.partition("ephemeral nodes dump:")
    known = {_number(line) for line in tracked.splitlines() if line.startswith("\t0x")}
    owned: dict[int, list[str]] = {}
    current: list[str] = []
    for line in rest.partition("Connections dump:")[0].splitlines():
        if line.startswith("0x"):
            current = owned.setdefault(_number(line.rstrip(":")), [])
        elif line.startswith("\t"):
            current.append(line[1:])
    return known, owned


def watches_in(answer: str) -> dict[int, list[str]]:
    """What `wchc` says: the watched paths of each session."""
    found: dict[int, list[str]] = {}
    current: list[str] = []
    for line in answer.splitlines():
        if line.startswith("0x"):
            current = found.setdefault(_number(line), [])
        elif line.startswith("\t"):
            current.append(line[1:])
    return found


def _number(text: str) -> int:
    return int(text.strip(), 16)


class SessionList:
    """Asks for all sessions; remembers when each was heard of last."""

    def __init__(self) -> None:
        # Packets of each connection when they were seen to change, and when that was.
        self._heard: dict[tuple[int, str], tuple[str, float]] = {}
        self._lock = threading.Lock()

    def document(self, servers: Sequence[ServerAddress], text: str) -> dict[str, Any]:
        """The sessions whose id or address contains a text."""
        notes: list[str] = []
        sessions: dict[int, ListedSession] = {}
        with ThreadPoolExecutor(max(len(servers), 1)) as pool:
            answers = list(pool.map(_ask_server, servers))
        for server, answer in zip(servers, answers, strict=True):
            if answer is None:
                notes.append(f"{server} does not answer")
                continue
            self._take(server, answer, sessions, notes)
        wanted = text.casefold()
        chosen = [
            one
            for one in sessions.values()
            if wanted in f"{format_zxid(one.session_id)} {one.address}".casefold()
        ]
        chosen.sort(key=lambda one: (one.server is None, one.session_id))
        with self._lock:
            shown = [self._shown(one) for one in chosen[:_MAX_SESSIONS]]
            self._forget(sessions)
        return {
            "sessions": shown,
            "total": len(sessions),
            "matching": len(chosen),
            "notes": list(dict.fromkeys(notes)),
            "at": round(time.time() * 1000),
        }

    def _take(
        self,
        server: ServerAddress,
        answer: _SessionAnswers,
        sessions: dict[int, ListedSession],
        notes: list[str],
    ) -> None:
        if not answer.connections:
            notes.append(f"{server} does not list its connections: 4lw.commands.whitelist")
        for address, fields in connections_in(answer.connections):
            if "sid" in fields:
                one = sessions.setdefault(_number(fields["sid"]), _session(fields["sid"]))
                one.server, one.address, one.fields = server, address, fields
        tracked, owned = sessions_in(answer.sessions)
        for session_id in tracked | owned.keys():
            one = sessions.setdefault(session_id, ListedSession(session_id))
            one.ephemerals = owned.get(session_id, one.ephemerals)
        for session_id, paths in watches_in(answer.watches).items():
            sessions.setdefault(session_id, ListedSession(session_id)).watches += paths
        if answer.watch_count > _MAX_WATCHES:
            notes.append(f"{server} has {answer.watch_count:,} watches: too many to list")

    def _shown(self, one: ListedSession) -> dict[str, Any]:
        fields = one.fields
        return {
            "id": format_zxid(one.session_id),
            "server": None if one.server is None else str(one.server),
            "address": one.address,
            "since": int(fields["est"]) if "est" in fields else None,
            "timeout_ms": int(fields["to"]) if "to" in fields else None,
            "last_operation": fields.get("lop"),
            "last_zxid": fields.get("lzxid"),
            "received": int(fields.get("recved", "0")),
            "sent": int(fields.get("sent", "0")),
            "queued": int(fields.get("queued", "0")),
            "latency_ms": [fields.get(name) for name in ("minlat", "avglat", "maxlat")],
            "seen": self._seen(one),
            "ephemerals": sorted(one.ephemerals)[:_MAX_PATHS],
            "ephemeral_count": len(one.ephemerals),
            "watches": sorted(one.watches)[:_MAX_PATHS],
            "watch_count": len(one.watches),
        }

    def _seen(self, one: ListedSession) -> int | None:
        """When a packet of it was last seen to have come; a ping is one, too."""
        if one.server is None:
            return None
        key = (one.session_id, one.address)
        received = one.fields.get("recved", "")
        before = self._heard.get(key)
        if before is None or before[0] != received:
            # The clock of `lresp` is the server's own, and starts anywhere: only changes count.
            self._heard[key] = (received, time.time())
        return round(self._heard[key][1] * 1000)

    def _forget(self, sessions: dict[int, ListedSession]) -> None:
        gone = [key for key in self._heard if key[0] not in sessions]
        for key in gone:
            del self._heard[key]


@dataclass(frozen=True, slots=True)
class _SessionAnswers:
    connections: str
    sessions: str
    watches: str
    watch_count: int


def _session(text: str) -> ListedSession:
    return ListedSession(_number(text))


def _ask_server(server: ServerAddress) -> _SessionAnswers | None:
    try:
        connections = ask(server, "cons", _ASK_SECONDS)
        sessions = ask(server, "dump", _ASK_SECONDS)
        total = _TOTAL_WATCHES.search(ask(server, "wchs", _ASK_SECONDS))
        count = 0 if total is None else int(total[1])
        watches = ask(server, "wchc", _ASK_SECONDS) if 0 < count <= _MAX_WATCHES else ""
    except OSError:
        return None
    return _SessionAnswers(connections, sessions, watches, count)
