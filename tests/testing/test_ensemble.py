"""The ensemble in a test's process: what a user of `keepfast.testing` relies on."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from keepfast.testing import Ensemble, Server
from tests.apache.words import wait_until


def test_fixture__writes_through_one_server_are_read_through_all(
    keepfast_ensemble: Ensemble,
) -> None:
    writer = keepfast_ensemble.client(keepfast_ensemble[1])
    retried(writer, "ensure_path", "/a")
    for server in keepfast_ensemble.servers:
        reader = keepfast_ensemble.client(server)
        retried(reader, "sync", "/a")
        assert retried(reader, "exists", "/a") is not None
    keepfast_ensemble.wait_equal()


def test_roles__one_leads_and_the_others_follow(keepfast_ensemble: Ensemble) -> None:
    def is_so() -> bool:
        leader = keepfast_ensemble.leader
        followers = {one.id for one in keepfast_ensemble.followers}
        return leader is not None and followers == {1, 2, 3} - {leader.id}

    wait_until(is_so, "one leads and two follow")
    assert keepfast_ensemble.hosts.count(",") == 2


def retried(client: Any, method: str, *arguments: Any) -> Any:
    """An operation that a lost connection or a session that moves must not end."""
    return client.retry(getattr(client, method), *arguments)


def test_leader_killed__another_leads_and_it_comes_back_with_the_same_tree() -> None:
    with Ensemble() as ensemble:
        client = ensemble.client()
        retried(client, "create", "/a", b"1")
        old = ensemble.wait_for_leader()
        old.kill()
        assert old.mode == "stopped"
        assert ensemble.wait_for_leader(other_than=old) is not old
        retried(client, "set", "/a", b"2")
        old.restart()
        ensemble.wait_serving()
        ensemble.wait_equal()
        assert retried(client, "get", "/a")[0] == b"2"


def test_isolated_leader__gives_up_and_the_others_go_on() -> None:
    with Ensemble() as ensemble:
        old = ensemble.wait_for_leader()
        ensemble.isolate(old)
        leader = ensemble.wait_for_leader(other_than=old)
        client = ensemble.client(leader)
        retried(client, "create", "/a", b"1")
        wait_until(lambda: not old.is_serving, "the isolated leader stands down")
        ensemble.heal()
        ensemble.wait_serving()
        ensemble.wait_equal()


def test_silent_partition__is_noticed_too() -> None:
    with Ensemble(tick_ms=100) as ensemble:
        old = ensemble.wait_for_leader()
        ensemble.isolate(old, silent=True)
        ensemble.wait_for_leader(other_than=old)
        wait_until(lambda: not old.is_serving, "the isolated leader stands down")
        ensemble.heal()
        ensemble.wait_serving()
        ensemble.wait_equal()


def test_minority_partition__refuses_writes() -> None:
    with Ensemble() as ensemble:
        ensemble.partition([1], [2], [3])
        wait_until(lambda: not any(s.is_serving for s in ensemble.servers), "nobody serves")
        ensemble.heal()
        ensemble.wait_serving()
        retried(ensemble.client(), "create", "/a", b"1")
        ensemble.wait_equal()


def test_paused_leader__is_replaced_and_follows_when_it_goes_on() -> None:
    with Ensemble(tick_ms=100) as ensemble:
        old = ensemble.wait_for_leader()
        old.pause()
        assert ensemble.wait_for_leader(other_than=old) is not old
        old.resume()
        # Until it looks at its clock, the one that hung still takes itself for the leader.
        wait_until(lambda: old.mode == "follower", "the old leader follows")
        ensemble.wait_serving()
        ensemble.wait_equal()


def test_expired_session__its_ephemerals_go_everywhere(keepfast_ensemble: Ensemble) -> None:
    wait_until(lambda: bool(keepfast_ensemble.followers), "a follower")
    follower = keepfast_ensemble.followers[0]
    client, other = keepfast_ensemble.client(follower), keepfast_ensemble.client()
    states: list[str] = []
    client.add_listener(states.append)
    client.retry(client.create, "/e", ephemeral=True)
    keepfast_ensemble.expire(client)
    wait_until(lambda: KazooState.LOST in states, "loss of the session")
    wait_until(lambda: retried(other, "exists", "/e") is None, "the end of its ephemeral")


def test_full_disk_of_the_leader__writes_are_refused_until_there_is_space(
    keepfast_ensemble: Ensemble,
) -> None:
    while True:
        leader = keepfast_ensemble.wait_for_leader()
        client = keepfast_ensemble.client(leader)
        retried(client, "ensure_path", "/a")
        leader.fill_disk()
        try:
            client.set_async("/a", b"2").get(timeout=30)
        except (KazooException, KazooTimeoutError):
            break
        # On a busy machine another one may lead by now, whose disk has space.
        assert leader.mode != "leader"
        leader.free_disk()
    leader.free_disk()
    retried(client, "set", "/a", b"3")
    keepfast_ensemble.wait_equal()


def test_disk_full_at_the_end__the_server_stops_and_starts_again() -> None:
    with Server() as server:
        server.client().create("/a", b"1")
        server.fill_disk()
        server.restart()
        server.free_disk()
        assert server.client().get("/a")[0] == b"1"
