"""The quick way of plain writes: nobody can tell it from the general one."""

from __future__ import annotations

from random import Random

import pytest

from keepfast.replica import Append, Connection, ReplicaOptions
from keepfast.tree import PrepareOptions, ReplayConflict, Tree, apply_plain_set
from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    ErrorCode,
    GetDataRequest,
    OpCode,
    SetDataRequest,
    SyncRequest,
    decode_entry,
    encode,
    encode_int,
)
from tests.replica.machine import Client, Machine
from tests.tree.wishes import Wisher

OPTIONS = ReplicaOptions(
    tick_ms=1000,
    min_session_timeout_ms=2000,
    max_session_timeout_ms=60_000,
    prepare=PrepareOptions(is_ttl_enabled=True),
)


class Twin:
    """A replica with a few clients, and all that came out of it."""

    def __init__(self, *, is_quick: bool, clients: int = 3) -> None:
        self.machine = Machine(OPTIONS)
        self.replica = self.machine.replica
        self.proposer = self.replica.proposer
        assert self.proposer is not None
        if not is_quick:
            self.proposer.quick = None
        self.records: list[Append] = []
        self.clients = [Client(self.machine) for _ in range(clients)]
        self.become_durable(1 << 40)

    def become_durable(self, up_to: int) -> None:
        """Records up to a zxid are stored; those that they lead to wait for the next time."""
        taken = [record for record in self.replica.service.appends if record.zxid <= up_to]
        del self.replica.service.appends[: len(taken)]
        self.records += taken
        if taken:
            self.replica.log_durable(taken[-1].zxid)

    def frames(self) -> list[list[bytes]]:
        return [client.take() for client in self.clients]

    def counts(self) -> list[object]:
        """What reports show."""
        statistics = self.replica.statistics
        connections = [client.connection for client in self.clients]
        return [
            (statistics.sent, statistics.updates.count, statistics.slow_reads.count),
            list(statistics.digests),
            [_shown(connection) for connection in connections],
        ]


def _shown(connection: Connection) -> tuple[object, ...]:
    waits = connection.waits
    return (
        *(connection.sent, connection.received, waits.count, waits.total, waits.greatest),
        *(connection.last_op, connection.last_xid, connection.last_zxid, connection.last_ms),
        len(connection.queue),
    )


def _plain_set(random: Random) -> bytes:
    path = "".join(f"/{random.choice('abcd')}" for _ in range(random.choice((1, 1, 2))))
    data = random.randbytes(random.choice((0, 3, 50)))
    return encode(SetDataRequest(path, data, random.choice((-1, -1, -1, 0, 3))))


def _request(random: Random, wisher: Wisher) -> tuple[int, bytes]:
    match random.randrange(12):
        case 0 | 1:
            wish = wisher.wish()
            return wish.type, wish.encode()
        case 2 | 3 | 4:
            watch = random.random() < 0.3
            return OpCode.GET_DATA, encode(GetDataRequest(f"/{random.choice('abcd')}", watch))
        case 5:
            return OpCode.SYNC, encode(SyncRequest("/a"))
        case _:
            return OpCode.SET_DATA, _plain_set(random)


@pytest.mark.parametrize("seed", range(12))
def test_any_requests__records_replies_events_counts_and_tree_are_the_same(seed: int) -> None:
    random = Random(seed)
    wisher = Wisher(random, is_harmless=False)
    twins = (Twin(is_quick=True), Twin(is_quick=False))
    assert twins[0].frames() == twins[1].frames()
    plain = 0
    for xid in range(1, 1500):
        who = random.randrange(3)
        op, body = _request(random, wisher)
        if random.random() < 0.02:
            body = body[: random.randrange(len(body) + 1)] + random.randbytes(random.randrange(3))
        for twin in twins:
            twin.clients[who].send_raw(encode_int(xid) + encode_int(int(op)) + body)
        if random.random() < 0.1:
            for twin in twins:
                twin.machine.advance(7)
        if random.random() < 0.2:
            appends = twins[0].replica.service.appends
            up_to = random.choice(appends).zxid if appends else 0
            for twin in twins:
                twin.become_durable(up_to)
            assert twins[0].frames() == twins[1].frames()
            assert twins[0].counts() == twins[1].counts()
        proposals = twins[0].replica.service.proposals
        plain = max(plain, sum(hasattr(one, "plain") for one in proposals))
    for twin in twins:
        twin.become_durable(1 << 60)
    assert twins[0].frames() == twins[1].frames()
    assert twins[0].records == twins[1].records
    trees = [twin.replica.tree for twin in twins]
    assert trees[0].digest == trees[1].digest
    assert trees[0].state_digest == trees[1].state_digest
    assert trees[0].data_size == trees[1].data_size
    assert plain > 1, "the quick way was not taken"


@pytest.mark.parametrize("seed", range(4))
def test_learner__has_the_same_tree_by_either_way(seed: int) -> None:
    random = Random(seed)
    wisher = Wisher(random, is_harmless=False)
    leader = Twin(is_quick=True)
    for xid in range(1, 1000):
        op, body = _request(random, wisher)
        leader.clients[0].send_raw(encode_int(xid) + encode_int(int(op)) + body)
    leader.become_durable(1 << 60)
    quick, general = Tree(), Tree()
    taken = 0
    for _, record, _ in leader.records:
        entry = decode_entry(record)
        general.apply(entry.header, entry.body)
        if apply_plain_set(quick, record) is None:
            quick.apply(entry.header, entry.body)
        else:
            taken += 1
        assert (quick.digest, quick.state_digest) == (general.digest, general.state_digest)
        assert quick.last_zxid == general.last_zxid
    assert taken > 30


def _prepared(tree_is_changed: bool) -> Twin:
    twin = Twin(is_quick=True, clients=1)
    client = twin.clients[0]
    client.send(1, OpCode.CREATE, CreateRequest("/a", b"1", OPEN_ACL, 0))
    twin.become_durable(1 << 60)
    client.send(2, OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    if tree_is_changed:
        node = twin.replica.tree.find("/a")
        assert node is not None
        node.put_stat(node.stat[:-1] + b"\1")
    return twin


def test_tree_that_is_not_the_one_it_was_prepared_on__is_refused() -> None:
    twin = _prepared(tree_is_changed=True)
    with pytest.raises(ReplayConflict):
        twin.become_durable(1 << 60)
    twin = _prepared(tree_is_changed=False)
    twin.replica.tree.digest ^= 1
    with pytest.raises(ReplayConflict):
        twin.become_durable(1 << 60)


def test_learner_whose_tree_differs__does_not_take_the_quick_way() -> None:
    twin = _prepared(tree_is_changed=False)
    twin.become_durable(1 << 60)
    other = Tree()
    for _, record, _ in twin.records[:-1]:
        entry = decode_entry(record)
        other.apply(entry.header, entry.body)
    other.digest ^= 1
    assert apply_plain_set(other, twin.records[-1][1]) is None
    node = other.find("/a")
    assert node is not None
    assert node.data == b"1"


def test_write_of_a_closed_session__is_refused_as_ever() -> None:
    twin = _prepared(tree_is_changed=False)
    client = twin.clients[0]
    client.send(3, OpCode.CLOSE_SESSION)
    client.send(4, OpCode.SET_DATA, SetDataRequest("/a", b"3", -1))
    twin.become_durable(1 << 60)
    assert decode_entry(twin.records[-1][1]).body == (ErrorCode.SESSION_EXPIRED,)
