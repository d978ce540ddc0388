"""A committed txn goes into the tree that it was prepared on, without being computed again.

`prepare` computed each znode as the txn leaves it, and the digest after it, which is in the log.
That this is the tree it was prepared on (R12) is checked before anything changes: every znode that
the txn touches must have, byte for byte, the stat that it had then, and the tree's digest must
become the logged one. A learner has only the record, and takes `Tree.apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from keepfast.tree.digest import MASK
from keepfast.tree.errors import ReplayConflict
from keepfast.tree.node import Node
from keepfast.tree.node_bytes import STAT_SIZE, TAIL_SIZE, owner_of, packed_node
from keepfast.tree.outcome import Change, ChangeKind, OpResult
from keepfast.tree.pending_node import PendingNode, Step
from keepfast.tree.wire_stat import stat_on_wire
from keepfast.wire import OpCode, Zxid

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree

_DELETED: Final = ChangeKind.DELETED.value
_DATA: Final = ChangeKind.DATA.value
_NO_OWNER: Final = bytes(8)
_key_at: Final = Struct(">q").unpack_from

_CREATE: Final = OpCode.CREATE.value
_CHECK: Final = OpCode.CHECK.value
_DELETE: Final = OpCode.DELETE.value


def install(
    tree: Tree, zxid: Zxid, steps: Sequence[Step], digest: int, *, wants_changes: bool
) -> tuple[Change, ...]:
    """Make the changes of one txn, or raise ReplayConflict and change nothing."""
    _check(tree, zxid, steps, digest)
    find, nodes, acls = tree.find, tree.nodes, tree.acls
    weights, own, state = acls.weights, nodes.own, tree.state_digest
    changes: list[Change] = []
    # They were found a moment ago, or made by an earlier step.
    node: Any
    parent: Any = None
    for kind, path, new, old, _, parent_path, above, before, _ in steps:
        if above is not None and before is not None:
            parent = find(parent_path)
            if own is not None:
                parent = own(parent_path, parent)
            packed = parent.packed
            parent.packed = packed[:-STAT_SIZE] + above.stat
            weight = weights.get(_key_at(packed, len(packed) - TAIL_SIZE)[0])
            if weight is None:  # null data: the key shows it
                weight = weights[parent.acl]
            state += (above.crc - before.crc) * weight
        if old is None:
            key = acls.acquire(new.acl)
            nodes.insert(path, Node(packed_node(new.data, key, new.stat)))
            parent.changing_children().add(path)
            state += (new.crc + 1) * weights[key]
            _count(tree, path, parent_path, new, 1)
        else:
            node = find(path)
            key = node.acl
            if kind == _DELETED:
                parent.changing_children().discard(path)
                nodes.remove(path)
                state -= (old.crc + 1) * weights[key]
                acls.release(key)
                _count(tree, path, parent_path, old, -1)
            else:
                if own is not None:
                    node = own(path, node)
                if kind == _DATA:
                    tree.data_size += _size(new) - _size(old)
                    node.put(new.data, new.stat)
                    state += (new.crc - old.crc) * weights[key]
                else:
                    new_key = acls.acquire(new.acl)  # before the old one vanishes
                    node.packed = packed_node(new.data, new_key, new.stat)
                    state += (new.crc + 1) * weights[new_key] - (old.crc + 1) * weights[key]
                    acls.release(key)
        if wants_changes:
            parent_acl = None if above is None else acls.lists[parent.acl]
            acl = new.acl if old is None or new.stat else old.acl
            changes.append(Change(_KINDS[kind], path, acl, parent_acl))
    tree.digest = digest
    tree.state_digest = state & MASK
    tree.last_zxid = zxid
    return tuple(changes)


_KINDS: Final = {kind.value: kind for kind in ChangeKind}


def _check(tree: Tree, zxid: Zxid, steps: Sequence[Step], digest: int) -> None:
    """Refuse a tree that is not the one that the txn was prepared on."""
    find = tree.find
    total = tree.digest
    # A znode that several steps change is looked at once: as it was before the first of them.
    seen: set[str] = set()
    is_single = len(steps) == 1
    for _, path, new, old, _, parent_path, above, parent, _ in steps:
        if above is not None and parent is not None:
            total += above.crc - parent.crc
            if is_single or parent_path not in seen:
                node = find(parent_path)
                if node is None or node.packed[-STAT_SIZE:] != parent.stat:
                    raise ReplayConflict(zxid, parent_path, "it was prepared on another tree")
        total += new.crc if old is None else new.crc - old.crc
        if is_single or path not in seen:
            node = find(path)
            if (
                node is not None
                if old is None
                else node is None or node.packed[-STAT_SIZE:] != old.stat
            ):
                raise ReplayConflict(zxid, path, "it was prepared on another tree")
        if not is_single:
            seen.add(path)
            seen.add(parent_path)
    if total & MASK != digest or zxid <= tree.last_zxid:
        raise ReplayConflict(zxid, None, "it was prepared on another tree")


def _size(node: PendingNode) -> int:
    return len(node.data) if node.data else 0


def _count(tree: Tree, path: str, parent_path: str, node: PendingNode, count: int) -> None:
    """Count a znode that came, or with -1 one that went."""
    tree.node_count += count
    data = node.data
    tree.data_size += count * (len(path) + len(data)) if data else count * len(path)
    tree.descendants.add(parent_path, count)
    if tree.listed:
        tree.note_child(parent_path, path)
    if node.stat[44:52] != _NO_OWNER:
        note = tree.own_path if count > 0 else tree.disown_path
        note(owner_of(node.stat), path)


def multi_results(types: Iterable[int], steps: Iterable[Step]) -> tuple[OpResult, ...]:
    """What the operations of a multi answer, each as it was right after it."""
    left = iter(steps)
    results = []
    for type_ in types:
        if type_ == _CHECK:
            results.append(OpResult(type_, 0))
            continue
        _, path, new, *_ = next(left)
        stat = None
        if type_ not in (_CREATE, _DELETE):
            stat = stat_on_wire(new.stat, _size(new), new.child_count)
        results.append(OpResult(type_, 0, path, stat))
    return tuple(results)
