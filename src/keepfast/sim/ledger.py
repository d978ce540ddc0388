"""The global view of all servers: who logged what, and what was committed.

Theory of operation. Drivers report each record that a server logs, makes durable, acknowledges,
drops or applies. From that it keeps

- for each server its *shadow*: the zxids that its log holds, and how far it has vouched for them;
- the *order*: the txns that some server applied, which Zab says is one sequence for all;
- the *reference*: a tree to which the order is applied here, without any protocol, with the state
  of each znode at each zxid. What a client reads is compared with it.

The ledger decides nothing about right and wrong, except where there is nothing left to note: a
record that cannot be put into the order raises `Violation`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from keepfast.quorum import Membership, parse_membership
from keepfast.tree import ChangeKind, ReplayConflict, Tree, owner_of, parent_of, wire_stat
from keepfast.wire import (
    LogEntry,
    OpCode,
    ServerId,
    SetDataTxn,
    Zxid,
    canonical_entry,
    counter_of,
    decode_entry,
    epoch_of,
    format_zxid,
)

_NONE: Final = Zxid(-1)


class Violation(BaseException):
    """Something that must never happen has happened.

    Not an Exception: no error handling of the code under test may run.
    """

    def __init__(self, checker: str, what: str) -> None:
        super().__init__(checker, what)
        self.checker = checker
        self.what = what

    def __str__(self) -> str:
        return f"{self.checker}: {self.what}"


@dataclass(slots=True)
class Shadow:
    """What one server has on its disk, as far as it said so."""

    # The zxid that its first record follows; -1: it has no history.
    base: Zxid = _NONE
    records: list[Zxid] = field(default_factory=list)
    durable: Zxid = _NONE
    # The last zxid that it acknowledged as durable.
    vouched: Zxid = _NONE
    # The end of its history when it last asked its disk to agree to an epoch.
    agreeing: Zxid = _NONE
    # The last epoch that it acknowledged.
    vouched_epoch: int = -1
    # Somebody damaged, removed or replaced files since it last opened them.
    is_damaged: bool = False
    # It has a history that was given up, and does not know it.
    is_stale: bool = False
    # An Apache leader led it across a hole, and up to this zxid nothing has shown it that.
    misled_at: Zxid | None = None
    # Those of its records before which an Apache leader left out others: its log has a hole there.
    across: set[Zxid] = field(default_factory=set)
    # It was given a leader's tree, and has not agreed to that leader's epoch yet.
    is_catching_up: bool = False
    # Its disk is at replacing what it had by a leader's tree: a crash leaves one or the other.
    is_installing: bool = False

    @property
    def head(self) -> Zxid:
        """The last zxid of its history."""
        return self.records[-1] if self.records else self.base

    def begin_at(self, zxid: Zxid) -> None:
        """All that it has is a state at `zxid`; -1: not even that."""
        self.base, self.records, self.across = zxid, [], set()

    def cut(self, zxid: Zxid) -> None:
        """Drop what lies after `zxid`."""
        del self.records[bisect_right(self.records, zxid) :]
        self.across = {each for each in self.across if each <= zxid}
        if zxid < self.base:
            self.base = zxid
        self.durable = min(self.durable, zxid)
        self.vouched = min(self.vouched, zxid)
        self.agreeing = min(self.agreeing, zxid)


class ZnodeState(NamedTuple):
    """A znode from one zxid on; `stat` None: it does not exist."""

    zxid: int
    data: bytes | None
    stat: bytes | None
    children: frozenset[str]
    # As a server keeps it: also what marks a container, or a TTL.
    owner: int = 0


class Event(NamedTuple):
    """What a watch on a path would be notified of, as a WatchTable sees it."""

    zxid: int
    kind: ChangeKind
    # Whether it is the children of the path that changed, not the znode.
    is_child: bool


class Ledger:
    """Who logged what, and what a quorum has: the judge of agreement, order and durability."""

    def __init__(self, membership: Membership) -> None:
        # The members as of each change that was committed; the first is what files say.
        self.memberships: list[tuple[int, Membership]] = [(0, membership)]
        self.shadows: dict[ServerId, Shadow] = {}
        # Every record that anybody ever logged; the first bytes seen under its zxid.
        self.entries: dict[Zxid, bytes] = {}
        self.proposers: dict[Zxid, ServerId] = {}
        # Each record -> the one before it in the history of the server that proposed it.
        self._before: dict[Zxid, Zxid] = {}
        # What was proposed before the world began ends here.
        self._begins_behind = Zxid(0)
        self.order: list[Zxid] = []
        self.decoded: dict[Zxid, LogEntry] = {}
        self.tree = Tree()
        # Servers of ours that an Apache server leads.
        self.under_apache: set[ServerId] = set()
        # (digest, sessions) of the reference after each txn of the order.
        self.digests: dict[int, tuple[int, int]] = {0: _digest(self.tree)}
        self.states: dict[str, list[ZnodeState]] = {}
        self.events: dict[str, list[Event]] = {}
        self.session_ends: dict[int, Zxid] = {}
        self.session_starts: dict[int, Zxid] = {}
        # Epochs in which somebody served: nothing below their start can be committed any more.
        self._floor = Zxid(0)
        for path in self.tree.paths():
            self._note_state(path, 0)

    def begin_with(self, tree: Tree) -> None:
        """What was committed begins with a tree that a backup held; nothing was before."""
        self.tree = tree
        self._begins_behind = tree.last_zxid
        self.order = [tree.last_zxid]
        self.digests[tree.last_zxid] = _digest(tree)
        for path in tree.paths():
            self._note_state(path, tree.last_zxid)

    def shadow_of(self, server: ServerId) -> Shadow:
        """The shadow of a server."""
        shadow = self.shadows.get(server)
        if shadow is None:
            shadow = self.shadows[server] = Shadow()
        return shadow

    # -- records ---------------------------------------------------------------------------------

    def logged(self, server: ServerId, zxid: Zxid, entry: bytes) -> bool:
        """A server hands a record to its disk; True if it is the first that anybody sees of it."""
        is_new = self.proposed(server, zxid, entry)
        self.shadow_of(server).records.append(zxid)
        return is_new

    def led_by_apache(self, server: ServerId, zxid: Zxid, log: Collection[Zxid]) -> None:
        """A server is about to log a record that an Apache leader with this log sent it.

        A learner cannot see it if what the record follows is not in that log: Apache sends no
        chain. That the learner lacks what it was sent is never excused by this.
        """
        before = self._before.get(zxid, zxid)
        if self.shadow_of(server).head < before < zxid and before not in log:
            self.shadow_of(server).across.add(zxid)

    def proposed(self, server: ServerId, zxid: Zxid, entry: bytes) -> bool:
        """A server sends or logs a record; True if it is new, the first that anybody sees of it."""
        known = self.entries.get(zxid)
        if known is None:
            self.entries[zxid] = entry
            self.proposers[zxid] = server
            is_first = counter_of(zxid) == 1
            self._before[zxid] = self.shadow_of(server).head if is_first else Zxid(zxid - 1)
        elif known != entry and _canonical(known) != _canonical(entry):
            raise Violation(
                "agreement",
                f"s{server} logs other bytes under {format_zxid(zxid)} than s"
                f"{self.proposers[zxid]} did",
            )
        return known is None and zxid > self._begins_behind

    def forget_after(self, zxid: Zxid) -> None:
        """A server without peers has lost what it logged after `zxid`: the zxids are free."""
        for each in [z for z in self.entries if z > zxid and z not in self.digests]:
            del self.entries[each]
            del self.proposers[each]
            del self._before[each]

    def vouched(self, server: ServerId, zxid: Zxid) -> None:
        """A server says that it holds everything up to `zxid` durably.

        At the start of an epoch: that it agreed to it, and holds all that it was sent before.
        """
        shadow = self.shadow_of(server)
        if counter_of(zxid):
            shadow.vouched = max(shadow.vouched, zxid)
        else:
            shadow.vouched = max(shadow.vouched, shadow.agreeing)
            shadow.vouched_epoch = max(shadow.vouched_epoch, epoch_of(zxid))

    # -- the order -------------------------------------------------------------------------------

    @property
    def last(self) -> Zxid:
        """The end of the order."""
        return self.order[-1] if self.order else Zxid(0)

    def applied(self, server: ServerId, zxid: Zxid) -> list[Zxid]:
        """A server's tree is at `zxid`; returns what is new in the order by that."""
        if counter_of(zxid) == 0:
            self._floor = max(self._floor, zxid)
            return []
        if zxid in self.digests:
            return []
        last = self.last
        if zxid < last or zxid < self._floor:
            raise Violation(
                "total order",
                f"s{server} applies {format_zxid(zxid)}, which is not in the agreed order up to "
                f"{format_zxid(max(last, self._floor))}",
            )
        shadow = self.shadow_of(server)
        records = shadow.records
        start = bisect_right(records, last)
        new = records[start : bisect_right(records, zxid)]
        before = records[start - 1] if start else shadow.base
        if before > last:
            before, given = self._in_tree(before, last)
            new = given + new
        if not new or new[-1] != zxid or (before != last and not self._is_start(before, last)):
            raise Violation(
                "prefix",
                f"s{server} applies {format_zxid(zxid)}, and its log leads there from "
                f"{format_zxid(before)}, not from the agreed {format_zxid(last)}",
            )
        for each in new:
            self._append(each)
        return new

    def _in_tree(self, zxid: Zxid, last: Zxid) -> tuple[Zxid, list[Zxid]]:
        """What a tree at `zxid` holds after the agreed `last`, and what that follows.

        A leader's tree holds all that the leader has, also what nobody applied before. If the
        leader dies then, the first server that applies it may have no record of it, only the tree.
        A zxid determines all before it: what its primary had. That the tree is made of that is
        checked as for any other.
        """
        held: list[Zxid] = []
        while last < zxid and (before := self._before.get(zxid, zxid)) < zxid:
            held.append(zxid)
            zxid = before
        return zxid, held[::-1]

    def _is_start(self, zxid: Zxid, last: Zxid) -> bool:
        """Whether a zxid is the start of an epoch that directly follows the last txn."""
        return counter_of(zxid) == 0 and last < zxid

    def _append(self, zxid: Zxid) -> None:
        entry = decode_entry(self.entries[zxid])
        self.order.append(zxid)
        self.decoded[zxid] = entry
        header = entry.header
        sessions = set(self.tree.sessions)
        try:
            outcome = self.tree.apply(header, entry.body)
        except ReplayConflict as error:
            raise Violation("exact replay", str(error)) from error
        self.digests[zxid] = _digest(self.tree)
        if header.type == OpCode.RECONFIG and isinstance(entry.body, SetDataTxn):
            self.memberships.append((zxid, parse_membership(entry.body.data or b"")))
        for session_id in sessions.symmetric_difference(self.tree.sessions):
            if session_id in sessions:
                self.session_ends[session_id] = zxid
            else:
                self.session_starts[session_id] = zxid
        touched: dict[str, None] = {}
        for change in outcome.changes:
            touched[change.path] = None
            if change.kind is not ChangeKind.ACL:
                event = Event(zxid, change.kind, is_child=False)
                self.events.setdefault(change.path, []).append(event)
            if change.parent_acl is not None:
                parent = parent_of(change.path)
                touched[parent] = None
                event = Event(zxid, change.kind, is_child=True)
                self.events.setdefault(parent, []).append(event)
        for path in touched:
            self._note_state(path, zxid)

    def _note_state(self, path: str, zxid: int) -> None:
        node = self.tree.find(path)
        if node is None:
            state = ZnodeState(zxid, None, None, frozenset())
        else:
            children = frozenset(node.children or ())
            owner = owner_of(node.stat)
            state = ZnodeState(zxid, node.data, wire_stat(node), children, owner)
        self.states.setdefault(path, []).append(state)

    # -- who decides -----------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """The members now."""
        return self.memberships[-1][1]

    @property
    def is_alone(self) -> bool:
        """Whether there is one server, which nobody can fill again."""
        return len(self.membership.voters) == 1

    def is_quorum(self, servers: Collection[ServerId], zxid: int) -> bool:
        """Whether these servers could agree on `zxid`: by the members of then.

        A membership change needs both the old ones and the new ones.
        """
        index = bisect_right(self.memberships, zxid, key=lambda pair: pair[0]) - 1
        since, membership = self.memberships[max(index, 0)]
        if since == zxid and index > 0 and not is_majority(self.memberships[index - 1][1], servers):
            return False
        return is_majority(membership, servers)

    # -- questions -------------------------------------------------------------------------------

    def position(self, zxid: int) -> Zxid:
        """The last txn of the order at or before `zxid`."""
        index = bisect_right(self.order, zxid)
        return self.order[index - 1] if index else Zxid(0)

    def digest_at(self, zxid: int) -> tuple[int, int]:
        """Digest of the reference at `zxid`."""
        return self.digests[self.position(zxid)]

    def state_at(self, path: str, zxid: int) -> ZnodeState:
        """A znode as it was at `zxid`."""
        states = self.states.get(path, [])
        index = bisect_right(states, zxid, key=lambda state: state.zxid)
        return states[index - 1] if index else ZnodeState(0, None, None, frozenset())

    def events_between(self, path: str, after: int, up_to: int) -> list[Event]:
        """What happened to a path after `after`, up to and with `up_to`."""
        events = self.events.get(path)
        if not events:
            return []
        start = bisect_right(events, after, key=lambda event: event.zxid)
        stop = bisect_right(events, up_to, key=lambda event: event.zxid)
        return events[start:stop]

    def order_after(self, zxid: Zxid) -> list[Zxid]:
        """What was committed after `zxid`."""
        return self.order[bisect_right(self.order, zxid) :]

    def undecided_memberships(self) -> list[Membership]:
        """Those of changes that some server has stored, and that may be committed yet."""
        last = self.order[-1] if self.order else _NONE
        held = {z for shadow in self.shadows.values() for z in shadow.records if z > last}
        entries = [decode_entry(self.entries[z]) for z in sorted(held.intersection(self.entries))]
        return [
            parse_membership(entry.body.data or b"")
            for entry in entries
            if entry.header.type == OpCode.RECONFIG and isinstance(entry.body, SetDataTxn)
        ]


def is_majority(membership: Membership, servers: Collection[ServerId]) -> bool:
    """Whether more than half of the voters are among these; not by the code under test."""
    return 2 * len(membership.voters.intersection(servers)) > len(membership.voters)


def tree_digest(tree: Tree) -> tuple[int, int]:
    """What must be equal on all servers at one zxid: znodes, and sessions."""
    return _digest(tree)


def _digest(tree: Tree) -> tuple[int, int]:
    return tree.digest, hash(frozenset(tree.sessions.items()))


def _canonical(entry: bytes) -> LogEntry:
    return canonical_entry(decode_entry(entry))
