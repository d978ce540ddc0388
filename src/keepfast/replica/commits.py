"""What happens when a txn is committed, on every server and for every kind of txn: one order.

    apply to the tree; notify watchers; answer the client; answer those who waited for it

Events go out before any reply that can show the new state, so that no client sees a change before
it is notified of it. A txn comes here as one of three: made here by the slow path (`Proposal`) or
by the fast path (`PlainWrite`), or a leader's plain setData (`LearnedSet`); a leader's other txns
are Proposals as well. They differ only in how they are applied and in how their reply is built.
Counters are updated once for each run of writes that one client sent together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from keepfast.replica.audit import audit_records
from keepfast.replica.backpressure import is_held
from keepfast.replica.connection import SESSION_CLOSED, Connection
from keepfast.replica.event_gate import EventGate
from keepfast.replica.events import tell, tell_in_slices
from keepfast.replica.forwarder import Forwarder
from keepfast.replica.handshake import Handshake
from keepfast.replica.pending_write import NO_OPERATION, PendingWrite
from keepfast.replica.proposals import PlainWrite, Proposal
from keepfast.replica.proposer import Proposer
from keepfast.replica.replies import reply_body
from keepfast.replica.reply_order import answer, send_overdue
from keepfast.replica.service import Service
from keepfast.replica.statistics import DIGEST_INTERVAL, TreeDigest
from keepfast.replica.syncs import Syncs
from keepfast.tree import (
    LIGHT,
    NOTHING,
    Change,
    ChangeKind,
    LongTxn,
    Outcome,
    Tree,
    wire_stat,
)
from keepfast.wire import ErrorCode, OpCode, Zxid, encode_reply

_SET_DATA: Final = OpCode.SET_DATA.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_DELETE: Final = OpCode.DELETE.value
_MULTI: Final = OpCode.MULTI.value
_SESSION_MOVED: Final = ErrorCode.SESSION_MOVED.value
_DATA: Final = ChangeKind.DATA

# The fast path of a reply is closed while events are sent.
_NO_QUEUE: Final[deque[PendingWrite | bytes]] = deque()

# A reply's length, xid, zxid and error; after it the 68 bytes of Stat.
_pack_reply: Final = Struct(">iiqi").pack
_HEADER_SIZE: Final = 16
_REPLY_SIZE: Final = _HEADER_SIZE + 68


class LearnedSet(NamedTuple):
    """A leader's plain setData that this server's tree has taken, and who waits for it here."""

    zxid: Zxid
    path: str
    node: Any
    connection: Connection | None
    waiting: PendingWrite | None


Txn = Proposal | PlainWrite | LearnedSet
# Who holds the syncs that wait for txns: of a server that makes them, and of a learner.
Waiting = Syncs | Forwarder


class _Run:
    """Writes that one client sent together, which are answered and not counted yet."""

    __slots__ = (
        "_service",
        "_spent_ms",
        "_times",
        "connection",
        "count",
        "last",
        "since_ms",
        "zxid",
    )

    def __init__(self, service: Service) -> None:
        self._service = service
        # None: there are none. `last` is the last of them, and `zxid` its txn.
        self.connection: Connection | None = None
        self.last: Any = None
        self.since_ms = self.zxid = self.count = 0
        # Of earlier ones, which took equally long: how long, and how many there were.
        self._spent_ms = self._times = 0

    def end(self) -> None:
        """Count them."""
        connection, service = self.connection, self._service
        if connection is not None:
            service.dirty[connection] = None
            spent_ms = service.now_ms - self.since_ms
            if spent_ms != self._spent_ms:
                self._count()
                self._spent_ms = spent_ms
            self._times += self.count
            last = self.last
            connection.note(last.op, last.xid, self.zxid, service.now_ms, spent_ms, self.count)
            self.connection = None
            self.count = 0

    def end_all(self) -> None:
        """Count them; there are no more."""
        self.end()
        self._count()

    def _count(self) -> None:
        if self._times:
            self._service.statistics.updates.add(self._spent_ms, self._times)
            self._times = 0


class Commits:
    """Carries out the consequences of a committed txn, in one order for all."""

    def __init__(self, service: Service, handshake: Handshake) -> None:
        self._service = service
        self._handshake = handshake
        # The events of the last txn, if they are sent in slices, and what has to wait for them.
        self._telling: Iterator[None] | None = None
        self._afterwards: Callable[[], None] | None = None
        # Long txns that the tree has, and that are freed some at a time.
        self._left: deque[LongTxn] = deque()

    def commit_all(self, txns: Iterable[Txn], proposer: Proposer | None, syncs: Waiting) -> None:
        """Apply committed txns, each before the next one is requested. Raises ReplayConflict."""
        service = self._service
        watches, tree, statistics = service.watches, service.tree, service.statistics
        run, sent, outcome = _Run(service), 0, NOTHING
        has_watches, has_syncs, stalled = bool(watches), syncs.is_waiting, service.stalled
        for txn in txns:
            zxid, connection = txn.zxid, txn.connection
            if stalled and connection in stalled:
                has_watches = _send_overdue(service, run, connection)
            reply: bytes | None = None
            if isinstance(txn, PlainWrite):
                _, path, new, before, delta, digest = txn.plain
                # Not null: a request with null data is not plain.
                node = tree.take_data(zxid, path, new.data or b"", new.stat, before, delta, digest)
                if proposer is not None:
                    proposer.installed(path, new)
                changes: tuple[Change, ...] = (Change(_DATA, path, new.acl),) if has_watches else ()
                waiting: PendingWrite | None = txn
                if connection is not None:
                    reply = _pack_reply(_REPLY_SIZE, txn.xid, zxid, 0) + wire_stat(node)
            else:
                outcome = self._apply(proposer, txn, has_watches)
                changes, waiting = outcome.changes, txn.waiting
                if waiting is not None:
                    reply = _reply_to(tree, txn, waiting, outcome)
            service.last_zxid = zxid
            if not zxid % DIGEST_INTERVAL:
                statistics.digests.append(TreeDigest(zxid, tree.digest))
            for change in changes if has_watches else ():
                tell(service, change, zxid)
            if reply is None or connection is None or waiting is None:
                if isinstance(txn, Proposal):
                    run.end()
                    self._settle(proposer, txn, outcome)
            else:
                if run.connection is not connection or run.since_ms != waiting.since_ms:
                    run.end()
                    run.connection, run.since_ms = connection, waiting.since_ms
                run.last, run.zxid, run.count = waiting, zxid, run.count + 1
                queue = connection.queue if service.gate is None else _NO_QUEUE
                # Nothing can be answered after it if another write is under way.
                if (queue and queue[0] is waiting and not waiting.large_bytes) and (
                    len(queue) == 1 or getattr(queue[1], "reply", b"") is None
                ):
                    queue.popleft()
                    connection.out.append(reply)
                    connection.told += 1
                    sent += 1
                else:
                    # It counts before the reads after it, one of which may set a watch.
                    run.end()
                    answer(service, connection, waiting, reply)
                    has_watches = bool(watches)
            if has_syncs:
                run.end()
                syncs.release(zxid)
                has_watches = bool(watches)
        statistics.told += sent
        run.end_all()

    def _apply(
        self, proposer: Proposer | None, txn: Proposal | LearnedSet, wants_changes: bool
    ) -> Outcome:
        """Have the tree take a txn; returns what is to be reported now, where somebody watches."""
        service = self._service
        if isinstance(txn, LearnedSet):
            change = Change(_DATA, txn.path, service.tree.acls.lists[txn.node.acl])
            return Outcome((change,) if wants_changes else ())
        is_audited, long_txn = service.audits is not None, txn.long_txn
        if proposer is not None:
            outcome = proposer.apply(txn, wants_changes=wants_changes or is_audited)
        elif long_txn is not None:
            outcome = long_txn.install()
        else:
            outcome = service.tree.apply(txn.entry.header, txn.entry.body)
        records = audit_records(txn, outcome) if is_audited else iter(())
        if long_txn is None:
            if service.audits is not None:
                service.audits += records
            return outcome
        self._left.append(long_txn)
        service.has_more_work = True
        # One look at all of its changes, as there are very many.
        is_watched = service.watches.meet(long_txn.paths)
        if is_watched or is_audited:
            paths = long_txn.paths if is_watched else frozenset[str]()
            service.gate = gate = EventGate(service.watches, service.stalled, paths)
            changes = outcome.changes if is_watched else ()
            self._telling = tell_in_slices(service, gate, txn.zxid, changes, records)
        return outcome._replace(changes=())

    def continue_work(self) -> None:
        """Others had their turn: send more of the events of the last txn, and clean up after it."""
        if self._telling is None:
            service, left = self._service, self._left
            size = LIGHT * service.options.prepare.slice_size
            if left and not left[0].let_go(size):
                left.popleft()
            tree = service.tree
            if not (tree.is_frozen or tree.thaw_step(size)) or left:
                service.has_more_work = True
            return
        if next(self._telling, self) is not self:
            self._service.has_more_work = True
            return
        self._telling = self._service.gate = None
        afterwards, self._afterwards = self._afterwards, None
        if afterwards is not None:
            afterwards()

    def end_role(self) -> None:
        """All clients are gone, and those who watched anything ask what they missed."""
        for _ in self._telling or ():
            pass  # the audit log has to be whole
        self._telling = self._afterwards = self._service.gate = None

    def _settle(self, proposer: Proposer | None, txn: Proposal, outcome: Outcome) -> None:
        """Do for a txn what is more than a reply, if anything is: sessions begin, end and move."""
        connection, header = txn.connection, txn.entry.header
        if txn.op == _CLOSE_SESSION:
            client = self._service.connections.get(header.session_id)
            if client is not None and is_held(self._service, client):
                # It is sent the events before that.
                self._afterwards = partial(self._session_closed, proposer, txn)
            else:
                self._session_closed(proposer, txn)
        elif header.type == _CREATE_SESSION:
            self._handshake.created(header.session_id, connection)
        elif connection is not None:
            if txn.op == _CREATE_SESSION:
                self._service.close(connection, "its session could not be created")
            elif outcome.error == _SESSION_MOVED:
                # It may also be what became of a request that was sent through another server.
                self._service.close(connection, "the session has moved to another server")

    def _session_closed(self, proposer: Proposer | None, txn: Proposal) -> None:
        """The end of a session was committed: answer who asked for it, and close."""
        service, header = self._service, txn.entry.header
        connection, waiting = txn.connection, txn.waiting
        current = service.connections.get(header.session_id)
        for client in (connection, current):
            if client is not None:
                # There is no later turn in which it could be told.
                service.stalled.pop(client, None)
                client.is_stalled = False
        if connection is not None and waiting is not None:
            answer(service, connection, waiting, encode_reply(txn.xid, header.zxid, 0))
        if current is not None:
            service.close(current, SESSION_CLOSED if waiting else "the session expired")
        for returned in () if proposer is None else proposer.ended(header.session_id):
            self._handshake.found(returned, is_valid=False)


def _send_overdue(service: Service, run: _Run, connection: Connection) -> bool:
    """Answer what stands before a txn, before it is applied; returns whether anybody watches."""
    run.end()
    send_overdue(service, connection)
    return bool(service.watches)


def _reply_to(
    tree: Tree, txn: Proposal | LearnedSet, waiting: PendingWrite, outcome: Outcome
) -> bytes | None:
    """The frame that answers a client of this server; None: it takes more than that."""
    if isinstance(txn, LearnedSet):
        return _pack_reply(_REPLY_SIZE, waiting.xid, txn.zxid, 0) + wire_stat(txn.node)
    op, error = txn.op, outcome.error
    if op == _CLOSE_SESSION or error == _SESSION_MOVED:
        return None
    if error and txn.entry.header.type != _MULTI:
        # Reports show no type of a request that failed.
        waiting.op = NO_OPERATION
        return encode_reply(txn.xid, txn.zxid, error)
    body = b"" if op == _DELETE else txn.reply_body
    if body is None:
        body = reply_body(tree, op, txn.entry.body, outcome)
    return _pack_reply(_HEADER_SIZE + len(body), txn.xid, txn.zxid, 0) + body
