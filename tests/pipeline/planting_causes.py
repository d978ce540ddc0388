"""Divergences whose traces were since covered up: by a snapshot of the wrong tree, or an option."""

from __future__ import annotations

from dataclasses import replace

from keepfast.pipeline.replay.trees import compare_trees
from keepfast.sim import MemoryDisk
from keepfast.storage import load_tree
from keepfast.tree import ReplayConflict, Tree
from keepfast.wire import decode_entry
from tests.pipeline.ensembles import Life, Member, packed
from tests.pipeline.planted import Planted, Planter, planted_by, whole_servers


def _replayed(tree: Tree, entries: list[tuple[int, bytes]], after: int) -> Tree:
    """As Apache replays: whatever lies there, passing over what does not fit."""
    for zxid, raw in entries:
        if zxid > after:
            entry = decode_entry(raw)
            try:
                tree.apply_fuzzy(entry.header, entry.body)
            except ReplayConflict:
                continue
    return tree


def _served(member: Member) -> Tree:
    """What a server has after a start on its files."""
    tree = Tree()
    if member.snapshots:
        disk = MemoryDisk()
        disk.make_directory("/d")
        disk.put("/d/snapshot.1", member.snapshots[member.base].content)
        tree, _, _ = load_tree(disk, "/d/snapshot.1", "snapshot.0", is_fuzzy=True)
    return _replayed(tree, [item for log in member.logs for item in log.entries], member.base)


def _written_down(life: Life, member: Member) -> bool:
    """Write the wrong tree to a snapshot and continue; False if clients see no difference later."""
    wrong = _served(member)
    at = life.zxid
    right, life.tree = life.tree, wrong
    snapshot = life.exact(member, at)
    life.tree = right
    life.store(member, snapshot)
    member.is_open = False
    life.write(life.random.randrange(1, 6))
    return compare_trees(life.tree, _replayed(wrong, life.history, at)).is_real


def _persisted(plant: Planter) -> Planter:
    """The damage of another planter, and since then a snapshot of what came of it."""

    def planter(life: Life) -> Planted | None:
        planted = plant(life)
        if planted is None:
            return None
        member = next(m for m in life.members if m.name == planted.server)
        if member.position != life.zxid or not _written_down(life, member):
            return None
        return replace(planted, check="causes", checks=frozenset({"A2", "A3"}), zxid=None)

    planter.__name__ = f"{plant.__name__}_then_snapshot"
    return planter


def _without_base(life: Life) -> Member | None:
    """A server that is up, with partial snapshots alone and without its first log."""
    members = [m for m in whole_servers(life) if m.snapshots and len(m.logs) > 1]
    if not members or len(life.members) - 1 < life.quorum:
        return None
    member = life.random.choice(members)
    first = member.logs[1].zxid
    others = [m for m in life.members if m is not member]
    is_known = any(m.logs and m.logs[0].zxid < first for m in others)
    if not is_known or (first & 0xFFFFFFFF == 1 and first >> 32 <= 1):
        return None
    held = {zxid for log in member.logs for zxid, _ in log.entries if zxid >= first}
    if held != {zxid for zxid, _ in life.history if zxid >= first}:
        return None  # holes, or what was never committed, would be the first difference
    for snapshot in list(member.snapshots.values()):
        del member.snapshots[snapshot.zxid]
        content = packed(snapshot.content, member.packing)
        member.raw[f"snapshot.{snapshot.zxid:x}{member.packing}"] = content[: len(content) // 2]
    del member.logs[0]
    return member


def partial_then_snapshot(life: Life) -> Planted | None:
    """A start without a base, and since then a snapshot of what was left."""
    member = _without_base(life)
    if member is None or not _written_down(life, member):
        return None
    return planted_by("causes", member, "A2", kind="missing-prefix")


def trusting(life: Life) -> Planted | None:
    """A server of 3.5 or later that continues without a base: snapshot.trust.empty is on."""
    if not life.is_modern or life.version == "3.5":
        return None
    member = _without_base(life)
    if member is None:
        return None
    wrong = _served(member)
    at = life.zxid
    life.write(life.random.randrange(1, 6))
    if not compare_trees(life.tree, _replayed(wrong, life.history, at)).is_real:
        return None
    return planted_by("causes", member, "A2", kind="missing-prefix")


def persisted_planters(plants: tuple[Planter, ...]) -> tuple[Planter, ...]:
    """Those damages that end in a wrong tree, each with a snapshot of it."""
    return tuple(map(_persisted, plants))
