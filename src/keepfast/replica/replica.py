"""A server without I/O: bytes from clients in, bytes to clients and records to store out.

Theory of operation.  The driver calls `tell_time`, then one of `receive`, `log_durable`, `tick`,
`lost`; afterwards it takes what is in `appends`, `dirty` and `closing`.  These three are all the
effects there are: lists of plain values, because a request costs microseconds here.

A write becomes a txn at once (`Preparer`, against the tree as it will be), is stored, and is
applied and answered when it is durable: this server is a quorum of one.  A read is answered
at once, unless a write of the same connection is under way: then it waits in the connection's
queue, so that a client reads what it wrote and gets replies in the order of its requests.

Events are queued to connections while a txn is applied, before any reply that can show the new
state, so that no client sees a change before it is told of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from keepfast.replica.audit import AuditRecord, audit_records
from keepfast.replica.authentication import INTRODUCTIONS, Authenticator, no_nonce
from keepfast.replica.cleaning import due_paths
from keepfast.replica.connection import NO_OPERATION, Connection, PendingWrite, Phase
from keepfast.replica.options import ReplicaOptions
from keepfast.replica.proposals import Append, Proposal
from keepfast.replica.reads import HANDLERS as READS
from keepfast.replica.replies import reply_body
from keepfast.replica.sessions import SessionTracker, first_session_id
from keepfast.replica.statistics import (
    DIGEST_INTERVAL,
    Distribution,
    ReplicaStatistics,
    TreeDigest,
)
from keepfast.tree import (
    Caller,
    Change,
    Preparer,
    Tree,
    WatchTable,
    is_allowed,
)
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    CreateSessionTxn,
    DeleteContainerRequest,
    ErrorCode,
    ErrorTxn,
    EventType,
    Id,
    KeeperError,
    LogEntry,
    MalformedRecord,
    OpCode,
    Perms,
    SessionId,
    TxnHeader,
    Xid,
    Zxid,
    codec_of,
    counter_of,
    decode_multi_request,
    decode_request,
    encode,
    encode_entry,
    encode_event,
    encode_frame,
    encode_reply,
    encode_text,
    session_password,
)

_REQUEST_HEADER: Final = Struct(">ii")
_HEADER_SIZE: Final = 8
_LENGTH_SIZE: Final = 4
_NO_PASSWORD: Final = bytes(16)
_MAX_COUNTER: Final = 0xFFFFFFFE

_PING: Final = OpCode.PING.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_MULTI: Final = OpCode.MULTI.value
_SYNC: Final = OpCode.SYNC.value

WRITES: Final = frozenset(
    op.value
    for op in (
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.SET_ACL,
        OpCode.MULTI,
        OpCode.RECONFIG,
        OpCode.CLOSE_SESSION,
    )
)


class Replica:
    """See the module."""

    def __init__(
        self,
        tree: Tree,
        options: ReplicaOptions,
        now_ms: int,
        wall_ms: int,
        make_nonce: Callable[[], str] = no_nonce,
    ) -> None:
        self.tree = tree
        self.options = options
        self.watches: WatchTable[Connection] = WatchTable()
        self.sessions = SessionTracker(options.tick_ms)
        self.connections: dict[int, Connection] = {}  # by session
        self.max_field = options.max_field_bytes
        self.skips_acls = options.prepare.is_acl_skipped
        # Whether records are taken. Not on a full disk: reads go on, writes are refused.
        self.is_writable = True
        # Effects; the driver takes them.
        self.appends: list[Append] = []
        self.dirty: set[Connection] = set()
        self.closing: set[Connection] = set()
        # None: changes are not audited.
        self.audits: list[AuditRecord] | None = [] if options.is_audited else None
        self.statistics = ReplicaStatistics()
        self._preparer = Preparer(tree, options.prepare)
        self._authenticator = Authenticator(
            options.authentication, options.super_digest, make_nonce
        )
        self._proposals: deque[Proposal] = deque()
        self._syncs: deque[tuple[Zxid, Connection, PendingWrite, int, bytes]] = deque()
        self._last_proposed = tree.last_zxid
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._next_session = first_session_id(options.server_id, wall_ms)
        self._number = 0
        self._next_cleaning_ms = now_ms + options.container_check_ms
        for session_id, timeout_ms in tree.sessions.items():
            # Nobody may lose its session to the time that the server was down.
            self.sessions.track(session_id, timeout_ms, now_ms)
        self._end_orphans()

    # -- what the driver calls -------------------------------------------------------------------

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """Monotonic time for deadlines, wall clock time for txns; call it before anything else."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    @property
    def outstanding(self) -> int:
        """Writes that are under way."""
        return len(self._proposals)

    def connect(self, address: str, port: int, subject: str | None = None) -> Connection:
        """A new connection from an address, maybe with the subject of a certificate."""
        self._number += 1
        limit = self.options.max_frame_bytes
        connection = Connection(self._number, address, port, limit, self._now_ms)
        self._authenticator.meet(connection, subject)
        return connection

    def identify(self, address: str, scheme: str, credentials: bytes) -> list[Id]:
        """The ids that somebody proves who is not connected as a client; may be none."""
        stranger = Connection(0, address, 0, self.options.max_frame_bytes, self._now_ms)
        return self._authenticator.proven_ids(stranger, scheme, credentials)

    def receive(self, connection: Connection, data: bytes) -> None:
        """Handle bytes of a client; replies that are ready are in its `out`."""
        statistics = self.statistics
        statistics.bytes_received += len(data)
        try:
            payloads = connection.frames.feed(data)
        except MalformedRecord as error:
            self.close(connection, str(error))
            return
        if not payloads:
            return
        if connection.phase is not Phase.OPEN:
            payloads = self._greet(connection, payloads)
        elif not self.sessions.touch(connection.session_id, self._now_ms):
            self.close(connection, "the session has ended")
            return
        count = len(payloads)
        statistics.received += count
        connection.received += count
        self._handle_all(connection, payloads)

    def lost(self, connection: Connection) -> None:
        """The connection is gone; its session lives on until it expires."""
        if connection.phase is Phase.CLOSED:
            return
        connection.phase = Phase.CLOSED
        connection.queue.clear()
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
        """Records up to `zxid` are on disk: commit them, in order."""
        proposals = self._proposals
        while proposals and proposals[0].entry.header.zxid <= zxid:
            self._commit(proposals.popleft())

    def tick(self) -> None:
        """Expire sessions and clean up; call it about once a tick."""
        if not self.is_writable:
            return
        for session_id in self.sessions.expired(self._now_ms):
            self.statistics.expired_sessions += 1
            self._end_session(session_id)
        if self._now_ms >= self._next_cleaning_ms:
            self._next_cleaning_ms = self._now_ms + self.options.container_check_ms
            self._clean_containers()

    def expire(self, session_id: int) -> None:
        """End a session now, as if its client had been silent for too long."""
        self.sessions.forget(session_id)
        self._end_session(SessionId(session_id))

    def touch_all(self) -> None:
        """Give every session its full time again: it was this server that was silent."""
        for session_id in list(self.sessions.timeouts):
            self.sessions.touch(session_id, self._now_ms)

    # -- handshake -------------------------------------------------------------------------------

    def _greet(self, connection: Connection, payloads: list[bytes]) -> list[bytes]:
        """Handle the frames before the session is there; gives those that can be handled now."""
        if connection.phase is Phase.NEW:
            self.statistics.received += 1
            connection.received += 1
            try:
                request = codec_of(ConnectRequest).decode(payloads.pop(0))
            except MalformedRecord as error:
                self.close(connection, f"not a connect request: {error}")
                return []
            self._connect(connection, request)
        if connection.phase is Phase.CONNECTING:
            # A client may send requests before it knows its session.
            connection.queue.extend(payloads)
            return []
        return payloads if connection.phase is Phase.OPEN else []

    def _connect(self, connection: Connection, request: ConnectRequest) -> None:
        self.statistics.connects += 1
        connection.wants_read_only_byte = request.read_only is not None
        if request.last_zxid_seen > self.tree.last_zxid:
            self.close(
                connection,
                f"client has seen zxid {request.last_zxid_seen:#x}, "
                f"our last is {self.tree.last_zxid:#x}: it must try another server",
            )
            return
        options = self.options
        timeout_ms = min(
            max(request.timeout_ms, options.min_session_timeout_ms), options.max_session_timeout_ms
        )
        session_id = request.session_id
        if session_id == 0:
            if not self.is_writable:
                self.close(connection, "no new session while the disk is full")
                return
            session_id = SessionId(self._next_session)
            self._next_session += 1
            connection.phase = Phase.CONNECTING
            connection.identify(session_id, timeout_ms)
            self._propose(
                connection.caller,
                0,
                _CREATE_SESSION,
                CreateSessionTxn(timeout_ms),
                connection,
                None,
            )
            return
        self.statistics.revalidations += 1
        earlier = self.connections.get(session_id)
        if earlier is not None:
            self.close(earlier, "its client has connected again")
        if request.password != session_password(session_id) or session_id not in self.sessions:
            refusal = ConnectResponse(0, 0, SessionId(0), _NO_PASSWORD, self._flag(connection))
            self._send(connection, encode_frame(encode(refusal)))
            self.close(connection, "unknown session or wrong password")
            return
        connection.identify(session_id, timeout_ms)
        self.sessions.track(session_id, timeout_ms, self._now_ms)
        self._welcome(connection)

    def _flag(self, connection: Connection) -> bool | None:
        return False if connection.wants_read_only_byte else None

    def _welcome(self, connection: Connection) -> None:
        """The session is there: answer, then handle what the client has sent since."""
        session_id = connection.session_id
        answer = ConnectResponse(
            0,
            connection.timeout_ms,
            session_id,
            session_password(session_id),
            self._flag(connection),
        )
        connection.phase = Phase.OPEN
        self.connections[session_id] = connection
        self._send(connection, encode_frame(encode(answer)))
        early = [item for item in connection.queue if isinstance(item, bytes)]
        connection.queue.clear()
        self._handle_all(connection, early)

    # -- requests --------------------------------------------------------------------------------

    def _handle_all(self, connection: Connection, payloads: list[bytes]) -> None:
        """Handle requests in order, as long as the connection is open."""
        if connection.owes_identity:
            payloads = self._identify(connection, payloads)
        queue, out = connection.queue, connection.out
        # Everything in `out` that was not counted as told is the reply to a read.
        before = len(out) - connection.told
        for payload in payloads:
            if len(payload) < _HEADER_SIZE:
                self.close(connection, "a request without a header")
                break
            xid, op = _REQUEST_HEADER.unpack_from(payload)
            if not queue and op in READS:
                out.append(self._read(connection, xid, op, payload))
            else:
                self._handle_ordered(connection, xid, op, payload)
                if connection.phase is not Phase.OPEN:
                    break
        count = len(out) - connection.told - before
        if count > 0:
            self.statistics.reads += count
            connection.reads += count
            connection.last_op = op
            connection.last_zxid = self.tree.last_zxid
            connection.last_ms = self._now_ms
            if xid >= 0:
                connection.last_xid = xid
            self.dirty.add(connection)

    def _read(self, connection: Connection, xid: int, op: int, payload: bytes) -> bytes:
        """The reply to a read."""
        zxid = self.tree.last_zxid
        try:
            body = READS[op](self, connection, payload)
        except KeeperError as error:
            return encode_reply(xid, zxid, error.code)
        except MalformedRecord:
            return encode_reply(xid, zxid, ErrorCode.MARSHALLING_ERROR)
        return encode_reply(Xid.PING if op == _PING else xid, zxid, 0, body)

    def _handle_ordered(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        """A write, a read behind a write, or something else."""
        if op in WRITES:
            self._write(connection, xid, op, payload)
        elif op in INTRODUCTIONS:
            self._introduce(connection, payload)
        elif op in READS or op == _SYNC:
            if op == _SYNC:
                self._sync(connection, xid, payload)
            else:
                connection.queue.append(payload)
            if len(connection.queue) > self.options.max_queued_requests:
                self.close(connection, "too many requests wait behind a write")
        else:
            self._send(connection, encode_reply(xid, -1, ErrorCode.UNIMPLEMENTED))
            self.close(connection, f"request type {op} is not known or not for clients")

    def _write(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        waiting = PendingWrite(self._now_ms)
        connection.queue.append(waiting)
        if not self.is_writable:
            # Not even the refusal can be logged, so no zxid is used up.
            reply = encode_reply(xid, self.tree.last_zxid, ErrorCode.SYSTEM_ERROR)
            self._answer(connection, waiting, reply)
            return
        request: Any
        try:
            if op == _MULTI:
                request = decode_multi_request(op, payload, _HEADER_SIZE, self.max_field)
            elif op == _CLOSE_SESSION:
                request = None
            else:
                request = decode_request(op, payload, _HEADER_SIZE, self.max_field)
        except MalformedRecord:
            request = KeeperError(ErrorCode.MARSHALLING_ERROR)
        if op == OpCode.RECONFIG:
            request = KeeperError(ErrorCode.UNIMPLEMENTED, "not an ensemble")
        self._propose(connection.caller, xid, op, request, connection, waiting)

    def _sync(self, connection: Connection, xid: int, payload: bytes) -> None:
        """Answer when everything that is under way now has been applied."""
        body = payload[_HEADER_SIZE:]
        waiting = PendingWrite(self._now_ms)
        connection.queue.append(waiting)
        if self._proposals:
            self._syncs.append((self._last_proposed, connection, waiting, xid, body))
        else:
            self._synced(connection, waiting, xid, body)

    def _synced(self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes) -> None:
        self._note(self.statistics.slow_reads, connection, _SYNC, xid, waiting.since_ms)
        self._answer(connection, waiting, encode_reply(xid, self.tree.last_zxid, 0, body))

    def _introduce(self, connection: Connection, payload: bytes) -> None:
        """Handle who a client says it is."""
        reply, close_reason = self._authenticator.answer(connection, payload)
        if reply:
            self._send(connection, reply)
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

    def _propose(
        self,
        caller: Caller,
        xid: int,
        op: int,
        request: Any,
        connection: Connection | None,
        waiting: PendingWrite | None,
    ) -> None:
        """Make a txn of a request and have it stored; a refused request is a txn too."""
        zxid = Zxid(self._last_proposed + 1)
        if counter_of(zxid) > _MAX_COUNTER:
            # The counter is used up. An ensemble elects a new leader; alone, the epoch is ours.
            zxid = Zxid(((self._last_proposed >> 32) + 1 << 32) + 1)
        self._last_proposed = zxid
        try:
            if isinstance(request, KeeperError):
                raise request
            entry = self._preparer.prepare(caller, xid, zxid, self._wall_ms, op, request)
        except KeeperError as error:
            header = TxnHeader(caller.session_id, xid, zxid, self._wall_ms, OpCode.ERROR.value)
            entry = LogEntry(header, ErrorTxn(error.code), None)
        self.appends.append(Append(zxid, encode_entry(entry), self._preparer.digest))
        wanted = None if self.audits is None else request
        self._proposals.append(Proposal(entry, op, xid, connection, waiting, wanted))

    def _commit(self, proposal: Proposal) -> None:
        """Apply a txn, tell who watches, answer who asked."""
        entry = proposal.entry
        header = entry.header
        zxid = header.zxid
        outcome = self.tree.apply(header, entry.body)
        self._preparer.applied(zxid)
        if not zxid % DIGEST_INTERVAL:
            self.statistics.digests.append(TreeDigest(zxid, self.tree.digest))
        if self.audits is not None:
            self.audits.extend(audit_records(proposal, outcome))
        if outcome.changes and self.watches:
            for change in outcome.changes:
                self._tell(change, zxid)
        connection, waiting = proposal.connection, proposal.waiting
        if proposal.op == _CREATE_SESSION:
            self._session_created(connection, header.session_id)
        elif proposal.op == _CLOSE_SESSION:
            self._session_closed(connection, waiting, proposal)
        elif connection is not None and waiting is not None:
            if outcome.error and proposal.op != _MULTI:
                op = NO_OPERATION
                reply = encode_reply(proposal.xid, zxid, outcome.error)
            else:
                op = proposal.op
                body = reply_body(self.tree, proposal.op, entry.body, outcome)
                reply = encode_reply(proposal.xid, zxid, 0, body)
            self._note(self.statistics.updates, connection, op, proposal.xid, waiting.since_ms)
            self._answer(connection, waiting, reply)
        while self._syncs and self._syncs[0][0] <= zxid:
            self._synced(*self._syncs.popleft()[1:])

    def _answer(self, connection: Connection, waiting: PendingWrite, reply: bytes) -> None:
        """A write is done: send what is ready now, in the order of the requests."""
        waiting.reply = reply
        since_ms = waiting.since_ms
        queue = connection.queue
        while queue and connection.phase is Phase.OPEN:
            item = queue[0]
            if isinstance(item, PendingWrite):
                if item.reply is None:
                    return
                since_ms = item.since_ms
                queue.popleft()
                self._send(connection, item.reply)
            else:
                queue.popleft()
                xid, op = _REQUEST_HEADER.unpack_from(item)
                self._send(connection, self._read(connection, xid, op, item))
                self._note(self.statistics.slow_reads, connection, op, xid, since_ms)

    def _send(self, connection: Connection, data: bytes) -> None:
        connection.out.append(data)
        connection.told += 1
        self.statistics.told += 1
        self.dirty.add(connection)

    def _note(
        self, times: Distribution, connection: Connection, op: int, xid: int, since_ms: int
    ) -> None:
        """Count a request that had to wait and is answered now."""
        now_ms = self._now_ms
        spent = now_ms - since_ms
        times.add(spent)
        connection.waits.add(spent)
        connection.last_op = op
        if xid >= 0:
            connection.last_xid = xid
        connection.last_zxid = self.tree.last_zxid
        connection.last_ms = now_ms
        connection.last_latency_ms = spent

    # -- events ----------------------------------------------------------------------------------

    def _tell(self, change: Change, zxid: int) -> None:
        statistics = self.statistics
        for alert in self.watches.trigger(change):
            frame = encode_event(alert.type, alert.path, zxid)
            statistics.watchers_told[alert.type].add(len(alert.watchers))
            for watcher in alert.watchers:
                if self.skips_acls or is_allowed(alert.acl, Perms.READ, watcher.ids):
                    statistics.watch_bytes += len(frame) - _LENGTH_SIZE
                    self._send(watcher, frame)

    def tell_missed(self, connection: Connection, event: EventType, path: str) -> None:
        """Tell a client that set its watches again of a change that it missed."""
        self._send(connection, encode_event(event, path))

    # -- sessions --------------------------------------------------------------------------------

    def _session_created(self, connection: Connection | None, session_id: SessionId) -> None:
        self.sessions.track(session_id, self.tree.sessions[session_id], self._now_ms)
        if connection is not None and connection.phase is Phase.CONNECTING:
            updates = self.statistics.updates
            self._note(updates, connection, _CREATE_SESSION, 0, connection.opened_ms)
            self._welcome(connection)

    def _session_closed(
        self, connection: Connection | None, waiting: PendingWrite | None, proposal: Proposal
    ) -> None:
        header = proposal.entry.header
        self.sessions.forget(header.session_id)
        if connection is not None and waiting is not None:
            self._answer(connection, waiting, encode_reply(proposal.xid, header.zxid, 0))
        current = self.connections.get(header.session_id)
        if current is not None:
            self.close(current, "the session was closed" if waiting else "the session expired")

    def _end_session(self, session_id: SessionId) -> None:
        """Close a session for its client, which is silent or gone."""
        self._propose(Caller(session_id), 0, _CLOSE_SESSION, None, None, None)

    def _end_orphans(self) -> None:
        """Ephemerals whose session is not there any more: end it once more, by a txn."""
        for owner in sorted(self.tree.ephemerals):
            if owner not in self.tree.sessions:
                self._end_session(SessionId(owner))

    # -- containers and TTLs ---------------------------------------------------------------------

    def _clean_containers(self) -> None:
        """Delete containers that are empty again and znodes whose time is over."""
        options = self.options
        due = due_paths(self.tree, self._wall_ms, options.container_max_never_used_ms)
        for path in due[: options.container_max_per_minute]:
            request = DeleteContainerRequest(encode_text(path))
            self._propose(
                Caller(SessionId(0)), 0, OpCode.DELETE_CONTAINER.value, request, None, None
            )
