"""Commands that only read."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from keepfast.client import Client, OperationFailed, validate_path
from keepfast.shell.command import Context, ShellCommand, flag
from keepfast.shell.flags import Given, Syntax
from keepfast.shell.formats import (
    Document,
    acl_document,
    acl_lines,
    data_document,
    hex_dump,
    stat_document,
    stat_lines,
)
from keepfast.wire import ErrorCode, Stat


def print_stat(context: Context, stat: Stat) -> None:
    """Print the fields of a Stat, one per line."""
    for line in stat_lines(stat):
        context.output.say(line)


def _wants_watch(context: Context, given: Given, name: str, better: str) -> bool:
    """Whether to watch: by the flag, or by a second argument as old scripts have it."""
    if len(given.arguments) > 1:
        context.output.note(
            f"'{name} path [watch]' has been deprecated. Please use '{better}' instead."
        )
        return True
    return given.has("w")


def _ls(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    watch = _wants_watch(context, given, "ls", "ls [-w] path")
    if given.has("R"):
        paths = []
        for one in visit_subtree(context.client, path, watch):
            context.output.say(one)
            if context.output.is_json:
                paths.append(one)
        return {"path": path, "paths": paths}
    if not given.has("s") and not context.output.is_json:
        # The older request, which a server of any age knows.
        children = sorted(context.client.get_children(path, watch))
        context.output.say(f"[{', '.join(children)}]")
        return {}
    reply = context.client.get_children2(path, watch)
    children = sorted(reply.children)
    context.output.say(f"[{', '.join(children)}]")
    print_stat(context, reply.stat)
    return {"path": path, "children": children, "stat": stat_document(reply.stat)}


def visit_subtree(client: Client, path: str, watch: bool = False) -> Iterator[str]:
    """A path, its children, then the children of each of them, and so on down.

    Not one moment of the tree: each list is read when its turn comes, and a znode that is gone by
    then is passed over.
    """
    validate_path(path)
    client.get_data(path, watch)
    yield path
    unvisited = [path]
    while unvisited:
        parent = unvisited.pop()
        try:
            names = sorted(client.get_children(parent, watch))
        except OperationFailed as error:
            if error.code is ErrorCode.NO_NODE:
                continue
            raise
        children = [f"{parent.rstrip('/')}/{name}" for name in names]
        yield from children
        unvisited += reversed(children)


def _get(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    watch = _wants_watch(context, given, "get", "get [-s] [-w] path")
    data, stat = context.client.get_data(path, watch)
    shown = b"null" if data is None else data
    if given.has("x"):
        context.output.say(hex_dump(shown))
    elif given.has("b"):
        context.output.say(base64.b64encode(shown).decode("ascii"))
    else:
        context.output.say(shown.decode("utf-8", "replace"))
    if given.has("s"):
        print_stat(context, stat)
    return {"path": path, "data": data_document(data), "stat": stat_document(stat)}


def _stat(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    watch = _wants_watch(context, given, "stat", "stat [-w] path")
    stat = context.client.exists(path, watch)
    if stat is None:
        raise OperationFailed(ErrorCode.NO_NODE, path)
    print_stat(context, stat)
    return {"path": path, "stat": stat_document(stat)}


def _get_acl(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    reply = context.client.get_acl(path)
    acl = reply.acl or ()
    for line in acl_lines(acl):
        context.output.say(line)
    if given.has("s"):
        print_stat(context, reply.stat)
    return {"path": path, "acl": acl_document(acl), "stat": stat_document(reply.stat)}


def _get_all_children_number(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    number = context.client.get_all_children_number(path)
    context.output.say(str(number))
    return {"path": path, "number": number}


def _get_ephemerals(context: Context, given: Given) -> Document:
    prefix = given.argument(0) or "/"
    paths = sorted(context.client.get_ephemerals(prefix))
    context.output.say(f"[{', '.join(paths)}]")
    return {"prefix": prefix, "paths": paths}


def _config(context: Context, given: Given) -> Document:
    data, stat = context.client.get_config(given.has("w"))
    text = "null" if data is None else data.decode("utf-8", "replace")
    context.output.say(_client_addresses(text) if given.has("c") else text)
    if given.has("s"):
        print_stat(context, stat)
    return {"config": text, "stat": stat_document(stat)}


def _client_addresses(config: str) -> str:
    """The version and the client addresses of a configuration, in one line."""
    version = ""
    addresses = []
    for line in config.splitlines():
        name, _, value = line.partition("=")
        if name == "version":
            version = value
        elif name.startswith("server."):
            _, semicolon, address = value.partition(";")
            if semicolon and ":" not in address:
                address = f"0.0.0.0:{address}"
            addresses.append(address)
    return f"{version} {','.join(addresses)}"


def _whoami(context: Context, given: Given) -> Document:
    identities = context.client.who_am_i()
    context.output.say("Auth scheme: User")
    for scheme, user in identities:
        context.output.say(f"{scheme}: {user}")
    return {"identities": [{"scheme": scheme, "user": user} for scheme, user in identities]}


def _sync(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    context.client.sync(path)
    context.output.say("Sync is OK")
    return {"path": path}


READING: Final = (
    ShellCommand(
        "ls",
        "[-s] [-w] [-R] path",
        _ls,
        Syntax((flag("s", "stat"), flag("w", "watch"), flag("R", "recurse"))),
        min_arguments=1,
    ),
    ShellCommand(
        "get",
        "[-s] [-w] [-b] [-x] path",
        _get,
        Syntax(
            (
                flag("b", "Output data in base64 format"),
                flag("s", "Print znode stats additionally"),
                flag("w", "Watch for changes on the znode"),
                flag("x", "Output data in hexdump format"),
            )
        ),
        min_arguments=1,
        explains_flags=True,
    ),
    ShellCommand("stat", "[-w] path", _stat, Syntax((flag("w", "watch"),)), min_arguments=1),
    ShellCommand("getAcl", "[-s] path", _get_acl, Syntax((flag("s", "stats"),)), min_arguments=1),
    ShellCommand("getAllChildrenNumber", "path", _get_all_children_number, min_arguments=1),
    ShellCommand("getEphemerals", "path", _get_ephemerals),
    ShellCommand(
        "config",
        "[-c] [-w] [-s]",
        _config,
        Syntax((flag("c", "client connection string"), flag("w", "watch"), flag("s", "stats"))),
    ),
    ShellCommand("whoami", "", _whoami),
    ShellCommand("sync", "path", _sync, min_arguments=1),
)
