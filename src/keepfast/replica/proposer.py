"""The leader's half of a server: requests become txns, sessions end, containers are cleaned.

A standalone server is a quorum of one and always has this half; a member of an ensemble
has it while it leads. The caller takes the records from `Service.appends` and reports through
`Replica.commit` how far they are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from keepfast.replica.cleaning import due_paths
from keepfast.replica.commit_turns import note_made
from keepfast.replica.connection import Connection
from keepfast.replica.fast_writes import FastWrites
from keepfast.replica.malformed import LateMulti, decode_write, may_be_long_multi
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.proposals import Append, PlainWrite, Proposal, work_of
from keepfast.replica.reconfiguration import Reconfiguration
from keepfast.replica.replies import reply_in_slices
from keepfast.replica.service import Service
from keepfast.replica.sessions import MAX_EXPIRED, SessionTracker
from keepfast.tree import LIGHT, Caller, LongTxn, Outcome, Preparer, Tree
from keepfast.wire import (
    CreateSessionTxn,
    DeleteContainerRequest,
    DeleteRequest,
    ErrorCode,
    ErrorTxn,
    ForwardedRequest,
    Id,
    KeeperError,
    LogEntry,
    MalformedRecord,
    MultiOp,
    OpCode,
    ServerId,
    SessionId,
    TxnHeader,
    Zxid,
    codec_of,
    encode_entry,
    encode_entry_in_slices,
    encode_text,
    make_zxid,
)

MAX_COUNTER: Final = 0xFFFFFFFE
_COUNTER: Final = 0xFFFFFFFF
_MAX_REFUSED: Final = 1000

_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_DELETE: Final = OpCode.DELETE.value
_MULTI: Final = OpCode.MULTI.value
_RECONFIG: Final = OpCode.RECONFIG.value
_SET_DATA: Final = OpCode.SET_DATA.value
_LONG_OPS: Final = frozenset((_MULTI, _CLOSE_SESSION))
_SESSION_OPS: Final = frozenset((_CREATE_SESSION, _CLOSE_SESSION))

# How much postponed work is done in one turn.
_POSTPONED_AT_ONCE: Final = 100
# Until it is made.
_NO_ENTRY: Final[Any] = None

# The constructor of a NamedTuple takes twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__


# Up to when the leader knows all clients heard by a server; None: by every server.
HeardUpTo = Callable[[ServerId | None], int]


class Proposer:
    """Makes txns of requests. Created for one leader's term, and discarded with it."""

    def __init__(
        self,
        service: Service,
        tree: Tree,
        epoch: int | None = None,
        reconfiguration: Reconfiguration | None = None,
    ) -> None:
        """`epoch`: the one that this server leads in; None: it is alone, and all epochs are its.

        `reconfiguration` decides about membership changeship; None: this is not an ensemble.
        """
        self._service = service
        self._reconfiguration = reconfiguration
        self._tree = tree
        self._options = service.options
        self._preparer = Preparer(tree, service.options.prepare)
        self._slice_size = service.options.prepare.slice_size
        self._max_txn_bytes = service.options.prepare.max_txn_bytes
        self.is_alone = epoch is None
        # Session -> the server that its client is connected to, once that is known.
        self.owners: dict[int, ServerId] = {}
        self.sessions = SessionTracker(service.options.tick_ms)
        # Sessions that are being created, and the last of those that are said to have ended: one
        # of these must not begin after that, as a local one could whose client has moved.
        self._opening: set[int] = set()
        self._refused: dict[int, None] = {}
        # Sessions whose end this server has proposed, and which live on until it is committed; with
        # the connections that came back to them meanwhile.
        self.ending: dict[int, list[Connection]] = {}
        service.proposals = deque()
        service.postponed.clear()
        service.is_busy = False
        # The long txn that is being made.
        self._making: Iterator[None] | None = None
        service.last_proposed = tree.last_zxid if epoch is None else make_zxid(epoch, 0)
        # Called when a plain write was applied to the tree.
        self.installed = self._preparer.plain_sets.installed
        # Not for servers that check each request individually.
        self.quick: FastWrites | None = None
        if (
            service.audits is None
            and not service.options.prepare.is_quota_enforced
            and not service.options.throttle.is_strict
        ):
            self.quick = FastWrites(service, self.owners, self._preparer.plain_sets)
        # The counter of this epoch is used up: only a new election helps.
        self.is_exhausted = False
        self._next_cleaning_ms = service.now_ms + service.options.container_check_ms
        self._cleaning: Iterator[None] | None = None
        for session_id, timeout_ms in tree.sessions.items():
            # No session may expire because of the time that the server was down.
            self.sessions.track(session_id, timeout_ms, service.now_ms)
        self._end_orphans()

    def propose(
        self,
        caller: Caller,
        xid: int,
        op: int,
        request: Any,
        connection: Connection | None = None,
        waiting: PendingWrite | None = None,
    ) -> None:
        """Make a txn of a request and have it stored; a refused request is a txn too."""
        service = self._service
        if service.is_busy:
            args = (caller, xid, op, request, connection, waiting)
            service.postponed.append(lambda: self.propose(*args))
            return
        if op == _CLOSE_SESSION:
            self._shed_ephemerals(caller.session_id)
        zxid: Zxid = service.last_proposed + 1  # type: ignore[assignment]  # a call less
        if zxid & _COUNTER > MAX_COUNTER:
            if not self.is_alone:
                self.is_exhausted = True
                return
            zxid = Zxid(((service.last_proposed >> 32) + 1 << 32) + 1)
        service.last_proposed = zxid
        wanted = None if service.audits is None else request
        proposal = Proposal(zxid, _NO_ENTRY, op, xid, connection, waiting, wanted)
        if op in _LONG_OPS and (
            type(request) is LateMulti or self._preparer.is_long(caller, op, request)
        ):
            self._making = self._make_long(proposal, caller, request)
            service.is_busy = service.has_more_work = True
            return
        wall_ms = service.wall_ms
        preparer = self._preparer
        digest = preparer.digest
        try:
            if isinstance(request, KeeperError):
                raise request
            if op == _RECONFIG:
                request = self._configuration(request, zxid)
            elif op == _CREATE_SESSION:
                self._open(caller.session_id)
            entry = preparer.prepare(caller, xid, zxid, wall_ms, op, request)
            data = encode_entry(entry)
            self._check_size(zxid, data, digest)
            if op == _RECONFIG and self._reconfiguration is not None:
                self._reconfiguration.proposed()
        except KeeperError as error:
            entry, data = _refusal(caller, xid, zxid, wall_ms, error)
        proposal.entry = entry
        self._append(proposal, data)

    def _check_size(self, zxid: Zxid, data: bytes, digest: int) -> None:
        """Undo a txn whose record no server could read back (R13); `digest`: the one before it."""
        if len(data) > self._max_txn_bytes:
            self._preparer.take_back(zxid, digest)
            raise KeeperError(ErrorCode.MARSHALLING_ERROR, f"a txn of {len(data)} bytes")

    def _append(self, proposal: Proposal, data: bytes) -> None:
        service = self._service
        record = (proposal.zxid, data, self._preparer.digest)
        proposal.work = work_of(data)
        note_made(service, proposal.work)
        service.appends.append(_new_tuple(Append, record))
        service.proposals.append(proposal)

    # -- long txns -------------------------------------------------------------------------------

    def when_free(self, action: Callable[[], None]) -> None:
        """Do something after all writes that have come by now; at once, if none waits."""
        if self._service.is_busy:
            self._service.postponed.append(action)
        else:
            action()

    def _make_long(self, proposal: Proposal, caller: Caller, request: Any) -> Iterator[None]:
        """`propose` of a request with very many changes, in slices."""
        service, preparer = self._service, self._preparer
        zxid, xid, op = proposal.zxid, proposal.xid, proposal.op
        wall_ms, digest = service.wall_ms, preparer.digest
        long_txn: LongTxn | None = None
        try:
            if isinstance(request, LateMulti):
                request = yield from request.decode(self._slice_size)
                proposal.request = None if service.audits is None else request
            if preparer.is_long(caller, op, request):
                entry, long_txn = yield from preparer.prepare_long(
                    caller, xid, zxid, wall_ms, op, request
                )
            else:
                entry = preparer.prepare(caller, xid, zxid, wall_ms, op, request)
            data = yield from encode_entry_in_slices(entry, LIGHT * self._slice_size)
            self._check_size(zxid, data, digest)
        except KeeperError as error:
            entry, data = _refusal(caller, xid, zxid, wall_ms, error)
        else:
            proposal.long_txn = long_txn
            if op == _MULTI and long_txn is not None and proposal.waiting is not None:
                proposal.reply_body = yield from reply_in_slices(long_txn.results, self._slice_size)
            if long_txn is not None:
                yield from long_txn.compare(self._slice_size)
        proposal.entry = entry
        self._append(proposal, data)
        if long_txn is not None:
            # The last one that is applied in its turn.
            proposal.work = max(proposal.work, self._slice_size)

    def continue_work(self) -> None:
        """Make more of a long txn; after it, do some of what had to wait, and clean up."""
        service = self._service
        if self._preparer.tidy():
            service.has_more_work = True
        postponed = service.postponed
        if self._making is not None:
            try:
                next(self._making)
            except StopIteration:
                self._making = None
        elif postponed:
            service.is_busy = False
            for _ in range(min(len(postponed), _POSTPONED_AT_ONCE)):
                postponed.popleft()()
                if service.is_busy:
                    break  # the next long one
        if self._making is not None or postponed:
            service.is_busy = service.has_more_work = True
            return
        service.is_busy = False
        if self._cleaning is not None:
            if next(self._cleaning, self) is self:
                self._cleaning = None
            else:
                service.has_more_work = True

    def propose_forwarded(
        self, origin: ServerId, forwarded: ForwardedRequest, ids: tuple[Id, ...]
    ) -> None:
        """A write of a client of another server; that server answers it when it is committed."""
        session_id, op = forwarded.session_id, forwarded.type
        is_quick = op == _SET_DATA and self.quick is not None and not self._service.is_busy
        if is_quick and self.quick is not None and self.owners.get(session_id) == origin:
            caller = Caller(session_id, ids)
            if self.quick.propose_forwarded(caller, forwarded.cxid, forwarded.body):
                return
        request: Any
        if op == _CREATE_SESSION:
            self.owners[session_id] = origin
            request = self._new_session(forwarded.body)
        else:
            options = self._options
            most = options.prepare.max_acl_entries
            body, max_field = forwarded.body, options.max_field_bytes
            if op == _MULTI and may_be_long_multi(len(body), self._slice_size):
                request = LateMulti(body, 0, max_field, most)
            else:
                request = decode_write(op, body, 0, max_field, most)
        # A session that nobody knows, of another server's making, is a local one there.
        is_local = (
            self._options.has_local_sessions
            and session_id not in self.sessions
            and session_id >> 56 & 0xFF != self._options.server_id & 0xFF
        )
        is_moved = not is_local and not self.is_owner(session_id, origin)
        caller = Caller(session_id, ids, is_local=is_local, is_moved=is_moved)
        self.propose(caller, forwarded.cxid, op, request)

    def _shed_ephemerals(self, session_id: SessionId) -> None:
        """Delete ephemerals of a session that has more than the txn that ends it can name.

        By ordinary txns before it, which every kind of server applies.
        """
        # No permission is checked, and the session may be gone already.
        caller = Caller(session_id, (Id("super", ""),), is_local=True)
        last: list[str] = []
        while paths := self._preparer.ephemerals_to_shed(session_id):
            if paths == last or self.is_exhausted:
                return  # they could not be deleted; the end of the session is refused
            last = paths
            ops = tuple(MultiOp(_DELETE, DeleteRequest(path, -1)) for path in paths)
            self.propose(caller, 0, _MULTI, ops)
            self._make_all()

    def _make_all(self) -> None:
        """Make the long txn that is being made, at once."""
        for _ in self._making or ():
            pass
        self._making = None
        self._service.is_busy = False

    def propose_nothing(self) -> None:
        """Make a txn that changes nothing: as a refused request, of nobody."""
        nothing = KeeperError(ErrorCode.SYSTEM_ERROR)
        self.propose(Caller(SessionId(0)), 0, OpCode.ERROR.value, nothing)

    def _new_session(self, body: bytes) -> CreateSessionTxn | KeeperError:
        try:
            # The last four bytes: what stands before them differs between releases.
            return codec_of(CreateSessionTxn).decode(body[-4:])
        except MalformedRecord:
            return KeeperError(ErrorCode.MARSHALLING_ERROR)

    def is_owner(self, session_id: int, server_id: ServerId) -> bool:
        """Whether the session's client is connected to that server, as far as is known."""
        return self.owners.setdefault(session_id, server_id) == server_id

    def revalidate(self, session_id: int, timeout_ms: int, server_id: ServerId) -> bool:
        """A client came back through a server: whether its session lives. It moves there."""
        if session_id in self.sessions or session_id in self._opening:
            self.sessions.track(session_id, timeout_ms, self._service.now_ms)
        else:
            self._refused[session_id] = None
            if len(self._refused) > _MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
            return False
        self.owners[session_id] = server_id
        return True

    def _open(self, session_id: int) -> None:
        if session_id in self._refused:
            raise KeeperError(ErrorCode.SESSION_EXPIRED, "its client was told that it has ended")
        self._opening.add(session_id)

    def _configuration(self, request: Any, zxid: Zxid) -> bytes:
        if self._reconfiguration is None:
            is_enabled = self._options.is_reconfig_enabled
            code = ErrorCode.UNIMPLEMENTED if is_enabled else ErrorCode.RECONFIG_DISABLED
            raise KeeperError(code, "not an ensemble")
        return self._reconfiguration.new_text(request, zxid)

    def take_due(self, zxid: Zxid) -> Iterator[Proposal | PlainWrite]:
        """The txns up to `zxid`, in order, each when it is about to be committed."""
        proposals = self._service.proposals
        take = proposals.popleft
        while proposals and proposals[0].zxid <= zxid:
            yield take()

    def apply(self, proposal: Proposal, *, wants_changes: bool) -> Outcome:
        """Have the tree take a txn that was made here and is committed."""
        entry, op = proposal.entry, proposal.op
        long_txn = proposal.long_txn
        outcome = self._preparer.apply(entry, wants_changes=wants_changes, long_txn=long_txn)
        if long_txn is not None:
            self._service.has_more_work = True  # what it leaves behind
        if op in _SESSION_OPS:
            session_id = entry.header.session_id
            if op == _CLOSE_SESSION:
                self.sessions.forget(session_id)
                self.owners.pop(session_id, None)
            elif entry.header.type == _CREATE_SESSION:
                self._opening.discard(session_id)
                timeout_ms = self._tree.sessions[session_id]
                self.sessions.track(session_id, timeout_ms, self._service.now_ms)
        return outcome

    def ended(self, session_id: int) -> list[Connection]:
        """The end of a session was committed; returns those that wait to be notified of it."""
        return self.ending.pop(session_id, [])

    def tick(self, heard_up_to: HeardUpTo | None) -> None:
        """Expire sessions and clean up."""
        service, now_ms = self._service, self._service.now_ms

        def is_silent(session_id: int, deadline: int) -> bool:
            # A server that its client is connected to may have heard of it, and not said so yet.
            owner = self.owners.get(session_id)
            if heard_up_to is None or owner == self._options.server_id:
                return True
            return heard_up_to(owner) >= deadline

        expired = self.sessions.expired(now_ms, MAX_EXPIRED, is_silent)
        for number, session_id in enumerate(expired, 1):
            service.statistics.expired_sessions += 1
            self.end_session(session_id)
            if not number % self._slice_size:
                # The ends of the others are made when others had their turn, and so is all else.
                service.is_busy = service.has_more_work = True
        if now_ms >= self._next_cleaning_ms and self._cleaning is None:
            self._next_cleaning_ms = now_ms + self._options.container_check_ms
            self._cleaning = self._clean_containers()
            service.has_more_work = True

    def end_session(self, session_id: SessionId) -> None:
        """Close a session for its client, which is silent or gone."""
        self.sessions.forget(session_id)
        self.ending.setdefault(session_id, [])
        self.propose(Caller(session_id), 0, _CLOSE_SESSION, None)

    def _end_orphans(self) -> None:
        """Ephemerals whose session is not there any more: end it once more, by a txn."""
        for owner in sorted(self._tree.ephemerals):
            if owner not in self._tree.sessions:
                self.end_session(SessionId(owner))

    def _clean_containers(self) -> Iterator[None]:
        """Delete containers that are empty again and znodes whose time is over, some per turn."""
        options, wall_ms, count = self._options, self._service.wall_ms, 0
        never_used_ms, size = options.container_max_never_used_ms, self._slice_size
        for path in due_paths(self._tree, wall_ms, never_used_ms, LIGHT * size):
            if path is not None:
                request = DeleteContainerRequest(encode_text(path))
                self.propose(Caller(SessionId(0)), 0, OpCode.DELETE_CONTAINER.value, request)
                count += 1
                if count >= options.container_max_per_minute:
                    return
            if path is None or not count % size:
                yield


def _refusal(
    caller: Caller, xid: int, zxid: Zxid, wall_ms: int, error: KeeperError
) -> tuple[LogEntry, bytes]:
    """The txn of a request that is refused."""
    header = TxnHeader(caller.session_id, xid, zxid, wall_ms, OpCode.ERROR.value)
    entry = LogEntry(header, ErrorTxn(error.code), None)
    return entry, encode_entry(entry)
