"""What a store does in its life, one short scenario a kind: each is played with crashes in it.

A scenario has two halves: what has happened before, and what is done while power may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit
from keepfast.storage import Compression, DataDirectory, frame
from keepfast.storage.log_file import LOG_HEADER
from keepfast.wire import Zxid
from tests.cases import CASES_DIR
from tests.storage.workload import ONE_PLACE, TWO_PLACES, Server, other_tree

Act = Callable[[Server], None]


def nothing(_: Server) -> None:
    """No life before."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One piece of a store's life: what came before, and what is done while power may be lost."""

    name: str
    act: Act
    prepare: Act = Server.start
    directory: DataDirectory = ONE_PLACE
    make_disk: Callable[[], MemoryDisk] = MemoryDisk
    is_foreign: bool = False  # others wrote the data: our first look says what is known of them


def first_start(server: Server) -> None:
    server.start()
    server.write(10)


def append_groups(server: Server) -> None:
    server.write(10)
    server.write(20, 0, 30)
    server.append(40)
    server.append(100, 200)
    server.sync()


def append_large(server: Server) -> None:
    server.write(700)
    server.write(900, 5)
    server.write(20, 600)


def roll_by_size(server: Server) -> None:
    server.write(900, 900)
    server.write(400)
    server.write(10, 10)


def roll_on_request(server: Server) -> None:
    server.write(30)
    server.store.roll()
    server.append(30, 600)
    server.sync()
    server.store.confirm()
    server.store.roll()
    server.write(30)


def change_of_epoch(server: Server) -> None:
    server.set_epochs(1, 1)
    server.write(10, 300)
    server.append(20)  # of the old epoch, made durable together with records of the new one
    server.change_epoch()
    server.append(30, 500)
    server.sync()
    server.set_epochs(3, 2)


def records_before_epoch(server: Server) -> None:
    """A learner makes the history of the leader durable, and agrees to its epoch after that."""
    server.set_epochs(3, 2)
    server.epoch = 3
    server.write(30, 500)
    server.set_epochs(3, 3)
    server.write(10)


def snapshot_while_writing(server: Server) -> None:
    server.write(10, 300)
    writer = server.begin_snapshot()
    server.append(20)
    writer.step()
    writer.step()
    server.sync()
    server.append(600)
    entry = server.complete(writer)
    server.sync()
    server.append(30)
    server.store.publish_snapshot(entry)
    server.sync()


def two_snapshots_at_one_zxid(server: Server) -> None:
    server.write(40)
    server.snapshot()
    server.snapshot()
    server.write(40)


def packed_snapshot(server: Server) -> None:
    server.write(40, 300)
    for compression in (Compression.GZIP, Compression.SNAPPY):
        server.store.options = replace(server.store.options, compression=compression)
        server.snapshot()
        server.write(20)


def with_history(server: Server) -> None:
    """Two snapshots, three segments, two epochs, and the third segment open."""
    server.start()
    server.set_epochs(1, 1)
    server.write(10, 300, 500)
    server.snapshot()
    server.store.roll()
    server.write(20, 30)
    server.change_epoch()
    server.write(40, 0, 600)


def install_over_history(server: Server) -> None:
    server.append(50)  # handed over, never acknowledged, and gone with the history it was for
    server.set_epochs(3, 2)
    server.install(other_tree(3, [0, 10, 200]))
    server.set_epochs(3, 3)
    server.write(20, 500)


def install_older(server: Server) -> None:
    """The leader's history ends before ours does: ours had records that nobody committed."""
    server.install(other_tree(1, [0, 20]))
    server.change_epoch()
    server.write(20)


def install_at_own_snapshot(server: Server) -> None:
    """The received state has the zxid, and so the file name, of a snapshot that is there."""
    server.install(other_tree(1, [0, 20, 40]))
    server.write(20)


def install_twice(server: Server) -> None:
    server.set_epochs(4, 2)
    server.install(other_tree(3, [0, 10]))
    server.install(other_tree(4, [0, 10, 20]))


def install_on_empty(server: Server) -> None:
    server.set_epochs(3, 0)
    server.install(other_tree(3, [0, 10, 20]))
    server.set_epochs(3, 3)
    server.write(10)


def open_only(server: Server) -> None:
    server.open()


def with_damage(server: Server) -> None:
    """A history that recovery refuses; the store is open for a snapshot alone."""
    with_history(server)
    server.close()
    flip_bit(server.memory_disk, server.directory.in_logs("log.100000004"), 60)
    server.open()


def install_over_damage(server: Server) -> None:
    server.set_epochs(3, 2)
    server.install(other_tree(3, [0, 10, 200]))
    server.set_epochs(3, 3)
    server.write(20)


def truncate_inside_open_segment(server: Server) -> None:
    server.append(70)
    server.truncate(Zxid(0x2_0000_0001))
    server.change_epoch()
    server.write(20, 600)


def truncate_into_older_segment(server: Server) -> None:
    server.truncate(Zxid(0x1_0000_0004))
    server.change_epoch()
    server.write(20)


def truncate_to_snapshot(server: Server) -> None:
    server.truncate(Zxid(0x1_0000_0003))
    server.change_epoch()
    server.write(20)


def truncate_to_first_snapshot(server: Server) -> None:
    server.truncate(Zxid(0))
    server.change_epoch()
    server.write(20)


def truncate_to_head(server: Server) -> None:
    server.truncate(Zxid(0x2_0000_0003))
    server.change_epoch()
    server.write(20)


def truncate_twice(server: Server) -> None:
    """The first record after each cut has the zxid, and so the file name, of one that went."""
    server.truncate(Zxid(0x2_0000_0002))
    server.truncate(Zxid(0x1_0000_0005))


def cut_and_written_again(server: Server) -> None:
    """An epoch that was cut off as a whole starts over: its log has the same name."""
    server.truncate(Zxid(0x1_0000_0005))
    server.epoch = 2
    server.write(60, 500)


def epochs(server: Server) -> None:
    server.set_epochs(1, 1)
    server.set_epochs(2, 1)
    server.set_epochs(2, 2)
    server.set_epochs(10, 9)


def with_much_history(server: Server) -> None:
    """Four snapshots, of which two may go."""
    server.start()
    server.set_epochs(1, 1)
    for _ in range(3):
        server.write(300, 300)
        server.store.roll()
        server.write(20)
        server.snapshot()
    server.write(30)


def purge(server: Server) -> None:
    assert server.store.purge(2)
    server.write(10)
    assert server.store.purge(1)
    server.write(10)


def with_files_aside(server: Server) -> None:
    with_history(server)
    server.set_epochs(3, 2)
    server.install(other_tree(3, [0, 10]))
    server.set_epochs(3, 3)
    server.write(10)
    server.snapshot()


def purge_files_aside(server: Server) -> None:
    assert server.store.purge(1)
    server.write(10)


def close_and_open(server: Server) -> None:
    server.append(10, 500)
    server.close()
    server.open()
    server.write(20)
    server.close()
    server.open()


@cache
def _apache_files(case: str, server_id: str) -> dict[str, bytes]:
    folder = CASES_DIR / case / server_id / "version-2"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def apache_disk(case: str, server_id: str, directory: DataDirectory = ONE_PLACE) -> MemoryDisk:
    """A disk with the data directory of an Apache server on it."""
    disk = MemoryDisk()
    for name, data in _apache_files(case, server_id).items():
        disk.put(directory.path_of(name), data)
    return disk


def take_over(server: Server) -> None:
    server.open()
    server.write(20)


def found_by_a_first_look(server: Server) -> None:
    """What the directory holds counts as acknowledged from the start."""
    other = Server(server.memory_disk.clone(), server.directory)
    other.open()
    server.ledger.begin_at(other.ledger.acknowledged, other.ledger.expectation.least)


def _apache(case: str, server_id: str) -> Scenario:
    return Scenario(
        f"take over {case}/{server_id}",
        take_over,
        found_by_a_first_look,
        make_disk=lambda: apache_disk(case, server_id),
        is_foreign=True,
    )


def after_apache(server: Server) -> None:
    """A history of ours that Apache continued with: a log that our manifest knows nothing of."""
    with_history(server)
    server.close()
    other = Server(server.memory_disk.clone(), server.directory)
    other.open()
    other.write(30, 400)
    records = other.store.history.records_after(server.ledger.acknowledged.zxid)
    assert records is not None
    frames = [frame(record.entry) for record in records]
    data = LOG_HEADER + b"".join(frames) + bytes(512)
    server.memory_disk.put(server.directory.in_logs("log.200000004"), data)
    server.ledger.begin_at(other.ledger.acknowledged, other.ledger.expectation.least)


SCENARIOS = [
    Scenario("first start", first_start, nothing),
    Scenario("append groups", append_groups),
    Scenario("append large records", append_large),
    Scenario("roll by size", roll_by_size),
    Scenario("roll on request", roll_on_request),
    Scenario("change of epoch", change_of_epoch),
    Scenario("records before the epoch", records_before_epoch, with_history),
    Scenario("snapshot while writing", snapshot_while_writing),
    Scenario("two snapshots at one zxid", two_snapshots_at_one_zxid),
    Scenario("packed snapshots", packed_snapshot),
    Scenario("install over a history", install_over_history, with_history),
    Scenario("install an older state", install_older, with_history),
    Scenario("install at a snapshot's zxid", install_at_own_snapshot, with_history),
    Scenario("install twice", install_twice, with_history),
    Scenario("install on nothing", install_on_empty, open_only),
    Scenario("install over damage", install_over_damage, with_damage),
    Scenario("truncate the open segment", truncate_inside_open_segment, with_history),
    Scenario("truncate an older segment", truncate_into_older_segment, with_history),
    Scenario("truncate to a snapshot", truncate_to_snapshot, with_history),
    Scenario("truncate to the first snapshot", truncate_to_first_snapshot, with_history),
    Scenario("truncate to the head", truncate_to_head, with_history),
    Scenario("truncate twice", truncate_twice, with_history),
    Scenario("truncate and write again", cut_and_written_again, with_history),
    Scenario("epochs", epochs),
    Scenario("purge", purge, with_much_history),
    Scenario("purge files aside", purge_files_aside, with_files_aside),
    Scenario("close and open", close_and_open),
    Scenario("append, two places", append_groups, directory=TWO_PLACES),
    Scenario("install, two places", install_over_history, with_history, TWO_PLACES),
    Scenario("truncate, two places", truncate_into_older_segment, with_history, TWO_PLACES),
    Scenario("purge, two places", purge, with_much_history, TWO_PLACES),
    Scenario("take over after Apache", take_over, after_apache, is_foreign=True),
    _apache("healthy-elections-3.9.5", "0"),
    _apache("healthy-latent-3.4.14", "2"),
    _apache("healthy-latent-3.4.14", "1"),
]
