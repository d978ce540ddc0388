"""The form of a snapshot's tree by columns: is a tree needed to look closer (A10, A12)?

Of long histories no tree is built where sums prove them, so nobody would see a znode that no
sequence of transactions makes, if all servers have it.  Here each snapshot is asked for such.  What
its window touched is left out: there a healthy snapshot may be of two moments.  The tree's own
rules (`replay.trees`) say what is wrong; this only says where to look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepfast.pipeline.decode.events import NO_ACL, Rows, builtin_rows
from keepfast.pipeline.decode.gather import Bools, Ints
from keepfast.pipeline.decode.path_keys import RESERVED
from keepfast.tree import CONTAINER_OWNER, MAX_CVERSION, ttl_owner

ZNODE_FORM = np.dtype(
    [
        *(("path", "u8"), ("pzxid", "i8"), ("cversion", "i4"), ("is_ephemeral", "?")),
        ("is_own", "?"),  # Apache's or the root: its stat follows other rules
        ("place", "i8"),  # in the order of the file
    ]
)
# What some znodes say about a parent of theirs; `count` and `newest` are of those that the window
# of the snapshot did not touch, `place` is that of the first one.
CHILDREN = np.dtype([("parent", "u8"), ("newest", "i8"), ("count", "i8"), ("place", "i8")])


@dataclass(frozen=True, slots=True)
class FormRows:
    """What has to be known of some znodes, to be put together by path and by parent."""

    znodes: Rows
    children: Rows
    is_odd: bool  # one of them is as no sequence of transactions makes it, whatever the others


def form_rows(rows: Rows, zxid: int, sessions: Ints, place: int) -> FormRows:
    """The form of some znodes of a snapshot with that zxid and these sessions, from a place on."""
    stat = rows["stat"]
    czxid, owner = stat["czxid"].astype(np.int64), stat["owner"].astype(np.int64)
    is_own = (rows["marks"] & RESERVED != 0) | np.isin(rows["path"], builtin_rows()["path"])
    is_ephemeral = _ephemerals(owner)
    settled = czxid <= zxid
    is_odd = bool(((stat["mzxid"] < czxid) & ~is_own).any())
    is_odd |= not np.isin(owner[is_ephemeral & settled], sessions).all()
    is_odd |= bool((rows["weight"] == NO_ACL).any())
    znodes = np.zeros(len(rows), ZNODE_FORM)
    znodes["path"], znodes["pzxid"] = rows["path"], stat["pzxid"]
    znodes["cversion"], znodes["is_ephemeral"] = stat["cversion"], is_ephemeral
    znodes["is_own"] = is_own
    znodes["place"] = np.arange(place, place + len(rows))
    counted = settled & ~is_own
    parents, firsts, codes = np.unique(rows["parent"], return_index=True, return_inverse=True)
    children = np.zeros(len(parents), CHILDREN)
    children["parent"], children["place"] = parents, firsts + place
    children["count"] = np.bincount(codes[counted], minlength=len(parents))
    newest = np.zeros(len(parents), np.int64)
    np.maximum.at(newest, codes[counted], czxid[counted])
    children["newest"] = newest
    return FormRows(znodes, children, is_odd)


def is_tree(znodes: Rows, children: Rows) -> bool:
    """Whether each path is there once, and each parent is there, before its children.

    Apache does not start on a snapshot that has a child first. The root is its own parent here.
    """
    order = np.argsort(znodes["path"])
    paths, places = znodes["path"][order], znodes["place"][order]
    at = np.minimum(np.searchsorted(paths, children["parent"]), max(len(paths) - 1, 0))
    is_behind = (paths[at] == children["parent"]) & (places[at] <= children["place"])
    return bool((paths[1:] != paths[:-1]).all() and is_behind.all())


def is_odd(znodes: Rows, children: Rows) -> bool:
    """Whether some parent is as no sequence of transactions makes it."""
    order = np.argsort(children["parent"])
    parents, starts = np.unique(children["parent"][order], return_index=True)
    if not len(parents):
        return False
    newest = np.maximum.reduceat(children["newest"][order], starts)
    counts = np.add.reduceat(children["count"][order], starts)
    place = np.minimum(np.searchsorted(parents, znodes["path"]), len(parents) - 1)
    has_children = (parents[place] == znodes["path"]) & (counts[place] > 0) & ~znodes["is_own"]
    cversion = znodes["cversion"]
    wrong = (znodes["pzxid"] < newest[place]) & (cversion != MAX_CVERSION)
    wrong |= znodes["is_ephemeral"]
    wrong |= (cversion >= 0) & (cversion < counts[place])
    return bool((has_children & wrong).any())


def _ephemerals(owner: Ints) -> Bools:
    """Whether these are owners of ephemeral znodes; see `tree.kind_of`."""
    is_ttl = owner >> 40 == ttl_owner(0) >> 40
    found: Bools = (owner != 0) & (owner != CONTAINER_OWNER) & ~is_ttl
    return found
