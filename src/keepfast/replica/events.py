"""Who is notified of a change, and what a client missed while it was away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from keepfast.replica.audit import AuditRecord
from keepfast.replica.connection import Connection, MissedEvent
from keepfast.replica.event_gate import EventGate
from keepfast.replica.service import Service
from keepfast.tree import LIGHT, Change, Tree, WatchKind, is_allowed, mzxid_of, pzxid_of
from keepfast.wire import EventType, MalformedRecord, Perms, Reader, encode_event

_LENGTH_SIZE: Final = 4
# Paths that are read while one watch could be set.
_READ_AT_ONCE: Final = 2
_path_of: Final[Callable[[Change], str]] = attrgetter("path")


def tell(service: Service, change: Change, zxid: int, spared: Collection[Connection] = ()) -> None:
    """Notify watchers that may read the znode; a one-time watch is used up in any case.

    `spared`: clients whose watches are later than the change.
    """
    statistics = service.statistics
    for alert in service.watches.trigger(change, spared):
        frame = encode_event(alert.type, alert.path, zxid)
        statistics.watchers_told[alert.type].add(len(alert.watchers))
        service.spent += len(alert.watchers)
        for watcher in alert.watchers:
            if service.skips_acls or is_allowed(alert.acl, Perms.READ, watcher.ids):
                statistics.watch_bytes += len(frame) - _LENGTH_SIZE
                service.send(watcher, frame)


def tell_in_slices(
    service: Service,
    gate: EventGate,
    zxid: int,
    changes: Sequence[Change],
    records: Iterator[AuditRecord],
) -> Iterator[None]:
    """Notify watchers of a txn with very many changes, and have it audited, some in each turn."""
    size = service.options.prepare.slice_size
    left = iter(changes)
    if changes and service.watches.has_recursive:
        above: set[str] = set()
        concerned = chain.from_iterable(map(service.watches.levels, map(_path_of, changes)))
        while some := set(islice(concerned, LIGHT * size)):
            above |= some
            yield
        gate.refine(above)
        service.unfinished.update(gate.held)
    is_over = False
    while not is_over:
        most, is_told = service.spent + size, True
        for change in left:
            service.spent += 1
            tell(service, change, zxid, gate.spared)
            if service.spent >= most:
                is_told = False
                break
        if is_told:
            service.unfinished.update(gate.open())
        written = list(islice(records, size))
        if service.audits is not None:
            service.audits += written
        is_over = is_told and len(written) < size
        if not is_over:
            yield


def missed_events(
    tree: Tree, payload: bytes, offset: int, lists: int
) -> Iterator[MissedEvent | None]:
    """Each watch that a client re-registers, with the event it missed; no event: set the watch.

    None stands for some that were read: a request of a megabyte has very many. Raises
    MalformedRecord before the first watch.
    """
    reader = Reader(payload, offset)
    since = reader.read_long("relativeZxid")
    paths: list[list[str]] = []
    for _ in range(lists):
        paths.append([])
        for number in range(reader.read_count(_LENGTH_SIZE, "watches") or 0):
            path = reader.read_string("path of a watch")
            if path is None:
                raise MalformedRecord("null path of a watch", reader.offset)
            paths[-1].append(path)
            if not number % _READ_AT_ONCE:
                yield None
    data, exist, child, *persistent = paths
    for path in data:
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.DATA, path, EventType.NODE_DELETED
        elif mzxid_of(node.stat) > since:
            yield WatchKind.DATA, path, EventType.NODE_DATA_CHANGED
        else:
            yield WatchKind.DATA, path, None
    for path in exist:
        found = tree.find(path or "/") is not None
        yield WatchKind.DATA, path, EventType.NODE_CREATED if found else None
    for path in child:
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.CHILD, path, EventType.NODE_DELETED
        elif pzxid_of(node.stat) > since:
            yield WatchKind.CHILD, path, EventType.NODE_CHILDREN_CHANGED
        else:
            yield WatchKind.CHILD, path, None
    for kind, listed in zip((WatchKind.PERSISTENT, WatchKind.RECURSIVE), persistent, strict=False):
        for path in listed:
            yield kind, path, None
