"""What a client sends: RequestHeader and the body of each operation."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is caught under this name
from typing import Annotated, Any, Final, NamedTuple

from keepfast.wire.data import AclList
from keepfast.wire.errors import MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FIELD
from keepfast.wire.opcodes import OpCode
from keepfast.wire.records import AT_END, CodecTable, Int, Long, LooseText, codec_of
from keepfast.wire.zxid import SessionId, Zxid


class ConnectRequest(NamedTuple):
    """The first frame of a connection; no header before it."""

    protocol_version: Int
    last_zxid_seen: Zxid
    timeout_ms: Int
    # 0 asks for a new session.
    session_id: SessionId
    password: bytes | None
    # None: the byte is absent, and must then be absent from the reply too (clients before 3.4).
    read_only: Annotated[bool | None, AT_END] = None


class RequestHeader(NamedTuple):
    xid: Int
    type: Int


class AuthPacket(NamedTuple):
    # Always 0; no server reads it.
    type: Int
    scheme: LooseText
    auth: bytes | None


class CreateRequest(NamedTuple):
    """create, create2, createContainer; `flags` is a CreateMode."""

    path: str
    data: bytes | None
    acl: AclList | None
    flags: Int


class CreateTTLRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: AclList | None
    flags: Int
    ttl: Long


class DeleteRequest(NamedTuple):
    """`version` -1 means any, here and in the requests below."""

    path: str
    version: Int


class DeleteContainerRequest(NamedTuple):
    """Internal to a leader (3.9 form); refused from clients."""

    path: bytes


class ExistsRequest(NamedTuple):
    path: str
    watch: bool


class GetDataRequest(NamedTuple):
    path: str
    watch: bool


class GetChildrenRequest(NamedTuple):
    path: str
    watch: bool


class GetChildren2Request(NamedTuple):
    path: str
    watch: bool


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: Int


class GetACLRequest(NamedTuple):
    path: str


class SetACLRequest(NamedTuple):
    """`version` is compared with the znode's aversion."""

    path: str
    acl: AclList | None
    version: Int


class SyncRequest(NamedTuple):
    """The path is echoed, and not used otherwise."""

    path: str | None


class CheckVersionRequest(NamedTuple):
    """Only inside a multi."""

    path: str
    version: Int


class ReconfigRequest(NamedTuple):
    joining_servers: str | None
    leaving_servers: str | None
    new_members: str | None
    current_config_id: Long


class GetSASLRequest(NamedTuple):
    token: bytes | None


class SetWatches(NamedTuple):
    """Sent on reconnection: re-register these, and report what changed since `relative_zxid`."""

    relative_zxid: Zxid
    data_watches: tuple[str, ...] | None
    exist_watches: tuple[str, ...] | None
    child_watches: tuple[str, ...] | None


class SetWatches2(NamedTuple):
    relative_zxid: Zxid
    data_watches: tuple[str, ...] | None
    exist_watches: tuple[str, ...] | None
    child_watches: tuple[str, ...] | None
    persistent_watches: tuple[str, ...] | None
    persistent_recursive_watches: tuple[str, ...] | None


class AddWatchRequest(NamedTuple):
    """`mode` is an AddWatchMode."""

    path: str
    mode: Int


class CheckWatchesRequest(NamedTuple):
    """`type` is a WatcherType."""

    path: str
    type: Int


class RemoveWatchesRequest(NamedTuple):
    path: str
    type: Int


class GetEphemeralsRequest(NamedTuple):
    prefix_path: str | None


class GetAllChildrenNumberRequest(NamedTuple):
    path: str


Request = (
    AuthPacket
    | CreateRequest
    | CreateTTLRequest
    | DeleteRequest
    | ExistsRequest
    | GetDataRequest
    | GetChildrenRequest
    | GetChildren2Request
    | SetDataRequest
    | GetACLRequest
    | SetACLRequest
    | SyncRequest
    | CheckVersionRequest
    | ReconfigRequest
    | GetSASLRequest
    | SetWatches
    | SetWatches2
    | AddWatchRequest
    | CheckWatchesRequest
    | RemoveWatchesRequest
    | GetEphemeralsRequest
    | GetAllChildrenNumberRequest
)

# The body of each operation that has one; multi and multiRead have their own format (`multi`).
REQUESTS: Final[dict[int, type[Request]]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.DELETE: DeleteRequest,
    OpCode.EXISTS: ExistsRequest,
    OpCode.GET_DATA: GetDataRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.GET_ACL: GetACLRequest,
    OpCode.SET_ACL: SetACLRequest,
    OpCode.GET_CHILDREN: GetChildrenRequest,
    OpCode.SYNC: SyncRequest,
    OpCode.GET_CHILDREN2: GetChildren2Request,
    OpCode.CHECK: CheckVersionRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.RECONFIG: ReconfigRequest,
    OpCode.CHECK_WATCHES: CheckWatchesRequest,
    OpCode.REMOVE_WATCHES: RemoveWatchesRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTTLRequest,
    OpCode.AUTH: AuthPacket,
    OpCode.SET_WATCHES: SetWatches,
    OpCode.SASL: GetSASLRequest,
    OpCode.GET_EPHEMERALS: GetEphemeralsRequest,
    OpCode.GET_ALL_CHILDREN_NUMBER: GetAllChildrenNumberRequest,
    OpCode.SET_WATCHES2: SetWatches2,
    OpCode.ADD_WATCH: AddWatchRequest,
}

# The requests that carry an ACL.
_WITH_ACL: Final = frozenset(
    type_.value
    for type_ in (
        OpCode.CREATE,
        OpCode.SET_ACL,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
    )
)
_INT: Final = Struct(">i")
_Unpack = Callable[[bytes, int, int, int], tuple[Any, int]]
_UNPACK: Final[CodecTable[int, _Unpack]] = CodecTable(
    REQUESTS, lambda request: codec_of(request).unpack
)


def stated_acl_entries(type_: int, data: bytes, offset: int = 0) -> int:
    """The number of ACL entries that a create or setACL states, read without decoding them.

    0 for other requests, and for a body that ends before that.
    """
    if type_ not in _WITH_ACL:
        return 0
    try:
        # Before the list come the path and, except in setACL, the data.
        for _ in range(1 if type_ == OpCode.SET_ACL else 2):
            offset += _INT.size + max(_INT.unpack_from(data, offset)[0], 0)
        return max(int(_INT.unpack_from(data, offset)[0]), 0)
    except StructError:
        return 0


def decode_request(
    type_: int, data: bytes, offset: int = 0, max_field: int = DEFAULT_MAX_FIELD
) -> Request:
    """The body of a request of this type, from `offset` on; bytes after it are ignored.

    Raises MalformedRecord, also if the type has no body, is a multi, or is unknown.
    """
    try:
        unpack = _UNPACK[type_]
    except KeyError:
        raise MalformedRecord(f"no request body is known for type {type_}", offset) from None
    request: Request = unpack(data, offset, len(data), max_field)[0]
    return request
