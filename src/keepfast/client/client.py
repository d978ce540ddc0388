"""The operations of the protocol, one method each.

Every method waits for the reply and raises OperationFailed. Paths are relative to the chroot, and
so are the paths in results and events, but for those of `get_ephemerals` and `get_config`, which
servers and other clients give as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from keepfast.client.client_errors import OperationFailed
from keepfast.client.client_events import ClientEvent, ClientState
from keepfast.client.client_options import ClientOptions
from keepfast.client.client_paths import validate_path
from keepfast.client.client_session import Pending, Session
from keepfast.client.client_watches import ClientWatchKind
from keepfast.client.hosts import ServerAddress, Target, parse_target
from keepfast.wire import (
    OPEN_ACL,
    AclList,
    AddWatchMode,
    AddWatchRequest,
    AuthPacket,
    CheckWatchesRequest,
    ClientInfo,
    Create2Response,
    CreateMode,
    CreateRequest,
    CreateResponse,
    CreateTTLRequest,
    DeleteRequest,
    ErrorCode,
    ExistsRequest,
    ExistsResponse,
    GetACLRequest,
    GetACLResponse,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetChildren2Request,
    GetChildren2Response,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    GetSASLRequest,
    KeeperState,
    MalformedRecord,
    MultiOp,
    MultiResult,
    OpCode,
    ReconfigRequest,
    RemoveWatchesRequest,
    SessionId,
    SetACLRequest,
    SetACLResponse,
    SetDataRequest,
    SetDataResponse,
    SetSASLResponse,
    Stat,
    SyncRequest,
    SyncResponse,
    WatcherType,
    WhoAmIResponse,
    Zxid,
    decode,
    decode_multi_reply,
    encode,
    encode_multi_request,
)

CONFIG_PATH: Final = "/zookeeper/config"

R = TypeVar("R", bound=tuple[Any, ...])


def _ignore(_: ClientEvent) -> None:
    """The default callback, which does nothing."""


class Client:
    """A session with an ensemble.

    `on_event` gets every event of a watch and every change of the session's state, in order, from a
    thread of the client's own; it must be fast and must not call the client. For a `with` block,
    which waits for the connection and closes the session at its end; or `start` and `close`.
    """

    def __init__(
        self,
        target: str | Target,
        options: ClientOptions | None = None,
        on_event: Callable[[ClientEvent], None] = _ignore,
    ) -> None:
        """ValueError if `target` is not a connection string; nothing is sent yet."""
        self.target = parse_target(target) if isinstance(target, str) else target
        self._chroot = self.target.chroot
        self._session = Session(
            self.target.addresses, options or ClientOptions(), on_event, self._to_client
        )

    def start(self) -> Self:
        """Begin to connect, and do not wait."""
        self._session.start()
        return self

    def wait_connected(self, timeout_s: float | None = None, *, is_patient: bool = False) -> None:
        """Wait for a connection; OperationFailed, with the reasons, if there is none.

        Gives up after trying every server once; if patient, only after `timeout_s`.
        """
        session = self._session
        limit = session.options.session_timeout_ms / 1000 if timeout_s is None else timeout_s
        if not session.wait_connected(limit, is_patient=is_patient):
            if session.state is ClientState.AUTH_FAILED:
                # There was a connection, and it may have ended before anyone saw it.
                raise OperationFailed(ErrorCode.AUTH_FAILED)
            reasons = session.explain() or "no answer in time"
            raise OperationFailed(ErrorCode.CONNECTION_LOSS, detail=reasons)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_connected()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def state(self) -> ClientState:
        return self._session.state

    @property
    def session_id(self) -> SessionId:
        """0 before the first connection."""
        return self._session.session_id

    @property
    def session_timeout_ms(self) -> int:
        """As the server granted it."""
        return self._session.timeout_ms

    @property
    def last_zxid(self) -> Zxid:
        """The newest zxid of any reply: no later answer may be older."""
        return self._session.last_zxid

    @property
    def server(self) -> ServerAddress | None:
        """The server that answered last."""
        return self._session.server

    # Reads.

    def get_data(
        self, path: str, watch: bool = False, timeout_s: float | None = None
    ) -> GetDataResponse:
        server_path = self._to_server(path)
        request = GetDataRequest(server_path, watch)
        hook = self._watching(ClientWatchKind.DATA, server_path, watch)
        return self._ask(GetDataResponse, OpCode.GET_DATA, request, path, hook, timeout_s)

    def exists(self, path: str, watch: bool = False) -> Stat | None:
        """The Stat of a znode, or None if there is none; the watch is set either way."""
        server_path = self._to_server(path)

        def register(err: int) -> None:
            if watch and err == ErrorCode.OK:
                self._session.watches.add(ClientWatchKind.DATA, server_path)
            elif watch and err == ErrorCode.NO_NODE:
                self._session.watches.add(ClientWatchKind.EXIST, server_path)

        request = ExistsRequest(server_path, watch)
        try:
            return self._ask(ExistsResponse, OpCode.EXISTS, request, path, register).stat
        except OperationFailed as error:
            if error.code is ErrorCode.NO_NODE:
                return None
            raise

    def get_children(
        self, path: str, watch: bool = False, timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """The names of the children, in no order."""
        server_path = self._to_server(path)
        request = GetChildrenRequest(server_path, watch)
        hook = self._watching(ClientWatchKind.CHILD, server_path, watch)
        return self._ask(
            GetChildrenResponse, OpCode.GET_CHILDREN, request, path, hook, timeout_s
        ).children

    def get_children2(self, path: str, watch: bool = False) -> GetChildren2Response:
        """The names of the children, in no order, and the znode's Stat."""
        server_path = self._to_server(path)
        request = GetChildren2Request(server_path, watch)
        hook = self._watching(ClientWatchKind.CHILD, server_path, watch)
        return self._ask(GetChildren2Response, OpCode.GET_CHILDREN2, request, path, hook)

    def get_acl(self, path: str) -> GetACLResponse:
        request = GetACLRequest(self._to_server(path))
        return self._ask(GetACLResponse, OpCode.GET_ACL, request, path)

    def get_all_children_number(self, path: str) -> int:
        """How many znodes are below a path."""
        request = GetAllChildrenNumberRequest(self._to_server(path))
        type = OpCode.GET_ALL_CHILDREN_NUMBER
        return self._ask(GetAllChildrenNumberResponse, type, request, path).total_number

    def get_ephemerals(self, prefix: str = "/") -> tuple[str, ...]:
        """This session's ephemerals whose path, chroot included, begins with `prefix`."""
        validate_path(prefix)
        request = GetEphemeralsRequest(prefix)
        return self._ask(GetEphemeralsResponse, OpCode.GET_EPHEMERALS, request, None).ephemerals

    def get_config(self, watch: bool = False) -> GetDataResponse:
        """The ensemble's membership; its znode lies outside any chroot."""
        hook = self._watching(ClientWatchKind.DATA, CONFIG_PATH, watch)
        request = GetDataRequest(CONFIG_PATH, watch)
        return self._ask(GetDataResponse, OpCode.GET_DATA, request, CONFIG_PATH, hook)

    def who_am_i(self) -> tuple[ClientInfo, ...]:
        """The identities of this connection."""
        return self._ask(WhoAmIResponse, OpCode.WHO_AM_I, None, None).client_info

    def sync(self, path: str) -> None:
        """Wait until the server has applied all that was committed before this call."""
        self._ask(SyncResponse, OpCode.SYNC, SyncRequest(self._to_server(path)), path)

    # Writes.

    def create(
        self,
        path: str,
        data: bytes | None = None,
        acl: AclList = OPEN_ACL,
        mode: CreateMode = CreateMode.PERSISTENT,
        ttl_ms: int = 0,
    ) -> str:
        """Create a znode of any kind; returns its path, with the sequence number if sequential."""
        request = self._create_request(path, data, acl, mode, ttl_ms)
        # The longer reply of the newer operations begins like the shorter one.
        reply = self._ask(CreateResponse, _create_type(mode, OpCode.CREATE), request, path)
        return self._to_client(reply.path)

    def create2(
        self,
        path: str,
        data: bytes | None = None,
        acl: AclList = OPEN_ACL,
        mode: CreateMode = CreateMode.PERSISTENT,
        ttl_ms: int = 0,
    ) -> Create2Response:
        """As `create`, and the Stat of the new znode (servers from 3.5 on)."""
        request = self._create_request(path, data, acl, mode, ttl_ms)
        reply = self._ask(Create2Response, _create_type(mode, OpCode.CREATE2), request, path)
        return Create2Response(self._to_client(reply.path), reply.stat)

    def delete(self, path: str, version: int = -1) -> None:
        # A chroot may not be pulled away from under its own session: "/" stays "/", and the
        # server refuses it.
        server_path = path if path == "/" else self._to_server(path)
        self._call(OpCode.DELETE, DeleteRequest(server_path, version), path)

    def set_data(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        request = SetDataRequest(self._to_server(path), data, version)
        return self._ask(SetDataResponse, OpCode.SET_DATA, request, path).stat

    def set_acl(self, path: str, acl: AclList, version: int = -1) -> Stat:
        """`version` is compared with the znode's ACL version."""
        request = SetACLRequest(self._to_server(path), acl, version)
        return self._ask(SetACLResponse, OpCode.SET_ACL, request, path).stat

    def multi(self, ops: Sequence[MultiOp]) -> tuple[MultiResult, ...]:
        """All operations or none; each result is the outcome of its operation."""
        return self._multi(OpCode.MULTI, ops)

    def multi_read(self, ops: Sequence[MultiOp]) -> tuple[MultiResult, ...]:
        """Several reads in one request, each with its own result (servers from 3.6 on)."""
        return self._multi(OpCode.MULTI_READ, ops)

    def reconfig(
        self,
        joining: str | None,
        leaving: str | None,
        members: str | None,
        config_version: int = -1,
    ) -> GetDataResponse:
        """Change the ensemble's membership; the new configuration."""
        request = ReconfigRequest(joining, leaving, members, config_version)
        return self._ask(GetDataResponse, OpCode.RECONFIG, request, "")

    # Watches.

    def add_watch(self, path: str, mode: AddWatchMode) -> None:
        """Watch until `remove_watches`, with everything below if recursive."""
        server_path = self._to_server(path)
        kind = (
            ClientWatchKind.RECURSIVE
            if mode is AddWatchMode.PERSISTENT_RECURSIVE
            else ClientWatchKind.PERSISTENT
        )
        hook = self._watching(kind, server_path, True)
        self._call(OpCode.ADD_WATCH, AddWatchRequest(server_path, mode), path, hook)

    def has_watch(self, path: str, type: WatcherType) -> bool:
        """Whether the server has such a watch of this connection."""
        request = CheckWatchesRequest(self._to_server(path), type)
        try:
            self._call(OpCode.CHECK_WATCHES, request, path)
        except OperationFailed as error:
            if error.code is ErrorCode.NO_WATCHER:
                return False
            raise
        return True

    def remove_watches(self, path: str, type: WatcherType, *, is_local: bool = False) -> None:
        """Forget watches. If local, here even where the server cannot be asked.

        NO_WATCHER if there was none. An event reports each kind that was removed.
        """
        server_path = self._to_server(path)
        session = self._session
        has_removed = False

        def forget(err: int) -> None:
            nonlocal has_removed
            if err != ErrorCode.OK and not is_local:
                return
            is_lost = err in (ErrorCode.CONNECTION_LOSS, ErrorCode.SESSION_EXPIRED)
            state = KeeperState.DISCONNECTED if is_lost else KeeperState.SYNC_CONNECTED
            for event in session.watches.remove(type, server_path):
                has_removed = True
                session.notify(ClientEvent(event, state, path))

        try:
            request = RemoveWatchesRequest(server_path, type)
            self._call(OpCode.REMOVE_WATCHES, request, path, forget)
        except OperationFailed:
            if not has_removed:
                raise

    # The session.

    def add_auth(self, scheme: str, credential: bytes | None) -> None:
        """Present a credential. One that is refused (AUTH_FAILED) ends the session."""
        self._session.authenticate(AuthPacket(0, scheme, credential))

    def sasl(self, token: bytes | None) -> bytes | None:
        """One step of a SASL exchange: our token to the server, its token back."""
        return self._ask(SetSASLResponse, OpCode.SASL, GetSASLRequest(token), None).token

    # How it is done.

    def _call(
        self,
        type: OpCode,
        request: tuple[Any, ...] | None,
        path: str | None,
        on_reply: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        body = b"" if request is None else encode(request)
        return self._session.call(Pending(type, body, on_reply), path, timeout_s)

    def _ask(
        self,
        answer: type[R],
        type: OpCode,
        request: tuple[Any, ...] | None,
        path: str | None,
        on_reply: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> R:
        reply = self._call(type, request, path, on_reply, timeout_s)
        try:
            return decode(answer, reply)
        except MalformedRecord as error:
            raise OperationFailed(ErrorCode.MARSHALLING_ERROR, path, str(error)) from error

    def _create_request(
        self, path: str, data: bytes | None, acl: AclList, mode: CreateMode, ttl_ms: int
    ) -> CreateRequest | CreateTTLRequest:
        if mode.is_sequential:
            # It gets its number appended: "/" and "/a/" are fine then.
            validate_path(path + "1")
            server_path = self._chroot + path
        else:
            server_path = self._to_server(path)
        if mode.has_ttl:
            return CreateTTLRequest(server_path, data, acl, mode, ttl_ms)
        return CreateRequest(server_path, data, acl, mode)

    def _multi(self, type: OpCode, ops: Sequence[MultiOp]) -> tuple[MultiResult, ...]:
        chrooted = []
        for op in ops:
            path = self._to_server(op.request.path)
            chrooted.append(MultiOp(op.type, op.request._replace(path=path)))
        reply = self._session.call(Pending(type, encode_multi_request(tuple(chrooted))))
        try:
            results = decode_multi_reply(reply)
        except MalformedRecord as error:
            raise OperationFailed(ErrorCode.MARSHALLING_ERROR, None, str(error)) from error
        return tuple(self._without_chroot(result) for result in results)

    def _without_chroot(self, one: MultiResult) -> MultiResult:
        if isinstance(one.result, CreateResponse | Create2Response):
            return one._replace(result=one.result._replace(path=self._to_client(one.result.path)))
        return one

    def _watching(
        self, kind: ClientWatchKind, server_path: str, watch: bool
    ) -> Callable[[int], None] | None:
        """What to do with the reply to a request that also sets a watch."""
        if not watch:
            return None

        def register(err: int) -> None:
            if err == ErrorCode.OK:
                self._session.watches.add(kind, server_path)

        return register

    def _to_server(self, path: str) -> str:
        validate_path(path)
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _to_client(self, path: str) -> str:
        """A path of the server as the caller knows it; one outside the chroot stays as it is."""
        if path == self._chroot:
            return "/"
        return path.removeprefix(self._chroot) if path.startswith(self._chroot + "/") else path


def _create_type(mode: CreateMode, plain: OpCode) -> OpCode:
    if mode.is_container:
        return OpCode.CREATE_CONTAINER
    return OpCode.CREATE_TTL if mode.has_ttl else plain
