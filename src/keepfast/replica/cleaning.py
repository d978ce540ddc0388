"""Which znodes a server deletes on its own: empty containers and expired TTLs."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.tree import Kind, Tree, cversion_of, kind_of, mtime_of, sorted_in_slices, ttl_of


def due_paths(tree: Tree, wall_ms: int, never_used_ms: int, size: int) -> Iterator[str | None]:
    """The znodes that are to go now, in order; None where others should have their turn.

    A container that never had a child goes `never_used_ms` after it was made; 0: it stays.
    `size`: how many are looked at in one turn.
    """
    ordered = yield from sorted_in_slices([*tree.containers, *tree.ttls], size)
    for number, path in enumerate(ordered, 1):
        if not number % size:
            yield None
        node = tree.find(path)
        if node is None or node.children:
            continue
        age_ms = wall_ms - mtime_of(node.stat)
        if kind_of(node.stat) is Kind.TTL:
            is_due = age_ms > ttl_of(node.stat)
        else:
            was_used = cversion_of(node.stat) > 0
            is_due = was_used or 0 < never_used_ms < age_ms
        if is_due:
            yield path
