"""A majority without its data, as real processes: nobody serves until the loss is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.client import Client
from tests.apache.words import wait_until
from tests.chaos.processes import PATIENCE_SECONDS, RealEnsemble
from tests.chaos.workloads import make_znode
from tests.cli.runs import run

pytestmark = pytest.mark.timeout(900)

COUNT = 30


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[RealEnsemble]:
    with RealEnsemble(tmp_path) as found:
        yield found


def damage(ensemble: RealEnsemble, id: int, path: str) -> None:
    """Change one byte of the record that made a znode; elections may have begun several logs."""
    for log in ensemble.files(id, "log"):
        content = bytearray(log.read_bytes())
        # As jute writes a string: with its length.
        offset = content.find(len(path).to_bytes(4) + path.encode())
        if offset >= 0:
            content[offset + 4] ^= 0xFF
            log.write_bytes(content)
            return
    pytest.fail(f"no log of server {id} holds {path}")


def write(ensemble: RealEnsemble) -> None:
    """Write some, and wait until every server has all of it."""

    def work(client: Client) -> None:
        for number in range(COUNT):
            make_znode(client, f"/a{number}")

    ensemble.with_client(work)
    ensemble.wait_equal()


def are_there(ensemble: RealEnsemble) -> list[bool]:
    """Which of these znodes are there."""

    def work(client: Client) -> list[bool]:
        client.sync("/")
        return [client.exists(f"/a{number}") is not None for number in range(COUNT)]

    return ensemble.with_client(work)


def wait_problem(ensemble: RealEnsemble, id: int, *parts: str) -> None:
    """Wait until a server says, in one sentence, all of this."""
    wait_until(
        lambda: all(part in ensemble.ask(id).problem for part in parts),
        f"server {id} says what is missing",
        timeout=PATIENCE_SECONDS,
    )


def test_lost_majority__nobody_serves_until_the_loss_is_accepted(ensemble: RealEnsemble) -> None:
    ensemble.start()
    write(ensemble)
    for id in (1, 2, 3):
        ensemble.servers[id].kill()
    kept = 3
    ensemble.wipe(1)
    damage(ensemble, 2, "/a0")
    for id in (1, 2, 3):
        ensemble.servers[id].start()
    for id in (1, 2, 3):
        wait_problem(
            ensemble,
            id,
            "a majority has lost its data",
            "server 1 without data",
            "server 2 with data that is damaged",
            "keepfast ensemble rescue",
        )
        wait_until(
            lambda id=id: "not-serving" in ensemble.log_text(id),  # type: ignore[misc]
            f"server {id} logs it",
            timeout=PATIENCE_SECONDS,
        )
    directory = ensemble.layout.directory(1)
    refused = run("ensemble", "rescue", str(directory), "--yes")
    assert (refused.code, "a server is running" in refused.err) == (4, True)
    ensemble.servers[1].kill()
    shown = run("ensemble", "rescue", str(directory))
    assert (shown.code, "Nothing was changed" in shown.out) == (1, True)
    assert not ensemble.files(1, "snapshot")
    assert run("ensemble", "rescue", str(directory), "--yes").code == 0
    ensemble.start([1])
    verdict = ensemble.wait_well()
    assert verdict.leader is not None
    assert verdict.leader.server_id == kept
    assert all(are_there(ensemble))


def test_everything_lost_but_a_damaged_prefix__rescue_keeps_it(ensemble: RealEnsemble) -> None:
    ensemble.start()
    write(ensemble)
    for id in (1, 2, 3):
        ensemble.servers[id].kill()
    # Behind the first records: these are proven and stay.
    damage(ensemble, 3, "/a15")
    for id in (1, 2):
        ensemble.wipe(id)
    places = [str(ensemble.layout.directory(id)) for id in (1, 3)]
    shown = run("ensemble", "rescue", *places)
    assert "is known to have been acknowledged" in shown.out
    done = run("ensemble", "rescue", *places, "--yes", "--json")
    assert done.code == 0, done.err
    kinds = [one["kind"] for one in done.document["directories"]]
    assert kinds == ["empty", "cut"]
    again = run("ensemble", "rescue", places[1], "--json").document["directories"][0]
    assert (again["kind"], again["standing"]) == ("nothing", "whole")
    ensemble.start()
    verdict = ensemble.wait_well()
    assert verdict.leader is not None
    assert verdict.leader.server_id == 3
    assert are_there(ensemble) == [number < 15 for number in range(COUNT)]
