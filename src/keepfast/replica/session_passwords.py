"""The passwords with which clients resume their sessions, at any server of the ensemble.

Apache computes a session's password from its id, so whoever knows the id knows the password. With a
secret that all servers share it is an HMAC of the id instead. Nothing is stored with a session:
which of the two applies is decided by its id, which shows when the server that issued it was
started. So all servers give the same answer, even about sessions that are older than the secret,
and no session ever has two passwords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hmac import compare_digest, digest
from typing import Final

from keepfast.wire import session_password

_PASSWORD_BYTES: Final = 16
# The clock in a session's id: see sessions.first_session_id.
_CLOCK_SHIFT: Final = 16
_CLOCK_BITS: Final = 40
_CLOCK_MASK: Final = (1 << _CLOCK_BITS) - 1
# 8.7 and 4.4 years, in ms.
_UPTIME_LIMIT: Final = 1 << 38
_NEAR: Final = 1 << 37


@dataclass(frozen=True, slots=True)
class SessionPasswords:
    """Derived from a secret, from a given time on; without one, Apache's."""

    secret: bytes = field(default=b"", repr=False)
    # Wall clock time: sessions of servers that were started earlier have Apache's passwords.
    since_ms: int = 0

    def of(self, session_id: int) -> bytes:
        """The password of a session."""
        if not self.secret or self.is_older(session_id):
            return session_password(session_id)
        name = session_id.to_bytes(8, "big", signed=True)
        return digest(self.secret, name, "sha256")[:_PASSWORD_BYTES]

    def admits(self, session_id: int, password: bytes | None) -> bool:
        """Whether this is the password of a session; compared in constant time."""
        return compare_digest(self.of(session_id), password or b"")

    def is_older(self, session_id: int) -> bool:
        """Whether an id was issued before the secret took effect."""
        clock = session_id >> _CLOCK_SHIFT & _CLOCK_MASK
        # 40 bits of ms are 35 years: what is less than half of that apart is in order.
        apart = (clock - self.since_ms) & _CLOCK_MASK
        # Apache's servers, since 3.5, count from the start of their machine. Until 2035 that is far
        # from what a wall clock says.
        is_uptime = clock < _UPTIME_LIMIT and apart >= _NEAR
        return is_uptime or apart >> (_CLOCK_BITS - 1) == 1
