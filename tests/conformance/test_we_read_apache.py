"""Directories that a live Apache 3.9.5 wrote, under load, over restarts, kills and elections.

What Keepfast reads from the files of a dead server must be what the server served, and what a new
server makes of a copy of them. (Directories of 3.4.14 and 3.6 are among the cases: test_cases.py.)
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.storage import (
    Recovery,
    Severity,
    Standing,
    Store,
    StoreOptions,
    load_tree,
    parse_snapshot_name,
)
from keepfast.tree import Tree
from keepfast.wire import Zxid
from tests.apache import ApacheEnsemble, ApacheServer, History, wait_until
from tests.conformance.judging import (
    DISK,
    assert_equal,
    assert_judged_equal,
    assert_read_as_served,
    digest_mismatches,
    directory_of,
    judge,
    recovered,
    scaled,
    seeded,
    seen_by_clients,
    serve,
    without_config,
    without_statistics,
)
from tests.conformance.waiting import (
    PATIENCE_SECONDS,
    settle_on_disk,
    wait_for_records,
)

# Minutes where Java has to share a core; none of the waits below may be cut short by this one.
pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(900)]

TURNS = 4
ENDLESS = 1_000_000_000
OLDER_SNAPSHOTS = scaled(10)
# So that several snapshots are taken while each round writes.
SNAP_COUNT = {"zookeeper.snapCount": "1500"}


class Reader:
    """Reads a directory after each end of a server; all that is reported has to be explained."""

    def __init__(self, path: Path, *notes: str) -> None:
        self.path = path
        self._notes = {"torn-tail", *notes}
        # Apache writes snapshots under their final names, and neither a kill nor SIGTERM waits for
        # the one that is being written.
        self._cut_short: set[str] = set()

    def note_end(self) -> None:
        """The server has just ended, and is not read before it starts again."""
        self._cut_short.update(map(str, self.snapshots()[-1:]))

    def read(self) -> Recovery:
        self.note_end()
        recovery = recovered(self.path)
        report = "\n".join([recovery.standing.value, *map(str, recovery.problems)])
        assert recovery.standing is Standing.WHOLE, report
        for problem in recovery.problems:
            if problem.code == "snapshot-damaged" and problem.file is not None:
                assert problem.file in self._cut_short, report
            else:
                assert problem.severity is Severity.NOTE, report
                assert problem.code in self._notes, report
        return recovery

    def snapshots(self) -> list[Path]:
        """The snapshots, oldest first."""
        return sorted((self.path / "version-2").glob("snapshot.*"), key=_zxid_of)


def _tree_of(recovery: Recovery) -> Tree:
    assert recovery.tree is not None
    return recovery.tree


def _zxid_of(path: Path) -> Zxid:
    parsed = parse_snapshot_name(path.name)
    assert parsed is not None
    return parsed[0]


@contextlib.contextmanager
def writing(history: History, operations: int) -> Iterator[threading.Thread]:
    """Run a history beside the test, until it is done or, behind the block, abandoned."""
    with contextlib.closing(history):
        # Now, while the server is there: sessions, and what there is already.
        history.run(1)
        thread = threading.Thread(target=history.run, args=(operations,))
        thread.start()
        try:
            yield thread
        finally:
            history.abandon()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the history does not end"


@pytest.mark.parametrize("method", ["", "gz", "snappy"])
def test_history_over_restarts__is_read_as_it_was_served(
    method: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(100 + 10 * len(method))
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    properties = {**SNAP_COUNT, "zookeeper.snapshot.compression.method": method}
    operations = records = 0
    reader = Reader(data_dir)
    for turn in range(TURNS):
        server = ApacheServer(data_dir, properties=properties)
        with server, History(server.hosts, seed=seed + turn) as history:
            operations += history.run(scaled(5_500)).operations
            if turn % 2:
                history.close()
            served = serve(server)
            assert digest_mismatches(server) == 0
            if turn % 2:
                server.stop()
            else:
                server.kill()
        recovery = reader.read()
        tree = _tree_of(recovery)
        assert_read_as_served(tree, served)
        assert_judged_equal(tree, judge(data_dir, tmp_path / f"copy{turn}"))
        records += recovery.records
    tell(f"{operations} operations, {TURNS} servers, {records} records replayed")
    assert operations >= scaled(20_000)
    tell(_from_older_snapshots(reader, tree))


def _from_older_snapshots(reader: Reader, expected: Tree) -> str:
    """Recover as if the newest snapshots were lost, one more each time; the state is the same."""
    snapshots = reader.snapshots()
    count = fuzzy = records = 0
    while len(snapshots) > 1 and count < OLDER_SNAPSHOTS:
        recovery = reader.read()
        tree = _tree_of(recovery)
        assert tree.digest == expected.digest
        assert tree.state_digest == expected.state_digest
        base = snapshots.pop()
        if recovery.base is not None and recovery.base.name == base.name:
            count += 1
            fuzzy += _is_fuzzy(base)
            records += recovery.records
        base.unlink()
    assert fuzzy > 0
    return f"the same state from {count} snapshots, {fuzzy} of them fuzzy: {records} records"


def _is_fuzzy(path: Path) -> bool:
    """Whether a snapshot shows effects of records behind the zxid of its name."""
    _, info, seen = load_tree(DISK, str(path))
    return max(seen, info.digest_zxid or 0, info.last_processed or 0) > info.zxid


def test_end_under_load__is_read_as_the_next_server_reads_it(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(200)
    tell(f"seed {seed}")
    moments = random.Random(seed)
    data_dir = tmp_path / "data"
    # The cleaner is awake: its removals of containers and TTL znodes are in the log as well.
    properties = {**SNAP_COUNT, "znode.container.checkIntervalMs": "200"}
    heads = []
    reader = Reader(data_dir)
    for turn in range(6):
        server = ApacheServer(data_dir, properties=properties)
        with server:
            history = History(server.hosts, seed=seed + turn, sessions=3)
            with writing(history, ENDLESS):
                wait_for_records(server, moments.randrange(300, 3_000))
                if turn % 3 == 2:
                    server.stop()
                else:
                    server.kill()
        recovery = reader.read()
        assert_judged_equal(_tree_of(recovery), judge(data_dir, tmp_path / f"copy{turn}"))
        heads.append(recovery.head)
    assert heads == sorted(set(heads))
    tell(f"{len(heads)} ends, up to {heads[-1]} records")


def test_create2_with_the_container_flag__is_told_apart_from_damage(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(300)
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    quirks = mismatches = 0
    short_lived: int | None = None
    reader = Reader(data_dir, "apache-container-digest")
    for turn in range(3):
        server = ApacheServer(data_dir, properties={"zookeeper.snapCount": "4000"})
        with (
            server,
            History(server.hosts, seed=seed + turn, with_create2_containers=True) as history,
        ):
            history.run(scaled(7_000))
            mismatches += server.digest_mismatches()
            if short_lived is not None:
                _wait_for_expiry(server, short_lived)
            # Its session loses its server and runs out in the next turn, and its znode goes.
            # Not sooner: it has to live while the server is asked, however slow that is.
            with server.connect(timeout=20) as client:
                client.create("/short-lived-", b"", ephemeral=True, sequence=True)
                short_lived = client.client_id[0]
                served = serve(server)
                server.kill()
        for snapshot in reversed(reader.snapshots()):
            # From each snapshot, so that some replays begin where digests are off; and in the end
            # from the first one, so that every digest of the history is looked at.
            recovery = reader.read()
            assert_read_as_served(_tree_of(recovery), served)
            if snapshot != reader.snapshots()[0]:
                snapshot.unlink()
        quirks = sum(p.code == "apache-container-digest" for p in recovery.problems)
    assert mismatches > 0
    assert quirks == 1
    tell(f"{recovery.records} records; Apache counted {mismatches} mismatches of its own")


def _wait_for_expiry(server: ApacheServer, session: int) -> None:
    def has_expired() -> bool:
        try:
            return session not in server.sessions()
        except OSError:  # too busy to answer
            return False

    wait_until(has_expired, "the session runs out", timeout=PATIENCE_SECONDS)


def test_ensemble_that_loses_its_leaders__all_directories_are_whole_and_equal(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(400)
    tell(f"seed {seed}")
    root = tmp_path / "ensemble"
    with ApacheEnsemble(root, properties=SNAP_COUNT) as ensemble:
        readers = {id: Reader(server.data_dir) for id, server in ensemble.servers.items()}
        history = History(ensemble.hosts, seed=seed, sessions=3, session_timeout_s=30)
        with writing(history, scaled(20_000)) as writer:
            for _ in range(2):
                wait_for_records(ensemble.servers[1], scaled(3_000))
                _kill_leader(ensemble, readers)
            writer.join()
        _wait_for_no_session(ensemble)
        ensemble.settle()
        served = {
            id: without_config(without_statistics(server.read_tree()))
            for id, server in ensemble.servers.items()
        }
        settle_on_disk(ensemble)
        ensemble.kill()
        trees = {id: _tree_of(readers[id].read()) for id in ensemble.servers}
        for id, tree in trees.items():
            ours = without_config(without_statistics(seen_by_clients(tree)))
            assert_equal(ours, served[id])
        _assert_equal(trees)
        tell(f"{trees[1].node_count} znodes at {trees[1].last_zxid:#x} on {len(trees)} servers")

        # Now nobody waits for anybody: all are killed while they write.
        ensemble.start()
        history = History(ensemble.hosts, seed=seed + 1, sessions=3)
        with writing(history, ENDLESS):
            wait_for_records(ensemble.servers[1], 2_000)
            ensemble.kill()
    trees = {id: _tree_of(readers[id].read()) for id in ensemble.servers}
    heads = {id: tree.last_zxid for id, tree in trees.items()}
    common = min(heads.values())
    for id, head in heads.items():
        if head > common:
            trees[id] = _tree_at(root / str(id), tmp_path / f"cut{id}", common)
    _assert_equal(trees)
    tell(f"killed at {', '.join(f'{head:#x}' for head in heads.values())}; equal at {common:#x}")


def _wait_for_no_session(ensemble: ApacheEnsemble) -> None:
    """Until the sessions are gone that ended while there was no leader to tell.

    They run out some time later, with their ephemerals: not while the trees are compared.
    """

    def are_gone() -> bool:
        leader = ensemble.leader()
        try:
            return leader is not None and not ensemble.servers[leader].sessions()
        except OSError:  # too busy to answer
            return False

    wait_until(are_gone, "no session is left", timeout=PATIENCE_SECONDS)


def _kill_leader(ensemble: ApacheEnsemble, readers: dict[int, Reader]) -> None:
    ensemble.servers[old := ensemble.wait_for_leader()].kill()
    readers[old].note_end()
    wait_until(
        lambda: ensemble.leader() not in (None, old), "another leader", timeout=PATIENCE_SECONDS
    )
    ensemble.start(timeout=PATIENCE_SECONDS)


def _tree_at(path: Path, target: Path, zxid: Zxid) -> Tree:
    """The state that a server had at a zxid: take over a copy of its files and truncate it."""
    shutil.copytree(path, target)
    store, _ = Store.open(DISK, directory_of(target), StoreOptions(reserve_bytes=0))
    try:
        recovery = store.truncate(zxid)
    finally:
        store.close()
    assert recovery.head == zxid
    return _tree_of(recovery)


def _assert_equal(trees: dict[int, Tree]) -> None:
    first, *others = trees.values()
    expected = without_config(without_statistics(seen_by_clients(first)))
    for other in others:
        ours = without_config(without_statistics(seen_by_clients(other)))
        assert_equal(ours, expected)
        assert other.digest == first.digest
        assert other.sessions == first.sessions
