"""Members without whole data: they heal, or say why they cannot; seen from outside."""

from __future__ import annotations

import shutil
from pathlib import Path

from keepfast.client import Address, ServerStatus, ask_word, look_at, probe
from keepfast.testing import Ensemble, EnsembleServer
from tests.apache.words import wait_until


def ask(server: EnsembleServer) -> ServerStatus:
    return probe(Address("127.0.0.1", server.port))


def data_of(server: EnsembleServer) -> Path:
    return Path(server.data_dir) / "version-2"


def write(ensemble: Ensemble, count: int) -> None:
    client = ensemble.client()
    for number in range(count):
        client.create(f"/a{number}", b"x")
    client.stop()


def damage(server: EnsembleServer) -> None:
    """Turn a byte of its log over, in a record that was acknowledged."""
    log = max(data_of(server).glob("log.*"))
    data = bytearray(log.read_bytes())
    data[200] ^= 0xFF
    log.write_bytes(data)


def identities(ensemble: Ensemble) -> set[str]:
    """What the servers say they belong to; "" where one does not know yet."""
    return {ask(server).facts["ensemble"] for server in ensemble.servers}


def test_new_ensemble__waits_for_every_voter_and_says_for_whom() -> None:
    ensemble = Ensemble()
    try:
        for id in (1, 2):
            ensemble[id].start()
        for id in (1, 2):
            wait_until(
                lambda id=id: "waits for server 3 to be sure" in ask(ensemble[id]).problem,  # type: ignore[misc]
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
        wiped, damaged = ensemble.followers
        wiped.kill()
        shutil.rmtree(data_of(wiped))
        wiped.start()
        ensemble.wait_serving()
        facts = ask(wiped).facts
        assert (facts["catch_up"], facts["catch_up_reason"]) == ("snap", "our data were empty")
        damaged.kill()
        damage(damaged)
        damaged.start()
        ensemble.wait_serving()
        ensemble.wait_equal()
        facts = ask(damaged).facts
        assert (facts["catch_up"], facts["catch_up_reason"]) == ("snap", "our data were damaged")
        verdict = look_at([Address("127.0.0.1", server.port) for server in ensemble.servers])
        assert verdict.is_well, verdict.findings
        assert {server.standing for server in verdict.servers} == {"whole"}


def test_damaged_follower_without_a_leader__does_not_vote_and_says_so() -> None:
    with Ensemble() as ensemble:
        write(ensemble, 10)
        leader = ensemble.wait_for_leader()
        damaged, other = ensemble.followers
        for server in ensemble.servers:
            server.kill()
        damage(damaged)
        damaged.start()
        leader.start()
        wait_until(
            lambda: f"without data that count: server {damaged.id}" in ask(leader).problem,
            "the other one counts without it",
        )
        assert not leader.is_serving
        assert "damaged: looks for a leader to heal from" in ask(damaged).problem
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
                lambda found=ensemble: len(identities(found)) == 1,  # type: ignore[misc]
                "all know it",
            )
        two.wait_serving()
        victim = two.followers[0]
        one[victim.id].stop()
        victim.stop()
        shutil.rmtree(data_of(victim))
        shutil.copytree(data_of(one[victim.id]), data_of(victim))
        victim.start()
        refused = [server for server in two.servers if server is not victim]
        wait_until(lambda: all(server.is_serving for server in refused), "the others serve")
        assert ask(victim).facts["ensemble"] != ask(refused[0]).facts["ensemble"]
        assert not victim.is_serving


def test_words__tell_standing_epochs_leader_and_members(keepfast_ensemble: Ensemble) -> None:
    leader = keepfast_ensemble.wait_for_leader()
    address = Address("127.0.0.1", leader.port)
    facts = dict(line.partition("=")[::2] for line in ask_word(address, "kfst", 5).splitlines())
    assert (facts["role"], facts["standing"], facts["serving"]) == ("leader", "whole", "1")
    assert (facts["leader"], facts["voters"]) == (str(leader.id), "1,2,3")
    wait_until(lambda: ask(leader).facts["current_epoch"] == "1", "the first epoch")
    monitor = dict(line.partition("\t")[::2] for line in ask_word(address, "mntr", 5).splitlines())
    assert monitor["zk_peer_state"] == "leading - broadcast"
    assert (monitor["zk_quorum_size"], monitor["zk_keepfast_standing"]) == ("3", "whole")
    assert monitor["zk_synced_followers"] == "2"
    assert monitor["zk_keepfast_leader_id"] == str(leader.id)
    settings = ask_word(address, "conf", 5)
    assert "peerType=0\nmembership: \nserver.1=" in settings
    assert ask(keepfast_ensemble.followers[0]).facts["leader"] == str(leader.id)
