"""What a tree may lack that passed a change of epoch which one server alone shows (`LoneJoin`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepfast.pipeline.replay.plan import LoneJoin
from keepfast.pipeline.replay.records import Unread, entries_of, touched_paths
from keepfast.pipeline.replay.trees import changes_of, compare_trees
from keepfast.storage import Disk
from keepfast.tree import Tree
from keepfast.wire import OpCode


@dataclass(frozen=True, slots=True)
class CrossedJoin:
    """A `LoneJoin` that a tree passed, and the znodes that the records left out there touch."""

    join: LoneJoin
    paths: frozenset[str]


def cross(disk: Disk, join: LoneJoin, tree: Tree) -> CrossedJoin | None:
    """What passing a join leaves in doubt; None if what lies there can no longer be read."""
    unread = Unread()
    paths: set[str] = set()
    for entry, _, _ in entries_of(disk, join.between, unread):
        paths.update(touched_paths(entry.body))
        if entry.header.type == OpCode.CLOSE_SESSION:
            # Before 3.6 it does not name the znodes that go with the session.
            paths.update(tree.ephemerals.get(entry.header.session_id, ()))
    if unread.gone or unread.undecodable:
        return None
    return CrossedJoin(join, frozenset(paths))


def is_doubted(tree: Tree, crossed: Sequence[CrossedJoin], rival: Tree) -> bool:
    """Whether a rival may be right because of something that a tree left out at a join.

    Either the records that it left out, and that somebody still holds, make all the difference; or
    the stats of the rival name a zxid from there.
    """
    if rival is tree or not crossed:
        return False
    differing = set(compare_trees(tree, rival).paths)
    shown = {zxid for path in differing for zxid in changes_of(rival, path)}
    return any(
        differing <= one.paths or any(one.join.before < zxid < one.join.after for zxid in shown)
        for one in crossed
    )
