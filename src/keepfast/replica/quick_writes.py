"""The quick way of plain setData requests: from a client's bytes to its reply.

Most writes go this way (tree/plain_sets.py says which). It differs from the general one, of
`Proposer.propose` and `Replica.commit`, in cost alone: one call makes the txn, one loop applies and
answers all that became durable together, and what is counted is counted once for each run of writes
that one client sent together. Whatever is not plain takes the general way; both share one order.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from keepfast.replica.events import tell
from keepfast.replica.proposals import Append, PlainWrite
from keepfast.replica.statistics import DIGEST_INTERVAL, TreeDigest
from keepfast.tree import Caller, Change, ChangeKind, PlainSets, apply_plain_set, wire_stat
from keepfast.wire import OpCode, ServerId, Zxid

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection
    from keepfast.replica.proposer import Proposer
    from keepfast.replica.replica import Replica

_SET_DATA: Final = OpCode.SET_DATA.value
_DATA: Final = ChangeKind.DATA
_REQUEST_HEADER_SIZE: Final = 8
_COUNTER: Final = 0xFFFFFFFF
# A little before the end of an epoch's counter, where the general way looks closer.
_LAST_COUNTER: Final = 0xFFFFFF00

# A reply's length, xid, zxid and error; behind it the 68 bytes of Stat.
_pack_reply: Final = Struct(">iiqi").pack
_REPLY_SIZE: Final = 16 + 68

# The constructor of a NamedTuple takes twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__


class QuickWrites:
    """See the module. A part of a Proposer, for one leader's term."""

    __slots__ = (
        "_installed",
        "_largest",
        "_most_waiting",
        "_prepare",
        "_proposer",
        "_replica",
        "_server_id",
    )

    def __init__(self, replica: Replica, proposer: Proposer, sets: PlainSets) -> None:
        self._replica = replica
        self._proposer = proposer
        self._prepare = sets.prepare
        self._installed = sets.installed
        self._server_id = ServerId(replica.options.server_id)
        # Beyond these the general way decides who has to wait (throttle.py).
        throttle = replica.options.throttle
        self._most_waiting = replica.options.outstanding_limit
        if throttle.max_requests:
            self._most_waiting = min(self._most_waiting, throttle.max_requests)
        self._largest = replica.max_field
        if throttle.large_request_bytes > 0:
            self._largest = min(self._largest, throttle.large_request_bytes)

    def propose(self, connection: Connection, xid: int, payload: bytes) -> bool:
        """Make a txn of a client's setData; False: nothing was done, take the general way."""
        replica, proposer = self._replica, self._proposer
        caller, proposals = connection.caller, proposer.proposals
        zxid: Zxid = proposer.last_proposed + 1  # type: ignore[assignment]  # a call less
        if (
            not replica.is_writable
            or len(proposals) >= self._most_waiting
            or proposer.owners.get(caller.session_id) != self._server_id
            or zxid & _COUNTER >= _LAST_COUNTER
            or len(payload) > self._largest
        ):
            return False
        plain = self._prepare(caller, xid, zxid, replica.wall_ms, payload, _REQUEST_HEADER_SIZE)
        if plain is None:
            return False
        proposer.last_proposed = zxid
        replica.appends.append(_new_tuple(Append, (zxid, plain[0], plain[5])))
        write = PlainWrite(replica.now_ms, xid, _SET_DATA, None, None, 0, zxid, plain, connection)
        proposals.append(write)
        connection.queue.append(write)
        return True

    def propose_forwarded(self, caller: Caller, xid: int, body: bytes) -> bool:
        """The same for a client of another server, which answers it."""
        replica, proposer = self._replica, self._proposer
        zxid = Zxid(proposer.last_proposed + 1)
        if zxid & _COUNTER >= _LAST_COUNTER or len(body) > self._largest:
            return False
        plain = self._prepare(caller, xid, zxid, replica.wall_ms, body, 0)
        if plain is None:
            return False
        proposer.last_proposed = zxid
        replica.appends.append(_new_tuple(Append, (zxid, plain[0], plain[5])))
        proposer.proposals.append(PlainWrite(replica.now_ms, zxid=zxid, plain=plain))
        return True

    def commit(self, up_to: Zxid) -> None:
        """Apply and answer the plain writes that are next in line, up to a zxid."""
        replica, proposals = self._replica, self._proposer.proposals
        statistics, watches, syncs = replica.statistics, replica.watches, replica.syncs
        take_data, installed = replica.tree.take_data, self._installed
        # The last write that was answered, and how many like it are not counted yet.
        last: PlainWrite | None = None
        run = sent = 0
        has_watches, has_syncs = bool(watches), syncs.is_waiting
        while proposals:
            write = proposals[0]
            if type(write) is not PlainWrite or write.zxid > up_to:
                break
            proposals.popleft()
            zxid, connection = write.zxid, write.connection
            _, path, new, before, delta, digest = write.plain
            # Not null: a request with null data is not plain.
            node = take_data(zxid, path, new.data or b"", new.stat, before, delta, digest)
            installed(path, new)
            replica.last_zxid = zxid
            if not zxid % DIGEST_INTERVAL:
                statistics.digests.append(TreeDigest(zxid, digest))
            if has_watches:
                tell(replica, Change(_DATA, path, new.acl), zxid)
            if connection is not None:
                if last is None:
                    run = 1
                elif last.connection is connection and last.since_ms == write.since_ms:
                    run += 1
                else:
                    self._count(last, run)
                    run = 1
                last = write
                reply = _pack_reply(_REPLY_SIZE, write.xid, zxid, 0) + wire_stat(node)
                queue = connection.queue
                # Nothing can be answered behind it, as another write is under way.
                if (
                    queue
                    and queue[0] is write
                    and (len(queue) == 1 or type(queue[1]) is PlainWrite)
                ):
                    queue.popleft()
                    connection.out.append(reply)
                    connection.told += 1
                    sent += 1
                else:
                    # It counts before the reads behind it do: reports show the last one.
                    self._count(last, run)
                    last, run = None, 0
                    replica.answer(connection, write, reply)
                    # A read may have set one.
                    has_watches = bool(watches)
            if has_syncs:
                self._count(last, run)
                last, run = None, 0
                syncs.release(zxid)
                has_watches = bool(watches)
        statistics.told += sent
        self._count(last, run)

    def _count(self, last: PlainWrite | None, run: int) -> None:
        """Count writes that one client sent together, of which this is the last."""
        if last is not None and last.connection is not None:
            replica = self._replica
            replica.dirty.add(last.connection)
            spent_ms = replica.now_ms - last.since_ms
            replica.statistics.updates.add(spent_ms, run)
            last.connection.note(_SET_DATA, last.xid, last.zxid, replica.now_ms, spent_ms, run)


def commit_plain_entry(replica: Replica, entry: bytes) -> bool:
    """Apply and answer a plain write that the leader made; False: nothing was done.

    Raises ReplayConflict.
    """
    forwarder = replica.forwarder
    if forwarder is None or replica.audits is not None:
        return False
    applied = apply_plain_set(replica.tree, entry)
    if applied is None:
        return False
    zxid, session_id, cxid, path, node = applied
    replica.last_zxid = zxid
    tree = replica.tree
    if not zxid % DIGEST_INTERVAL:
        replica.statistics.digests.append(TreeDigest(zxid, tree.digest))
    if replica.watches:
        tell(replica, Change(_DATA, path, tree.acls.lists[node.acl]), zxid)
    connection = replica.connections.get(session_id)
    waiting = None if connection is None else connection.waits_for(cxid)
    if connection is not None and waiting is not None:
        reply = _pack_reply(_REPLY_SIZE, cxid, zxid, 0) + wire_stat(node)
        replica.note(replica.statistics.updates, connection, _SET_DATA, cxid, waiting.since_ms)
        replica.answer(connection, waiting, reply)
    replica.syncs.release(zxid)
    forwarder.release_syncs(zxid)
    return True
