"""How many connections get in: from one address, in all, and when a place is free again."""

from __future__ import annotations

from keepfast.replica import Connection, Replica, ReplicaOptions
from keepfast.tree import Tree


def replica_with(*, per_address: int = 0, total: int = 0) -> Replica:
    options = ReplicaOptions(max_connections_per_address=per_address, max_connections=total)
    return Replica(Tree(), options, 1000, 1_790_000_000_000)


def connected(replica: Replica, address: str) -> Connection:
    connection = replica.connect(address, 1)
    assert connection is not None
    return connection


def test_address_with_too_many__is_turned_away_and_others_are_not() -> None:
    replica = replica_with(per_address=2)
    first, _ = connected(replica, "10.0.0.1"), connected(replica, "10.0.0.1")

    assert replica.connect("10.0.0.1", 1) is None
    connected(replica, "10.0.0.2")
    replica.lost(first)
    connected(replica, "10.0.0.1")
    assert replica.connect("10.0.0.1", 1) is None


def test_too_many_in_all__are_turned_away_wherever_they_come_from() -> None:
    replica = replica_with(total=2)
    first, _ = connected(replica, "10.0.0.1"), connected(replica, "10.0.0.2")

    assert replica.connect("10.0.0.3", 1) is None
    replica.lost(first)
    connected(replica, "10.0.0.3")


def test_connection_that_is_closed__has_its_place_until_it_is_gone() -> None:
    replica = replica_with(per_address=1)
    first = connected(replica, "10.0.0.1")
    replica.close(first, "a reason")

    assert replica.connect("10.0.0.1", 1) is None
    replica.lost(first)
    replica.lost(first)
    connected(replica, "10.0.0.1")
    assert replica.connect("10.0.0.1", 1) is None


def test_those_on_their_way__have_their_places() -> None:
    limits = replica_with(per_address=3, total=5).limits

    assert limits.has_place("10.0.0.1", 2, 4)
    assert not limits.has_place("10.0.0.1", 3, 3)
    assert not limits.has_place("10.0.0.1", 0, 5)


def test_no_limits__everybody_gets_in() -> None:
    replica = replica_with()
    for _ in range(200):
        connected(replica, "10.0.0.1")
