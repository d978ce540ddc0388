"""The bodies of many txns at once: where each field lies, and what the fixed ones hold.

For each kind of body a few steps of numpy find the fields of all bodies of that kind. A body that
fails any check on the way is left out (`ok` is false) and goes to `wire.decode_entry`, which says
what is wrong with it, or knows it as one of the rare old forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keepfast.pipeline.decode.gather import Bools, Ints, View
from keepfast.wire import OpCode

_DIGEST_SIZE = 12
_DIGEST_VERSION = 2
_MIN_ACL = 12
# A longer list goes the slow way: each element costs a pass.
MAX_ELEMENTS = 256
ABSENT = -1


@dataclass(slots=True)
class Bodies:
    """Fields of `n` bodies; a length of -1 means that there is no such field, or that it is null.

    Of number fields those are set that the type has.
    """

    types: Ints
    ok: Bools
    end: Ints  # after the body
    path: Ints
    path_length: Ints
    data: Ints
    data_length: Ints
    acl: Ints
    acl_length: Ints
    version: Ints
    parent_cversion: Ints
    ttl: Ints
    error: Ints
    timeout: Ints
    ephemeral: Bools
    count: Ints  # of a list: the paths of a closed session, the operations of a multi

    def has(self, *types: int) -> Bools:
        """Which bodies are of one of these types."""
        found: Bools = self.types == types[0]
        for type_ in types[1:]:
            found |= self.types == type_
        return found


@dataclass(slots=True)
class _Field:
    """Strings or buffers: where their content begins, their length, what follows."""

    start: Ints
    length: Ints
    behind: Ints
    ok: Bools


def locate_bodies(
    view: View, types: Ints, starts: Ints, ends: Ints, *, inside_multi: bool = False
) -> Bodies:
    """Find the fields of bodies that lie in [starts, ends), in the order of the buffer."""
    count = len(types)

    def zeros() -> Ints:
        return np.zeros(count, np.int64)

    def absent() -> Ints:
        return np.full(count, ABSENT, np.int64)

    bodies = Bodies(
        types=types,
        ok=np.zeros(count, np.bool_),
        end=starts.copy(),
        path=starts.copy(),
        path_length=absent(),
        data=starts.copy(),
        data_length=absent(),
        acl=starts.copy(),
        acl_length=absent(),
        version=zeros(),
        parent_cversion=zeros(),
        ttl=zeros(),
        error=zeros(),
        timeout=zeros(),
        ephemeral=np.zeros(count, np.bool_),
        count=absent(),
    )
    for value, locate in _locators(inside_multi).items():
        rows = np.flatnonzero(types == value)
        if len(rows):
            locate(view, bodies, rows, starts[rows], ends[rows])
    if inside_multi:
        # Bytes after the body of an operation would leave no trace.
        bodies.ok &= bodies.end == ends
    return bodies


_Locate = Callable[[View, Bodies, Ints, Ints, Ints], None]


def _locators(inside_multi: bool) -> dict[int, _Locate]:
    """How bodies are taken apart, by type: those that stand alone, or those inside a multi."""
    return _BOTH | (_INSIDE if inside_multi else _ALONE)


def _field(view: View, positions: Ints, ends: Ints) -> _Field:
    start = positions + 4
    length = view.ints(np.minimum(positions, view.size - 1))
    behind = start + np.maximum(length, 0)
    ok = (start <= ends) & (length >= -1) & (behind <= ends)
    behind = np.where(ok, behind, ends)
    return _Field(np.where(ok, start, positions), np.where(ok, length, ABSENT), behind, ok)


def _set_path(bodies: Bodies, rows: Ints, field: _Field) -> Bools:
    bodies.path[rows] = field.start
    bodies.path_length[rows] = field.length
    # A null path stands for nothing; wire refuses it with the right words.
    return field.ok & (field.length >= 0)


def _locate_create(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    path = _field(view, starts, ends)
    ok = _set_path(bodies, rows, path)
    data = _field(view, path.behind, ends)
    bodies.data[rows], bodies.data_length[rows] = data.start, data.length
    acl_end, acl_ok = _skip_acls(view, data.behind, ends)
    bodies.acl[rows] = data.behind
    bodies.acl_length[rows] = acl_end - data.behind
    ok &= data.ok & acl_ok
    position = acl_end
    type_ = int(bodies.types[rows[0]])
    if type_ in (OpCode.CREATE, OpCode.CREATE2):
        flag = view.octets(position)
        ok &= flag <= 1
        bodies.ephemeral[rows] = flag == 1
        position = position + 1
    bodies.parent_cversion[rows] = view.ints(position)
    position = position + 4
    if type_ == OpCode.CREATE_TTL:
        bodies.ttl[rows] = view.longs(position)
        position = position + 8
    bodies.end[rows] = position
    bodies.ok[rows] = ok & (position <= ends)


def _skip_acls(view: View, positions: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """Where lists of ACLs end; only the lengths are looked at, see `txns`."""
    counts = view.ints(np.minimum(positions, view.size - 1))
    behind = positions + 4
    ok = (behind <= ends) & (counts >= -1) & (counts <= MAX_ELEMENTS)
    ok &= behind + np.maximum(counts, 0) * _MIN_ACL <= ends
    left = np.where(ok, np.maximum(counts, 0), 0)
    behind = np.where(ok, behind, positions)
    active = np.flatnonzero(left)
    while len(active):
        scheme = _field(view, behind[active] + 4, ends[active])
        name = _field(view, scheme.behind, ends[active])
        behind[active] = name.behind
        ok[active] &= scheme.ok & name.ok
        left[active] -= 1
        active = active[(left[active] > 0) & ok[active]]
    return behind, ok


def _locate_delete(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    path = _field(view, starts, ends)
    bodies.ok[rows] = _set_path(bodies, rows, path)
    bodies.end[rows] = path.behind


def _locate_set_data(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    path = _field(view, starts, ends)
    ok = _set_path(bodies, rows, path)
    data = _field(view, path.behind, ends)
    bodies.data[rows], bodies.data_length[rows] = data.start, data.length
    _set_version(view, bodies, rows, data.behind, (ok & data.ok, ends))


def _set_version(
    view: View, bodies: Bodies, rows: Ints, positions: Ints, limits: tuple[Bools, Ints]
) -> None:
    ok, ends = limits
    bodies.version[rows] = view.ints(positions)
    bodies.end[rows] = positions + 4
    bodies.ok[rows] = ok & (positions + 4 <= ends)


def _locate_check(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    path = _field(view, starts, ends)
    ok = _set_path(bodies, rows, path)
    _set_version(view, bodies, rows, path.behind, (ok, ends))


def _locate_set_acl(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    path = _field(view, starts, ends)
    ok = _set_path(bodies, rows, path)
    behind, acl_ok = _skip_acls(view, path.behind, ends)
    bodies.acl[rows] = path.behind
    bodies.acl_length[rows] = behind - path.behind
    _set_version(view, bodies, rows, behind, (ok & acl_ok, ends))


def _locate_error(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    bodies.error[rows] = view.ints(starts)
    bodies.end[rows] = starts + 4
    bodies.ok[rows] = starts + 4 <= ends


def _locate_create_session(
    view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints
) -> None:
    bodies.timeout[rows] = view.ints(starts)
    bodies.end[rows] = starts + 4
    bodies.ok[rows] = starts + 4 <= ends


def _locate_close_session(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    counts = view.ints(np.minimum(starts, view.size - 1))
    # Before 3.6 there was no list; then nothing follows, or a digest alone (wire.txns).
    bare = starts == ends
    bare |= (ends - starts == _DIGEST_SIZE) & (counts == _DIGEST_VERSION)
    listed = ~bare & (starts + 4 <= ends) & (counts >= 0) & (counts <= MAX_ELEMENTS)
    behind = np.where(listed, starts + 4, starts)
    left = np.where(listed, counts, 0)
    ok = bare | listed
    active = np.flatnonzero(left)
    while len(active):
        path = _field(view, behind[active], ends[active])
        behind[active] = path.behind
        ok[active] &= path.ok & (path.length >= 0)
        left[active] -= 1
        active = active[(left[active] > 0) & ok[active]]
    bodies.count[rows] = np.where(listed, counts, ABSENT)
    bodies.end[rows] = behind
    bodies.ok[rows] = ok


def _locate_multi(view: View, bodies: Bodies, rows: Ints, starts: Ints, ends: Ints) -> None:
    counts = view.ints(np.minimum(starts, view.size - 1))
    ok = (starts + 4 <= ends) & (counts >= 0) & (counts <= MAX_ELEMENTS)
    bodies.count[rows] = np.where(ok, counts, 0)
    operations = locate_operations(view, starts, ends, np.where(ok, counts, 0))
    bodies.end[rows] = np.where(ok, operations.behind, starts)
    bodies.ok[rows] = ok & operations.ok


_BOTH: dict[int, _Locate] = {
    OpCode.CREATE: _locate_create,
    OpCode.CREATE2: _locate_create,
    OpCode.CREATE_CONTAINER: _locate_create,
    OpCode.CREATE_TTL: _locate_create,
    OpCode.DELETE: _locate_delete,
    OpCode.DELETE_CONTAINER: _locate_delete,
    OpCode.SET_DATA: _locate_set_data,
    OpCode.ERROR: _locate_error,
}
_INSIDE: dict[int, _Locate] = {OpCode.CHECK: _locate_check}
_ALONE: dict[int, _Locate] = {
    OpCode.RECONFIG: _locate_set_data,
    OpCode.SET_ACL: _locate_set_acl,
    OpCode.CREATE_SESSION: _locate_create_session,
    OpCode.CLOSE_SESSION: _locate_close_session,
    OpCode.MULTI: _locate_multi,
}


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of many multis, in the order of the buffer; `rows` says whose each is."""

    rows: Ints
    types: Ints
    starts: Ints
    ends: Ints
    behind: Ints  # for each multi: where its last operation ends
    ok: Bools  # for each multi: whether the chain of its operations is whole


def locate_operations(view: View, starts: Ints, ends: Ints, counts: Ints) -> Operations:
    """Find the operations of multis whose bodies lie in [starts, ends)."""
    behind = starts + 4
    ok = np.ones(len(starts), np.bool_)
    left = counts.copy()
    active = np.flatnonzero(left)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    while len(active):
        types = view.ints(np.minimum(behind[active], view.size - 1))
        body = _field(view, behind[active] + 4, ends[active])
        good = body.ok & (body.length >= 0)
        ok[active] &= good
        behind[active] = body.behind
        found.append((active[good], types[good], body.start[good], body.behind[good]))
        left[active] -= 1
        active = active[(left[active] > 0) & good]
    empty = np.empty(0, np.int64)
    rows, types, firsts, lasts = (
        tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
        if found
        else (empty, empty, empty, empty)
    )
    order = np.argsort(firsts, kind="stable")
    return Operations(rows[order], types[order], firsts[order], lasts[order], behind, ok)
