"""When a member that finds no leader serves clients that are content with an old state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keepfast.quorum import Standing, note

if TYPE_CHECKING:
    from keepfast.replica.member import Member

# How long a server looks for a leader before it serves read-only; longer if a tick is.
_PATIENCE_MS: Final = 2000


def show_while_looking(member: Member) -> None:
    """Begin to serve such clients, or go on, if that is wanted."""
    options, replica = member.options, member.replica
    has_leader = member.leader is not None or member.following is not None
    if not options.is_read_only_enabled or has_leader:
        return
    if replica.is_read_only:
        replica.tick()
        return
    is_due = member.now_ms - member.looking_since_ms >= max(options.tick_ms, _PATIENCE_MS)
    if is_due and member.standing is Standing.WHOLE and member.tree is not None:
        replica.show(member.tree)
        member.effects.append(note("read-only"))
