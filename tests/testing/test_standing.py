"""Members without whole data: they heal, or say why they cannot; seen from outside."""

from __future__ import annotations

import shutil
from pathlib import Path

from keepfast.client import ServerAddress, ServerStatus, ask_word, look_at, probe
from keepfast.testing import Ensemble, EnsembleServer
from tests.apache.words import wait_until


def ask(server: EnsembleServer) -> ServerStatus:
    return probe(ServerAddress("127.0.0.1", server.port), timeout_s=60)


def facts_of(server: EnsembleServer) -> dict[str, str]:
    """What it tells about itself, as soon as it does."""
    wait_until(lambda: "ensemble" in ask(server).facts, f"facts of server {server.id}")
    return ask(server).facts


def data_of(server: EnsembleServer) -> Path:
    return Path(server.data_dir) / "version-2"


def write(ensemble: Ensemble, count: int) -> None:
    client = ensemble.client()
    for number in range(count):
        client.retry(client.ensure_path, f"/a{number}")
    client.stop()


def damage(server: EnsembleServer) -> None:
    """Turn a byte of its log over, in a record that was acknowledged."""
    log = max(data_of(server).glob("log.*"))
    data = bytearray(log.read_bytes())
    data[200] ^= 0xFF
    log.write_bytes(data)


def identities(ensemble: Ensemble) -> set[str]:
    """What the servers say they belong to; "" where one does not know yet."""
    return {ask(server).facts.get("ensemble", "") for server in ensemble.servers}


def all_know(identities: set[str]) -> bool:
    return len(identities) == 1 and "" not in identities


def two_followers(ensemble: Ensemble) -> list[EnsembleServer]:
    wait_until(lambda: len(ensemble.followers) == 2, "two follow")
    return [server for server in ensemble.servers if server is not ensemble.wait_for_leader()]


def is_well(ensemble: Ensemble) -> bool:
    verdict = look_at([ServerAddress("127.0.0.1", server.port) for server in ensemble.servers])
    return verdict.is_healthy and {server.standing for server in verdict.servers} == {"whole"}


def test_new_ensemble__waits_for_every_voter_and_says_for_whom() -> None:
    ensemble = Ensemble()
    try:
        for id in (1, 2):
            ensemble[id].start()
        for id in (1, 2):
            wait_until(
                lambda id=id: "is waiting for server 3 to be sure" in ask(ensemble[id]).problem,  # type: ignore[misc]
                f"server {id} says that it waits for 3",
            )
        assert ask(ensemble[1]).standing == "empty"
        ensemble[3].start()
        ensemble.wait_serving()
        wait_until(lambda: identities(ensemble) != {""}, "the ensemble gets an identity")
    finally:
        ensemble.stop()


def test_wiped_and_damaged_followers__heal_by_themselves_and_tell_how() -> None:
    with Ensemble() as ensemble:
        write(ensemble, 10)
        wiped, damaged = two_followers(ensemble)
        wiped.kill()
        shutil.rmtree(data_of(wiped))
        wiped.start()
        ensemble.wait_serving()
        facts = facts_of(wiped)
        assert (facts["catch_up"], facts["catch_up_reason"]) == ("snap", "our data was empty")
        damaged.kill()
        damage(damaged)
        damaged.start()
        ensemble.wait_serving()
        ensemble.wait_equal()
        facts = facts_of(damaged)
        assert (facts["catch_up"], facts["catch_up_reason"]) == ("snap", "our data was damaged")
        wait_until(lambda: is_well(ensemble), "all is well")


def test_damaged_follower_without_a_leader__does_not_vote_and_says_so() -> None:
    with Ensemble() as ensemble:
        write(ensemble, 10)
        damaged, other = two_followers(ensemble)
        (leader,) = (one for one in ensemble.servers if one not in (damaged, other))
        for server in ensemble.servers:
            server.kill()
        damage(damaged)
        damaged.start()
        leader.start()
        wait_until(
            lambda: f"without valid data: server {damaged.id}" in ask(leader).problem,
            "the other one counts without it",
        )
        assert not leader.is_serving
        wait_until(
            lambda: "damaged: looking for a leader to heal from" in ask(damaged).problem,
            "the damaged one says so",
        )
        other.start()
        ensemble.wait_serving()
        ensemble.wait_equal()


def test_data_of_another_ensemble__are_refused() -> None:
    with Ensemble() as one, Ensemble() as two:
        for ensemble in (one, two):
            write(ensemble, 3)
            wait_until(
                lambda found=ensemble: identities(found) != {""},  # type: ignore[misc]
                "the ensemble gets an identity",
            )
            # Learners are told in the next term.
            ensemble.wait_for_leader().restart()
            wait_until(
                lambda found=ensemble: all_know(identities(found)),  # type: ignore[misc]
                "all know it",
            )
        two.wait_serving()
        victim = two_followers(two)[0]
        one[victim.id].stop()
        victim.stop()
        shutil.rmtree(data_of(victim))
        shutil.copytree(data_of(one[victim.id]), data_of(victim))
        victim.start()
        refused = [server for server in two.servers if server is not victim]
        wait_until(lambda: all(server.is_serving for server in refused), "the others serve")
        assert facts_of(victim)["ensemble"] != facts_of(refused[0])["ensemble"]
        assert not victim.is_serving


def test_words__tell_standing_epochs_leader_and_members(keepfast_ensemble: Ensemble) -> None:
    (follower, _) = two_followers(keepfast_ensemble)
    leader = keepfast_ensemble.wait_for_leader()
    me = str(leader.id)

    def tells(word: str, mark: str, **expected: str) -> None:
        """Wait for what holds a moment after the first client is served, or after an election."""
        address = ServerAddress("127.0.0.1", leader.port)

        def is_told() -> bool:
            lines = ask_word(address, word, 60).splitlines()
            facts = dict(line.partition(mark)[::2] for line in lines)
            return expected.items() <= facts.items()

        wait_until(is_told, f"{expected} in {word}")

    tells("kfst", "=", role="leader", standing="whole", serving="1", leader=me, voters="1,2,3")
    wait_until(lambda: ask(leader).facts["current_epoch"] != "0", "the first epoch")
    tells("mntr", "\t", zk_peer_state="leading - broadcast", zk_synced_followers="2")
    tells("mntr", "\t", zk_quorum_size="3", zk_keepfast_standing="whole")
    tells("mntr", "\t", zk_keepfast_leader_id=me)
    settings = ask_word(ServerAddress("127.0.0.1", leader.port), "conf", 60)
    assert "peerType=0\nmembership: \nserver.1=" in settings
    wait_until(lambda: ask(follower).facts.get("leader") == me, "the follower names the leader")
