"""The history that a quorum of the voters holds, record by record, from their logs.

Theory of operation. Zab commits a record once a quorum has it on disk, in the order of one chain.
So the history is found by asking at each record: which one follows it? A server whose log has this
record, and another one right after it, has an answer; so has one whose next record bears the next
number. A server that was caught up by a snapshot has no answer for the records that the snapshot
holds; it supports whatever the others say, but not alone. The answer of a quorum of the
voters (`electorate`) is the next record. A record that was never committed, left in the log of a
server that was away, gets the vote of a minority and is passed over; at the very end, such a record
is not in the history yet, and may never be.

A record may change who votes. Those before the change and those after it both have to have it;
from there on the new ones decide.

The same record may lie in two logs with different bytes (`wire.canonical_entry`): content counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.agreement.server_log import Record, ServerLog
from keepfast.tree import CONFIG
from keepfast.wire import (
    LogEntry,
    MalformedRecord,
    SetDataTxn,
    canonical_entry,
    counter_of,
    decode_entry,
    epoch_of,
    follows_in_epoch,
    format_zxid,
    is_reconfig,
)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an agreed history does not continue: `kind` and a sentence.

    "end": no server has a record after it. "minority": what follows is held by too few servers.
    "conflict": servers hold different records there, and no majority holds one. "hole": records
    are missing on all servers.
    """

    kind: str
    text: str
    servers: tuple[str, ...] = ()
    next_zxid: int | None = None


class AgreedHistory:
    """Walks the agreed history from a zxid on; `reached` is the last zxid that it gave."""

    def __init__(self, logs: list[ServerLog], electorate: Electorate, after: int) -> None:
        """A quorum of `electorate` has to hold a record; `after` must be a point of the history."""
        self._logs = logs
        self.electorate = electorate
        self.reached = after
        self.stop = Stop("end", "nothing was read yet")
        self._known_leads: dict[tuple[str, int, str, int], bool] = {}
        for log in logs:
            log.start(after)

    def records(self, until: int | None = None) -> Iterator[Record]:
        """The committed records after `reached`, up to `until`; then `stop` says why it ended.

        May be called again when servers have written more.
        """
        while until is None or self.reached < until:
            record = self._successor() or self._looked_again()
            if record is None:
                return
            self.reached = record.zxid
            self.electorate = self.electorate.changed(new_config(record))
            # Before it is given out: the caller may not come back for more.
            for log in self._logs:
                log.skip_to(record.zxid)
            yield record
        self.stop = Stop("end", f"{format_zxid(self.reached)} was asked for")

    def next_zxid(self) -> int | None:
        """The zxid of the next record; None if there is none, and then `stop` says why."""
        record = self._looked_again()
        return None if record is None else record.zxid

    def _looked_again(self) -> Record | None:
        """The next record by what the files hold now.

        Each log is read on from a listing of its own moment: where one ends, another may know of
        more, and without this look a majority would be missed.
        """
        for log in self._logs:
            log.poll(self.reached)
        return self._successor()

    def _successor(self) -> Record | None:
        votes: list[tuple[Record, list[str]]] = []
        beyond: list[tuple[Record, str]] = []
        for log in self._logs:
            record = log.peek()
            if record is None:
                continue
            if _is_next(record.zxid, self.reached, log.before):
                self._vote(votes, record, log.server)
            else:
                beyond.append((record, log.server))
        if not votes:
            # The earlier logs were purged: an epoch's first record is taken to follow what the
            # snapshot holds, and its digest will show it.
            for record, server in beyond:
                if self._may_join(record, server):
                    self._vote(votes, record, server)
        if not votes:
            self.stop = self._nothing_follows(beyond)
            return None
        for record, server in beyond:
            # It does not show what this one follows, but it has it.
            if any(known.zxid == record.zxid for known, _ in votes):
                self._vote(votes, record, server)
        for record, voters in votes:
            if self._is_held_by_quorum(record, voters):
                return record
        # Nobody else says otherwise, or what others say is of an older epoch. Then servers count as
        # well that do not show what follows here, but have later records that this one leads to.
        # What observers alone hold stands in nobody's way.
        votes = [vote for vote in votes if self.electorate.support(vote[1])[2]] or votes
        votes.sort(key=lambda vote: vote[0].zxid)
        record, voters = votes[-1]
        is_newest = len(votes) == 1 or epoch_of(votes[-2][0].zxid) < epoch_of(record.zxid)
        if is_newest:
            supporters = [
                server
                for other, server in beyond
                if server not in voters and self._leads_to(voters, other)
            ]
            if self._is_held_by_quorum(record, voters + supporters):
                return record
        self.stop = self._too_few(votes)
        return None

    def _is_held_by_quorum(self, record: Record, servers: list[str]) -> bool:
        """Whether these servers decide on a record, also by what it makes of the members."""
        after = self.electorate.changed(new_config(record))
        return self.electorate.is_quorum(servers) and after.is_quorum(servers)

    def _leads_to(self, servers: list[str], record: Record) -> bool:
        """Whether one of the servers has `record` too, further on."""
        for log in self._logs:
            if log.server not in servers:
                continue
            # Asked for each record of the hole that `record` ends: looked up once.
            key = (log.server, record.zxid, record.file, record.offset)
            if key not in self._known_leads:
                held = log.find(record.zxid)
                self._known_leads[key] = held is not None and same_record(held, record.entry)
            if self._known_leads[key]:
                return True
            del self._known_leads[key]  # it may come to have it
        return False

    def _may_join(self, record: Record, server: str) -> bool:
        """Whether a log has nothing between what was reached and the first record of an epoch."""
        before = next(log.before for log in self._logs if log.server == server)
        is_later = epoch_of(record.zxid) > epoch_of(self.reached)
        has_hole = before is None or before < self.reached
        return has_hole and is_later and counter_of(record.zxid) == 1

    def _vote(self, votes: list[tuple[Record, list[str]]], record: Record, server: str) -> None:
        for known, servers in votes:
            if known.zxid == record.zxid and same_record(known.entry, record.entry):
                if server not in servers:
                    servers.append(server)
                return
        votes.append((record, [server]))

    def _nothing_follows(self, beyond: list[tuple[Record, str]]) -> Stop:
        here = format_zxid(self.reached)
        if not beyond:
            return Stop("end", f"the records end at {here}")
        zxid, server = min((record.zxid, server) for record, server in beyond)
        return Stop(
            "hole",
            f"no server has the records between {here} and {format_zxid(zxid)}",
            (server,),
            zxid,
        )

    def _too_few(self, votes: list[tuple[Record, list[str]]]) -> Stop:
        servers = tuple(server for _, names in votes for server in names)
        first = min(record.zxid for record, _ in votes)
        if len(votes) > 1:
            listed = "; ".join(
                f"{format_zxid(record.zxid)} on {', '.join(names)}" for record, names in votes
            )
            here = format_zxid(self.reached)
            text = f"after {here} the servers hold different records: {listed}"
            return Stop("conflict", text, servers, first)
        text = (
            f"{format_zxid(first)} and what follows it is held by {', '.join(servers)} alone, "
            f"which is no quorum of the {self.electorate.counted}"
        )
        return Stop("minority", text, servers, first)


def new_config(record: Record) -> str:
    """What a record makes of /zookeeper/config; empty if it is not about who the members are."""
    if not is_reconfig(record.entry):
        return ""
    try:
        body = decode_entry(record.entry).body
    except MalformedRecord:
        return ""
    if not isinstance(body, SetDataTxn) or body.path != CONFIG:
        return ""
    return (body.data or b"").decode("utf-8", "replace")


def _is_next(zxid: int, reached: int, before: int | None) -> bool:
    """Whether a record of a log follows `reached`; `before` is the zxid before it there.

    By its number; or as the first of a later epoch right after it. The first record of a log
    (nothing before it) follows the start of an epoch, at which a leader's snapshot may stand, and
    the empty tree.
    """
    if follows_in_epoch(zxid, reached):
        return True
    if counter_of(zxid) != 1 or epoch_of(zxid) <= epoch_of(reached):
        return False
    return before == reached or (before is None and counter_of(reached) == 0)


def same_record(one: bytes, other: bytes) -> bool:
    """Whether two entries are the same txn, also where healthy servers log other bytes."""
    if one == other:
        return True
    try:
        return _content(decode_entry(one)) == _content(decode_entry(other))
    except MalformedRecord:
        return False


def _content(entry: LogEntry) -> LogEntry:
    # A server with digests switched off logs the same txn without one.
    return canonical_entry(entry)._replace(digest=None)
