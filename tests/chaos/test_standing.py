"""A majority without its data, as real processes: nobody serves until the loss is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache.words import wait_until
from tests.chaos.processes import RealEnsemble
from tests.cli.runs import run


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[RealEnsemble]:
    with RealEnsemble(tmp_path) as found:
        yield found


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def write(ensemble: RealEnsemble, count: int, prefix: str = "a") -> None:
    with ensemble.client() as client:
        for number in range(count):
            client.create(f"/{prefix}{number}", b"x")


def test_lost_majority__nobody_serves_until_the_loss_is_accepted(ensemble: RealEnsemble) -> None:
    ensemble.start()
    write(ensemble, 30)
    for id in (1, 2, 3):
        ensemble.servers[id].kill()
    kept = 3
    ensemble.wipe(1)
    flip(ensemble.files(2, "log")[-1], 200)
    for id in (1, 2, 3):
        ensemble.servers[id].start()
    for id in (1, 2, 3):
        wait_until(
            lambda id=id: "a majority has lost its data" in ensemble.ask(id).problem,  # type: ignore[misc]
            f"server {id} says what is missing",
        )
        problem = ensemble.ask(id).problem
        assert "server 1 without data" in problem
        assert "server 2 with data that are damaged" in problem
        assert "keepfast ensemble rescue" in problem
        wait_until(
            lambda id=id: "not-serving" in ensemble.log_text(id),  # type: ignore[misc]
            f"server {id} logs it",
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
    with ensemble.client() as client:
        assert all(client.exists(f"/a{number}") for number in range(30))


def test_everything_lost_but_a_damaged_prefix__rescue_keeps_it(ensemble: RealEnsemble) -> None:
    ensemble.start()
    write(ensemble, 30)
    for id in (1, 2, 3):
        ensemble.servers[id].kill()
    log = ensemble.files(3, "log")[-1]
    # Behind the first records: these are proven and stay.
    flip(log, 1500)
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
    with ensemble.client() as client:
        found = [client.exists(f"/a{number}") is not None for number in range(30)]
    assert found[0]
    assert not found[-1]
    assert found == sorted(found, reverse=True)
