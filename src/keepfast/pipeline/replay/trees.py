"""Trees side by side: what differs, what may differ, and the form that a tree must have (A12)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keepfast.pipeline.findings.document import ServerZnode
from keepfast.tree import (
    CONFIG,
    MAX_CVERSION,
    ROOT,
    ZOOKEEPER,
    Kind,
    Node,
    Tree,
    acl_weight,
    cversion_of,
    kind_of,
    mzxid_of,
    owner_of,
    parent_of,
    persisted,
    pzxid_of,
)

_SHORT_TEXT = 64
# In a stat: czxid, mzxid, ctime, mtime (8 each), version, cversion, aversion (4), owner, pzxid (8).
_CVERSION = slice(36, 40)
_PZXID = slice(52, 60)
_QUOTA_STATS = "/zookeeper_stats"


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """What two trees do not have in common.

    `paths` differ in what clients see as content; `uneven` only in cversion or pzxid of a parent,
    which Apache itself gets wrong after a fuzzy snapshot.
    """

    paths: tuple[str, ...] = ()
    uneven: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        """Whether clients can see the difference."""
        return bool(self.paths)


def _weight(tree: Tree, node: Node) -> int:
    return acl_weight(tree.acl_of(node)) if node.acl in tree.acls.lists else 1


def compare_trees(left: Tree, right: Tree) -> TreeDifference:
    """Everything in which two trees differ."""
    paths: list[str] = []
    uneven: list[str] = []
    for path in left.paths():
        here, there = left.find(path), right.find(path)
        if path == CONFIG or here is None:
            continue
        if there is None or _content(left, path, here) != _content(right, path, there):
            paths.append(path)
        elif here.stat != there.stat:
            uneven.append(path)
    paths += [path for path in right.paths() if path != CONFIG and left.find(path) is None]
    return TreeDifference(tuple(sorted(paths)), tuple(sorted(uneven)))


def content_of(tree: Tree, path: str) -> tuple[object, ...] | None:
    """What clients see of a znode as its content; None if it is not there.

    The ACL is None where a snapshot has the znode and, being fuzzy, lacks its ACL.
    """
    node = tree.find(path)
    if node is None:
        return None
    data, stat, acl = _content(tree, path, node)
    return data, stat, None if node.acl in tree.acls.unknown_keys else acl


def is_same_content(left: tuple[object, ...] | None, right: tuple[object, ...] | None) -> bool:
    """Whether two contents are the same, as far as their ACLs are known."""
    if left is None or right is None:
        return left is right
    return left[:2] == right[:2] and (None in (left[2], right[2]) or left[2] == right[2])


def _content(tree: Tree, path: str, node: Node) -> tuple[object, ...]:
    """What clients see of a znode as its content: all but cversion and pzxid."""
    stat = bytearray(node.stat)
    stat[_CVERSION] = bytes(4)
    stat[_PZXID] = bytes(8)
    is_count = path.startswith("/zookeeper/quota/") and path.endswith(_QUOTA_STATS)
    data = None if is_count else node.data or b""
    return data, bytes(stat), tree.acls.lists.get(node.acl)


def znode_state(tree: Tree, path: str) -> ServerZnode | None:
    """A znode for showing; None if it is not there."""
    node = tree.find(path)
    if node is None:
        return None
    stat = persisted(node)
    data = node.data or b""
    return ServerZnode(printable(data), len(data), stat.czxid, stat.mzxid, stat.version)


def printable(data: bytes) -> str:
    """Data as a short text."""
    text = data[: _SHORT_TEXT + 1].decode("utf-8", "replace")
    if not text.isprintable():
        return data[: _SHORT_TEXT // 2].hex() + ("..." if len(data) > _SHORT_TEXT // 2 else "")
    return text if len(data) <= _SHORT_TEXT else text[:_SHORT_TEXT] + "..."


def changes_of(tree: Tree, path: str) -> tuple[int, ...]:
    """The zxids of the records that made a znode what it is."""
    node = tree.find(path)
    if node is None:
        return ()
    return persisted(node).czxid, mzxid_of(node.stat)


def owners_of(trees: Iterable[Tree], paths: Iterable[str]) -> set[int]:
    """The sessions that own one of some znodes in one of some trees."""
    nodes = [node for tree in trees for path in paths if (node := tree.find(path)) is not None]
    return {owner_of(node.stat) for node in nodes if kind_of(node.stat) is Kind.EPHEMERAL}


# -- form ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormProblem:
    """A znode that no sequence of transactions makes."""

    kind: str
    path: str
    text: str


def form_problems(tree: Tree, head: int, *, is_exact: bool) -> list[FormProblem]:
    """What is wrong about the form of a tree at `head`.

    Not `is_exact`: at a moment at which a fuzzy snapshot may be ahead of its records.
    """
    problems: list[FormProblem] = []
    for path in tree.paths():
        node = tree.find(path)
        if node is None or path == ZOOKEEPER or path.startswith(ZOOKEEPER + "/"):
            continue
        problems += _stat_problems(tree, path, node, head if is_exact else None)
    for key in sorted(tree.acls.unknown_keys):
        text = f"znodes refer to ACL {key}, which the table does not have"
        problems.append(FormProblem("acl-missing", ROOT, text))
    problems += _quota_problems(tree)
    return problems


def _stat_problems(tree: Tree, path: str, node: Node, head: int | None) -> list[FormProblem]:
    stat = persisted(node)
    found: list[FormProblem] = []

    def say(kind: str, text: str) -> None:
        found.append(FormProblem(kind, path, text))

    if path != ROOT and tree.find(parent_of(path)) is None:
        say("parent-missing", "its parent is not there")
    if stat.mzxid < stat.czxid:
        say("stat-order", f"mzxid {stat.mzxid:#x} is below czxid {stat.czxid:#x}")
    if head is not None and max(stat.czxid, stat.mzxid, stat.pzxid) > head:
        say("stat-ahead", f"a zxid in its stat is beyond the head {head:#x}")
    children = node.children or ()
    if children:
        if kind_of(node.stat) is Kind.EPHEMERAL:
            say("ephemeral-parent", "an ephemeral znode has children")
        # The stored cversion counts creations, up to two thousand million of them.
        if 0 <= cversion_of(node.stat) < len(children) and path != ROOT:
            say(
                "cversion-low",
                f"cversion {cversion_of(node.stat)} with {len(children)} children",
            )
        newest = max(_czxid(tree, child) for child in children)
        is_counted = cversion_of(node.stat) != MAX_CVERSION
        if pzxid_of(node.stat) < newest and is_counted and path != ROOT:
            say("pzxid-low", f"pzxid {pzxid_of(node.stat):#x} below child's {newest:#x}")
    return found


def _czxid(tree: Tree, path: str) -> int:
    node = tree.find(path)
    return 0 if node is None else persisted(node).czxid


def _quota_problems(tree: Tree) -> list[FormProblem]:
    found = []
    for path in sorted(tree.quotas):
        stats = f"/zookeeper/quota{path.rstrip('/')}{_QUOTA_STATS}"
        if tree.find(stats) is None:
            text = "a quota without the statistics that it is counted in"
            found.append(FormProblem("quota-without-count", path, text))
    return found


def orphans(tree: Tree) -> list[tuple[str, int]]:
    """Ephemeral znodes whose session does not exist: path and session id (A10)."""
    return sorted(
        (path, session)
        for session, paths in tree.ephemerals.items()
        if session not in tree.sessions
        for path in paths
    )
