"""The final check of a world that has healed: every server holds the same tree, znode by znode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keepfast.tree import CONFIG, Tree
from keepfast.wire import format_zxid

if TYPE_CHECKING:
    from keepfast.sim.simulated_world import World

_STATS: Final = "/zookeeper_stats"


def contents(tree: Tree) -> dict[str, tuple[object, ...]]:
    """All znodes of a tree except those that servers maintain on their own.

    The configuration is dated by each server's own clock, and the statistics of a quota are
    recounted when a snapshot is loaded, also of changes that were made while there was no quota.
    """
    found: dict[str, tuple[object, ...]] = {}
    for path in tree.paths():
        node = tree.find(path)
        if path != CONFIG and not path.endswith(_STATS) and node is not None:
            children = tuple(sorted(node.children or ()))
            found[path] = (node.data, node.stat, tree.acl_of(node), children)
    return found


def differences(world: World) -> str:
    """What is not the same on all servers; empty if nothing is."""
    ledger = world.checkers.ledger
    expected = contents(ledger.tree)
    for host in world.members():
        process = host.process
        if process is None:
            return f"{host.who} is down"
        tree: Tree = process.replica.tree
        if tree.sessions != ledger.tree.sessions:
            return f"{host.who} has sessions {sorted(tree.sessions)}"
        found = contents(tree)
        for path in sorted(set(found) | set(expected)):
            if found.get(path) != expected.get(path):
                return (
                    f"{host.who} has {path} = {found.get(path)} instead of {expected.get(path)} "
                    f"at {format_zxid(tree.last_zxid)}"
                )
    return ""
