"""Requests that change nothing: answered at once from the tree.

Each handler returns the body of the reply, or raises KeeperError. Order of checks as in Apache
3.9.5.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Final

from keepfast.replica.backpressure import ID_WORK, MULTI_READ_WORK, NAME_WORK, WATCH_WORK
from keepfast.replica.connection import Connection
from keepfast.replica.events import missed_events
from keepfast.replica.service import Service
from keepfast.replica.unfinished import UnfinishedError
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

_INT: Final = Struct(">i")
_MULTI_HEADER: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_DATA_HEADER: Final = _MULTI_HEADER.pack(OpCode.GET_DATA, False, 0)
_CHILDREN_HEADER: Final = _MULTI_HEADER.pack(OpCode.GET_CHILDREN, False, 0)
_HEADER_SIZE: Final = 8
# A read of the shortest path in a multiRead.
_MIN_SUB_READ: Final = 15
_NO_ERROR: Final = encode(ErrorResponse(0))
# Watches that are set again in one turn, about a millisecond.
# Not Final, which would put the number into compiled code: tests make it small.
_WATCHES_AT_ONCE = 500

# A question begins with its type and the length of the path.
_XID_SIZE: Final = 4
_OP_SIZE: Final = 4
_PATH_AT: Final = 8
# In a frame, its length and the xid are before that.
_LENGTH_SIZE: Final = 4
_frame_at: Final = Struct(">iii").unpack_from
_FRAME_OP_AT: Final = 8
_MIN_PAYLOAD: Final = 13
_GET_DATA_OP: Final = OpCode.GET_DATA.value
_path_size: Final = _INT.unpack_from
_pack_int: Final = _INT.pack
# A reply's length, xid, zxid and error; after it the length of the data, data and Stat.
_pack_reply: Final = Struct(">iiqi").pack
_REPLY_SIZE: Final = 16

_GET_DATA: Final = codec_of(GetDataRequest).unpack
_EXISTS: Final = codec_of(ExistsRequest).unpack
_GET_CHILDREN: Final = codec_of(GetChildrenRequest).unpack


def check_permission(tree: Tree, connection: Connection, node: Node, perm: int) -> None:
    """Raise NO_AUTH unless the connection has one of the bits on the znode."""
    if not tree.acls.world_perms[node.acl] & perm:
        connection.work += ID_WORK * len(connection.ids)
        if not is_allowed(tree.acls.lists[node.acl], perm, connection.ids):
            raise KeeperError(ErrorCode.NO_AUTH)


def _found(service: Service, connection: Connection, path: str, perm: int) -> Node:
    node = service.tree.find(path or "/")
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    if not service.skips_acls:
        check_permission(service.tree, connection, node, perm)
    return node


def get_data(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_DATA(payload, _HEADER_SIZE, len(payload), service.max_field)[0]
    node = _found(service, connection, path, Perms.READ)
    if watch:
        service.watches.add(WatchKind.DATA, path, connection)
    return encode_buffer(node.data) + wire_stat(node)


def plain_data_reply(service: Service, xid: int, payload: bytes) -> bytes | None:
    """The whole reply to a getData that sets no watch, of a znode that everybody may read.

    None: it is not so, or something is wrong with it; see `get_data`. It is the most frequent
    request of all, and takes half the time this way.
    """
    return _plain_data(service, xid, payload[_XID_SIZE:])


def answer_single(service: Service, connection: Connection, data: bytes) -> bytes | None:
    """The reply to a client that sent one plain getData, and for which nothing else is under way.

    None: it is not so, and nothing was done. Clients that wait for each reply are heard like this;
    it differs from the slow path in cost alone.
    """
    size = len(data) - _LENGTH_SIZE
    if size < _MIN_PAYLOAD:
        return None
    stated, xid, op = _frame_at(data)
    frames = connection.frames
    if (
        op != _GET_DATA_OP
        or stated != size
        or frames.held
        or size > frames.max_frame
        or connection.queue
        or service.gate is not None
        or service.now_ms >= connection.free_until
    ):
        return None
    reply = _plain_data(service, xid, data[_FRAME_OP_AT:])
    if reply is None or len(reply) > service.uncounted_reply:
        return None
    statistics = service.statistics
    statistics.bytes_received += size + _LENGTH_SIZE
    statistics.received += 1
    statistics.reads += 1
    connection.received += 1
    connection.reads += 1
    connection.last_op = op
    connection.last_zxid = service.tree.last_zxid
    connection.last_ms = service.now_ms
    if xid >= 0:
        connection.last_xid = xid
    return reply


def _plain_data(service: Service, xid: int, question: bytes) -> bytes | None:
    """The same; the question is all of a getData but its xid."""
    kept = service.recent_reads.replies.get(question)
    if kept is not None:
        path, packed, body = kept
        node = service.tree.find(path)
        if node is not None and node.packed is packed and not node.children:
            return _pack_reply(_REPLY_SIZE + len(body), xid, service.last_zxid, 0) + body
    stop = len(question) - 1
    # The path fills the request up to a last byte of zero: no watch.
    if stop < _PATH_AT or question[stop] or _path_size(question, _OP_SIZE)[0] != stop - _PATH_AT:
        return None
    raw = question[_PATH_AT:stop]
    if not raw.isascii():
        return None
    tree, path = service.tree, raw.decode()
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
        service.recent_reads.keep(question, path, packed, body, service.now_ms)
    return _pack_reply(_REPLY_SIZE + len(body), xid, service.last_zxid, 0) + body


def exists(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, watch = _EXISTS(payload, _HEADER_SIZE, len(payload), service.max_field)[0]
    if "\0" in path:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    node = service.tree.find(path or "/")
    if node is not None and not service.skips_acls:
        check_permission(service.tree, connection, node, Perms.READ)
    if watch:
        service.watches.add(WatchKind.DATA, path, connection)
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    return wire_stat(node)


def get_children(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_CHILDREN(payload, _HEADER_SIZE, len(payload), service.max_field)[0]
    node = _found(service, connection, path, Perms.READ)
    # Before the watch is set: it may take several turns, and the watch is notified of what changes
    # after the reply.
    names = service.child_lists.of(service.tree, path, node)
    if watch:
        service.watches.add(WatchKind.CHILD, path, connection)
    return names


def get_children2(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, watch = _GET_CHILDREN(payload, _HEADER_SIZE, len(payload), service.max_field)[0]
    node = _found(service, connection, path, Perms.READ)
    # Before the watch is set: it may take several turns, and the watch is notified of what changes
    # after the reply.
    names = service.child_lists.of(service.tree, path, node)
    if watch:
        service.watches.add(WatchKind.CHILD, path, connection)
    return names + wire_stat(node)


def get_acl(service: Service, connection: Connection, payload: bytes) -> bytes:
    path = codec_of(GetACLRequest).decode(payload, _HEADER_SIZE).path
    node = _found(service, connection, path, Perms.READ | Perms.ADMIN)
    acl = service.tree.acls.lists[node.acl]
    try:
        if not service.skips_acls:
            check_permission(service.tree, connection, node, Perms.ADMIN)
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


def get_all_children_number(service: Service, connection: Connection, payload: bytes) -> bytes:
    path = codec_of(GetAllChildrenNumberRequest).decode(payload, _HEADER_SIZE).path
    node = _found(service, connection, path, Perms.READ)
    # Apache, which has the root under two names, counts one of them as below the other.
    tree = service.tree
    count = tree.descendants.count(path or "/", node, tree.find) + (0 if path else 1)
    return encode(GetAllChildrenNumberResponse(count))


def get_ephemerals(service: Service, connection: Connection, payload: bytes) -> bytes:
    prefix = codec_of(GetEphemeralsRequest).decode(payload, _HEADER_SIZE).prefix_path
    paths = service.tree.ephemerals.get(connection.session_id, set())
    connection.work += NAME_WORK * len(paths)
    if prefix and prefix.strip() and prefix != "/":
        paths = {path for path in paths if path.startswith(prefix)}
    return encode(GetEphemeralsResponse(tuple(paths)))


def who_am_i(_service: Service, connection: Connection, _payload: bytes) -> bytes:
    connection.work += NAME_WORK * len(connection.ids)
    infos = []
    for held in connection.ids:
        user = held.id.partition(":")[0] if held.scheme == "digest" else held.id
        infos.append(ClientInfo(held.scheme, user))
    return encode(WhoAmIResponse(tuple(infos)))


def ping(_service: Service, _connection: Connection, _payload: bytes) -> bytes:
    return b""


def multi_read(service: Service, connection: Connection, payload: bytes) -> bytes:
    options, check = service.options, None
    if len(payload) > options.max_multi_reads * _MIN_SUB_READ:
        check = _ReadCount(options.max_multi_reads)
    reads = decode_multi_request(OpCode.MULTI_READ, payload, _HEADER_SIZE, check=check)
    connection.work += MULTI_READ_WORK * len(reads)
    found: list[Node | bytes | KeeperError] = []
    left = options.max_multi_reply_bytes
    for type_, request in reads:
        try:
            node = _found(service, connection, request.path, Perms.READ)
        except KeeperError as error:
            found.append(error)
            continue
        # A few bytes for each znode ask for a megabyte, and no one request may have all of that:
        # the size of all is known before their data is copied.
        if type_ == _GET_DATA_OP:
            found.append(node)
            left -= len(node.packed)
        else:
            children = service.child_lists.of(service.tree, request.path, node)
            found.append(children)
            left -= len(children)
        if left < 0:
            most = options.max_multi_reply_bytes
            raise KeeperError(ErrorCode.MARSHALLING_ERROR, f"a reply of more than {most} bytes")
    parts: list[bytes] = []
    for result in found:
        if isinstance(result, KeeperError):
            parts += (_MULTI_HEADER.pack(-1, False, result.code), _INT.pack(result.code))
        elif isinstance(result, bytes):
            parts += (_CHILDREN_HEADER, result)
        else:
            parts += (_DATA_HEADER, encode_buffer(result.data), wire_stat(result))
    parts.append(_MULTI_END)
    return b"".join(parts)


class _ReadCount:
    """Refuses a multiRead of more reads than one may have, before the rest is decoded."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __call__(self, _op: int, _offset: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeeperError(ErrorCode.MARSHALLING_ERROR, "too many reads")


def add_watch(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, mode = codec_of(AddWatchRequest).decode(payload, _HEADER_SIZE)
    if mode == AddWatchMode.PERSISTENT:
        kind = WatchKind.PERSISTENT
    elif mode == AddWatchMode.PERSISTENT_RECURSIVE:
        kind = WatchKind.RECURSIVE
    else:
        raise MalformedRecord(f"watch mode {mode}", _HEADER_SIZE)
    service.watches.add(kind, path, connection)
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


def check_watches(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, kinds = _watches_of(payload)
    if not any(service.watches.has(kind, path, connection) for kind in kinds):
        raise KeeperError(ErrorCode.NO_WATCHER, path)
    return b""


def remove_watches(service: Service, connection: Connection, payload: bytes) -> bytes:
    path, kinds = _watches_of(payload)
    removed = [service.watches.remove(kind, path, connection) for kind in kinds]
    if not any(removed):
        raise KeeperError(ErrorCode.NO_WATCHER, path)
    return b""


def set_watches(service: Service, connection: Connection, payload: bytes) -> bytes:
    return _set_again(service, connection, payload, SetWatches)


def set_watches2(service: Service, connection: Connection, payload: bytes) -> bytes:
    return _set_again(service, connection, payload, SetWatches2)


def _set_again(
    service: Service,
    connection: Connection,
    payload: bytes,
    record: type[SetWatches] | type[SetWatches2],
) -> bytes:
    """Re-register watches after a reconnect, some in each turn, and report what changed meanwhile.

    A client sends thousands of them in each of many requests. All are read before the first is set.
    """
    left = connection.unfinished
    if left is None:
        lists = len(record._fields) - 1
        connection.unfinished = left = missed_events(service.tree, payload, _HEADER_SIZE, lists)
    count, add = 0, service.watches.add
    try:
        for watch in islice(left, _WATCHES_AT_ONCE):
            count += 1
            if watch is None:
                continue
            kind, path, event = watch
            if event is None:
                add(kind, path, connection)
            else:
                service.send(connection, encode_event(event, path))
    except (KeeperError, MalformedRecord):
        connection.unfinished = None
        raise
    if count == _WATCHES_AT_ONCE:
        raise UnfinishedError
    connection.unfinished = None
    connection.work += count * WATCH_WORK
    return b""


Handler = Callable[[Service, Connection, bytes], bytes]

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
