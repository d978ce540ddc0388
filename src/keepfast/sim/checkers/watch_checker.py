"""Watches: each change is reported once, in order, and before the client can see its effect."""

from __future__ import annotations

from collections import Counter
from typing import Final

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Event, Violation
from keepfast.sim.operations import LASTING, Operation, SessionView, Watch
from keepfast.tree import ChangeKind, WatchKind
from keepfast.wire import ErrorCode, EventType, OpCode, Stat, codec_of, format_zxid

_STAT: Final = codec_of(Stat)


def concerns(watch: Watch, event: Event) -> bool:
    """Whether a change uses a watch up."""
    if event.is_child:
        return watch.kind is WatchKind.CHILD
    return watch.kind is WatchKind.DATA or event.kind is ChangeKind.DELETED


class WatchChecker(Checker):
    """Compares the events that clients are sent with the changes that they watch for, once."""

    name = "watches"

    def on_shown(self, session: SessionView, zxid: int) -> None:
        """A reply at `zxid`: every watched change up to there must have been reported."""
        for watch in session.watches.values():
            if watch.zxid >= zxid or watch.kind in LASTING:
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
        is_lasting = zxid >= 0 and bool(_lasting(session, event, path))
        if not used and not is_lasting:
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
            if watch.kind in LASTING:
                continue
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


class LastingWatchChecker(Checker):
    """A watch that lasts: each change is told exactly once, before the client is shown it.

    What happens while the client is away is not told.
    """

    name = "watches"

    def on_shown(self, session: SessionView, zxid: int) -> None:
        if session.is_rewatching:
            return
        for watch in session.watches.values():
            if watch.kind not in LASTING or (watch.zxid >= zxid and not watch.told):
                continue
            expected = self._expected(watch, zxid)
            # What came after it may be told before: a reply may wait for others.
            told = Counter({key: n for key, n in watch.told.items() if key[0] <= zxid})
            if told != expected:
                wrong = (expected - told) + (told - expected)
                at, event, path = min(wrong)
                raise Violation(
                    self.name,
                    f"c{session.client} watches {watch.path} ({watch.kind.name}), and is shown "
                    f"{format_zxid(zxid)}: {event.name} of {path} at {format_zxid(at)} was told "
                    f"{told[at, event, path]} times, not {expected[at, event, path]}",
                )
            watch.zxid = max(watch.zxid, zxid)
            watch.told -= told

    def _expected(self, watch: Watch, up_to: int) -> Counter[tuple[int, EventType, str]]:
        """What happened since all was told."""
        ledger = self.ledger
        paths = [path for path in ledger.events if _is_in(watch, path)]
        return Counter(
            (each.zxid, event, path)
            for path in paths
            for each in ledger.events_between(path, watch.zxid, up_to)
            if _concerns(watch, event := _event_of(each))
        )

    def on_event(self, session: SessionView, event: EventType, path: str, zxid: int) -> None:
        if zxid < 0:
            return  # a one-time watch has missed it
        if zxid < session.event_zxid:
            raise Violation(
                self.name,
                f"c{session.client} is told {event.name} of {path} at {format_zxid(zxid)} after "
                f"what happened at {format_zxid(session.event_zxid)}",
            )
        session.event_zxid = zxid
        for watch in _lasting(session, event, path):
            watch.told[zxid, event, path] += 1

    def on_rewatched(self, session: SessionView, zxid: int) -> None:
        for watch in session.watches.values():
            watch.told.clear()

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        """A watch can be removed if it is there."""
        if operation.type is not OpCode.REMOVE_WATCHES:
            return
        is_there = any((k, operation.path) in session.watches for k in operation.removed_kinds)
        if operation.error == (ErrorCode.NO_WATCHER if is_there else ErrorCode.OK):
            raise Violation(
                self.name,
                f"{operation} of c{session.client} is answered by error {operation.error}, and "
                f"its watch is {'' if is_there else 'not '}there",
            )


def _lasting(session: SessionView, event: EventType, path: str) -> list[Watch]:
    """The watches of a client that last and are about an event."""
    watches = [watch for watch in session.watches.values() if watch.kind in LASTING]
    return [watch for watch in watches if _is_in(watch, path) and _concerns(watch, event)]


def _is_in(watch: Watch, path: str) -> bool:
    if watch.kind is WatchKind.RECURSIVE and path.startswith(watch.path.rstrip("/") + "/"):
        return True
    return path == watch.path


def _concerns(watch: Watch, event: EventType) -> bool:
    return watch.kind is WatchKind.PERSISTENT or event is not EventType.NODE_CHILDREN_CHANGED


def _event_of(event: Event) -> EventType:
    return EventType.NODE_CHILDREN_CHANGED if event.is_child else EventType(int(event.kind))


def _fits(watch: Watch, event: EventType) -> bool:
    if watch.kind is WatchKind.CHILD:
        return event in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED)
    return event is not EventType.NODE_CHILDREN_CHANGED
