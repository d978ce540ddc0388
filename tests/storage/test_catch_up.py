"""What a learner is sent from the disk: which packets, and from which snapshot."""

from __future__ import annotations

import pytest

from keepfast.quorum import RecordStream, TreeStream
from keepfast.sim import MemoryDisk
from keepfast.storage import fitting_snapshot, is_recent, record_packets, tree_packets
from keepfast.wire import PacketParser, PacketType
from tests.storage.directories import short, zxid
from tests.storage.test_history import store_with_three_segments
from tests.storage.workload import Server


def packets(stream: RecordStream) -> list[tuple[str, str]]:
    parser = PacketParser()
    history = store_with_three_segments()[0].history
    found = [packet for piece in record_packets(history, stream) for packet in parser.feed(piece)]
    return [(PacketType(one.type).name, short(one.zxid)) for one in found]


def test_records_for_an_apache_server__each_is_committed() -> None:
    expected = [(kind, one) for one in ("1.6", "2.1", "2.2") for kind in ("PROPOSAL", "COMMIT")]
    assert packets(RecordStream(zxid("1.5"), zxid("2.2"))) == expected


def test_records_for_one_of_ours__the_last_commit_stands_for_all() -> None:
    found = packets(RecordStream(zxid("1.5"), zxid("2.2"), commits_each=False))
    assert found == [
        *(("PROPOSAL", one) for one in ("1.6", "2.1", "2.2")),
        ("COMMIT", "2.2"),
    ]


@pytest.mark.parametrize("commits_each", [True, False])
def test_many_records__are_cut_into_small_pieces_that_are_committed(commits_each: bool) -> None:
    server = Server(MemoryDisk())
    server.start()
    server.write(*[30_000] * 20)
    history = server.store.history
    parser = PacketParser()
    pieces = list(record_packets(history, RecordStream(zxid("0.0"), history.head, commits_each)))

    # A leader passes each on in one turn of its loop, between two turns of its clients.
    assert len(pieces) > 5
    for piece in pieces:
        found = parser.feed(piece)
        proposed = [one.zxid for one in found if one.type == PacketType.PROPOSAL]
        committed = [one.zxid for one in found if one.type == PacketType.COMMIT]
        assert committed == (proposed if commits_each else proposed[-1:])


def test_snapshot_with_more_log_behind_it_than_a_new_one_would_be__is_not_recent() -> None:
    server = Server(MemoryDisk())
    server.start()
    server.write(20)
    server.snapshot()
    entry = fitting_snapshot(server.store.history, server.store.history.head)
    assert entry is not None
    assert is_recent(server.store.history, entry)

    server.write(*[200_000] * 8)
    assert fitting_snapshot(server.store.history, server.store.history.head) == entry
    assert not is_recent(server.store.history, entry)


def test_tree__is_followed_by_the_records_behind_its_snapshot() -> None:
    history = store_with_three_segments()[0].history
    entry = fitting_snapshot(history, history.head)
    assert entry is not None
    assert short(entry.zxid) == "1.6"
    pieces = list(tree_packets(history, entry, TreeStream(zxid("2.2"), commits_each=False)))
    parser = PacketParser()
    found = parser.feed(pieces[-1])
    assert [(PacketType(one.type).name, short(one.zxid)) for one in found] == [
        ("PROPOSAL", "2.1"),
        ("PROPOSAL", "2.2"),
        ("COMMIT", "2.2"),
    ]
