"""Znodes, sessions and ACLs of a tree, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keepfast.cli.output import CommandFailed, ExitCode, Out, to_json
from keepfast.cli.values import (
    acl_text,
    acl_texts,
    data_fields,
    data_text,
    hexadecimal,
    utc,
)
from keepfast.tree import Kind, Node, Tree, kind_of, persisted, ttl_of
from keepfast.wire import format_zxid, safe_text

Znode = tuple[str, Node]


def znodes(tree: Tree, top: str = "/") -> Iterator[Znode]:
    """The znode `top` and all below it, parents first, siblings by name."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        node = tree.find(path)
        if node is not None:
            yield path, node
            waiting += sorted(node.children or (), reverse=True)


def check_top(tree: Tree, top: str | None, where: str) -> str:
    """The path to begin a listing with; ends the command if there is no such znode."""
    if top is None:
        return "/"
    if not top.startswith("/"):
        raise CommandFailed(f"--path {top!r} is no path of a znode; it begins with /")
    top = top.rstrip("/") or "/"
    if tree.find(top) is None:
        raise CommandFailed(f"there is no znode {safe_text(top)} in {where}", ExitCode.REFUSED)
    return top


def _kind(node: Node) -> str:
    kind = kind_of(node.stat)
    if kind is Kind.TTL:
        return f"ttl {ttl_of(node.stat)}ms"
    if kind is Kind.EPHEMERAL:
        return f"ephemeral {hexadecimal(persisted(node).ephemeral_owner)}"
    return kind.name.lower()


def print_znodes(out: Out, tree: Tree, found: Iterable[Znode], redact: bool) -> int:
    """Print one line per znode; returns their number."""
    head = f"{'czxid':<12}  {'mzxid':<12}  {'modified':<24}  {'version':>7}  {'children':>8}  "
    out.line(out.paint(head + "path, data, acl, kind", "bold"))
    count = 0
    for path, node in found:
        stat = persisted(node)
        text = (
            f"{format_zxid(stat.czxid):<12}  {format_zxid(stat.mzxid):<12}  {utc(stat.mtime):<24}  "
            f"{stat.version:>7}  {len(node.children or ()):>8}  {safe_text(path)}  "
            f"{data_text(node.data, redact)}  acl={acl_text(tree.acl_of(node))}"
        )
        kind = _kind(node)
        out.line(text if kind == "persistent" else f"{text}  {kind}")
        count += 1
    return count


def znode_fields(tree: Tree, path: str, node: Node, redact: bool) -> dict[str, object]:
    """A znode for JSON; `cversion` is the stored one, which counts creations of children only."""
    stat = persisted(node)
    kind = kind_of(node.stat)
    fields: dict[str, object] = {
        "path": path,
        "data": data_fields(node.data, redact),
        "acl": acl_texts(tree.acl_of(node)),
        "kind": kind.name.lower(),
        "czxid": format_zxid(stat.czxid),
        "mzxid": format_zxid(stat.mzxid),
        "pzxid": format_zxid(stat.pzxid),
        "ctime": utc(stat.ctime),
        "mtime": utc(stat.mtime),
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "children": len(node.children or ()),
    }
    if kind is Kind.EPHEMERAL:
        fields["session"] = hexadecimal(stat.ephemeral_owner)
    elif kind is Kind.TTL:
        fields["ttl_ms"] = ttl_of(node.stat)
    return fields


def encoded_znodes(tree: Tree, found: Iterable[Znode], redact: bool) -> Iterator[str]:
    """Znodes as JSON, one by one."""
    return (to_json(znode_fields(tree, path, node, redact)) for path, node in found)


def tree_fields(tree: Tree) -> dict[str, object]:
    """The summary of a tree, for JSON."""
    return {
        "znodes": tree.node_count,
        "data_bytes": tree.data_size,
        "sessions": len(tree.sessions),
        "ephemerals": sum(map(len, tree.ephemerals.values())),
        "tree_digest": hexadecimal(tree.digest),
        "state_digest": hexadecimal(tree.state_digest),
    }


def session_fields(tree: Tree) -> list[dict[str, object]]:
    """The sessions for JSON."""
    return [
        {
            "session": hexadecimal(session_id),
            "timeout_ms": timeout_ms,
            "ephemerals": len(tree.ephemerals.get(session_id, ())),
        }
        for session_id, timeout_ms in sorted(tree.sessions.items())
    ]


def acl_table(tree: Tree) -> list[dict[str, object]]:
    """The ACL table for JSON."""
    return [{"key": key, "acl": acl_texts(acl)} for key, acl in sorted(tree.acls.entries().items())]


def head_text(zxid: int) -> str:
    """A zxid with its epoch and counter."""
    return f"{format_zxid(zxid)} (epoch {zxid >> 32}, counter {zxid & 0xFFFFFFFF})"
