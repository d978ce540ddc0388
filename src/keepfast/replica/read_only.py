"""When a member without a leader serves read-only clients.

It shows what is known to be committed, and nothing else: not what its log holds beyond that, which
the next leader may truncate. A server that was just started does not know this about anything in
its log, so it serves nobody before it has found a leader once.
"""

from __future__ import annotations

from typing import Final

from keepfast.quorum import Standing, note
from keepfast.replica.member_state import MemberState

# How long a server looks for a leader before it serves read-only; longer if a tick is.
_PATIENCE_MS: Final = 2000


def show_while_looking(state: MemberState, since_ms: int) -> None:
    """Start or keep serving such clients, if enabled; `since_ms`: since when it is looking."""
    options, replica = state.options, state.replica
    if not options.is_read_only_enabled:
        return
    if replica.is_read_only:
        replica.tick()
        return
    is_due = state.now_ms - since_ms >= max(options.tick_ms, _PATIENCE_MS)
    is_known = state.standing is Standing.WHOLE and replica.is_agreed_on
    if is_due and is_known and state.tree is not None:
        replica.show(state.tree)
        state.effects.append(note("read-only"))
