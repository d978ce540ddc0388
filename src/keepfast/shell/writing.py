"""Commands that change the tree or the session."""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from keepfast.client import Client, OperationFailed
from keepfast.shell.command import Context, ShellCommand, flag, integer, value_flag
from keepfast.shell.flags import Given, Syntax
from keepfast.shell.formats import Document, permission_bits, stat_document
from keepfast.shell.messages import code_message
from keepfast.shell.reading import print_stat, visit_subtree
from keepfast.shell.shell_failures import ShellFailure, UsageError
from keepfast.shell.shell_options import to_bytes
from keepfast.shell.shell_output import Output
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    CreateMode,
    DeleteRequest,
    ErrorCode,
    Id,
    MultiOp,
    OpCode,
)

_MAX_TTL_MS: Final = 0xFFFFFFFFFF
_LONG_BITS: Final = 63
_BATCH: Final = 1000
# Half of the longest request that a server takes, and what a deletion costs beside its path.
_BATCH_BYTES: Final = 512 * 1024
_DELETE_OVERHEAD: Final = 17


def parse_acl(text: str, output: Output) -> AclList:
    """`scheme:id:perms`, comma separated; what is not of that form is reported and left out."""
    acl = []
    for part in text.split(","):
        scheme, colon, rest = part.partition(":")
        id, last_colon, letters = rest.rpartition(":")
        if not colon or not last_colon:
            output.note(f"{part} does not have the form scheme:id:perm")
            continue
        perms, unknown = permission_bits(letters)
        for letter in unknown:
            output.note(f"Unknown perm type: {letter}")
        acl.append(ACL(perms, Id(scheme, id)))
    return tuple(acl)


def _create_mode(given: Given) -> CreateMode:
    is_ephemeral, is_sequential, is_container, has_ttl = map(given.has, "esct")
    if is_container and (is_ephemeral or is_sequential):
        raise UsageError(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential."
        )
    if has_ttl and is_ephemeral:
        raise UsageError("TTLs cannot be used with Ephemeral znodes")
    if has_ttl and is_container:
        raise UsageError("TTLs cannot be used with Container znodes")
    if is_container:
        return CreateMode.CONTAINER
    if is_ephemeral:
        return CreateMode.EPHEMERAL_SEQUENTIAL if is_sequential else CreateMode.EPHEMERAL
    if has_ttl:
        return (
            CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL
            if is_sequential
            else CreateMode.PERSISTENT_WITH_TTL
        )
    return CreateMode.PERSISTENT_SEQUENTIAL if is_sequential else CreateMode.PERSISTENT


def _create(context: Context, given: Given) -> Document:
    ttl_ms = integer(given, "t", 0, _LONG_BITS)
    mode = _create_mode(given)
    if mode.has_ttl and not 0 < ttl_ms <= _MAX_TTL_MS:
        raise UsageError(f"ttl must be positive and cannot be larger than: {_MAX_TTL_MS}")
    data = given.argument(1)
    acl_text = given.argument(2)
    acl = OPEN_ACL if acl_text is None else parse_acl(acl_text, context.output)
    try:
        if not acl:
            # Nothing of it was understood. An empty list would be refused by the server too.
            raise OperationFailed(ErrorCode.INVALID_ACL)
        path = context.client.create(
            given.arguments[0], None if data is None else to_bytes(data), acl, mode, ttl_ms
        )
    except OperationFailed as error:
        if error.code is ErrorCode.EPHEMERAL_ON_LOCAL_SESSION:
            context.output.note("Unable to create ephemeral node on a local session")
        elif error.code is ErrorCode.INVALID_ACL:
            context.output.note(code_message(error))
        raise
    context.output.say(f"Created {path}")
    return {"path": path}


def _set(context: Context, given: Given) -> Document:
    path, text = given.arguments[:2]
    data = to_bytes(text)
    if given.has("b"):
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise UsageError(f"the data is not base64: {error}") from error
    stat = context.client.set_data(path, data, integer(given, "v", -1))
    if given.has("s"):
        print_stat(context, stat)
    return {"path": path, "stat": stat_document(stat)}


def _delete(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    old_version = given.argument(1)
    if old_version is not None:
        context.output.note(
            "'delete path [version]' has been deprecated. "
            "Please use 'delete [-v version] path' instead."
        )
        # Honoured, not ignored: a caller that names a version does not want another one deleted.
        given.flags.setdefault("v", old_version)
    context.client.delete(path, integer(given, "v", -1))
    return {"path": path}


def _delete_all(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    batch_size = integer(given, "b", _BATCH)
    doomed = _breadth_first(context.client, path)
    doomed.reverse()
    if batch_size <= 0:
        for one in doomed:
            context.client.delete(one)
        return {"path": path, "deleted": len(doomed)}
    for batch in _batches(doomed, batch_size):
        ops = [MultiOp(OpCode.DELETE, DeleteRequest(one, -1)) for one in batch]
        if any(result.err for result in context.client.multi(ops)):
            raise ShellFailure("Failed to delete some node(s) in the subtree!")
    return {"path": path, "deleted": len(doomed)}


def _batches(paths: list[str], size: int) -> Iterator[list[str]]:
    """Paths in portions: of `size`, or fewer if they would not fit into one request."""
    batch: list[str] = []
    room = _BATCH_BYTES
    for path in paths:
        cost = _DELETE_OVERHEAD + len(path.encode())
        if batch and (len(batch) == size or room < cost):
            yield batch
            batch, room = [], _BATCH_BYTES
        batch.append(path)
        room -= cost
    if batch:
        yield batch


def _breadth_first(client: Client, path: str) -> list[str]:
    """A znode and all below it, each after its parent."""
    found = [path]
    queue = deque(found)
    while queue:
        parent = queue.popleft()
        children = [f"{parent.rstrip('/')}/{name}" for name in client.get_children(parent)]
        found += children
        queue += children
    return found


def _set_acl(context: Context, given: Given) -> Document:
    path, acl_text = given.arguments[:2]
    acl = parse_acl(acl_text, context.output)
    version = integer(given, "v", -1)
    if not given.has("R"):
        if not acl:
            raise OperationFailed(ErrorCode.INVALID_ACL)
        stat = context.client.set_acl(path, acl, version)
        if given.has("s"):
            print_stat(context, stat)
        return {"path": path, "stat": stat_document(stat)}
    done, failed = 0, 0
    for one in visit_subtree(context.client, path):
        try:
            context.client.set_acl(one, acl, version)
            done += 1
        except OperationFailed as error:
            if error.is_connection_failure:
                raise
            context.output.note(code_message(error))
            failed += 1
    if failed:
        raise ShellFailure(f"Failed to set the ACL of {failed} of {done + failed} znodes")
    return {"path": path, "changed": done}


def _addauth(context: Context, given: Given) -> Document:
    scheme = given.arguments[0]
    credential = given.argument(1)
    context.client.add_auth(scheme, None if credential is None else to_bytes(credential))
    return {"scheme": scheme}


def _reconfig(context: Context, given: Given) -> Document:
    replaces = [name for name in ("file", "members") if given.has(name)]
    changes = [name for name in ("add", "remove") if given.has(name)]
    if not replaces and not changes:
        raise UsageError(RECONFIG.usage)
    try:
        version = int(given.flags.get("v", "-1"), 16)
    except ValueError as error:
        raise UsageError("-v must be followed by a long (configuration version)") from error
    if replaces and changes:
        raise UsageError(
            "Can't use -file or -members together with -add or -remove (mixing incremental"
            " and non-incremental modes is not allowed)"
        )
    if len(replaces) > 1:
        raise UsageError(
            "Can't use -file and -members together (conflicting non-incremental modes)"
        )
    members = _lower(given, "members")
    if given.has("file"):
        members = _read_members(given.flags["file"])
    reply = context.client.reconfig(_lower(given, "add"), _lower(given, "remove"), members, version)
    config = (reply.data or b"").decode("utf-8", "replace")
    context.output.say(f"Committed new configuration:\n{config}")
    if given.has("s"):
        print_stat(context, reply.stat)
    return {"config": config, "stat": stat_document(reply.stat)}


def _lower(given: Given, name: str) -> str | None:
    return given.flags[name].lower() if given.has(name) else None


def _read_members(file: str) -> str:
    """The lines of a dynamic configuration file that name members."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Error processing {file}: {error}") from error
    kept = [
        line.strip() for line in lines if line.strip().startswith(("server.", "group.", "weight."))
    ]
    if not kept:
        raise UsageError(f"Error processing {file}: it has no server. lines")
    return "\n".join(kept)


RECONFIG: Final = ShellCommand(
    "reconfig",
    "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | "
    "[-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    _reconfig,
    Syntax(
        (
            flag("s", "stats"),
            value_flag("v", "required current config version"),
            value_flag("file", "path of config file to parse for membership"),
            value_flag("members", "comma-separated list of config strings"),
            value_flag("add", "comma-separated list of config strings for new servers"),
            value_flag("remove", "comma-separated list of server IDs to remove"),
        )
    ),
)

WRITING: Final = (
    ShellCommand(
        "create",
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        _create,
        Syntax(
            (
                flag("e", "ephemeral"),
                flag("s", "sequential"),
                flag("c", "container"),
                value_flag("t", "ttl"),
            )
        ),
        min_arguments=1,
    ),
    ShellCommand(
        "set",
        "path data [-s] [-v version] [-b]",
        _set,
        Syntax(
            (
                flag("b", "Supply data in base64 format"),
                flag("s", "Print znode stats additionally"),
                value_flag("v", "Set with an expected version"),
            )
        ),
        min_arguments=2,
        explains_flags=True,
    ),
    ShellCommand(
        "delete",
        "[-v version] path",
        _delete,
        Syntax((value_flag("v", "version"),)),
        min_arguments=1,
    ),
    ShellCommand(
        "deleteall",
        "path [-b batch size]",
        _delete_all,
        Syntax((value_flag("b", "batch size"),)),
        min_arguments=1,
    ),
    ShellCommand(
        "setAcl",
        "[-s] [-v version] [-R] path acl",
        _set_acl,
        Syntax((flag("s", "stats"), value_flag("v", "version"), flag("R", "recursive"))),
        min_arguments=2,
    ),
    ShellCommand("addauth", "scheme auth", _addauth, min_arguments=1),
    RECONFIG,
)
