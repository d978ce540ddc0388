"""Who the sessions were, by the audit logs of servers, Apache's or ours.

A record names a session. Which user and which address that was is in the audit log of the server
that the session talked to: lines with `session=`, `user=` and `ip=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_FIELD = re.compile(r"(session|user|ip|operation|znode)=([^\t\n]*)")
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Person:
    """Who a session was, by an audit log; None: it does not say."""

    user: str | None = None
    address: str | None = None


@dataclass(slots=True)
class People:
    """What audit logs say about sessions."""

    lines: int = 0
    _by_session: dict[int, Person] = field(default_factory=dict)
    _by_change: dict[tuple[int, str], Person] = field(default_factory=dict)

    def add(self, lines: Iterable[str]) -> None:
        """Read an audit log; lines of another form are passed over."""
        for line in lines:
            found = dict(_FIELD.findall(line))
            text = found.get("session", "")
            try:
                session = int(text, 16) & _MASK
            except ValueError:
                continue
            person = Person(found.get("user") or None, found.get("ip") or None)
            self.lines += 1
            self._by_session[session] = person
            if "znode" in found:
                # One session may come from another address after it moved to another server.
                self._by_change[session, found["znode"]] = person

    def of(self, session: int, path: str | None) -> Person:
        """Who a session was when it changed a path."""
        session &= _MASK
        found = None if path is None else self._by_change.get((session, path))
        return found or self._by_session.get(session, Person())
