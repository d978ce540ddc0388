"""What differs between two trees, znode by znode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keepfast.tree import CONFIG, Node, Tree, persisted
from keepfast.wire import AclList

# Of the data of quota statistics nobody keeps a record: servers count by themselves.
_STATISTICS_SUFFIX = "/zookeeper_stats"
_STATISTICS_PREFIX = "/zookeeper/quota/"


@dataclass(frozen=True, slots=True)
class Difference:
    """A znode that is not the same in two trees; None where a tree does not have it."""

    path: str
    left: Node | None
    right: Node | None
    left_acl: AclList | None
    right_acl: AclList | None
    # What differs: "data", "acl", and the names of fields of the Stat, in its order.
    fields: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`only left`, `only right` or `changed`."""
        if self.right is None:
            return "only left"
        return "only right" if self.left is None else "changed"


def differences(left: Tree, right: Tree, top: str = "/") -> Iterator[Difference]:
    """Every znode at `top` or below that differs, by path.

    Left out is what healthy servers do not share: /zookeeper/config (each member writes it by its
    own clock), the counts of quotas, and children's counts that follow from those.
    """
    below = "/" if top == "/" else top + "/"
    paths = {
        path
        for tree in (left, right)
        for path in tree.paths()
        if path == top or path.startswith(below)
    }
    for path in sorted(paths):
        if path == CONFIG:
            continue
        one, other = left.find(path), right.find(path)
        left_acl = None if one is None else left.acl_of(one)
        right_acl = None if other is None else right.acl_of(other)
        if one is None or other is None:
            yield Difference(path, one, other, left_acl, right_acl)
            continue
        fields = _fields(path, one, other)
        if left_acl != right_acl:
            fields = (*fields, "acl")
        if fields:
            yield Difference(path, one, other, left_acl, right_acl, fields)


def _fields(path: str, one: Node, other: Node) -> tuple[str, ...]:
    if one.stat == other.stat and one.data == other.data:
        return ()
    found = []
    is_count = path.startswith(_STATISTICS_PREFIX) and path.endswith(_STATISTICS_SUFFIX)
    if one.data != other.data and not is_count:
        found.append("data")
    for name, ours, theirs in zip(
        persisted(one)._fields, persisted(one), persisted(other), strict=True
    ):
        if ours != theirs:
            found.append(name)
    return tuple(found)
