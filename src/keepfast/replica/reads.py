"""Requests that change nothing: answered at once from the tree.

Each handler gives the body of the reply, or raises KeeperError. Order of checks as in Apache 3.9.5.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from keepfast.replica.backpressure import LARGE_REPLY
from keepfast.replica.events import missed_events
from keepfast.tree import TAIL_SIZE, Node, Tree, WatchKind, is_allowed, wire_stat
from keepfast.wire import (
    ACL,
    AclList,
    AddWatchMode,
    AddWatchRequest,
    CheckWatchesRequest,
    ClientInfo,
    ErrorCode,
    ErrorResponse,
    ExistsRequest,
    GetACLRequest,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetChildrenRequest,
    GetDataRequest,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    Id,
    KeeperError,
    MalformedRecord,
    OpCode,
    Perms,
    SetWatches,
    SetWatches2,
    WatcherType,
    WhoAmIResponse,
    codec_of,
    decode_multi_request,
    encode,
    encode_buffer,
    encode_event,
)

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection
    from keepfast.replica.replica import Replica

_INT: Final = Struct(">i")
_MULTI_HEADER: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_HEADER_SIZE: Final = 8
_NO_ERROR: Final = encode(ErrorResponse(0))

# A question begins with its type and the length of the path.
_XID_SIZE: Final = 4
_OP_SIZE: Final = 4
_PATH_AT: Final = 8
# In a frame, its length and the xid are in front of that.
_LENGTH_SIZE: Final = 4
_frame_at: Final = Struct(">iii").unpack_from
_FRAME_OP_AT: Final = 8
_LEAST_PAYLOAD: Final = 13
_GET_DATA_OP: Final = OpCode.GET_DATA.value
_path_size: Final = _INT.unpack_from
_pack_int: Final = _INT.pack
# A reply's length, xid, zxid and error; behind it the length of the data, data and Stat.
_pack_reply: Final = Struct(">iiqi").pack
_REPLY_SIZE: Final = 16

_GET_DATA: Final = codec_of(GetDataRequest).unpack
_EXISTS: Final = codec_of(ExistsRequest).unpack
_GET_CHILDREN: Final = codec_of(GetChildrenRequest).unpack


def check_permission(tree: Tree, connection: Connection, node: Node, perm: int) -> None:
    """Raise NO_AUTH unless the connection has one of the bits on the znode."""
    if not tree.acls.world_perms[node.acl] & perm and not is_allowed(
        tree.acls.lists[node.acl], perm, connection.ids
    ):
        raise KeeperError(ErrorCode.NO_AUTH)


def _found(replica: Replica, connection: Connection, path: str, perm: int) -> Node:
    node = replica.tree.find(path or "/")
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    if not replica.skips_acls:
        check_permission(replica.tree, connection, node, perm)
    return node


def get_data(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_DATA(payload, _HEADER_SIZE, len(payload), replica.max_field)[0]
    node = _found(replica, connection, path, Perms.READ)
    if watch:
        replica.watches.add(WatchKind.DATA, path, connection)
    return encode_buffer(node.data) + wire_stat(node)


def plain_data_reply(replica: Replica, xid: int, payload: bytes) -> bytes | None:
    """The whole reply to a getData that sets no watch, of a znode that everybody may read.

    None: it is not so, or something is wrong with it; see `get_data`. It is the most frequent
    request of all, and takes half the time this way.
    """
    return _plain_data(replica, xid, payload[_XID_SIZE:])


def answer_single(replica: Replica, connection: Connection, data: bytes) -> bytes | None:
    """The reply to a client that sent one plain getData, and for which nothing else is under way.

    None: it is not so, and nothing was done. Clients that wait for each reply are heard like this;
    it differs from the general way in cost alone.
    """
    size = len(data) - _LENGTH_SIZE
    if size < _LEAST_PAYLOAD:
        return None
    stated, xid, op = _frame_at(data)
    frames = connection.frames
    if (
        op != _GET_DATA_OP
        or stated != size
        or frames.held
        or size > frames.max_frame
        or connection.queue
        # Once in a millisecond its session is given its full time again.
        or connection.free_ms != replica.now_ms
    ):
        return None
    reply = _plain_data(replica, xid, data[_FRAME_OP_AT:])
    if reply is None or len(reply) > LARGE_REPLY:
        return None
    statistics = replica.statistics
    statistics.bytes_received += size + _LENGTH_SIZE
    statistics.received += 1
    statistics.reads += 1
    connection.received += 1
    connection.reads += 1
    connection.last_op = op
    connection.last_zxid = replica.tree.last_zxid
    connection.last_ms = replica.now_ms
    if xid >= 0:
        connection.last_xid = xid
    return reply


def _plain_data(replica: Replica, xid: int, question: bytes) -> bytes | None:
    """The same; the question is all of a getData but its xid."""
    kept = replica.recent_reads.replies.get(question)
    if kept is not None:
        path, packed, body = kept
        node = replica.tree.find(path)
        if node is not None and node.packed is packed and not node.children:
            return _pack_reply(_REPLY_SIZE + len(body), xid, replica.last_zxid, 0) + body
    stop = len(question) - 1
    # The path fills the request up to a last byte of zero: no watch.
    if stop < _PATH_AT or question[stop] or _path_size(question, _OP_SIZE)[0] != stop - _PATH_AT:
        return None
    raw = question[_PATH_AT:stop]
    if not raw.isascii():
        return None
    tree, path = replica.tree, raw.decode()
    node = tree.find(path)
    if node is None:
        return None
    packed = node.packed
    # Null data has a bit in the key that no list has.
    if packed[-68:-60] not in tree.acls.world_readable:
        return None
    size = len(packed) - TAIL_SIZE
    body = b"".join((_pack_int(size), packed[:size], wire_stat(node)))
    if not node.children:
        replica.recent_reads.keep(question, path, packed, body, replica.now_ms)
    return _pack_reply(_REPLY_SIZE + len(body), xid, replica.last_zxid, 0) + body


def exists(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, watch = _EXISTS(payload, _HEADER_SIZE, len(payload), replica.max_field)[0]
    if "\0" in path:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    node = replica.tree.find(path or "/")
    if node is not None and not replica.skips_acls:
        check_permission(replica.tree, connection, node, Perms.READ)
    if watch:
        replica.watches.add(WatchKind.DATA, path, connection)
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    return wire_stat(node)


def _children(path: str, node: Node) -> bytes:
    if not node.children:
        return _INT.pack(0)
    skip = len(path) + 1 if path not in ("", "/") else 1
    parts = [_INT.pack(len(node.children))]
    for child in node.children:
        name = child[skip:].encode()
        parts.append(_INT.pack(len(name)))
        parts.append(name)
    return b"".join(parts)


def get_children(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_CHILDREN(payload, _HEADER_SIZE, len(payload), replica.max_field)[0]
    node = _found(replica, connection, path, Perms.READ)
    if watch:
        replica.watches.add(WatchKind.CHILD, path, connection)
    return _children(path, node)


def get_children2(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_CHILDREN(payload, _HEADER_SIZE, len(payload), replica.max_field)[0]
    node = _found(replica, connection, path, Perms.READ)
    if watch:
        replica.watches.add(WatchKind.CHILD, path, connection)
    return _children(path, node) + wire_stat(node)


def get_acl(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path = codec_of(GetACLRequest).decode(payload, _HEADER_SIZE).path
    node = _found(replica, connection, path, Perms.READ | Perms.ADMIN)
    acl = replica.tree.acls.lists[node.acl]
    try:
        if not replica.skips_acls:
            check_permission(replica.tree, connection, node, Perms.ADMIN)
    except KeeperError:
        acl = _without_secrets(acl)
    # The open ACL of a znode that was made without a list is shown as a list.
    return encode_acl(acl) + wire_stat(node)


def encode_acl(acl: AclList) -> bytes:
    """A vector of ACL entries."""
    return _INT.pack(len(acl)) + b"".join(map(encode, acl))


def _without_secrets(acl: AclList) -> AclList:
    shown = []
    for entry in acl:
        who = entry.id
        if who.scheme == "digest":
            who = Id("digest", who.id.partition(":")[0] + ":x")
        shown.append(ACL(entry.perms, who))
    return tuple(shown)


def get_all_children_number(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path = codec_of(GetAllChildrenNumberRequest).decode(payload, _HEADER_SIZE).path
    node = _found(replica, connection, path, Perms.READ)
    # Apache, which has the root under two names, counts one of them as below the other.
    count = 0 if path else 1
    waiting = [node]
    while waiting:
        children = waiting.pop().children
        if children:
            count += len(children)
            waiting.extend(filter(None, map(replica.tree.find, children)))
    return encode(GetAllChildrenNumberResponse(count))


def get_ephemerals(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    prefix = codec_of(GetEphemeralsRequest).decode(payload, _HEADER_SIZE).prefix_path
    paths = replica.tree.ephemerals.get(connection.session_id, set())
    if prefix and prefix.strip() and prefix != "/":
        paths = {path for path in paths if path.startswith(prefix)}
    return encode(GetEphemeralsResponse(tuple(paths)))


def who_am_i(_replica: Replica, connection: Connection, _payload: bytes) -> bytes:
    infos = []
    for held in connection.ids:
        user = held.id.partition(":")[0] if held.scheme == "digest" else held.id
        infos.append(ClientInfo(held.scheme, user))
    return encode(WhoAmIResponse(tuple(infos)))


def ping(_replica: Replica, _connection: Connection, _payload: bytes) -> bytes:
    return b""


def multi_read(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    parts = []
    for type_, request in decode_multi_request(OpCode.MULTI_READ, payload, _HEADER_SIZE):
        try:
            node = _found(replica, connection, request.path, Perms.READ)
        except KeeperError as error:
            parts.append(_MULTI_HEADER.pack(-1, False, error.code))
            parts.append(_INT.pack(error.code))
            continue
        parts.append(_MULTI_HEADER.pack(type_, False, 0))
        if type_ == OpCode.GET_DATA:
            parts.append(encode_buffer(node.data) + wire_stat(node))
        else:
            parts.append(_children(request.path, node))
    parts.append(_MULTI_END)
    return b"".join(parts)


def add_watch(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, mode = codec_of(AddWatchRequest).decode(payload, _HEADER_SIZE)
    if mode == AddWatchMode.PERSISTENT:
        kind = WatchKind.PERSISTENT
    elif mode == AddWatchMode.PERSISTENT_RECURSIVE:
        kind = WatchKind.RECURSIVE
    else:
        raise MalformedRecord(f"watch mode {mode}", _HEADER_SIZE)
    replica.watches.add(kind, path, connection)
    return _NO_ERROR


_KINDS: Final = {
    WatcherType.CHILDREN: (WatchKind.CHILD,),
    WatcherType.DATA: (WatchKind.DATA,),
    WatcherType.ANY: tuple(WatchKind),
    WatcherType.PERSISTENT: (WatchKind.PERSISTENT,),
    WatcherType.PERSISTENT_RECURSIVE: (WatchKind.RECURSIVE,),
}


def _watches_of(payload: bytes) -> tuple[str, tuple[WatchKind, ...]]:
    path, type_ = codec_of(CheckWatchesRequest).decode(payload, _HEADER_SIZE)
    try:
        return path, _KINDS[WatcherType(type_)]
    except ValueError as error:
        raise MalformedRecord(f"watcher type {type_}", _HEADER_SIZE) from error


def check_watches(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, kinds = _watches_of(payload)
    if not any(replica.watches.has(kind, path, connection) for kind in kinds):
        raise KeeperError(ErrorCode.NO_WATCHER, path)
    return b""


def remove_watches(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    path, kinds = _watches_of(payload)
    removed = [replica.watches.remove(kind, path, connection) for kind in kinds]
    if not any(removed):
        raise KeeperError(ErrorCode.NO_WATCHER, path)
    return b""


def set_watches(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    _restore(replica, connection, codec_of(SetWatches).decode(payload, _HEADER_SIZE))
    return b""


def set_watches2(replica: Replica, connection: Connection, payload: bytes) -> bytes:
    request = codec_of(SetWatches2).decode(payload, _HEADER_SIZE)
    _restore(replica, connection, request)
    for kind, paths in (
        (WatchKind.PERSISTENT, request.persistent_watches),
        (WatchKind.RECURSIVE, request.persistent_recursive_watches),
    ):
        for path in paths or ():
            replica.watches.add(kind, path, connection)
    return b""


def _restore(replica: Replica, connection: Connection, request: SetWatches | SetWatches2) -> None:
    """Set watches again after a reconnect; what changed meanwhile is told now."""
    for kind, path, event in missed_events(replica.tree, request):
        if event is None:
            replica.watches.add(kind, path, connection)
        else:
            replica.send(connection, encode_event(event, path))


Handler = Callable[["Replica", "Connection", bytes], bytes]

HANDLERS: Final[dict[int, Handler]] = {
    OpCode.GET_DATA.value: get_data,
    OpCode.EXISTS.value: exists,
    OpCode.GET_CHILDREN.value: get_children,
    OpCode.GET_CHILDREN2.value: get_children2,
    OpCode.GET_ACL.value: get_acl,
    OpCode.PING.value: ping,
    OpCode.MULTI_READ.value: multi_read,
    OpCode.GET_ALL_CHILDREN_NUMBER.value: get_all_children_number,
    OpCode.GET_EPHEMERALS.value: get_ephemerals,
    OpCode.WHO_AM_I.value: who_am_i,
    OpCode.ADD_WATCH.value: add_watch,
    OpCode.CHECK_WATCHES.value: check_watches,
    OpCode.REMOVE_WATCHES.value: remove_watches,
    OpCode.SET_WATCHES.value: set_watches,
    OpCode.SET_WATCHES2.value: set_watches2,
}
