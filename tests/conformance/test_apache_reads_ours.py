"""Directories that Keepfast wrote: a real Apache 3.9.5 starts on them and serves the same tree.

And continues writing, and Keepfast takes the directory back, several times over.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.storage import (
    Compression,
    Frame,
    LogReader,
    Recovery,
    Severity,
    Standing,
    StoreOptions,
    frame,
)
from keepfast.tree import Tree
from keepfast.wire import Zxid, decode_entry, encode_entry, epoch_of
from tests.apache import ApacheEnsemble, ApacheServer, History
from tests.conformance.judging import (
    DISK,
    Served,
    ask_apache,
    assert_equal,
    assert_judged_equal,
    assert_read_as_served,
    digest_mismatches,
    judge,
    owned,
    recovered,
    scaled,
    seeded,
    seen_by_clients,
    serve,
    without_config,
    without_statistics,
)
from tests.conformance.waiting import settle_on_disk
from tests.conformance.writing import Writer

# Minutes where Java has to share a core.
pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parents[2]
PARTS = 8
_RECORDS_A_LINE = 50  # of the process that writes until it is killed, about


def options(compression: Compression = Compression.NONE) -> StoreOptions:
    # Small, so that there are many segments.
    return StoreOptions(grow_bytes=1 << 16, segment_bytes=1 << 19, compression=compression)


def write_history(writer: Writer, operations: int) -> None:
    """Several epochs, and snapshots that are taken while writes continue."""
    for part in range(PARTS):
        writer.write(operations // PARTS)
        if part % 2:
            writer.begin_snapshot()
        elif part % 4 == 2:
            writer.begin_epoch()
    # Not a whole epoch without a record: standalone servers have none.
    writer.write(operations // PARTS // 2)


def assert_apache_agrees(tree: Tree, path: Path, copies: Path) -> None:
    """Ask Apache about a copy of the directory, and about one without all snapshots but the first.

    Apache compares the digest of each record that it replays: of all of them in the second case.
    """
    copies.mkdir()
    assert_judged_equal(read_back(tree, path), judge(path, copies / "as-it-is"))
    replayed = copies / "replayed"
    shutil.copytree(path, replayed)
    for snapshot in _snapshots(replayed)[1:]:
        snapshot.unlink()
    for name in ("manifest", "witness"):
        (replayed / "version-2" / f"keepfast.{name}").unlink()
    assert_judged_equal(read_back(tree, replayed), ask_apache(ApacheServer(replayed)))


def _snapshots(path: Path) -> list[Path]:
    """The snapshots, oldest first."""
    found = (path / "version-2").glob("snapshot.*")
    return sorted(found, key=lambda one: int(one.name.split(".")[1], 16))


def read_back(tree: Tree, path: Path) -> Tree:
    """What Keepfast itself recovers: the same state, but for quotas, which are counted anew."""
    recovery = recovered(path)
    assert recovery.standing is Standing.WHOLE, "\n".join(map(str, recovery.problems))
    assert not recovery.degraded
    assert recovery.tree is not None
    assert recovery.tree.last_zxid == tree.last_zxid
    assert recovery.tree.digest == tree.digest
    assert recovery.tree.state_digest == tree.state_digest
    assert recovery.tree.sessions == tree.sessions
    return recovery.tree


@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.name.lower())
def test_history__apache_serves_the_same_tree(
    compression: Compression, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(10 + len(compression.value))
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    writer = Writer(data_dir, seed=seed, options=options(compression))
    write_history(writer, scaled(20_000))
    counts = writer.counts
    tell(f"{writer.tree.node_count} znodes, {dict(sorted(counts.items()))}")
    assert counts["operations"] >= scaled(20_000)
    assert min(counts["MULTI"], counts["odd ACLs"], counts["CLOSE_SESSION"]) > 0
    assert epoch_of(writer.tree.last_zxid) > 1
    assert len(_snapshots(data_dir)) > PARTS // 2
    assert all(path.name.endswith(compression.value) for path in _snapshots(data_dir))

    if compression is Compression.NONE:
        writer.close()
    else:
        # As after a kill: nothing is sealed, and a snapshot has been begun.
        writer.begin_snapshot()

    assert_apache_agrees(writer.tree, data_dir, tmp_path / "copies")


def test_after_truncate_install_and_purge__apache_sees_the_history_that_is_left(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(20)
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    writer = Writer(data_dir, seed=seed, options=options())
    write_history(writer, scaled(6_000))
    marked = writer.tree.last_zxid
    expected = seen_by_clients(writer.tree)
    write_history(writer, scaled(3_000))

    recovery = writer.truncate(marked)
    assert recovery.tree is not None
    assert_equal(without_statistics(seen_by_clients(recovery.tree)), without_statistics(expected))
    assert_apache_agrees(writer.tree, data_dir, tmp_path / "truncated")

    # On from there, over the zxids that were cut off.
    write_history(writer, scaled(3_000))
    assert_apache_agrees(writer.tree, data_dir, tmp_path / "continued")

    purged = writer.store.purge(2)
    assert any(name.startswith("log.") for name in purged)
    assert any(name.startswith("snapshot.") for name in purged)
    assert_judged_equal(read_back(writer.tree, data_dir), judge(data_dir, tmp_path / "purged"))

    other = Writer(tmp_path / "other", seed=seed + 1, options=options())
    write_history(other, scaled(6_000))
    other.close()
    writer.install(other.tree)
    assert len(_snapshots(data_dir)) == 1
    assert_apache_agrees(writer.tree, data_dir, tmp_path / "installed")
    write_history(writer, scaled(3_000))
    assert_apache_agrees(writer.tree, data_dir, tmp_path / "after-install")
    operations = writer.counts["operations"] + other.counts["operations"]
    tell(f"{operations} operations, {len(purged)} files purged")


def test_killed_process__apache_reads_what_was_acknowledged(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(30)
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    for turn in range(4):
        acknowledged = _write_and_kill(data_dir, seed + turn, records=scaled(2_500))
        recovery = recovered(data_dir)
        assert recovery.standing is Standing.WHOLE, "\n".join(map(str, recovery.problems))
        assert {problem.code for problem in recovery.problems} <= {"torn-tail"}
        assert recovery.tree is not None
        assert recovery.head >= acknowledged
        assert_apache_agrees(recovery.tree, data_dir, tmp_path / f"copies{turn}")
        tell(f"acknowledged {acknowledged:#x}, found {recovery.head:#x}")


def _write_and_kill(path: Path, seed: int, *, records: int) -> Zxid:
    """Let another process write and kill it; gives the last zxid that it called durable."""
    command = [sys.executable, "-m", "tests.conformance.writing", str(path), str(seed)]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while len(lines) * _RECORDS_A_LINE < records:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended by itself"
        process.kill()
        # What it said before it was killed counts too; the last line may be cut short.
        lines += process.stdout.read().splitlines(keepends=True)
    return Zxid(int([line for line in lines if line.endswith("\n")][-1]))


def test_ping_pong__each_takes_over_what_the_other_left(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = seeded(40)
    tell(f"seed {seed}")
    data_dir = tmp_path / "data"
    operations = 0
    served: Served | None = None
    for turn in range(6):
        compression = list(Compression)[turn % len(Compression)]
        writer = Writer(data_dir, seed=seed + turn, options=options(compression))
        if served is not None:
            _assert_taken_over(writer.recovery, served)
        write_history(writer, scaled(2_000))
        if turn % 2:
            writer.store.purge(2)
        writer.close()
        operations += writer.counts["operations"]
        ours = seen_by_clients(writer.tree)

        method = compression.value.removeprefix(".")
        properties = {
            "zookeeper.snapCount": "1000",
            "zookeeper.snapshot.compression.method": method,
        }
        server = ApacheServer(data_dir, properties=properties)
        with server, History(server.hosts, seed=seed + turn) as history:
            assert server.sessions() == owned(writer.tree)
            assert_equal(without_statistics(ours), without_statistics(server.read_tree()))
            operations += history.run(scaled(2_000)).operations
            served = serve(server)
            assert digest_mismatches(server) == 0
            if turn % 2:
                server.stop()
            else:
                server.kill()
    writer = Writer(data_dir, seed=seed, options=options())
    assert served is not None
    _assert_taken_over(writer.recovery, served)
    writer.close()
    assert_apache_agrees(writer.tree, data_dir, tmp_path / "copies")
    tell(f"{operations} operations in {turn + 1} turns, to {writer.tree.last_zxid:#x}")


def _assert_taken_over(recovery: Recovery, served: Served) -> None:
    report = "\n".join(map(str, recovery.problems))
    assert recovery.standing is Standing.WHOLE, report
    assert recovery.adopted
    codes = {problem.code for problem in recovery.problems}
    assert "changed-by-another-program" in codes
    # A snapshot that Apache was writing when it was killed.
    assert codes <= {"changed-by-another-program", "snapshot-damaged", "torn-tail"}, report
    assert recovery.tree is not None
    assert_read_as_served(recovery.tree, served)


def test_one_wrong_digest__the_judge_sees_it(tmp_path: Path) -> None:
    """Otherwise no mismatch would mean nothing."""
    data_dir = tmp_path / "data"
    writer = Writer(data_dir, seed=seeded(80), options=options())
    writer.write(300)
    writer.close()
    (log,) = (data_dir / "version-2").glob("log.*")
    *records, last = _frames(log)
    entry = decode_entry(last.entry)
    while entry.digest is None:
        last = records.pop()
        entry = decode_entry(last.entry)
    wrong = entry.digest._replace(tree_digest=entry.digest.tree_digest ^ 1)
    raw = bytearray(log.read_bytes())
    raw[last.offset : last.end] = frame(encode_entry(entry._replace(digest=wrong)))
    log.write_bytes(raw)

    assert recovered(data_dir).standing is Standing.DAMAGED
    assert judge(data_dir, tmp_path / "copy").mismatches > 0


def _frames(log: Path) -> list[Frame]:
    with DISK.open_read(str(log)) as file:
        return list(LogReader(file))


def test_logs_in_a_directory_of_their_own__are_found_by_both(tmp_path: Path) -> None:
    seed = seeded(60)
    data_dir, log_dir = tmp_path / "data", tmp_path / "logs"
    for turn in range(2):
        writer = Writer(data_dir, seed=seed + turn, options=options(), log_path=log_dir)
        write_history(writer, scaled(1_500))
        writer.close()
        server = ApacheServer(data_dir, configuration={"dataLogDir": str(log_dir)})
        with server, History(server.hosts, seed=seed + turn) as history:
            assert server.sessions() == owned(writer.tree)
            history.run(scaled(1_500))
            served = serve(server)
            assert digest_mismatches(server) == 0
            server.kill()
        recovery = recovered(data_dir, log_dir)
        _assert_taken_over(recovery, served)
    assert {path.name.split(".")[0] for path in (log_dir / "version-2").glob("[a-j,l-z]*")} == {
        "log"
    }
    assert not list((data_dir / "version-2").glob("log.*"))


def test_copies_as_members_of_an_ensemble__serve_the_same_tree_and_go_on(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Members read what a server alone ignores: the epoch files."""
    seed = seeded(70)
    tell(f"seed {seed}")
    writer = Writer(tmp_path / "ours", seed=seed, options=options())
    write_history(writer, scaled(4_000))
    writer.close()
    root = tmp_path / "ensemble"
    for id in (1, 2, 3):
        shutil.copytree(tmp_path / "ours", root / str(id))
    expected = without_config(without_statistics(seen_by_clients(writer.tree)))

    with ApacheEnsemble(root) as ensemble:
        for server in ensemble.servers.values():
            assert_equal(without_config(without_statistics(server.read_tree())), expected)
        with History(ensemble.hosts, seed=seed, sessions=3) as history:
            history.run(scaled(2_000))
        ensemble.settle()
        leader = ensemble.servers[ensemble.wait_for_leader()]
        served = without_config(without_statistics(leader.read_tree()))
        settle_on_disk(ensemble)
        assert {digest_mismatches(server) for server in ensemble.servers.values()} == {0}
        ensemble.kill()

    for id in (1, 2, 3):
        again = Writer(root / str(id), seed=seed, options=options())
        assert again.recovery.standing is Standing.WHOLE
        assert again.recovery.adopted
        assert again.recovery.epochs.current == epoch_of(again.tree.last_zxid)
        # By one, unless a busy machine made them elect again.
        assert again.recovery.epochs.current > epoch_of(writer.tree.last_zxid)
        assert_equal(without_config(without_statistics(seen_by_clients(again.tree))), served)
        again.close()


@pytest.mark.parametrize("snapshots", [1, 2])
def test_apache_started_and_stopped_with_nothing_to_do__the_directory_stays_ours(
    snapshots: int, tmp_path: Path
) -> None:
    """It writes its snapshot over the one that has the same name."""
    data_dir = tmp_path / "data"
    writer = Writer(data_dir, seed=seeded(50), options=options())
    for _ in range(snapshots):
        writer.write(500)
        writer.begin_snapshot()
        writer.finish_snapshot()
    writer.store.purge(snapshots)
    writer.close()
    newest = _snapshots(data_dir)[-1]
    before = newest.read_bytes()

    with ApacheServer(data_dir):
        pass

    assert newest.read_bytes() != before
    again = Writer(data_dir, seed=0, options=options())
    recovery = again.recovery
    assert recovery.standing is Standing.WHOLE
    assert not recovery.degraded
    assert all(problem.severity is not Severity.DAMAGE for problem in recovery.problems)
    assert again.tree.state_digest == writer.tree.state_digest
    again.write(500)
    again.close()
    assert_judged_equal(read_back(again.tree, data_dir), judge(data_dir, tmp_path / "copy"))
