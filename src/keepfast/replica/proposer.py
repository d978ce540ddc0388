"""The leader's half of a server: requests become txns, sessions end, containers are cleaned.

A server that is alone is a quorum of one and has this half all the time; a member of an ensemble
has it while it leads. Whoever drives it takes the records from `Replica.appends` and says through
`Replica.commit` how far they are agreed on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from keepfast.replica.cleaning import due_paths
from keepfast.replica.malformed import refusal
from keepfast.replica.proposals import Append, PlainWrite, Proposal
from keepfast.replica.quick_writes import QuickWrites
from keepfast.replica.sessions import SessionTracker
from keepfast.tree import Caller, Preparer, Tree
from keepfast.wire import (
    CreateSessionTxn,
    DeleteContainerRequest,
    ErrorCode,
    ErrorTxn,
    ForwardedRequest,
    Id,
    KeeperError,
    LogEntry,
    MalformedRecord,
    OpCode,
    ServerId,
    SessionId,
    TxnHeader,
    Zxid,
    codec_of,
    counter_of,
    decode_multi_request,
    decode_request,
    encode_entry,
    encode_text,
    make_zxid,
)

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection, PendingWrite
    from keepfast.replica.replica import Replica

MAX_COUNTER: Final = 0xFFFFFFFE

_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_MULTI: Final = OpCode.MULTI.value
_RECONFIG: Final = OpCode.RECONFIG.value
_SET_DATA: Final = OpCode.SET_DATA.value


class Proposer:
    """See the module. Made for one leader's term, and thrown away with it."""

    def __init__(self, replica: Replica, tree: Tree, epoch: int | None = None) -> None:
        """`epoch`: the one that this server leads in; None: it is alone, and all epochs are its."""
        self._replica = replica
        self._tree = tree
        self._options = replica.options
        self._preparer = Preparer(tree, replica.options.prepare)
        self._is_alone = epoch is None
        # Session -> the server that its client is connected to, once that is known.
        self.owners: dict[int, ServerId] = {}
        self.sessions = SessionTracker(replica.options.tick_ms)
        self.proposals: deque[Proposal | PlainWrite] = deque()
        # Not for servers that look closer at each request.
        self.quick: QuickWrites | None = None
        if (
            replica.audits is None
            and not replica.options.prepare.is_quota_enforced
            and not replica.throttle.is_strict
        ):
            self.quick = QuickWrites(replica, self, self._preparer.plain_sets)
        self.last_proposed = tree.last_zxid if epoch is None else make_zxid(epoch, 0)
        # The counter of this epoch is used up: only a new election leads on.
        self.is_exhausted = False
        self._next_cleaning_ms = replica.now_ms + replica.options.container_check_ms
        for session_id, timeout_ms in tree.sessions.items():
            # Nobody may lose its session to the time that the server was down.
            self.sessions.track(session_id, timeout_ms, replica.now_ms)
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
        replica = self._replica
        zxid = Zxid(self.last_proposed + 1)
        if counter_of(zxid) > MAX_COUNTER:
            if not self._is_alone:
                self.is_exhausted = True
                return
            zxid = Zxid(((self.last_proposed >> 32) + 1 << 32) + 1)
        self.last_proposed = zxid
        wall_ms = replica.wall_ms
        try:
            if isinstance(request, KeeperError):
                raise request
            if op == _RECONFIG:
                request = self._configuration(request, zxid)
            entry = self._preparer.prepare(caller, xid, zxid, wall_ms, op, request)
            if op == _RECONFIG and replica.reconfiguration is not None:
                replica.reconfiguration.proposed()
        except KeeperError as error:
            header = TxnHeader(caller.session_id, xid, zxid, wall_ms, OpCode.ERROR.value)
            entry = LogEntry(header, ErrorTxn(error.code), None)
        replica.appends.append(Append(zxid, encode_entry(entry), self._preparer.digest))
        wanted = None if replica.audits is None else request
        self.proposals.append(Proposal(entry, op, xid, connection, waiting, wanted))

    def propose_forwarded(
        self, origin: ServerId, forwarded: ForwardedRequest, ids: tuple[Id, ...]
    ) -> None:
        """A write of a client of another server; that server answers it when it is committed."""
        session_id, op = forwarded.session_id, forwarded.type
        if op == _SET_DATA and self.quick is not None and self.owners.get(session_id) == origin:
            caller = Caller(session_id, ids)
            if self.quick.propose_forwarded(caller, forwarded.cxid, forwarded.body):
                return
        request: Any
        if op == _CREATE_SESSION:
            self.owners[session_id] = origin
            request = self._new_session(forwarded.body)
        else:
            request = decode_write(op, forwarded.body, 0, self._options.max_field_bytes)
        # A session that nobody knows, of another server's making, is a local one there.
        is_local = (
            self._options.has_local_sessions
            and session_id not in self.sessions
            and session_id >> 56 & 0xFF != self._options.server_id & 0xFF
        )
        is_moved = not is_local and not self.is_owner(session_id, origin)
        caller = Caller(session_id, ids, is_local=is_local, is_moved=is_moved)
        self.propose(caller, forwarded.cxid, op, request)

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
        if session_id not in self.sessions:
            return False
        self.owners[session_id] = server_id
        self.sessions.track(session_id, timeout_ms, self._replica.now_ms)
        return True

    def _configuration(self, request: Any, zxid: Zxid) -> bytes:
        reconfiguration = self._replica.reconfiguration
        if reconfiguration is None:
            raise KeeperError(ErrorCode.UNIMPLEMENTED, "not an ensemble")
        return reconfiguration.new_text(request, zxid)

    def applied(self, proposal: Proposal) -> None:
        """The tree holds this txn now."""
        header = proposal.entry.header
        self._preparer.applied(header.zxid)
        if proposal.op == _CREATE_SESSION:
            session_id = header.session_id
            timeout_ms = self._tree.sessions[session_id]
            self.sessions.track(session_id, timeout_ms, self._replica.now_ms)
        elif proposal.op == _CLOSE_SESSION:
            self.sessions.forget(header.session_id)
            self.owners.pop(header.session_id, None)

    def tick(self) -> None:
        """Expire sessions and clean up."""
        replica, now_ms = self._replica, self._replica.now_ms
        for session_id in self.sessions.expired(now_ms):
            replica.statistics.expired_sessions += 1
            self.end_session(session_id)
        if now_ms >= self._next_cleaning_ms:
            self._next_cleaning_ms = now_ms + self._options.container_check_ms
            self._clean_containers()

    def end_session(self, session_id: SessionId) -> None:
        """Close a session for its client, which is silent or gone."""
        self.sessions.forget(session_id)
        self.propose(Caller(session_id), 0, _CLOSE_SESSION, None)

    def _end_orphans(self) -> None:
        """Ephemerals whose session is not there any more: end it once more, by a txn."""
        for owner in sorted(self._tree.ephemerals):
            if owner not in self._tree.sessions:
                self.end_session(SessionId(owner))

    def _clean_containers(self) -> None:
        """Delete containers that are empty again and znodes whose time is over."""
        options = self._options
        due = due_paths(self._tree, self._replica.wall_ms, options.container_max_never_used_ms)
        for path in due[: options.container_max_per_minute]:
            request = DeleteContainerRequest(encode_text(path))
            self.propose(Caller(SessionId(0)), 0, OpCode.DELETE_CONTAINER.value, request)


def decode_write(op: int, payload: bytes, offset: int, max_field: int) -> Any:
    """What a write asks for; a KeeperError for what cannot be read, which is refused by a txn."""
    try:
        if op == _MULTI:
            return decode_multi_request(op, payload, offset, max_field)
        if op == _CLOSE_SESSION:
            return None
        return decode_request(op, payload, offset, max_field)
    except MalformedRecord:
        return refusal(op, payload, offset, max_field)
