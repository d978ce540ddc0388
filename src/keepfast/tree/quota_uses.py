"""The quotas of a tree and what is used of them, for reports."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.tree.quota import (
    BYTE_HARD_LIMIT,
    BYTES,
    COUNT,
    COUNT_HARD_LIMIT,
    limits_path,
    parse_counts,
    stats_path,
)
from keepfast.tree.tree import Tree


class QuotaUse(NamedTuple):
    """One quota: its limits (the hard one if there is one; -1: none) and what is used of them."""

    path: str
    count_limit: int
    bytes_limit: int
    used_count: int
    used_bytes: int


def quota_uses(tree: Tree) -> list[QuotaUse]:
    """All quotas, by path; for reports."""
    uses = []
    for path in sorted(tree.quotas):
        limits_node, stats_node = tree.find(limits_path(path)), tree.find(stats_path(path))
        limits = parse_counts(limits_node.data if limits_node is not None else None)
        used = parse_counts(stats_node.data if stats_node is not None else None)
        uses.append(
            QuotaUse(
                path,
                _limit(limits.get(COUNT_HARD_LIMIT, -1), limits.get(COUNT, -1)),
                _limit(limits.get(BYTE_HARD_LIMIT, -1), limits.get(BYTES, -1)),
                used.get(COUNT, 0),
                used.get(BYTES, 0),
            )
        )
    return uses


def _limit(hard: int, soft: int) -> int:
    return hard if hard > -1 else soft
