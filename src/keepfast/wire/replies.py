"""What a server sends to a client: replies and events, and their frames."""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Final, NamedTuple

from keepfast.wire.data import AclList, ClientInfo, Stat
from keepfast.wire.errors import MalformedRecord
from keepfast.wire.jute import encode_text
from keepfast.wire.opcodes import KeeperState, OpCode, Xid
from keepfast.wire.records import AT_END, Int, codec_of
from keepfast.wire.zxid import SessionId, Zxid


class ConnectResponse(NamedTuple):
    """The answer to a ConnectRequest; no header before it.

    A session that has ended is answered with timeout 0, session 0 and 16 zero bytes.
    """

    protocol_version: Int
    timeout_ms: Int
    session_id: SessionId
    password: bytes | None
    # None, the byte being absent, if it was absent from the request.
    read_only: Annotated[bool | None, AT_END] = None


class ReplyHeader(NamedTuple):
    """If `err` is not 0 there is no body."""

    xid: Int
    zxid: Zxid
    err: Int


class ErrorResponse(NamedTuple):
    """One operation of a multi that failed; also the answer to addWatch, with 0."""

    err: Int


class WatcherEvent(NamedTuple):
    """`type` is an EventType, `state` a KeeperState."""

    type: Int
    state: Int
    path: str


class CreateResponse(NamedTuple):
    path: str


class Create2Response(NamedTuple):
    path: str
    stat: Stat


class ExistsResponse(NamedTuple):
    stat: Stat


class SetDataResponse(NamedTuple):
    stat: Stat


class SetACLResponse(NamedTuple):
    stat: Stat


class GetDataResponse(NamedTuple):
    data: bytes | None
    stat: Stat


class GetACLResponse(NamedTuple):
    acl: AclList | None
    stat: Stat


class GetChildrenResponse(NamedTuple):
    children: tuple[str, ...]


class GetChildren2Response(NamedTuple):
    children: tuple[str, ...]
    stat: Stat


class SyncResponse(NamedTuple):
    path: str | None


class SetSASLResponse(NamedTuple):
    token: bytes | None


class GetEphemeralsResponse(NamedTuple):
    ephemerals: tuple[str, ...]


class GetAllChildrenNumberResponse(NamedTuple):
    total_number: Int


class WhoAmIResponse(NamedTuple):
    client_info: tuple[ClientInfo, ...]


Reply = (
    ErrorResponse
    | CreateResponse
    | Create2Response
    | ExistsResponse
    | SetDataResponse
    | SetACLResponse
    | GetDataResponse
    | GetACLResponse
    | GetChildrenResponse
    | GetChildren2Response
    | SyncResponse
    | SetSASLResponse
    | GetEphemeralsResponse
    | GetAllChildrenNumberResponse
    | WhoAmIResponse
)

# The body of the reply to each operation that has one; multi and multiRead are in `multi`.
REPLIES: Final[dict[int, type[Reply]]] = {
    OpCode.CREATE: CreateResponse,
    OpCode.EXISTS: ExistsResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.SET_DATA: SetDataResponse,
    OpCode.GET_ACL: GetACLResponse,
    OpCode.SET_ACL: SetACLResponse,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.SYNC: SyncResponse,
    OpCode.GET_CHILDREN2: GetChildren2Response,
    OpCode.CREATE2: Create2Response,
    OpCode.RECONFIG: GetDataResponse,
    OpCode.CREATE_CONTAINER: Create2Response,
    OpCode.CREATE_TTL: Create2Response,
    OpCode.SASL: SetSASLResponse,
    OpCode.GET_EPHEMERALS: GetEphemeralsResponse,
    OpCode.GET_ALL_CHILDREN_NUMBER: GetAllChildrenNumberResponse,
    OpCode.ADD_WATCH: ErrorResponse,
    OpCode.WHO_AM_I: WhoAmIResponse,
}


def decode_reply(type_: int, data: bytes, offset: int = 0) -> Reply:
    """The body of the reply to a request of this type; bytes after it are ignored."""
    reply = REPLIES.get(type_)
    if reply is None:
        raise MalformedRecord(f"no reply body is known for type {type_}", offset)
    # Named, so that the checker sees one type instead of the union of all codecs.
    body: Reply = codec_of(reply).decode(data, offset)
    return body


# length, xid, zxid, err: the frame and the header of a reply; the second with a buffer's length.
_REPLY: Final = Struct(">iiqi")
_HEADER_SIZE: Final = 16
# The same, and a WatcherEvent up to its path, which is the rest.
_pack_event: Final = Struct(">iiqiiii").pack
_EVENT_SIZE: Final = 28
_EVENT_XID: Final = Xid.EVENT.value
_CONNECTED: Final = KeeperState.SYNC_CONNECTED.value


def encode_reply(xid: int, zxid: int, err: int, body: bytes = b"") -> bytes:
    """A whole reply frame around an encoded body."""
    return _REPLY.pack(_HEADER_SIZE + len(body), xid, zxid, err) + body


def encode_event(type_: int, path: str, zxid: int = -1) -> bytes:
    """A whole frame that reports a change; `zxid` is that of the change (3.9) or -1 (before)."""
    raw = encode_text(path)
    size = len(raw)
    return _pack_event(_EVENT_SIZE + size, _EVENT_XID, zxid, 0, type_, _CONNECTED, size) + raw
