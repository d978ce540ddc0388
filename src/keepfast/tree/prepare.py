"""The leader's half of a write: a request becomes a txn, or an error.

Everything that could differ between servers is decided here and written into the txn: the name of
a sequential znode, the resulting versions, the time, the digest that the tree will have. A
request is checked against the tree as it will be once all txns before it are applied (`pending`).
The checks come in Apache's order, so that a request with several faults gets the same error.

Where Apache lets a request through that harms it later, we do not:
  * create and create2 with the container flag make a persistent znode, as they do in Apache, but
    the digest is that of the znode (Apache logs one that no server has);
  * createTTL needs a TTL flag, createContainer the container flag (-8);
  * no limits for the root, and no unreadable statistics of a quota (-8): Java servers stop on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from keepfast.tree.caller import Caller
from keepfast.tree.create_modes import CREATES, MODES, RARE_CREATES, Mode
from keepfast.tree.digest import DIGEST_VERSION
from keepfast.tree.ephemeral_sizes import EphemeralSizes, path_size
from keepfast.tree.install import install, multi_results
from keepfast.tree.long_txns import LongTxn, run_through
from keepfast.tree.multi_bounds import MultiBounds, MultiTooLarge
from keepfast.tree.node_bytes import (
    CONTAINER_OWNER,
    Kind,
    aversion_of,
    cversion_of,
    is_ephemeral,
    kind_of,
    owner_of,
    stat_after_create,
    stat_after_delete,
    stat_after_set_acl,
    stat_after_set_data,
    stat_of_create,
    ttl_owner,
    version_of,
)
from keepfast.tree.outcome import NOTHING, ChangeKind, OpResult, Outcome
from keepfast.tree.paths import CONFIG, ROOT, is_quota_stats
from keepfast.tree.pending import PendingChanges
from keepfast.tree.pending_node import PendingNode
from keepfast.tree.permissions import fixed_acl, is_allowed
from keepfast.tree.plain_sets import PlainSets
from keepfast.tree.prepare_options import PrepareOptions
from keepfast.tree.quota import limits_path, stops_apache
from keepfast.tree.request_rules import (
    check_path,
    check_quota,
    checked_mode,
    checked_parent,
    next_version,
)
from keepfast.tree.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    AclList,
    CheckVersionRequest,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateRequest,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteContainerRequest,
    DeleteRequest,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    InvariantViolation,
    KeeperError,
    LogEntry,
    MultiOp,
    MultiTxn,
    OpCode,
    Perms,
    SessionId,
    SetACLRequest,
    SetACLTxn,
    SetDataRequest,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_text,
    encode_txn_body,
)

_ANY_VERSION: Final = -1
# A closeSession without its paths, and an operation of a multi without its path; rounded up.
_CLOSE_SESSION_BYTES: Final = 64
_SUB_TXN_BYTES: Final = 16
_LIMITS_OF_ROOT: Final = limits_path("")
_NO_TTL: Final = -1
# How many times as many changes are forgotten in a turn as are computed.
_FORGOTTEN: Final = 4
# The constructors of these NamedTuples take twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__

_CREATED: Final = ChangeKind.CREATED.value
_DELETED: Final = ChangeKind.DELETED.value
_DATA: Final = ChangeKind.DATA.value
_ACL: Final = ChangeKind.ACL.value
_ERROR: Final = OpCode.ERROR.value
_MULTI: Final = OpCode.MULTI.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_CREATE_CONTAINER: Final = OpCode.CREATE_CONTAINER.value
_NO_OWNER: Final = bytes(8)
_LAST_INT: Final = (1 << 31) - 1
# A name that begins so may be no name at all; a character takes at most this many bytes.
_ODD_STARTS: Final = frozenset(("", "."))
_CHARACTER_BYTES: Final = 4

# What stands in a multi after the operation that failed.
_NOT_TRIED: Final = SubTxn(_ERROR, encode_txn_body(ErrorTxn(ErrorCode.RUNTIME_INCONSISTENCY)))


class Preparer:
    """Turns requests into txns, for one leader's term.

    Each call of `prepare` is followed, once its txn is committed, by `apply`, in the same order.
    The tree changes by these txns alone as long as the Preparer is used.
    """

    def __init__(self, tree: Tree, options: PrepareOptions | None = None) -> None:
        self._tree = tree
        self._options = PrepareOptions() if options is None else options
        self._slice_size = self._options.slice_size
        self._pending = PendingChanges(tree)
        # What txns do to sessions: id -> zxid of the last of them, and whether it opens.
        self._sessions: dict[int, tuple[int, bool]] = {}
        self._session_steps: deque[tuple[int, int]] = deque()
        self._last_zxid = tree.last_zxid
        # The fast path of most setData requests.
        self.plain_sets = PlainSets(tree, self._pending, self._sessions)
        self._ephemeral_sizes = EphemeralSizes(self._pending)
        fitting = self._options.max_txn_bytes - _CLOSE_SESSION_BYTES
        # Paths of this many characters are short enough whatever they are.
        self._short_path = self._options.max_path_bytes // _CHARACTER_BYTES - 1
        self._max_ephemeral_bytes = min(self._options.max_ephemeral_bytes or fitting, fitting)

    @property
    def digest(self) -> int:
        """Apache's digest of the tree once all prepared txns are applied."""
        return self._pending.digest

    def prepare(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, type_: int, request: Any
    ) -> LogEntry:
        """The txn for a request: header, body, and the digest after it.

        `request` is the request's record; a tuple of MultiOp for a multi, CreateSessionTxn for
        createSession, the new configuration as bytes for reconfig, None for closeSession. A multi
        that fails is a txn too. Otherwise a refused request raises KeeperError; it leaves nothing
        behind, but its zxid is used up: log an ErrorTxn with the code.
        """
        body = self._begin(zxid, type_)(self, caller, zxid, time_ms, type_, request)
        return self._entry(caller, cxid, zxid, time_ms, type_, body)

    def is_long(self, caller: Caller, type_: int, request: Any) -> bool:
        """Whether a request is prepared in slices, by `prepare_long`."""
        if type_ == _MULTI:
            return type(request) is tuple and len(request) > self._slice_size
        if type_ != _CLOSE_SESSION:
            return False
        there = self._tree.ephemerals.get(caller.session_id, ())
        return len(there) + len(self._pending.owned.get(caller.session_id, ())) > self._slice_size

    def prepare_long(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, type_: int, request: Any
    ) -> Generator[None, None, tuple[LogEntry, LongTxn | None]]:
        """`prepare` of a request that `is_long`, a slice each time that the next one is asked for.

        Nothing else may be prepared meanwhile; txns may be applied. Returns what `apply` installs,
        too; None: it applies the txn in one piece.
        """
        self._begin(zxid, type_)
        slices = self._end_in_slices if type_ == _CLOSE_SESSION else self._multi_in_slices
        body = yield from slices(caller, zxid, time_ms, request)
        entry = self._entry(caller, cxid, zxid, time_ms, type_, body)
        pending = self._pending
        if zxid in pending.reserved:
            return entry, None
        txn = LongTxn(self._tree, zxid)
        if type_ == _CLOSE_SESSION:
            txn.ended_session, types = caller.session_id, []
        else:
            types = [op.type for op in body.txns or ()]  # type: ignore[union-attr]
            if _ERROR in types:
                types = txn.fail(body.txns or ())  # type: ignore[union-attr]
        yield from txn.gather(pending.steps_of(zxid), pending.digest, types, self._slice_size)
        return entry, txn

    def tidy(self) -> bool:
        """Forget some of what long txns left behind; returns whether there is more."""
        return self._pending.forget_some(_FORGOTTEN * self._slice_size)

    def _begin(self, zxid: Zxid, type_: int) -> _Handler:
        if zxid <= self._last_zxid:
            raise InvariantViolation("txns are prepared in the order of their zxids")
        self._last_zxid = zxid
        handler = _HANDLERS.get(type_)
        if handler is None:
            raise KeeperError(ErrorCode.UNIMPLEMENTED, f"request type {type_}")
        self._ephemeral_sizes.begin()
        return handler

    def _entry(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, type_: int, body: TxnBody
    ) -> LogEntry:
        if type(body) is CreateContainerTxn:
            type_ = _CREATE_CONTAINER
        header = _new_tuple(TxnHeader, (caller.session_id, cxid, zxid, time_ms, type_))
        digest = _new_tuple(TxnDigest, (DIGEST_VERSION, self._pending.digest))
        entry: LogEntry = _new_tuple(LogEntry, (header, body, digest, b""))
        return entry

    def take_back(self, zxid: Zxid, digest: int) -> None:
        """Undo the txn that was prepared last, of znodes only; `digest` is the one before it."""
        self._pending.roll_back(zxid, digest)
        self._ephemeral_sizes.roll_back()

    def ephemerals_to_shed(self, session_id: SessionId) -> list[str]:
        """Ephemerals to delete first, so that the session's end fits into one txn; empty: it does.

        As many as go into one txn. Sessions that an older server let have too many are ended so.
        """
        total = self._ephemeral_sizes.total(session_id).size
        limit = self._options.max_txn_bytes - _CLOSE_SESSION_BYTES
        shed: list[str] = []
        size = 0
        paths = self._pending.ephemerals(session_id) if total > limit else []
        while total > limit and size < limit // 2:
            path = paths.pop()
            shed.append(path)
            size += path_size(path) + _SUB_TXN_BYTES
            total -= path_size(path)
        return shed

    def apply(
        self, entry: LogEntry, *, wants_changes: bool = True, long_txn: LongTxn | None = None
    ) -> Outcome:
        """Have the tree take the txn that was prepared first and is not applied yet.

        What was computed for it is checked against the tree and installed; it is not computed
        again. Raises ReplayConflict and changes nothing if the tree is another one. Without
        `wants_changes` the outcome of a txn that succeeded may leave them out.
        """
        header, body = entry.header, entry.body
        zxid, tree = header.zxid, self._tree
        if long_txn is not None:
            outcome = long_txn.install()
            self._pending.take_long(zxid)
            self._forget_sessions(zxid)
            return outcome
        steps, reserved = self._pending.take(zxid), self._pending.reserved
        # A txn that does more than to change its own znodes is applied as a learner does it.
        if not steps or tree.quotas or zxid in reserved or entry.digest is None:
            outcome = tree.apply(header, body)
            reserved.discard(zxid)
        else:
            type_ = header.type
            digest = entry.digest.tree_digest
            changes = install(tree, zxid, steps, digest, wants_changes=wants_changes)
            results: tuple[OpResult, ...] = ()
            if type_ == _MULTI:
                results = multi_results([op.type for op in body.txns or ()], steps)  # type: ignore[union-attr]
            elif type_ == _CLOSE_SESSION:
                tree.close_session(header.session_id)
            outcome = Outcome(changes, 0, results) if changes or results else NOTHING
        if self._session_steps:
            self._forget_sessions(zxid)
        return outcome

    def _forget_sessions(self, zxid: int) -> None:
        """What txns up to this one do to sessions is in the tree."""
        steps = self._session_steps
        while steps and steps[0][0] <= zxid:
            step, session_id = steps.popleft()
            if self._sessions[session_id][0] == step:
                del self._sessions[session_id]

    def find(self, path: str) -> PendingNode | None:
        """The znode at a path once all prepared txns are applied."""
        return self._pending.find(path)

    # -- checks ----------------------------------------------------------------------------------

    def _check_session(self, caller: Caller, is_for_ephemeral: bool = False) -> None:
        session_id, _, _, is_moved = caller
        change = self._sessions.get(session_id)
        if change is None and not is_moved and session_id in self._tree.sessions:
            return  # as nearly always
        is_known = session_id in self._tree.sessions if change is None else change[1]
        if not is_known and (change is not None or not caller.is_local):
            raise KeeperError(ErrorCode.SESSION_EXPIRED)
        if caller.is_moved:
            raise KeeperError(ErrorCode.SESSION_MOVED)
        if is_for_ephemeral and not is_known:
            raise KeeperError(ErrorCode.EPHEMERAL_ON_LOCAL_SESSION)

    def _check_permission(self, caller: Caller, acl: AclList, perm: int, path: str) -> None:
        if not is_allowed(acl, perm, caller.ids) and not self._options.is_acl_skipped:
            raise KeeperError(ErrorCode.NO_AUTH, path)

    def _find(self, path: str) -> PendingNode:
        if (node := self._pending.find(path)) is None:
            raise KeeperError(ErrorCode.NO_NODE, path)
        return node

    def _find_named(self, path: str) -> PendingNode:
        """The znode at a path that may be none: what is there has a path that may be."""
        if (node := self._pending.find(path)) is None:
            check_path(path)
            raise KeeperError(ErrorCode.NO_NODE, path)
        return node

    # -- requests --------------------------------------------------------------------------------

    def _create(self, caller: Caller, zxid: int, time_ms: int, type_: int, request: Any) -> TxnBody:
        path, data, acl, flags, *more = request
        mode = MODES.get(flags)
        if mode is None or mode.is_rare or type_ in RARE_CREATES:
            mode = checked_mode(self._options, flags, type_, more[0] if more else _NO_TTL, path)
        is_ephemeral_mode, is_sequential, _, has_ttl, is_rare, has_owner = mode
        self._check_session(caller, is_ephemeral_mode)
        slash = path.rfind("/")
        if slash < 0 or "\0" in path:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
        if acl is not OPEN_ACL:
            acl = fixed_acl(acl, caller.ids, self._options)
        pending = self._pending
        parent_path = path[:slash] or ROOT
        parent = pending.find(parent_path)
        if parent is None:
            raise KeeperError(ErrorCode.NO_NODE, parent_path)
        if parent.acl is not OPEN_ACL:
            self._check_permission(caller, parent.acl, Perms.CREATE, path)
        stat = parent.stat
        cversion = cversion_of(stat)
        if is_sequential:
            path = f"{path}{cversion:010d}"
        name = path[slash + 1 :]
        if (
            # Otherwise the path is as good as its parent's, which was looked at when it was made.
            not (name.isascii() and name.isprintable())
            or name[:1] in _ODD_STARTS
            or len(path) > self._short_path
            or (slash > 0 and parent_path == ROOT)
        ):
            self._check_new_path(path)
        if pending.has(path):
            raise KeeperError(ErrorCode.NODE_EXISTS, path)
        if stat[44:52] != _NO_OWNER and is_ephemeral(stat):
            raise KeeperError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
        if self._options.is_quota_enforced:
            check_quota(self._tree, path, len(data) if data else 0, 1)
        if path == _LIMITS_OF_ROOT:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, "the root has no quota")
        owner = self._owner(caller, mode, path, request) if has_owner else 0
        following = cversion + 1 if cversion < _LAST_INT else -_LAST_INT - 1
        if following > cversion:
            stat = stat_after_create(stat, following, zxid)
        above = PendingNode(parent.data, parent.acl, stat, parent.child_count + 1)
        node = PendingNode(data, acl, stat_of_create(zxid, time_ms, owner), 0)
        pending.put_below(zxid, parent_path, parent, above, path, None, node, _CREATED)
        if is_rare:
            if has_ttl:
                return CreateTTLTxn(path, data, acl, following, request.ttl)
            return CreateContainerTxn(path, data, acl, following)
        body: TxnBody = _new_tuple(CreateTxn, (path, data, acl, is_ephemeral_mode, following))
        return body

    def _check_new_path(self, path: str) -> None:
        """Refuse a path that may not be created, or is too long."""
        check_path(path)
        if path_size(path) > self._options.max_path_bytes:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"a path of {len(path)} characters")

    def _owner(self, caller: Caller, mode: Mode, path: str, request: Any) -> int:
        """ephemeralOwner of a znode that is not persistent; notes that a session has one more."""
        if mode.is_container:
            return CONTAINER_OWNER
        if mode.has_ttl:
            return ttl_owner(request.ttl)
        sizes, session_id = self._ephemeral_sizes, caller.session_id
        number, size = sizes.total(session_id)
        is_full = size + path_size(path) > self._max_ephemeral_bytes
        if is_full or number >= self._options.max_ephemerals:
            raise KeeperError(ErrorCode.QUOTA_EXCEEDED, "the session has too many ephemerals")
        self._pending.own(session_id, path)
        sizes.added(session_id, path)
        return session_id

    def _delete(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, request: DeleteRequest
    ) -> TxnBody:
        self._check_session(caller)
        path, version = request
        parent_path = checked_parent(path)
        parent = self._find(parent_path)
        if parent.acl is not OPEN_ACL:
            self._check_permission(caller, parent.acl, Perms.DELETE, path)
        node = self._find(path)
        if version != _ANY_VERSION:
            next_version(version_of(node.stat), version, path)
        if node.child_count:
            raise KeeperError(ErrorCode.NOT_EMPTY, path)
        self._put_deletion(zxid, path, node, parent_path, parent)
        body: TxnBody = _new_tuple(DeleteTxn, (path,))
        return body

    def _delete_container(
        self,
        _caller: Caller,
        zxid: int,
        _time_ms: int,
        _type: int,
        request: DeleteContainerRequest,
    ) -> TxnBody:
        """The cleaner's request; no session makes it."""
        path = decode_text(request.path)
        parent_path = checked_parent(path)
        node = self._find(path)
        if node.child_count:
            raise KeeperError(ErrorCode.NOT_EMPTY, path)
        if kind_of(node.stat) not in (Kind.CONTAINER, Kind.TTL):
            # Since the cleaner looked, a client may have made another znode of the same name.
            raise KeeperError(ErrorCode.BAD_VERSION, path)
        self._put_deletion(zxid, path, node, parent_path, self._find(parent_path))
        return DeleteTxn(path)

    def _put_deletion(
        self, zxid: int, path: str, node: PendingNode, parent_path: str, parent: PendingNode
    ) -> None:
        if node.stat[44:52] != _NO_OWNER and is_ephemeral(node.stat):
            self._ephemeral_sizes.removed(owner_of(node.stat), path)
        stat = stat_after_delete(parent.stat, zxid)
        above = PendingNode(parent.data, parent.acl, stat, parent.child_count - 1)
        gone = PendingNode(None, (), b"", 0)
        self._pending.put_below(zxid, parent_path, parent, above, path, node, gone, _DELETED)

    def _set_data(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, request: SetDataRequest
    ) -> TxnBody:
        self._check_session(caller)
        path, data, expected = request
        node = self._find_named(path)
        if node.acl is not OPEN_ACL:
            self._check_permission(caller, node.acl, Perms.WRITE, path)
        if self._options.is_quota_enforced:
            grown = (len(data) if data else 0) - (len(node.data) if node.data else 0)
            check_quota(self._tree, path, grown, 0)
        version = next_version(version_of(node.stat), expected, path)
        if is_quota_stats(path) and stops_apache(data):
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path}: not the statistics of a quota")
        stat = stat_after_set_data(node.stat, zxid, time_ms, version)
        new = PendingNode(data, node.acl, stat, node.child_count)
        self._pending.put(zxid, path, node, new, _DATA)
        body: TxnBody = _new_tuple(SetDataTxn, (path, data, version))
        return body

    def _set_acl(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, request: SetACLRequest
    ) -> TxnBody:
        self._check_session(caller)
        path = request.path
        check_path(path)
        acl = fixed_acl(request.acl, caller.ids, self._options)
        node = self._find(path)
        self._check_permission(caller, node.acl, Perms.ADMIN, path)
        aversion = next_version(aversion_of(node.stat), request.version, path)
        stat = stat_after_set_acl(node.stat, aversion)
        new = PendingNode(node.data, acl, stat, node.child_count)
        self._pending.put(zxid, path, node, new, _ACL)
        return SetACLTxn(path, acl, aversion)

    def _check(
        self, caller: Caller, _zxid: int, _time_ms: int, _type: int, request: CheckVersionRequest
    ) -> TxnBody:
        self._check_session(caller)
        path, expected = request
        node = self._find_named(path)
        if node.acl is not OPEN_ACL:
            self._check_permission(caller, node.acl, Perms.READ, path)
        following = next_version(version_of(node.stat), expected, path)
        body: TxnBody = _new_tuple(CheckVersionTxn, (path, following))
        return body

    def _reconfig(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, request: bytes
    ) -> TxnBody:
        """The end of a reconfig: whether the new configuration may be is decided before."""
        self._check_session(caller)
        node = self._find(CONFIG)
        self._check_permission(caller, node.acl, Perms.WRITE, CONFIG)
        stat = stat_after_set_data(node.stat, zxid, time_ms, -1)
        new = PendingNode(request, node.acl, stat, node.child_count)
        self._pending.put(zxid, CONFIG, node, new, _DATA)
        return SetDataTxn(CONFIG, request, -1)

    def _create_session(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, request: CreateSessionTxn
    ) -> TxnBody:
        self._note_session(zxid, caller.session_id, is_open=True)
        return request

    def _close_session(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, _request: None
    ) -> TxnBody:
        # No check of the session: it may have expired, or been closed a moment ago.
        return run_through(self._end_in_slices(caller, zxid, _time_ms, None))

    def _end_in_slices(
        self, caller: Caller, zxid: int, _time_ms: int, _request: None
    ) -> Generator[None, None, TxnBody]:
        session_id = caller.session_id
        owned = yield from self._pending.ephemerals_in_slices(session_id, self._slice_size)
        paths: list[str] = []
        for number, (path, node) in enumerate(owned, 1):
            if not number % self._slice_size:
                yield
            parent_path = path[: path.rfind("/")] or ROOT
            self._put_deletion(zxid, path, node, parent_path, self._find(parent_path))
            paths.append(path)
        self._note_session(zxid, session_id, is_open=False)
        self._ephemeral_sizes.ended(session_id)
        return CloseSessionTxn(tuple(paths))

    def _note_session(self, zxid: int, session_id: int, *, is_open: bool) -> None:
        self._sessions[session_id] = (zxid, is_open)
        self._session_steps.append((zxid, session_id))

    def _multi(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, ops: tuple[MultiOp, ...]
    ) -> TxnBody:
        return run_through(self._multi_in_slices(caller, zxid, time_ms, ops))

    def _multi_in_slices(
        self, caller: Caller, zxid: int, time_ms: int, ops: tuple[MultiOp, ...]
    ) -> Generator[None, None, TxnBody]:
        for _, request in ops:
            if isinstance(request, CreateRequest) and request.flags not in _FLAGS_WITHOUT_TTL:
                # Apache cannot even decode it: no operation gets an answer of its own.
                raise KeeperError(ErrorCode.MARSHALLING_ERROR, "create flags in a multi")
        digest, bounds = self._pending.digest, MultiBounds(self._options)
        subs: list[SubTxn] = []
        for number, (type_, request) in enumerate(ops, 1):
            if not number % self._slice_size:
                yield
            try:
                has_acl = type_ in CREATES
                if has_acl:
                    bounds.expect(request.acl)  # type: ignore[union-attr]  # of a create
                body = _SUB_HANDLERS[type_](self, caller, zxid, time_ms, type_, request)
                acl = body.acl if has_acl else None  # type: ignore[union-attr]
                encoded = encode_txn_body(body)
                bounds.add(len(encoded), acl, zxid in self._pending.reserved)
            except KeeperError as error:
                yield from self._pending.roll_back_in_slices(zxid, digest, self._slice_size)
                self._ephemeral_sizes.roll_back()
                if isinstance(error, MultiTooLarge):
                    raise
                subs.append(SubTxn(_ERROR, encode_txn_body(ErrorTxn(error.code))))
                subs += [_NOT_TRIED] * (len(ops) - number)
                break
            subs.append(_new_tuple(SubTxn, (type_, encoded)))
        return MultiTxn(tuple(subs))


_FLAGS_WITHOUT_TTL: Final = frozenset(flags for flags, mode in MODES.items() if not mode.has_ttl)

_Handler = Callable[[Preparer, Caller, int, int, int, Any], TxnBody]
_SUB_HANDLERS: Final[dict[int, _Handler]] = {
    OpCode.CREATE.value: Preparer._create,
    OpCode.CREATE2.value: Preparer._create,
    OpCode.CREATE_CONTAINER.value: Preparer._create,
    OpCode.CREATE_TTL.value: Preparer._create,
    OpCode.DELETE.value: Preparer._delete,
    OpCode.SET_DATA.value: Preparer._set_data,
    OpCode.CHECK.value: Preparer._check,
}
_HANDLERS: Final[dict[int, _Handler]] = {
    **{type_: handler for type_, handler in _SUB_HANDLERS.items() if type_ != OpCode.CHECK},
    OpCode.SET_ACL.value: Preparer._set_acl,
    OpCode.DELETE_CONTAINER.value: Preparer._delete_container,
    OpCode.MULTI.value: Preparer._multi,
    OpCode.RECONFIG.value: Preparer._reconfig,
    OpCode.CREATE_SESSION.value: Preparer._create_session,
    OpCode.CLOSE_SESSION.value: Preparer._close_session,
}
