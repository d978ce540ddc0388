"""Apache's servers and ours in one ensemble, on real processes."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tests.apache import words
from tests.apache.server import ApacheServer
from tests.mixed.load import Load
from tests.mixed.servers import APACHE, KEEPFAST, PATIENCE_SECONDS, MixedEnsemble

# Minutes where Java has to share a core.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

_numbers = itertools.count()


def write_through(ensemble: MixedEnsemble, mark: str, count: int = 30) -> None:
    """Write some through each server that runs."""
    for id, server in ensemble.servers.items():
        if server.is_running:
            with server.connect() as client:
                base = client.create(f"/{mark}-{id}", b"0")
                for number in range(count):
                    client.create(f"{base}/n", b"x" * number, sequence=True)
                    client.set(base, b"%d" % number)
                transaction = client.transaction()
                transaction.create(f"{base}/multi", b"m")
                transaction.set_data(base, b"multi")
                transaction.commit()
                client.delete(f"{base}/n0000000000")


def restart(ensemble: MixedEnsemble, id: int) -> None:
    ensemble.servers[id].kill()
    ensemble.wait_serving()
    write_through(ensemble, f"without{id}-{next(_numbers)}")
    ensemble.start(id)


def test_keepfast_follower_and_observer_under_apache__equal_through_restarts(
    tmp_path: Path,
) -> None:
    kinds = {1: KEEPFAST, 2: APACHE, 3: APACHE, 4: KEEPFAST}
    with MixedEnsemble(tmp_path, kinds, observers=(4,)) as ensemble:
        ensemble.start()
        words.wait_until(
            lambda: ensemble.servers[4].mode() == "observer", "4 observes", timeout=PATIENCE_SECONDS
        )
        write_through(ensemble, "first")
        ensemble.assert_equal()
        restart(ensemble, 1)  # ours comes back: a DIFF
        ensemble.assert_equal()
        restart(ensemble, 3)  # the leader: Apache's 2 leads, or ours
        ensemble.assert_equal()


def test_apache_followers_under_keepfast__equal_through_restarts(tmp_path: Path) -> None:
    with MixedEnsemble(tmp_path, {1: APACHE, 2: APACHE, 3: KEEPFAST}) as ensemble:
        # New servers of Apache's do not wait for ours: they begin, and ours joins them.
        ensemble.start()
        write_through(ensemble, "first")
        ensemble.settle()
        restart(ensemble, 2)
        ensemble.make_lead(3)
        ensemble.assert_equal()
        restart(ensemble, 1)
        write_through(ensemble, "second")
        ensemble.assert_equal()
        restart(ensemble, 3)
        ensemble.assert_equal()


def log_holds(server: ApacheServer, text: bytes) -> bool:
    """Whether some log of a server holds these bytes."""
    logs = server.version_dir.glob("log.*")
    return any(text in path.read_bytes() for path in logs)


def stands_still(server: ApacheServer) -> bool:
    """Whether all threads of a paused server have taken the signal: they do it one by one."""
    assert server._process is not None
    found = []
    for thread in Path(f"/proc/{server._process.pid}/task").iterdir():
        try:
            found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue  # it has ended meanwhile
    return set(found) <= set("Tt")


def diverge(ensemble: MixedEnsemble, leader: int) -> None:
    """Have the leader log a write that nobody else sees, and stop everybody."""
    server = ensemble.servers[leader]
    others = [other for id, other in ensemble.servers.items() if id != leader]
    with server.connect() as client:
        for other in others:
            other.pause()
            words.wait_until(
                lambda other=other: stands_still(other),  # type: ignore[misc]
                "every thread of it stands still",
                timeout=PATIENCE_SECONDS,
            )
        client.create_async("/orphan", b"never committed")
        words.wait_until(
            lambda: log_holds(server, b"/orphan"),
            "the leader has logged it",
            timeout=PATIENCE_SECONDS,
        )
        # They never ran again, so what came for them meanwhile was not read.
        for other in others:
            other.kill()
        server.kill()


@pytest.mark.parametrize("kind", [APACHE, KEEPFAST])
@pytest.mark.parametrize("others_write", [False, True])
def test_leader_with_a_write_of_its_own__loses_it_when_it_comes_back(
    tmp_path: Path, kind: str, others_write: bool
) -> None:
    """The leader is of one kind, and whoever takes over of the other: TRUNC, or SNAP."""
    other = KEEPFAST if kind == APACHE else APACHE
    with MixedEnsemble(tmp_path, {1: other, 2: other, 3: kind}) as ensemble:
        ensemble.start()
        write_through(ensemble, "before", 5)
        ensemble.make_lead(3)
        diverge(ensemble, 3)
        ensemble.start(1, 2)
        if others_write:
            write_through(ensemble, "meanwhile", 5)
        ensemble.start(3)
        write_through(ensemble, "after", 5)
        ensemble.assert_equal()
        assert all("/orphan" not in tree for tree in ensemble.trees().values())


def test_apache_server_that_was_elected_alone__loses_the_write_that_it_snapshot(
    tmp_path: Path,
) -> None:
    """An Apache server that is elected takes a snapshot of all that it has logged, at once."""
    with MixedEnsemble(tmp_path, {1: KEEPFAST, 2: KEEPFAST, 3: APACHE}) as ensemble:
        ensemble.start()
        write_through(ensemble, "before", 5)
        ensemble.make_lead(3)
        diverge(ensemble, 3)
        alone = ApacheServer(tmp_path / "3")  # as it does when it leads and nobody follows yet
        alone.start()
        alone.kill()
        snapshots = alone.version_dir.glob("snapshot.*")
        assert any(b"orphan" in path.read_bytes() for path in snapshots)
        ensemble.start(1, 2)
        ensemble.start(3)
        ensemble.assert_equal()
        assert all("/orphan" not in tree for tree in ensemble.trees().values())
        restart(ensemble, 3)
        assert all("/orphan" not in tree for tree in ensemble.trees().values())


@pytest.mark.parametrize("kind", [APACHE, KEEPFAST])
def test_wiped_server__is_filled_by_a_leader_of_the_other_kind(tmp_path: Path, kind: str) -> None:
    other = KEEPFAST if kind == APACHE else APACHE
    with MixedEnsemble(tmp_path, {1: kind, 2: other, 3: other}) as ensemble:
        ensemble.start()
        with ensemble.servers[2].connect() as client:
            client.create("/large", b"")
            for _ in range(60):
                # Much log for a small tree: a tree is what a leader sends.
                client.set("/large", b"x" * 50_000)
        write_through(ensemble, "before", 5)
        ensemble.settle()
        ensemble.servers[1].kill()
        ensemble.wait_serving()
        shutil.rmtree(ensemble.servers[1].version_dir)
        ensemble.start(1)
        write_through(ensemble, "after", 5)
        ensemble.assert_equal()


def test_apache_ensemble__is_replaced_server_by_server_and_back_under_load(tmp_path: Path) -> None:
    with MixedEnsemble(tmp_path, dict.fromkeys((1, 2, 3), APACHE)) as ensemble:
        ensemble.start()
        with Load(ensemble.hosts) as load:
            for kind in (KEEPFAST, APACHE):
                for id in (1, 2, 3):
                    load.wait_for_writes(20)
                    ensemble.servers[id].stop()
                    ensemble.place(id, kind)
                    ensemble.start(id)
                load.wait_for_writes(20)
        ensemble.assert_equal()
        assert load.lost_sessions == 0
        with ensemble.servers[1].connect() as client:
            found = {client.get(path)[0] for path in load.acknowledged}
        assert found == {b"acknowledged"}
