"""One ensemble as the checks see it: the facts of its files, put in order.

A server's *base* is the snapshot that it would start from, the newest one that is sound.  What its
logs hold after the base is *in force*: it is replayed at a start.  What lies before the base is
*latent*: it does no harm until the base is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.scan.facts import EpochFacts, LogFacts, RecordRun, SnapshotFacts
from keepfast.wire import counter_of, epoch_of, follows_in_epoch


@dataclass(frozen=True)
class LogJoin:
    """Two records of one server between which its logs hold nothing.

    `before` is 0 where the logs begin; `proven_from` is the last zxid up to which a snapshot shows
    what the logs do not.
    """

    before: int
    after: int
    proven_from: int

    @property
    def opens_epoch(self) -> bool:
        """Whether nothing has to be missing here: the record after is the first of its epoch."""
        return counter_of(self.after) == 1 and epoch_of(self.after) > epoch_of(self.before)


@dataclass(frozen=True)
class ServerView:
    """One server."""

    name: str
    logs: tuple[LogFacts, ...]  # by the zxids of their names
    snapshots: tuple[SnapshotFacts, ...]  # by zxid
    epochs: EpochFacts
    is_managed: bool = False  # a Keepfast manifest says what is live
    temporaries: tuple[str, ...] = ()
    server_id: str | None = None  # by its `myid`
    configurations: tuple[str, ...] = ()  # texts that name the members
    unreadable: tuple[str, ...] = ()

    @property
    def is_disordered(self) -> bool:
        """Whether its logs hold records twice, out of order, or under the name of others.

        A start then may make something else of them than their order by zxid.
        """
        reach = -1
        for run, _ in self.runs:
            if run.first <= reach:
                return True
            reach = run.last
        return any(log.runs and log.runs[0].first != log.zxid for log in self.logs)

    @cached_property
    def runs(self) -> list[tuple[RecordRun, LogFacts]]:
        """All runs, in the order in which a server reads them."""
        return [(run, log) for log in self.logs for run in log.runs]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The zxids that its logs hold, as ranges inside epochs, in order."""
        return merged((run.first, run.last) for run, _ in self.runs)

    @cached_property
    def starts(self) -> list[int]:
        """The first zxids of its spans."""
        return [first for first, _ in self.spans]

    @cached_property
    def base(self) -> SnapshotFacts | None:
        """The newest sound snapshot."""
        return next((s for s in reversed(self.snapshots) if s.is_valid), None)

    @property
    def base_zxid(self) -> int:
        """The zxid of the base; -1 if there is none."""
        return -1 if self.base is None else self.base.zxid

    @property
    def first(self) -> int | None:
        """The first zxid in its logs."""
        return self.spans[0][0] if self.spans else None

    @property
    def last(self) -> int | None:
        """The last zxid in its logs."""
        return self.spans[-1][1] if self.spans else None

    @property
    def head(self) -> int:
        """The zxid that it would claim after a start; -1 if it holds nothing."""
        return max(self.base_zxid, -1 if self.last is None else self.last)

    @property
    def begins_empty(self) -> bool:
        """Whether its logs begin where a history begins, so that no snapshot is needed."""
        first = self.first
        return first is not None and counter_of(first) == 1 and epoch_of(first) <= 1

    @property
    def unread(self) -> list[tuple[str, int, str]]:
        """The files that could not be read: path, zxid of the name, and why."""
        found = [(log.path, log.zxid, log.error) for log in self.logs if log.error]
        return found + [(one.path, one.zxid, one.error) for one in self.snapshots if one.error]

    @property
    def is_partial(self) -> bool:
        """Whether files could not be read: what they hold must not be called missing."""
        return bool(self.unreadable or self.unread)

    @property
    def has_digests(self) -> bool:
        """Whether its records carry digests: written by 3.6 or later."""
        return any(log.has_digests for log in self.logs)

    def holds(self, first: int, last: int) -> bool:
        """Whether its logs hold the whole range."""
        at = bisect_right(self.starts, first) - 1
        return at >= 0 and last <= self.spans[at][1]

    def buries(self, first: int, last: int) -> bool:
        """Whether records lie after bytes that a start takes for the end of their log.

        And the server has continued since, in a later log: the records are never read again.
        """
        if not self._hides_records:
            return False  # asked for every interval: looking through all runs would be quadratic
        held = [(run, log) for run, log in self.runs if run.first <= last and first <= run.last]
        return bool(held) and all(
            (self.last or 0) > max(one.last for one in log.runs)
            and any(
                bad.offset < run.start and not bad.is_torn and not bad.stops_server
                for bad in log.bad
            )
            for run, log in held
        )

    @cached_property
    def _hides_records(self) -> bool:
        bad = (bad for log in self.logs for bad in log.bad)
        return any(not one.is_torn and not one.stops_server for one in bad)

    @cached_property
    def joins(self) -> list[LogJoin]:
        """The places between its spans, and the one before the first."""
        found = []
        before = 0
        for first, last in self.spans:
            found.append(LogJoin(before, first, self._shown_before(before, first)))
            before = last
        return found

    def _shown_before(self, before: int, after: int) -> int:
        """The last zxid below `after` that a snapshot, even a rotten one, shows was there.

        Where the logs begin, sound ones alone: logs may be gone that followed a rotten one.
        """
        shown = before
        for snapshot in self.snapshots:
            if before <= snapshot.zxid < after and (before or snapshot.is_valid):
                shown = max(shown, snapshot.zxid, min(snapshot.fuzzy_until, after - 1))
        return shown

    def file_of(self, zxid: int) -> tuple[str | None, int | None]:
        """The log that holds a zxid, and the offset of the run that it is in."""
        for run, log in self.runs:
            if run.first <= zxid <= run.last:
                return log.path, run.start if run.first == zxid else None
        return None, None


@dataclass(frozen=True)
class EnsembleView:
    """All servers of one ensemble whose files were given."""

    name: str
    servers: tuple[ServerView, ...]
    electorate: Electorate = field(default_factory=Electorate)
    is_live: bool = False  # files changed while they were read

    @property
    def observers(self) -> frozenset[str]:
        """The servers that are known not to vote."""
        return self.electorate.observers

    def server(self, name: str) -> ServerView:
        """The server of that name."""
        return next(server for server in self.servers if server.name == name)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of zxids as the fewest ranges, in order, none across the start of an epoch."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and (first <= result[-1][1] or follows_in_epoch(first, result[-1][1])):
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result
