"""A server without I/O: bytes from clients in, bytes to clients and records to store out.

Theory of operation.  The driver calls `set_clock`, then one of `receive`, `log_durable`, `tick`,
`lost`; afterwards it takes what is in `appends`, `dirty` and `closing` of the service (service.py),
and steps of logins that take long in `proofs`. These are all its effects: lists of plain values,
because a request costs microseconds here. The replica joins the parts, each of which works on the
service alone.

Where writes go is the server's role.  Alone, or as a leader, it makes a txn of a write at once
(proposer.py) and applies and answers it when it is committed; alone, it is a quorum of one, and
durable is committed.  As a learner it forwards writes (forwarder.py).  Without a role it serves
nobody.  A read is answered at once, unless a write of the same connection is under way: then it
waits in the connection's queue, so that a client reads what it wrote and gets replies in the
order of its requests.

Events are queued to connections while a txn is applied, before any reply that can show the new
state, so that no client sees a change before it is notified of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final

from keepfast.quorum import Confirmations
from keepfast.replica.authentication import (
    INTRODUCTIONS,
    Authenticator,
    AuthVerdict,
    Proof,
    no_nonce,
)
from keepfast.replica.backpressure import (
    ID_WORK,
    INTRODUCTION_WORK,
    TURN_REQUESTS,
    is_held,
    note_large,
    put_off,
    stall,
)
from keepfast.replica.client_limits import ClientLimits
from keepfast.replica.commit_turns import next_stop, wait_if_enough_made
from keepfast.replica.commits import Commits
from keepfast.replica.connection import Connection, Phase
from keepfast.replica.forwarder import Forwarder
from keepfast.replica.handshake import Handshake
from keepfast.replica.learned_txns import learned_txns
from keepfast.replica.local_writes import answers_alone
from keepfast.replica.long_reader import LongReader
from keepfast.replica.malformed import (
    LateMulti,
    UnreadableError,
    decode_write,
    may_be_long_multi,
)
from keepfast.replica.parked_reads import must_wait
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.proposals import WRITES
from keepfast.replica.proposer import HeardUpTo, Proposer
from keepfast.replica.reads import HANDLERS as READS
from keepfast.replica.reads import plain_data_reply
from keepfast.replica.reconfiguration import Reconfiguration
from keepfast.replica.replica_options import ReplicaOptions
from keepfast.replica.reply_order import answer, read_reply, send_ready
from keepfast.replica.service import Service
from keepfast.replica.sessions import TouchTable
from keepfast.replica.syncs import Syncs
from keepfast.replica.throttle import Throttle
from keepfast.replica.unfinished import UnfinishedError
from keepfast.tree import Tree
from keepfast.wire import (
    ErrorCode,
    Id,
    LogEntry,
    MalformedRecord,
    OpCode,
    SessionId,
    SyncRequest,
    Zxid,
    codec_of,
    encode_reply,
    encode_string,
    invariant,
    make_zxid,
)

_REQUEST_HEADER: Final = Struct(">ii")
# A txn begins with its session.
_HEADER_SIZE: Final = 8

# Ticks between two calls of `tick` beyond which it came late.
_LATE_TICKS: Final = 1.5
_OPEN: Final = Phase.OPEN
_GET_DATA: Final = OpCode.GET_DATA.value
_SET_DATA: Final = OpCode.SET_DATA.value
_SYNC: Final = OpCode.SYNC.value
_MULTI: Final = OpCode.MULTI.value


class Replica:
    """A server without I/O: joins the parts that serve clients."""

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
        self._slice_size = options.prepare.slice_size
        self._max_acl_entries = options.prepare.max_acl_entries
        self.service = Service(Tree() if tree is None else tree, options, now_ms, wall_ms)
        self.statistics = self.service.statistics
        self.limits = ClientLimits(options)
        self.throttle = Throttle(self.service)
        self.handshake = Handshake(self.service, self.throttle.connections)
        self.syncs = Syncs(self.service)
        self._commits = Commits(self.service, self.handshake)
        self.long_reader = LongReader(self.service)
        self._authenticator = Authenticator(
            options.authentication, options.super_digest, make_nonce
        )
        # Steps of logins that take long.
        self.proofs: list[Proof] = []
        self._ticked_ms = now_ms
        # Alone: what is on disk, and may be applied.
        self._durable = Zxid(-1)
        self._number = 0
        # The role: at most one of the two is there, or neither and it is read-only.
        self.proposer: Proposer | None = None
        self.forwarder: Forwarder | None = None
        # Whether the tree holds nothing but what a quorum is known to have agreed to.
        self.is_agreed_on = False
        if tree is not None:
            self.lead(tree)

    # What others may ask at any time.

    @property
    def tree(self) -> Tree:
        """What is served, or was served last."""
        return self.service.tree

    @property
    def now_ms(self) -> int:
        """Monotonic time."""
        return self.service.now_ms

    @property
    def is_read_only(self) -> bool:
        """Whether it serves a tree as it is, without a leader."""
        return self.service.is_read_only

    # -- roles -----------------------------------------------------------------------------------

    def lead(
        self,
        tree: Tree,
        epoch: int | None = None,
        confirmations: Confirmations | None = None,
        reconfiguration: Reconfiguration | None = None,
    ) -> None:
        """Serve a tree and make txns; all that is in the tree is committed.

        `confirmations`: asks the others whether this server still leads; None: there are none.
        """
        self._serve("the server leads now", tree)
        self.is_agreed_on = True
        self.proposer = Proposer(self.service, tree, epoch, reconfiguration)
        self.handshake.proposer = self.proposer
        self.syncs.confirmations = self.handshake.confirmations = confirmations
        self.service.sessions = self.proposer.sessions
        if epoch is not None:
            self.service.last_zxid = make_zxid(epoch, 0)

    def learn(self, tree: Tree, epoch: int, send: Callable[[bytes], None]) -> None:
        """Serve a tree and pass writes on to the leader of `epoch`."""
        self._serve("the server follows now", tree)
        self.is_agreed_on = True
        self.forwarder = self.handshake.forwarder = Forwarder(self.service, send)
        self.service.sessions = self.forwarder.sessions
        self.service.last_zxid = max(tree.last_zxid, make_zxid(epoch, 0))

    def show(self, tree: Tree) -> None:
        """Serve a tree as it is to read-only clients (read-only mode)."""
        self._serve("the server is read-only now", tree)
        self.service.sessions = TouchTable(tree)
        self.service.is_read_only = True

    def _serve(self, reason: str, tree: Tree) -> None:
        self.stand_down(reason)
        self.service.tree, self.service.last_zxid = tree, tree.last_zxid

    def stand_down(self, reason: str) -> None:
        """Serve nobody: clients must look for another server, their sessions live on."""
        service = self.service
        for connection in list(service.greeted):
            service.close(connection, reason)
        self.handshake.end_role()
        self.long_reader.forget()
        self.proposer = self.forwarder = None
        # Not emptied: what was not committed is looked at by whoever led.
        service.proposals = deque()
        service.postponed.clear()
        service.is_busy = service.is_read_only = False
        self.syncs.clear()
        self._commits.end_role()

    @property
    def is_serving(self) -> bool:
        """Whether it has a role."""
        has_role = self.proposer is not None or self.forwarder is not None
        return has_role or self.service.is_read_only

    def _refusal(self) -> str:
        """Why no client is welcome now; empty: it is."""
        proposer = self.proposer
        if proposer is not None and not proposer.is_alone and not self.options.is_leader_serving:
            return "the server leads, and leaves clients to the others"
        return "" if self.is_serving else "the server has no leader and serves nobody"

    # -- what the driver calls -------------------------------------------------------------------

    def set_clock(self, now_ms: int, wall_ms: int) -> None:
        """Monotonic time for deadlines, wall clock time for txns; call it before anything else."""
        self.service.now_ms = now_ms
        self.service.wall_ms = wall_ms

    @property
    def outstanding(self) -> int:
        """Writes that are under way."""
        return self.service.outstanding

    def take_proofs(self) -> list[Proof]:
        """The login steps that are to be taken off the loop."""
        proofs, self.proofs = self.proofs, []
        return proofs

    def connect(self, address: str, port: int, subject: str | None = None) -> Connection | None:
        """A new connection from an address, maybe with the subject of a certificate.

        None: the limits do not allow it.
        """
        if not self.limits.has_place(address):
            return None
        self._number += 1
        limit = self.options.max_frame_bytes
        connection = Connection(self._number, address, port, limit, self.now_ms)
        self._authenticator.meet(connection, subject)
        self.service.strangers[connection] = None
        self.limits.add(connection)
        return connection

    def identify(self, address: str, scheme: str, credentials: bytes) -> list[Id]:
        """The ids proven by someone who is not connected as a client; may be none."""
        stranger = Connection(0, address, 0, self.options.max_frame_bytes, self.now_ms)
        return self._authenticator.proven_ids(stranger, scheme, credentials)

    def receive(self, connection: Connection, data: bytes) -> None:
        """Handle bytes of a client; replies that are ready are in its `out`."""
        service = self.service
        statistics = service.statistics
        statistics.bytes_received += len(data)
        try:
            payloads = connection.frames.feed(data)
        except MalformedRecord as error:
            service.close(connection, str(error))
            return
        if self.throttle.limits_large and not self.throttle.takes_frame(connection):
            self._refuse_large(connection)
            return
        if not payloads:
            return
        if connection.phase is not _OPEN:
            refusal = self._refusal() if connection.phase is Phase.NEW else ""
            if refusal:
                service.close(connection, refusal)
                return
            payloads = self.handshake.greet(connection, payloads)
            self.handle_ready()
        elif service.now_ms >= connection.free_until and not self.handshake.touch(connection):
            service.close(connection, "the session has ended")
            return
        count = len(payloads)
        statistics.received += count
        connection.received += count
        self.handle_all(connection, payloads)

    def lost(self, connection: Connection) -> None:
        """The connection is gone; its session survives until it expires."""
        self.limits.remove(connection)
        self.service.lost(connection)

    def close(self, connection: Connection, reason: str = "") -> None:
        """End a connection; what is in its `out` is still sent."""
        self.service.close(connection, reason)

    def resume(self, connection: Connection) -> None:
        """A stalled client has taken what was sent to it: handle what was held."""
        service = self.service
        connection.burst = 0
        connection.is_stalled = False
        service.stalled.pop(connection, None)
        if connection.phase is not Phase.OPEN:
            return
        # It reads, so it lives, even if its pings are queued after requests that are held.
        service.sessions.touch(connection.session_id, service.now_ms)
        send_ready(service, connection)
        self.handle_ready()
        if connection.held and not connection.is_held_up:
            held, connection.held = connection.held, []
            self.handle_all(connection, held)

    def log_durable(self, zxid: Zxid) -> None:
        """Records up to `zxid` are on disk; alone, that commits them."""
        self._durable = zxid
        while True:
            stop = next_stop(self.service, zxid)
            if stop <= self.service.last_zxid and stop < zxid:
                return  # `continue_work` follows
            self.commit(stop)
            if stop >= zxid:
                return

    def commit(self, zxid: Zxid) -> None:
        """The txns that this server proposed up to `zxid` are committed: apply them, in order."""
        proposer = self.proposer
        if proposer is None:
            return
        self._commits.commit_all(proposer.take_due(zxid), proposer, self.syncs)
        self.syncs.release(zxid)
        self.handshake.release()
        self.handle_ready()
        if self.service.held_since:
            for connection, held in self.throttle.released():
                self.handle_all(connection, held)

    def continue_work(self) -> None:
        """Others had their turn: send more events, apply more, make more of a long txn."""
        if self.service.watches and self.service.watches.forget_some():
            self.service.has_more_work = True
        self._commits.continue_work()
        proposer, proposals = self.proposer, self.service.proposals
        if proposer is not None:
            if proposer.is_alone and proposals and proposals[0].zxid <= self._durable:
                self.log_durable(self._durable)
            proposer.continue_work()

    def finish_audit(self) -> None:
        """This server ends: what is committed has to be in the audit log."""
        self._commits.end_role()

    def commit_learned(
        self, entries: Iterable[bytes], applied: Callable[[LogEntry | None], None]
    ) -> None:
        """Txns that the leader proposed are committed: apply them, in order. Raises ReplayConflict.

        `applied` is called with each when the tree has it and before the next is requested; None
        stands for a plain setData, after which the tree had the digest that the txn carries.
        """
        forwarder = self.forwarder
        invariant(forwarder is not None, "only a learner applies the txns of others")
        if forwarder is not None:
            learned = learned_txns(self.service, self.long_reader, forwarder, entries, applied)
            self._commits.commit_all(learned, None, forwarder)
            self.handle_ready()

    def revalidated(
        self, session_id: SessionId, is_valid: bool, proposed: Zxid, received: Zxid
    ) -> None:
        """The leader says whether a session lives; see `Forwarder.on_revalidated`."""
        if self.forwarder is not None:
            connection = self.forwarder.on_revalidated(session_id, is_valid, proposed, received)
            if connection is not None:
                self.handshake.found(connection, is_valid)
                self.handle_ready()

    def tick(self, heard_up_to: HeardUpTo | None = None) -> None:
        """Expire sessions and clean up; call it about once per tick.

        `heard_up_to`: for a leader, whose learners report which sessions they have heard from.
        """
        self.throttle.tick()
        is_late = self.now_ms - self._ticked_ms > _LATE_TICKS * self.options.tick_ms
        self._ticked_ms = self.now_ms
        if is_late:
            # This server was held up: what its clients have sent meanwhile is read first.
            return
        self.handshake.tick()
        if self.proposer is not None and self.service.is_writable:
            self.proposer.tick(heard_up_to)

    def expire(self, session_id: int) -> None:
        """End a session now, as if its client had been silent for too long."""
        if self.proposer is not None:
            self.proposer.end_session(SessionId(session_id))

    # -- requests --------------------------------------------------------------------------------

    def handle_ready(self) -> None:
        """Handle what waited for a session that is there now, or for reads that are answered."""
        ready = self.service.ready
        while ready:
            connection, payloads = ready.pop(0)
            if connection.phase is _OPEN:
                self.handle_all(connection, payloads)

    def handle_all(self, connection: Connection, payloads: list[bytes]) -> None:
        """Handle requests in order, as long as the connection is open."""
        if connection.is_held_up or is_held(self.service, connection):
            connection.held.extend(payloads)
            return
        if connection.owes_identity:
            payloads = self._identify(connection, payloads)
        service, queue, out = self.service, connection.queue, connection.out
        quick = None if self.proposer is None else self.proposer.quick
        most, uncounted = self.options.max_queued_requests, service.uncounted_reply
        # Everything in `out` that was not counted as told is the reply to a read.
        before = len(out) - connection.told
        later: list[bytes] = []
        if len(payloads) > TURN_REQUESTS:
            payloads, later = payloads[:TURN_REQUESTS], payloads[TURN_REQUESTS:]
        waiting = iter(payloads)
        for payload in waiting:
            if len(payload) < _HEADER_SIZE:
                service.close(connection, "a request without a header")
                break
            xid, op = _REQUEST_HEADER.unpack_from(payload)
            if op in READS and len(queue) < most:
                if queue:
                    queue.append(payload)
                    continue
                reply = plain_data_reply(service, xid, payload) if op == _GET_DATA else None
                if reply is None:
                    try:
                        reply = read_reply(service, connection, xid, op, payload)
                    except UnfinishedError:
                        connection.held += (payload, *waiting)
                        put_off(service, connection)
                        break
                out.append(reply)
                if (len(reply) > uncounted or connection.work) and note_large(
                    service, connection, len(reply)
                ):
                    connection.held.extend(waiting)
            elif queue and isinstance(queue[-1], bytes) and must_wait(service, connection, op):
                connection.held += (payload, *waiting)
            elif op == _SET_DATA and quick is not None and quick.propose(connection, xid, payload):
                pass
            else:
                if op in WRITES:
                    if not self.throttle.holds(connection, payload):
                        self._write(connection, xid, op, payload)
                else:
                    self._handle_ordered(connection, xid, op, payload)
                if connection.phase is not _OPEN:
                    break
                if connection.is_held_up:
                    connection.held.extend(waiting)
        count = len(out) - connection.told - before
        if count > 0:
            service.count_reads(connection, count, op, xid)
        if later and connection.phase is _OPEN:
            if out:
                stall(service, connection)
            # Without replies, nothing but writes was handled; these have limits of their own.
            self.handle_all(connection, later)

    def _handle_ordered(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        """A read after a write, or something else that is no write."""
        service = self.service
        if op == _SYNC and service.is_read_only:
            self._write(connection, xid, op, payload)
        elif op in INTRODUCTIONS:
            self._introduce(connection, payload)
        elif op in READS or op == _SYNC:
            if op == _SYNC:
                self._sync(connection, xid, payload)
            else:
                connection.queue.append(payload)
            if len(connection.queue) > self.options.max_queued_requests:
                service.close(connection, "too many requests wait for a write")
        else:
            service.send(connection, encode_reply(xid, -1, ErrorCode.UNIMPLEMENTED))
            service.close(connection, f"request type {op} is not known or not for clients")

    def _sync(self, connection: Connection, xid: int, payload: bytes) -> None:
        waiting = PendingWrite(self.service.now_ms, xid, _SYNC)
        connection.queue.append(waiting)
        try:
            body = encode_string(codec_of(SyncRequest).decode(payload, _HEADER_SIZE).path)
        except MalformedRecord:
            code = ErrorCode.MARSHALLING_ERROR
            self._answer_after_writes(connection, waiting, xid, code)
            return
        if self.forwarder is not None:
            self.forwarder.sync(connection, waiting, xid, body)
        elif self.proposer is not None:
            self.proposer.when_free(lambda: self.syncs.ask(connection, waiting, xid, body))

    def _answer_after_writes(
        self, connection: Connection, waiting: PendingWrite, xid: int, code: int
    ) -> None:
        syncs = self.syncs
        if self.proposer is None:
            syncs.answer_after_writes(connection, waiting, xid, b"", code)
        else:
            self.proposer.when_free(
                lambda: syncs.answer_after_writes(connection, waiting, xid, b"", code)
            )

    def _write(self, connection: Connection, xid: int, op: int, payload: bytes) -> None:
        service, proposer = self.service, self.proposer
        waiting = PendingWrite(service.now_ms, xid, op)
        connection.queue.append(waiting)
        caller = connection.caller
        is_alone = caller.is_local or service.is_read_only
        if is_alone and answers_alone(service, self.handshake, connection, waiting, payload):
            return
        if self.throttle.limits_large and not self.throttle.takes_write(waiting, len(payload)):
            self._refuse_large(connection)
        elif not service.is_writable:
            # Not even the refusal can be logged, so no zxid is used up.
            # Nor is one shown: a write before it may show a later one than is known now.
            reply = encode_reply(xid, -1, ErrorCode.SYSTEM_ERROR)
            answer(service, connection, waiting, reply)
        elif proposer is not None:
            most = self._max_acl_entries
            request: Any
            if op == _MULTI and may_be_long_multi(len(payload) - _HEADER_SIZE, self._slice_size):
                request = LateMulti(payload, _HEADER_SIZE, service.max_field, most)
            else:
                request = decode_write(op, payload, _HEADER_SIZE, service.max_field, most)
                if isinstance(request, UnreadableError):
                    self._answer_after_writes(connection, waiting, xid, request.code)
                    return
            if not proposer.is_owner(caller.session_id, service.server_id):
                caller = caller._replace(is_moved=True)
            proposer.propose(caller, xid, op, request, connection, waiting)
            wait_if_enough_made(service, connection)
        elif self.forwarder is not None:
            if service.audits is not None:
                most = self._max_acl_entries
                waiting.request = decode_write(op, payload, _HEADER_SIZE, service.max_field, most)
            self.forwarder.forward(connection, waiting, payload[_HEADER_SIZE:])

    def _refuse_large(self, connection: Connection) -> None:
        self.statistics.large_refusals += 1
        self.close(connection, "too many bytes of large requests at once")

    def _introduce(self, connection: Connection, payload: bytes) -> None:
        """Handle who a client says it is; after many such requests others have their turn."""
        connection.work += INTRODUCTION_WORK + ID_WORK * len(connection.ids)
        verdict = self._authenticator.answer(connection, payload)
        if verdict.proof is None:
            self._tell(connection, verdict)
            note_large(self.service, connection, len(payload))
            return
        self.proofs.append(verdict.proof)
        connection.is_throttled = True
        connection.free_until = -1

    def proved(self, proof: Proof) -> None:
        """A step of a login was taken: answer it, and handle what came after it."""
        connection = proof.connection
        if connection.is_open:
            connection.is_throttled = False
            self._tell(connection, self._authenticator.judge(proof))
            self._handle_held(connection)

    def _handle_held(self, connection: Connection) -> None:
        if connection.is_open and not connection.is_held_up:
            held, connection.held = connection.held, []
            self.handle_all(connection, held)

    def _tell(self, connection: Connection, verdict: AuthVerdict) -> None:
        if verdict.reply:
            self.service.send(connection, verdict.reply)
        if verdict.close_reason:
            self.statistics.auth_failures += 1
            self.close(connection, verdict.close_reason)

    def _identify(self, connection: Connection, payloads: list[bytes]) -> list[bytes]:
        """Handle requests until the client has said who it is; returns those after that."""
        for position, payload in enumerate(payloads):
            if not connection.owes_identity:
                return payloads[position:]
            self._introduce(connection, payload)
            if connection.phase is not Phase.OPEN:
                break
            if connection.is_held_up:
                connection.held.extend(payloads[position + 1 :])
                break
        return []
