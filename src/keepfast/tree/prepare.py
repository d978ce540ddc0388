"""The leader's half of a write: a request becomes a txn, or an error.

Everything that could differ between servers is decided here and written into the txn: the name of
a sequential znode, the resulting versions, the time, the digest that the tree will have. A
request is checked against the tree as it will be once all txns before it are applied (`pending`).
The checks come in Apache's order, so that a request with several faults gets the same error.

Where Apache lets a request through that harms it later, we do not:
  * create and create2 with the container flag make a persistent znode, as they do in Apache, but
    the digest is that of the znode (Apache logs one that no server has);
  * createTTL needs a TTL flag, createContainer the container flag (-8);
  * no limits for the root, and no statistics of a quota that cannot be read (-8): on either, Java
    servers stop, and stop again at every start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from keepfast.tree.digest import DIGEST_VERSION
from keepfast.tree.node import (
    CONTAINER_OWNER,
    MAX_TTL_MS,
    Kind,
    aversion_of,
    cversion_of,
    is_ephemeral,
    kind_of,
    signed_int,
    stat_after_create,
    stat_after_delete,
    stat_after_set_acl,
    stat_after_set_data,
    stat_of_create,
    ttl_owner,
    version_of,
)
from keepfast.tree.paths import CONFIG, ROOT, SPECIAL_PATHS, is_quota_stats, path_problem
from keepfast.tree.pending import PendingChanges, PendingNode
from keepfast.tree.permissions import DEFAULT_SCHEMES, fixed_acl, is_allowed
from keepfast.tree.plain_sets import PlainSets
from keepfast.tree.quota import (
    BYTE_HARD_LIMIT,
    BYTES,
    COUNT,
    COUNT_HARD_LIMIT,
    deepest_quota,
    limits_path,
    parse_counts,
    stats_path,
    stops_apache,
)
from keepfast.tree.tree import Tree
from keepfast.wire import (
    AclList,
    CheckVersionRequest,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateMode,
    CreateRequest,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteContainerRequest,
    DeleteRequest,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    Id,
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
    invariant,
)

_ANY_VERSION: Final = -1
_LIMITS_OF_ROOT: Final = limits_path("")
_NO_TTL: Final = -1

# For each write; the constructors of these NamedTuples take twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__

_ERROR: Final = OpCode.ERROR.value
_CREATE_TTL: Final = OpCode.CREATE_TTL.value
_CREATE_CONTAINER: Final = OpCode.CREATE_CONTAINER.value

# What stands in a multi behind the operation that failed.
_NOT_TRIED: Final = SubTxn(_ERROR, encode_txn_body(ErrorTxn(ErrorCode.RUNTIME_INCONSISTENCY)))


class PrepareOptions(msgspec.Struct, frozen=True):
    """What a leader allows. Only the leader reads them: txns carry the results."""

    # Whether clients may create znodes with a TTL (zookeeper.extendedTypesEnabled). Off: -6. On,
    # an Apache server without the same setting takes such znodes for ephemerals of a strange
    # session.
    is_ttl_enabled: bool = False
    # Whether hard limits of quotas refuse writes (-125). Off: they are only counted.
    is_quota_enforced: bool = False
    # Whether no permission is ever checked. On, every client may do everything.
    is_acl_skipped: bool = False
    # Schemes whose ids may stand in an ACL, besides world and auth. One that no connection can
    # authenticate with locks its znodes up.
    schemes: frozenset[str] = DEFAULT_SCHEMES


class Caller(NamedTuple):
    """On whose behalf a request is made; one for all requests of a connection."""

    session_id: SessionId
    # What the connection has authenticated as.
    ids: tuple[Id, ...] = ()
    # A session of one server alone, which is in no tree.
    is_local: bool = False
    # The session was taken over by a connection to another server.
    is_moved: bool = False


class Preparer:
    """Makes txns of requests, for one leader's term.

    Each call of `prepare` is followed, once its txn is applied to the tree, by `applied`. The
    tree changes by these txns alone as long as the Preparer is used.
    """

    def __init__(self, tree: Tree, options: PrepareOptions | None = None) -> None:
        self._tree = tree
        self._options = PrepareOptions() if options is None else options
        self._pending = PendingChanges(tree)
        # What prepared txns do to sessions: id -> zxid of the last of them, and whether it opens.
        self._sessions: dict[int, tuple[int, bool]] = {}
        self._session_steps: deque[tuple[int, int]] = deque()
        self._last_zxid = tree.last_zxid
        # The quick way of most setData requests, which share the order of zxids with the others.
        self.plain_sets = PlainSets(tree, self._pending, self._sessions)

    @property
    def digest(self) -> int:
        """Apache's digest of the tree once all prepared txns are applied."""
        return self._pending.digest

    def prepare(
        self, caller: Caller, cxid: int, zxid: Zxid, time_ms: int, type_: int, request: Any
    ) -> LogEntry:
        """The txn for a request: header, body, and the digest behind it.

        `request` is the request's record; a tuple of MultiOp for a multi, CreateSessionTxn for
        createSession, the new configuration as bytes for reconfig, None for closeSession. A multi
        that fails is a txn too. Otherwise a refused request raises KeeperError; it leaves nothing
        behind, but its zxid is used up: log an ErrorTxn with the code.
        """
        invariant(zxid > self._last_zxid, "txns are prepared in the order of their zxids")
        self._last_zxid = zxid
        handler = _HANDLERS.get(type_)
        if handler is None:
            raise KeeperError(ErrorCode.UNIMPLEMENTED, f"request type {type_}")
        body = handler(self, caller, zxid, time_ms, type_, request)
        if type(body) is CreateContainerTxn:
            type_ = _CREATE_CONTAINER
        header = _new_tuple(TxnHeader, (caller.session_id, cxid, zxid, time_ms, type_))
        digest = _new_tuple(TxnDigest, (DIGEST_VERSION, self._pending.digest))
        entry: LogEntry = _new_tuple(LogEntry, (header, body, digest, b""))
        return entry

    def applied(self, zxid: int) -> None:
        """Note that the tree holds all txns up to this one."""
        self._pending.forget(zxid)
        steps = self._session_steps
        while steps and steps[0][0] <= zxid:
            step, session_id = steps.popleft()
            if self._sessions[session_id][0] == step:
                del self._sessions[session_id]

    def find(self, path: str) -> PendingNode | None:
        """The znode at a path once all prepared txns are applied."""
        return self._pending.find(path)

    # -- checks ----------------------------------------------------------------------------------

    def _check_session(self, caller: Caller, *, is_for_ephemeral: bool = False) -> None:
        session_id = caller.session_id
        change = self._sessions.get(session_id)
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
        node = self._pending.find(path)
        if node is None:
            raise KeeperError(ErrorCode.NO_NODE, path)
        return node

    def _check_quota(self, path: str, bytes_diff: int, count_diff: int) -> None:
        """Refuse what the tree, as it is now, has no room for."""
        tree = self._tree
        if not self._options.is_quota_enforced or not tree.quotas:
            return
        quota = deepest_quota(tree.quotas, path)
        if quota is None:
            return
        limits, stats = tree.find(limits_path(quota)), tree.find(stats_path(quota))
        if limits is None or stats is None:
            return
        allowed, counted = parse_counts(limits.data), parse_counts(stats.data)
        for limit, name, diff in (
            (COUNT_HARD_LIMIT, COUNT, count_diff),
            (BYTE_HARD_LIMIT, BYTES, bytes_diff),
        ):
            most = allowed.get(limit, -1)
            if diff and most > -1 and counted.get(name, -1) + diff > most:
                raise KeeperError(ErrorCode.QUOTA_EXCEEDED, quota)

    # -- requests --------------------------------------------------------------------------------

    def _create(self, caller: Caller, zxid: int, time_ms: int, type_: int, request: Any) -> TxnBody:
        pending = self._pending
        path, data, acl, flags = request[:4]
        ttl = request.ttl if type_ == _CREATE_TTL else _NO_TTL
        mode = self._checked_mode(flags, type_, ttl, path)
        self._check_session(caller, is_for_ephemeral=mode.is_ephemeral)
        slash = path.rfind("/")
        if slash < 0 or "\0" in path:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
        acl = fixed_acl(acl, caller.ids, self._options.schemes)
        parent_path = path[:slash] or ROOT
        parent = self._find(parent_path)
        self._check_permission(caller, parent.acl, Perms.CREATE, path)
        cversion = cversion_of(parent.stat)
        if mode.is_sequential:
            path = f"{path}{cversion:010d}"
        _check_path(path)
        if pending.find(path) is not None:
            raise KeeperError(ErrorCode.NODE_EXISTS, path)
        if is_ephemeral(parent.stat):
            raise KeeperError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
        self._check_quota(path, len(data) if data else 0, 1)
        if path == _LIMITS_OF_ROOT:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, "the root has no quota")

        owner = 0
        following = signed_int(cversion + 1)
        body: TxnBody
        if mode.is_container:
            owner = CONTAINER_OWNER
            body = CreateContainerTxn(path, data, acl, following)
        elif mode.has_ttl:
            owner = ttl_owner(ttl)
            body = CreateTTLTxn(path, data, acl, following, ttl)
        else:
            body = CreateTxn(path, data, acl, mode.is_ephemeral, following)
            if mode.is_ephemeral:
                owner = caller.session_id
                pending.own(owner, path)
        stat = parent.stat
        if following > cversion:
            stat = stat_after_create(stat, following, zxid)
        above = PendingNode(parent.data, parent.acl, stat, parent.child_count + 1)
        pending.put(zxid, parent_path, parent, above)
        node = PendingNode(data, acl, stat_of_create(zxid, time_ms, owner), 0)
        pending.put(zxid, path, None, node)
        return body

    def _checked_mode(self, flags: int, type_: int, ttl: int, path: str) -> _Mode:
        mode = _MODES.get(flags)
        if mode is None:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"create flags {flags}")
        if mode.has_ttl:
            if not self._options.is_ttl_enabled:
                raise KeeperError(ErrorCode.UNIMPLEMENTED, "TTLs are not enabled")
            if not 0 < ttl <= MAX_TTL_MS:
                raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path}: a TTL of {ttl} ms")
        elif type_ == _CREATE_TTL or (type_ == _CREATE_CONTAINER and not mode.is_container):
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"flags {flags} in request type {type_}")
        if mode.is_container and type_ != _CREATE_CONTAINER:
            return _MODES[CreateMode.PERSISTENT.value]
        return mode

    def _delete(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, request: DeleteRequest
    ) -> TxnBody:
        self._check_session(caller)
        path = request.path
        parent_path = _checked_parent(path)
        parent = self._find(parent_path)
        self._check_permission(caller, parent.acl, Perms.DELETE, path)
        node = self._find(path)
        _next_version(version_of(node.stat), request.version, path)
        if node.child_count:
            raise KeeperError(ErrorCode.NOT_EMPTY, path)
        self._put_deletion(zxid, path, node, parent_path, parent)
        return DeleteTxn(path)

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
        parent_path = _checked_parent(path)
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
        stat = stat_after_delete(parent.stat, zxid)
        above = PendingNode(parent.data, parent.acl, stat, parent.child_count - 1)
        self._pending.put(zxid, parent_path, parent, above)
        self._pending.delete(zxid, path, node)

    def _set_data(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, request: SetDataRequest
    ) -> TxnBody:
        self._check_session(caller)
        path, data, expected = request
        _check_path(path)
        node = self._find(path)
        self._check_permission(caller, node.acl, Perms.WRITE, path)
        if self._options.is_quota_enforced:
            grown = (len(data) if data else 0) - (len(node.data) if node.data else 0)
            self._check_quota(path, grown, 0)
        version = _next_version(version_of(node.stat), expected, path)
        if is_quota_stats(path) and stops_apache(data):
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path}: not the statistics of a quota")
        stat = stat_after_set_data(node.stat, zxid, time_ms, version)
        self._pending.put(zxid, path, node, PendingNode(data, node.acl, stat, node.child_count))
        return SetDataTxn(path, data, version)

    def _set_acl(
        self, caller: Caller, zxid: int, _time_ms: int, _type: int, request: SetACLRequest
    ) -> TxnBody:
        self._check_session(caller)
        path = request.path
        _check_path(path)
        acl = fixed_acl(request.acl, caller.ids, self._options.schemes)
        node = self._find(path)
        self._check_permission(caller, node.acl, Perms.ADMIN, path)
        aversion = _next_version(aversion_of(node.stat), request.version, path)
        stat = stat_after_set_acl(node.stat, aversion)
        self._pending.put(zxid, path, node, PendingNode(node.data, acl, stat, node.child_count))
        return SetACLTxn(path, acl, aversion)

    def _check(
        self, caller: Caller, _zxid: int, _time_ms: int, _type: int, request: CheckVersionRequest
    ) -> TxnBody:
        self._check_session(caller)
        path = request.path
        _check_path(path)
        node = self._find(path)
        self._check_permission(caller, node.acl, Perms.READ, path)
        return CheckVersionTxn(path, _next_version(version_of(node.stat), request.version, path))

    def _reconfig(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, request: bytes
    ) -> TxnBody:
        """The end of a reconfig: whether the new configuration may be is decided before."""
        self._check_session(caller)
        node = self._find(CONFIG)
        self._check_permission(caller, node.acl, Perms.WRITE, CONFIG)
        stat = stat_after_set_data(node.stat, zxid, time_ms, -1)
        new = PendingNode(request, node.acl, stat, node.child_count)
        self._pending.put(zxid, CONFIG, node, new)
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
        session_id = caller.session_id
        paths = self._pending.ephemerals(session_id)
        for path in paths:
            parent_path = path[: path.rfind("/")] or ROOT
            self._put_deletion(zxid, path, self._find(path), parent_path, self._find(parent_path))
        self._note_session(zxid, session_id, is_open=False)
        return CloseSessionTxn(tuple(paths))

    def _note_session(self, zxid: int, session_id: int, *, is_open: bool) -> None:
        self._sessions[session_id] = (zxid, is_open)
        self._session_steps.append((zxid, session_id))

    def _multi(
        self, caller: Caller, zxid: int, time_ms: int, _type: int, ops: tuple[MultiOp, ...]
    ) -> TxnBody:
        for _, request in ops:
            if isinstance(request, CreateRequest) and request.flags not in _FLAGS_WITHOUT_TTL:
                # Apache cannot even decode such a multi: no operation gets an answer of its own.
                raise KeeperError(ErrorCode.MARSHALLING_ERROR, "create flags in a multi")
        digest = self._pending.digest
        subs: list[SubTxn] = []
        is_failed = False
        for type_, request in ops:
            if is_failed:
                subs.append(_NOT_TRIED)
                continue
            try:
                body = _SUB_HANDLERS[type_](self, caller, zxid, time_ms, type_, request)
            except KeeperError as error:
                is_failed = True
                self._pending.roll_back(zxid, digest)
                subs.append(SubTxn(_ERROR, encode_txn_body(ErrorTxn(error.code))))
            else:
                subs.append(SubTxn(type_, encode_txn_body(body)))
        return MultiTxn(tuple(subs))


def _check_path(path: str) -> None:
    problem = path_problem(path)
    if problem is not None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path!r} {problem}")


def _checked_parent(path: str) -> str:
    slash = path.rfind("/")
    if slash < 0 or "\0" in path or path in SPECIAL_PATHS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return path[:slash] or ROOT


def _next_version(current: int, expected: int, path: str) -> int:
    if expected not in (_ANY_VERSION, current):
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    # Never -1: a client could not ask for it, because in a request it means any version.
    return signed_int(current + 1) if current != -2 else 0


class _Mode(NamedTuple):
    is_ephemeral: bool
    is_sequential: bool
    is_container: bool
    has_ttl: bool


# Looked up for each create, where the properties of CreateMode would show.
_MODES: Final = {
    mode.value: _Mode(mode.is_ephemeral, mode.is_sequential, mode.is_container, mode.has_ttl)
    for mode in CreateMode
}

_FLAGS_WITHOUT_TTL: Final = frozenset(flags for flags, mode in _MODES.items() if not mode.has_ttl)

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
