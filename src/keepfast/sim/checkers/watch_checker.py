"""Watches: each change is reported once, in order, and before the client can see its effect."""

from __future__ import annotations

from typing import Final

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Event, Violation
from keepfast.sim.operations import SessionView, Watch
from keepfast.tree import ChangeKind, WatchKind
from keepfast.wire import EventType, Stat, codec_of, format_zxid

_STAT: Final = codec_of(Stat)


def concerns(watch: Watch, event: Event) -> bool:
    """Whether a change uses a watch up."""
    if event.is_child:
        return watch.kind is WatchKind.CHILD
    return watch.kind is WatchKind.DATA or event.kind is ChangeKind.DELETED


class WatchChecker(Checker):
    """Compares the events that clients are sent with the changes that they watch for.

    Only one-shot watches are simulated.
    """

    name = "watches"

    def on_shown(self, session: SessionView, zxid: int) -> None:
        """A reply at `zxid`: every watched change up to there must have been reported."""
        for watch in session.watches.values():
            if watch.zxid >= zxid:
                continue
            for event in self.ledger.events_between(watch.path, watch.zxid, zxid):
                if concerns(watch, event):
                    raise Violation(
                        self.name,
                        f"c{session.client} watches {watch.path}, which changed at "
                        f"{format_zxid(event.zxid)}; it is shown {format_zxid(zxid)} untold",
                    )

    def on_event(self, session: SessionView, event: EventType, path: str, zxid: int) -> None:
        used = [
            watch
            for kind in (WatchKind.DATA, WatchKind.CHILD)
            if (watch := session.watches.get((kind, path))) is not None and _fits(watch, event)
        ]
        if not used:
            raise Violation(
                self.name,
                f"c{session.client} is told that {event.name} of {path}, which it does not watch: "
                "told twice, or never asked for",
            )
        for watch in used:
            happened = self.ledger.events_between(path, watch.zxid, self.ledger.last)
            if not any(concerns(watch, each) for each in happened):
                raise Violation(
                    self.name,
                    f"c{session.client} is told that {event.name} of {path}; nothing happened "
                    f"to it since {format_zxid(watch.zxid)}",
                )

    def on_rewatched(self, session: SessionView, zxid: int) -> None:
        """Watches that are left were set again: what they can know of, they must have told."""
        for watch in session.watches.values():
            state = self.ledger.state_at(watch.path, zxid)
            if watch.is_exist:
                missed = state.stat is not None
            elif state.stat is None:
                missed = True
            elif watch.kind is WatchKind.DATA:
                missed = _STAT.decode(state.stat).mzxid > session.last_zxid
            else:
                missed = _STAT.decode(state.stat).pzxid > session.last_zxid
            if missed:
                raise Violation(
                    self.name,
                    f"c{session.client} came back to a server at {format_zxid(zxid)}, and was "
                    f"not told what happened to {watch.path} meanwhile",
                )


def _fits(watch: Watch, event: EventType) -> bool:
    if watch.kind is WatchKind.CHILD:
        return event in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED)
    return event is not EventType.NODE_CHILDREN_CHANGED
