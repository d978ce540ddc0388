"""What all servers must compute identically about a session."""

from __future__ import annotations

_SECRET = 0xB3415C00
# The generator of java.util.Random: 48 bits of state.
_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 0xB
_MASK = (1 << 48) - 1


def session_password(session_id: int) -> bytes:
    """The 16 bytes with which a client reclaims its session.

    Derived from the id alone, by Java's Random: any server of a mixed ensemble must accept what
    another one issued. It guards against mistakes, not against an attacker.
    """
    state = (session_id ^ _SECRET ^ _MULTIPLIER) & _MASK
    password = b""
    for _ in range(4):
        state = (state * _MULTIPLIER + _INCREMENT) & _MASK
        password += (state >> 16).to_bytes(4, "little")
    return password
