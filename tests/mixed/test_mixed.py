"""Apache's servers and ours in one ensemble, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache import words
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble

pytestmark = pytest.mark.conformance


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
    write_through(ensemble, f"without{id}-{words.last_zxid(ensemble.servers[1 + id % 3].port):x}")
    ensemble.start(id)


def test_keepfast_follower_and_observer_under_apache__equal_through_restarts(
    tmp_path: Path,
) -> None:
    kinds = {1: KEEPFAST, 2: APACHE, 3: APACHE, 4: KEEPFAST}
    with MixedEnsemble(tmp_path, kinds, observers=(4,)) as ensemble:
        ensemble.start()
        assert ensemble.servers[4].mode() == "observer"
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
        assert ensemble.leader() == 3
        ensemble.assert_equal()
        restart(ensemble, 1)
        write_through(ensemble, "second")
        ensemble.assert_equal()
        restart(ensemble, 3)
        ensemble.assert_equal()
