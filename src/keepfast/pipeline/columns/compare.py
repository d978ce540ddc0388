"""Two snapshots compared by content: every znode, its data, its stat and its ACL.

Hashes are compared, not values (`hashing`), so that two files of any size need memory for a few
numbers a znode only. ACLs are compared by what they say: each server numbers its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keepfast.pipeline.columns.access import open_file
from keepfast.pipeline.columns.gather import Ints, View
from keepfast.pipeline.columns.hashing import Hashes, content_hashes
from keepfast.pipeline.columns.snapshots import Nodes, SnapshotReader
from keepfast.pipeline.columns.txns import Origin

_STAT = slice(8, 68)
_KINDS = ("data", "stat", "acl")


@dataclass(frozen=True, slots=True)
class SnapshotDifference:
    """A znode that is not the same: `what` differs, or it is "only left" or "only right"."""

    path: str
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Content:
    """Hashes of all znodes of one snapshot, in the order of the hashes of their paths."""

    keys: Hashes
    parts: dict[str, Hashes]
    paths: pa.ChunkedArray
    order: Ints  # where in `paths` each stands


def compare_snapshots(left: str, right: str) -> list[SnapshotDifference]:
    """What differs between the znodes of two snapshot files, by path.

    Raises CorruptSnapshot if one of them is not whole, and OSError.
    """
    ours, theirs = _read(left), _read(right)
    at = np.searchsorted(theirs.keys, ours.keys)
    at_inside = np.minimum(at, max(len(theirs.keys) - 1, 0))
    shared = theirs.keys[at_inside] == ours.keys if len(theirs.keys) else at < 0
    found: dict[str, list[str]] = {}
    for kind in _KINDS:
        differs = shared & (theirs.parts[kind][at_inside] != ours.parts[kind])
        for path in _paths(ours, np.flatnonzero(differs)):
            found.setdefault(path, []).append(kind)
    for path in _paths(ours, np.flatnonzero(~shared)):
        found[path] = ["only left"]
    missing = np.ones(len(theirs.keys), np.bool_)
    missing[at_inside[shared]] = False
    for path in _paths(theirs, np.flatnonzero(missing)):
        found[path] = ["only right"]
    return [SnapshotDifference(path, tuple(found[path])) for path in sorted(found)]


def _paths(content: _Content, rows: Ints) -> list[str]:
    taken: list[str] = content.paths.take(pa.array(content.order[rows])).to_pylist()
    return taken


def _read(path: str) -> _Content:
    keys: list[Hashes] = []
    parts: dict[str, list[Hashes]] = {kind: [] for kind in _KINDS}
    paths: list[pa.Array] = []
    with open_file(path) as file:
        reader = SnapshotReader(file, Origin(file=path))
        for nodes in reader.nodes():
            view = nodes.view
            # With the length in front: null data is not empty data.
            keys.append(content_hashes(view, nodes.offsets, nodes.data_at))
            parts["data"].append(content_hashes(view, nodes.data_at, nodes.tail))
            stat = nodes.tail + _STAT.start, nodes.tail + _STAT.stop
            parts["stat"].append(content_hashes(view, *stat))
            parts["acl"].append(_acl_hashes(nodes, reader))
            paths.append(nodes.paths())
    joined = np.concatenate(keys) if keys else np.empty(0, np.uint64)
    order = np.argsort(joined, kind="stable")
    sorted_parts = {
        kind: np.concatenate(values)[order] if values else joined for kind, values in parts.items()
    }
    return _Content(joined[order], sorted_parts, pa.chunked_array(paths, pa.string()), order)


def _acl_hashes(nodes: Nodes, reader: SnapshotReader) -> Hashes:
    distinct, codes = np.unique(nodes.view.longs(nodes.tail), return_inverse=True)
    texts = [repr(reader.acl(key)).encode() for key in distinct.tolist()]
    borders = np.cumsum([0, *map(len, texts)])
    return content_hashes(View(b"".join(texts)), borders[:-1], borders[1:])[codes]
