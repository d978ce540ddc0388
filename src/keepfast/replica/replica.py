"""A server without I/O: bytes from clients in, bytes to clients and records to store out.

Theory of operation.  The driver calls `tell_time`, then one of `receive`, `log_durable`, `tick`,
`lost`; afterwards it takes what is in `appends`, `dirty` and `closing`.  These three are all the
effects there are: lists of plain values, because a request costs microseconds here.

Where writes go is the server's role.  Alone, or as a leader, it makes a txn of a write at once
(proposer.py) and applies and answers it when it is committed; alone, it is a quorum of one, and
durable is committed.  As a learner it passes writes on (forwarder.py).  Without a role it serves
nobody.  A read is answered at once, unless a write of the same connection is under way: then it
waits in the connection's queue, so that a client reads what it wrote and gets replies in the
order of its requests.

Events are queued to connections while a txn is applied, before any reply that can show the new
state, so that no client sees a change before it is told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from keepfast.replica.audit import AuditRecord, audit_records
from keepfast.replica.authentication import INTRODUCTIONS, Authenticator, no_nonce
from keepfast.replica.backpressure import LARGE_REPLY, note_large
from keepfast.replica.connection import NO_OPERATION, Connection, PendingWrite, Phase
from keepfast.replica.events import tell
from keepfast.replica.forwarder import Forwarder
from keepfast.replica.handshake import Handshake
from keepfast.replica.local_writes import answers_alone
from keepfast.replica.malformed import UnreadableError
from keepfast.replica.options import ReplicaOptions
from keepfast.replica.proposals import WRITES, Append, Proposal
from keepfast.replica.proposer import Proposer, decode_write
from keepfast.replica.reads import HANDLERS as READS
from keepfast.replica.reads import answer_single, plain_data_reply
from keepfast.replica.recent_reads import RecentReads
from keepfast.replica.replies import reply_body
from keepfast.replica.sessions import SessionTracker, TouchTable
from keepfast.replica.statistics import (
    DIGEST_INTERVAL,
    Distribution,
    ReplicaStatistics,
    TreeDigest,
)
from keepfast.replica.syncs import Syncs
from keepfast.replica.throttle import Throttle
from keepfast.tree import (
    Tree,
    WatchTable,
)
from keepfast.wire import (
    ErrorCode,
    Id,
    KeeperError,
    LogEntry,
    MalformedRecord,
    OpCode,
    ServerId,
    SessionId,
    Xid,
    Zxid,
    encode_reply,
    invariant,
    make_zxid,
)

if TYPE_CHECKING:
    from keepfast.replica.reconfiguration import Reconfiguration

_REQUEST_HEADER: Final = Struct(">ii")
_HEADER_SIZE: Final = 8
_LENGTH_SIZE: Final = 4
_NO_PASSWORD: Final = bytes(16)

_OPEN: Final = Phase.OPEN
_GET_DATA: Final = OpCode.GET_DATA.value
_PING: Final = OpCode.PING.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_MULTI: Final = OpCode.MULTI.value
_SET_DATA: Final = OpCode.SET_DATA.value
_SYNC: Final = OpCode.SYNC.value


class Replica:
    """See the module."""

    def __init__(
        self,
        tree: Tree | None,
        options: ReplicaOptions,
        now_ms: int,
        wall_ms: int,
        make_nonce: Callable[[], str] = no_nonce,
    ) -> None:
        """With a tree: alone, and serving. Without: it waits for `lead` or `learn`."""
        self.options = options
        self.watches: WatchTable[Connection] = WatchTable()
        self.connections: dict[int, Connection] = {}  # by session
        self.max_field = options.max_field_bytes
        self.skips_acls = options.prepare.is_acl_skipped
        # Whether records are taken. Not on a full disk: reads go on, writes are refused.
        self.is_writable = True
        # Decides about changes of the membership; None: this is not an ensemble.
        self.reconfiguration: Reconfiguration | None = None
        # Effects; the driver takes them.
        self.appends: list[Append] = []
        self.dirty: set[Connection] = set()
        self.closing: set[Connection] = set()
        # None: changes are not audited.
        self.audits: list[AuditRecord] | None = [] if options.is_audited else None
        self.statistics = ReplicaStatistics()
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self._authenticator = Authenticator(
            options.authentication, options.super_digest, make_nonce
        )
        self.throttle = Throttle(self)
        self.handshake = Handshake(self)
        self.syncs = Syncs(self)
        self.recent_reads = RecentReads()
        self._number = 0
        # The role: at most one of the two is there, or neither and it is read-only.
        self.proposer: Proposer | None = None
        self.forwarder: Forwarder | None = None
        self.is_read_only = False
        self.tree = Tree() if tree is None else tree
        self.sessions: SessionTracker | TouchTable = SessionTracker(options.tick_ms)
        # What replies show: the last txn, or the start of the epoch that is served.
        self.last_zxid = self.tree.last_zxid
        if tree is not None:
            self.lead(tree)

    # -- roles -----------------------------------------------------------------------------------

    def lead(self, tree: Tree, epoch: int | None = None) -> None:
        """Serve a tree and make txns; all that is in the tree is committed."""
        self.stand_down("the server leads now")
        self.tree = tree
        self.proposer = Proposer(self, tree, epoch)
        self.sessions = self.proposer.sessions
        self.last_zxid = tree.last_zxid if epoch is None else make_zxid(epoch, 0)

    def learn(self, tree: Tree, epoch: int, send: Callable[[bytes], None]) -> None:
        """Serve a tree and pass writes on to the leader of `epoch`."""
        self.stand_down("the server follows now")
        self.tree = tree
        self.forwarder = Forwarder(self, send)
        self.sessions = self.forwarder.sessions
        self.last_zxid = max(tree.last_zxid, make_zxid(epoch, 0))

    def show(self, tree: Tree) -> None:
        """Serve a tree as it is to clients that are content with that (read-only mode)."""
        self.stand_down("the server is read-only now")
        self.tree = tree
        self.sessions = TouchTable(tree)
        self.is_read_only = True
        self.last_zxid = tree.last_zxid

    def stand_down(self, reason: str) -> None:
        """Serve nobody: clients must look for another server, their sessions live on."""
        for connection in list(self.handshake.greeted):
            self.close(connection, reason)
        self.proposer = self.forwarder = None
        self.is_read_only = False
        self.syncs.clear()

    @property
    def is_serving(self) -> bool:
        """Whether it has a role."""
        return self.proposer is not None or self.forwarder is not None or self.is_read_only

    # -- what the driver calls -------------------------------------------------------------------

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """Monotonic time for deadlines, wall clock time for txns; call it before anything else."""
        self.now_ms = now_ms
        self.wall_ms = wall_ms

    @property
    def outstanding(self) -> int:
        """Writes that are under way."""
        return 0 if self.proposer is None else len(self.proposer.proposals)

    def take_appends(self) -> list[Append]:
        """The records to store, in order."""
        records, self.appends = self.appends, []
        return records

    def connect(self, address: str, port: int, subject: str | None = None) -> Connection:
        """A new connection from an address, maybe with the subject of a certificate."""
        self._number += 1
        limit = self.options.max_frame_bytes
        connection = Connection(self._number, address, port, limit, self.now_ms)
        self._authenticator.meet(connection, subject)
        self.throttle.arrived(connection)
        return connection

    def identify(self, address: str, scheme: str, credentials: bytes) -> list[Id]:
        """The ids that somebody proves who is not connected as a client; may be none."""
        stranger = Connection(0, address, 0, self.options.max_frame_bytes, self.now_ms)
        return self._authenticator.proven_ids(stranger, scheme, credentials)

    def receive(self, connection: Connection, data: bytes) -> None:
        """Handle bytes of a client; replies that are ready are in its `out`."""
        reply = answer_single(self, connection, data)
        if reply is not None:
            connection.out.append(reply)
            self.dirty.add(connection)
            return
        statistics = self.statistics
        statistics.bytes_received += len(data)
        try:
            payloads = connection.frames.feed(data)
        except MalformedRecord as error:
            self.close(connection, str(error))
            return
        if self.throttle.limits_large and not self.throttle.takes_frame(connection):
            self._refuse_large(connection)
            return
        if not payloads:
            return
        if connection.phase is not Phase.OPEN:
            payloads = self.handshake.greet(connection, payloads)
        elif connection.touched_ms != self.now_ms and not self.handshake.touch(connection):
            self.close(connection, "the session has ended")
            return
        count = len(payloads)
        statistics.received += count
        connection.received += count
        self.handle_all(connection, payloads)

    def lost(self, connection: Connection) -> None:
        """The connection is gone; its session lives on until it expires."""
        if connection.phase is Phase.CLOSED:
            return
        connection.phase = Phase.CLOSED
        connection.free_ms = -1
        connection.queue.clear()
        connection.held.clear()
        self.throttle.forget(connection)
        self.handshake.greeted.pop(connection, None)
        self.watches.drop(connection)
        if self.connections.get(connection.session_id) is connection:
            del self.connections[connection.session_id]

    def close(self, connection: Connection, reason: str = "") -> None:
        """End a connection; what is in its `out` is still sent."""
        if connection.phase is Phase.CLOSED:
            return
        connection.close_reason = reason
        self.lost(connection)
        self.closing.add(connection)

    def log_durable(self, zxid: Zxid) -> None:
        """Records up to `zxid` are on disk; alone, that commits them."""
        self.commit(zxid)

    def commit(self, zxid: Zxid) -> None:
        """The txns that this server proposed up to `zxid` are agreed on: apply them, in order."""
        if self.proposer is None:
            return
        proposals, quick = self.proposer.proposals, self.proposer.quick
        while proposals and proposals[0].zxid <= zxid:
            if quick is not None:
                quick.commit(zxid)
                if not proposals or proposals[0].zxid > zxid:
                    break
            proposal = proposals.popleft()
            if isinstance(proposal, Proposal):
                self._commit(proposal)
        self.throttle.release()

    def commit_entry(self, entry: LogEntry) -> None:
        """A txn that the leader proposed is agreed on: apply it."""
        invariant(self.forwarder is not None, "only a learner applies the txns of others")
        if self.forwarder is not None:
            self._commit(self.forwarder.proposal_of(entry))
            self.forwarder.release_syncs(entry.header.zxid)

    def tick(self) -> None:
        """Expire sessions and clean up; call it about once a tick."""
        self.throttle.tick()
        self.handshake.tick()
        if self.proposer is not None and self.is_writable:
            self.proposer.tick()

    def expire(self, session_id: int) -> None:
        """End a session now, as if its client had been silent for too long."""
        if self.proposer is not None:
            self.proposer.end_session(SessionId(session_id))

    def touch_all(self) -> None:
        """Give every session its full time again: it was this server that was silent."""
        for session_id in list(self.tree.sessions):
            self.sessions.touch(session_id, self.now_ms)

    # -- requests --------------------------------------------------------------------------------

    def handle_all(self, connection: Connection, payloads: list[bytes]) -> None:
        """Handle requests in order, as long as the connection is open."""
        if connection.is_stalled or connection.is_throttled:
            connection.held.extend(payloads)
            return
        if connection.owes_identity:
            payloads = self._identify(connection, payloads)
        queue, out = connection.queue, connection.out
        quick = None if self.proposer is None else self.proposer.quick
        most = self.options.max_queued_requests
        # Everything in `out` that was not counted as told is the reply to a read.
        before = len(out) - connection.told
        waiting = iter(payloads)
        for payload in waiting:
            if len(payload) < _HEADER_SIZE:
                self.close(connection, "a request without a header")
                break
            xid, op = _REQUEST_HEADER.unpack_from(payload)
            if op in READS and len(queue) < most:
                if queue:
                    queue.append(payload)
                    continue
                plain = plain_data_reply(self, xid, payload) if op == _GET_DATA else None
                reply = self._read(connection, xid, op, payload) if plain is None else plain
                out.append(reply)
                if len(reply) > LARGE_REPLY and note_large(self, connection, len(reply)):
                    connection.held.extend(waiting)
            elif op == _SET_DATA and quick is not None and quick.propose(connection, xid, payload):
                pass
            else:
                self._handle_ordered(connection, xid, op, payload)
                if connection.phase is not Phase.OPEN:
                    break
                if connection.is_throttled:
                    connection.held.extend(waiting)
        count = len(out) - connection.told - before
        if count > 0:
            self.statistics.reads += count
            connection.reads += count
            connection.last_op = op
            connection.last_zxid = self.tree.last_zxid
            connection.last_ms = self.now_ms
            if xid >= 0:
                connection.last_xid = xid
            self.dirty.add(connection)

    def _read(self, connection: Connection, xid: int, op: int, payload: bytes) -> bytes:
        """The reply to a read, also to one that `plain_data_reply` does not answer."""
        zxid = self.last_zxid
        try:
            body = READS[op](self, connection, payload)
        except KeeperError as error:
            return encode_reply(xid, zxid, error.code)
        except MalformedRecord:
            return encode_reply(xid, zxid, ErrorCode.MARSHALLING_ERROR)
        return encode_reply(Xid.PING if op == _PING else xid, zxid, 0, body)

    def _handle_ordered(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        """A write, a read behind a write, or something else."""
        if op in WRITES or (self.is_read_only and op == _SYNC):
            if not self.throttle.holds(connection, payload):
                self._write(connection, xid, op, payload)
        elif op in INTRODUCTIONS:
            self._introduce(connection, payload)
        elif op in READS or op == _SYNC:
            if op == _SYNC:
                self.syncs.ask(connection, xid, payload)
            else:
                connection.queue.append(payload)
            if len(connection.queue) > self.options.max_queued_requests:
                self.close(connection, "too many requests wait behind a write")
        else:
            self.send(connection, encode_reply(xid, -1, ErrorCode.UNIMPLEMENTED))
            self.close(connection, f"request type {op} is not known or not for clients")

    def _write(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        waiting = PendingWrite(self.now_ms, xid, op)
        connection.queue.append(waiting)
        is_alone = connection.caller.is_local or self.is_read_only
        if is_alone and answers_alone(self, connection, waiting, payload):
            return
        if self.throttle.limits_large and not self.throttle.takes_write(waiting, len(payload)):
            self._refuse_large(connection)
        elif not self.is_writable:
            # Not even the refusal can be logged, so no zxid is used up.
            # Nor is one shown: a write in front of it may show a later one than is known now.
            reply = encode_reply(xid, -1, ErrorCode.SYSTEM_ERROR)
            self.answer(connection, waiting, reply)
        elif self.proposer is not None:
            request = decode_write(op, payload, _HEADER_SIZE, self.max_field)
            if isinstance(request, UnreadableError):
                self.syncs.answer_behind_writes(connection, waiting, xid, b"", request.code)
                return
            caller = connection.caller
            if not self.proposer.is_owner(caller.session_id, ServerId(self.options.server_id)):
                caller = caller._replace(is_moved=True)
            self.proposer.propose(caller, xid, op, request, connection, waiting)
        elif self.forwarder is not None:
            if self.audits is not None:
                waiting.request = decode_write(op, payload, _HEADER_SIZE, self.max_field)
            self.forwarder.forward(connection, xid, op, payload[_HEADER_SIZE:])

    def _refuse_large(self, connection: Connection) -> None:
        self.statistics.large_refusals += 1
        self.close(connection, "too many bytes of large requests at once")

    def _introduce(self, connection: Connection, payload: bytes) -> None:
        """Handle who a client says it is."""
        reply, close_reason = self._authenticator.answer(connection, payload)
        if reply:
            self.send(connection, reply)
        if close_reason:
            self.statistics.auth_failures += 1
            self.close(connection, close_reason)

    def _identify(self, connection: Connection, payloads: list[bytes]) -> list[bytes]:
        """Handle requests until the client has said who it is; gives those behind that."""
        for position, payload in enumerate(payloads):
            if not connection.owes_identity:
                return payloads[position:]
            self._introduce(connection, payload)
            if connection.phase is not Phase.OPEN:
                break
        return []

    # -- txns ------------------------------------------------------------------------------------

    def _commit(self, proposal: Proposal) -> None:
        """Apply a txn, tell who watches, answer who asked."""
        entry = proposal.entry
        header = entry.header
        zxid = header.zxid
        outcome = self.tree.apply(header, entry.body)
        self.last_zxid = zxid
        if self.proposer is not None:
            self.proposer.applied(proposal)
        if not zxid % DIGEST_INTERVAL:
            self.statistics.digests.append(TreeDigest(zxid, self.tree.digest))
        if self.audits is not None:
            self.audits.extend(audit_records(proposal, outcome))
        if outcome.changes and self.watches:
            for change in outcome.changes:
                tell(self, change, zxid)
        connection, waiting = proposal.connection, proposal.waiting
        if proposal.op == _CREATE_SESSION:
            self.handshake.created(connection)
        elif proposal.op == _CLOSE_SESSION:
            self._session_closed(connection, waiting, proposal)
        elif connection is not None and waiting is not None:
            if outcome.error and header.type != _MULTI:
                op = NO_OPERATION
                reply = encode_reply(proposal.xid, zxid, outcome.error)
            else:
                op = proposal.op
                body = reply_body(self.tree, proposal.op, entry.body, outcome)
                reply = encode_reply(proposal.xid, zxid, 0, body)
            self.note(self.statistics.updates, connection, op, proposal.xid, waiting.since_ms)
            self.answer(connection, waiting, reply)
        self.syncs.release(zxid)

    def answer(self, connection: Connection, waiting: PendingWrite, reply: bytes) -> None:
        """A write is done: send what is ready now, in the order of the requests."""
        waiting.reply = reply
        if waiting.large_bytes:
            self.throttle.finished(waiting)
        self.send_ready(connection)

    def send_ready(self, connection: Connection) -> None:
        """Send the replies that nothing is before any more."""
        since_ms = self.now_ms
        queue, out = connection.queue, connection.out
        sent = reads = xid = op = 0
        is_open = connection.phase is _OPEN and not connection.is_stalled
        while is_open and queue:
            item = queue.popleft()
            if isinstance(item, bytes):
                xid, op = _REQUEST_HEADER.unpack_from(item)
                plain = plain_data_reply(self, xid, item) if op == _GET_DATA else None
                reply = self._read(connection, xid, op, item) if plain is None else plain
                out.append(reply)
                reads += 1
                if len(reply) > LARGE_REPLY:
                    is_open = not note_large(self, connection, len(reply))
            elif item.reply is None:
                queue.appendleft(item)
                break
            else:
                if reads:
                    self.note(self.statistics.slow_reads, connection, op, xid, since_ms, reads)
                    reads = 0
                since_ms = item.since_ms
                out.append(item.reply)
            sent += 1
        if sent:
            connection.told += sent
            self.statistics.told += sent
            self.dirty.add(connection)
        if reads:
            self.note(self.statistics.slow_reads, connection, op, xid, since_ms, reads)

    def send(self, connection: Connection, data: bytes) -> None:
        """Queue a frame for a client."""
        connection.out.append(data)
        connection.told += 1
        self.statistics.told += 1
        self.dirty.add(connection)

    def note(
        self,
        times: Distribution,
        connection: Connection,
        op: int,
        xid: int,
        since_ms: int,
        count: int = 1,
    ) -> None:
        """Count a request that had to wait and is answered now, or the last of several."""
        spent_ms = self.now_ms - since_ms
        times.add(spent_ms, count)
        connection.note(op, xid, self.last_zxid, self.now_ms, spent_ms, count)

    # -- sessions --------------------------------------------------------------------------------

    def note_created(self, connection: Connection) -> None:
        """Count a session that was created by a txn."""
        updates = self.statistics.updates
        self.note(updates, connection, _CREATE_SESSION, 0, connection.opened_ms)

    def _session_closed(
        self, connection: Connection | None, waiting: PendingWrite | None, proposal: Proposal
    ) -> None:
        header = proposal.entry.header
        if connection is not None and waiting is not None:
            self.answer(connection, waiting, encode_reply(proposal.xid, header.zxid, 0))
        current = self.connections.get(header.session_id)
        if current is not None:
            self.close(current, "the session was closed" if waiting else "the session expired")
