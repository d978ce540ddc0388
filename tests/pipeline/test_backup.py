"""Backups: taken from running servers, continued, expired, restored; and what must be refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keepfast.cli.app import run
from keepfast.client import Client, parse_target
from keepfast.pipeline import (
    BackupOptions,
    BackupRefused,
    BackupTaken,
    back_up_files,
    chain_at,
    list_chains,
    one_ensemble,
    read_chain,
)
from keepfast.storage import RealDisk, data_directory, recover
from keepfast.testing import Ensemble, Server
from keepfast.wire import ACL, ANYONE, Perms, Zxid, epoch_of

NOW = datetime(2026, 11, 17, 3, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(str(tmp_path / "data")) as running:
        yield running


def write(server: Server, first: int, last: int) -> None:
    with Client(parse_target(server.hosts)) as client:
        for number in range(first, last):
            client.create(f"/n{number}", b"%d" % number)


def back_up(
    server: Server, place: Path, now: datetime = NOW, keep_seconds: float = 0.0
) -> BackupTaken:
    ensemble, options = one_ensemble([server.data_dir]), BackupOptions(keep_seconds=keep_seconds)
    return back_up_files(RealDisk(), ensemble, str(place), options, now)


def znodes(place: Path) -> set[str]:
    tree = read_chain(list_chains(str(place))[-1]).tree
    assert tree is not None
    return {path for path in tree.paths() if path.startswith("/n")}


def test_running_server__second_backup_has_the_records_since(
    server: Server, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    write(server, 0, 20)
    first = back_up(server, place)
    assert first.new_because == "it is the first"
    assert znodes(place) == {f"/n{number}" for number in range(20)}
    write(server, 20, 50)
    second = back_up(server, place, NOW + DAY)
    assert second.new_because is None
    assert second.chain == first.chain
    assert second.records >= 30
    assert znodes(place) == {f"/n{number}" for number in range(50)}
    third = back_up(server, place, NOW + 2 * DAY)
    assert (third.records, third.head) == (0, second.head)


def test_ensemble_with_new_leaders__the_chain_has_their_epochs(tmp_path: Path) -> None:
    place = tmp_path / "place"
    epochs = []
    with Ensemble() as ensemble:
        directories = [one.data_dir for one in ensemble.servers]
        for number in range(3):
            with Client(parse_target(ensemble.hosts)) as client:
                client.create(f"/n{number}", b"")
            ensemble.wait_equal()
            for given, name in ((directories, "all"), (directories[:1], "one")):
                taken = back_up_files(RealDisk(), one_ensemble(given), str(place / name), None, NOW)
                assert taken.new_because == (None if number else "it is the first")
                assert read_chain(taken.chain).epochs.current == epoch_of(taken.head)
            epochs.append(epoch_of(taken.head))
            ensemble.wait_for_leader().restart()
            ensemble.wait_serving()
    assert epochs == sorted(set(epochs))
    assert znodes(place / "all") == znodes(place / "one") == {"/n0", "/n1", "/n2"}
    restored = tmp_path / "restored"
    assert run(["restore", str(place / "all"), "--to", str(restored)]) == 0
    found = recover(RealDisk(), data_directory(RealDisk(), str(restored)))
    assert (epoch_of(found.head), found.epochs.current) == (epochs[-1], epochs[-1])


def test_restore_from_a_place__any_moment_of_any_chain(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    write(server, 0, 10)
    first = back_up(server, place)
    write(server, 10, 20)
    back_up(server, place, NOW + DAY)
    write(server, 20, 30)
    newest = back_up(server, place, NOW + 8 * DAY)
    assert newest.new_because == "the last one is old enough"
    for at, expected in (([], 30), (["--at", hex(first.head)], 10)):
        target = tmp_path / f"restored{expected}"
        assert run(["restore", str(place), "--to", str(target), *at]) == 0
        assert re.search(r"^from +backup \d+T\d+Z, ", capsys.readouterr().out, re.MULTILINE)
        with Server(str(target)) as restored, Client(parse_target(restored.hosts)) as client:
            names = [name for name in client.get_children("/") if name != "zookeeper"]
            assert len(names) == expected


def test_old_chains_expire__the_newest_never(server: Server, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for week in range(4):
        write(server, week, week + 1)
        now = NOW + week * 7 * DAY
        taken = back_up(server, place, now, keep_seconds=10 * 86_400)
    # The second still serves the moments between ten days ago and the third.
    names = [chain.began for chain in list_chains(str(place))]
    assert names == [NOW + 7 * DAY, NOW + 14 * DAY, NOW + 21 * DAY]
    assert taken.expired == ("20261117T030000Z",)
    # Up to a second ago, the last one before the new one served.
    back_up(server, place, NOW + 400 * DAY, keep_seconds=1.0)
    kept = [chain.began for chain in list_chains(str(place))]
    assert kept == [NOW + 21 * DAY, NOW + 400 * DAY]


def test_servers_that_lost_what_was_backed_up__told_and_nothing_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    with Server(str(tmp_path / "data")) as server:
        write(server, 0, 20)
        back_up(server, place)
    with Server(str(tmp_path / "other")) as wiped:
        write(wiped, 100, 102)
        taken = back_up(wiped, place, NOW + DAY)
        assert taken.is_wrong
        assert "they lost what was backed up" in taken.note
        assert run(["backup", wiped.data_dir, "--to", str(place)]) in (0, 1)
    assert len(list_chains(str(place))) >= 2
    first = read_chain(list_chains(str(place))[0]).tree
    assert first is not None
    assert first.find("/n19") is not None


def test_server_that_was_sent_a_snapshot__lost_nothing(server: Server, tmp_path: Path) -> None:
    place, later = tmp_path / "place", tmp_path / "later"
    write(server, 0, 10)
    back_up(server, place)
    same = tmp_path / "same"
    assert run(["restore", server.data_dir, "--to", str(same)]) == 0
    write(server, 10, 20)
    assert run(["restore", server.data_dir, "--to", str(later)]) == 0
    for directory, why in ((same, "None"), (later, "the records after")):
        ensemble = one_ensemble([str(directory)])
        taken = back_up_files(RealDisk(), ensemble, str(place), None, NOW + DAY)
        assert (taken.is_wrong, taken.note) == (False, "")
        assert str(taken.new_because).startswith(why)
    assert znodes(place) == {f"/n{number}" for number in range(20)}


def test_damaged_backup__refused_with_what_to_do(server: Server, tmp_path: Path) -> None:
    place = tmp_path / "place"
    write(server, 0, 5)
    chain = back_up(server, place).chain
    (snapshot,) = Path(chain.path).glob("version-2/snapshot.*")
    content = bytearray(snapshot.read_bytes())
    content[len(content) // 2] ^= 0xFF
    os.chmod(snapshot, 0o600)
    snapshot.write_bytes(content)
    with pytest.raises(BackupRefused, match=r"is not whole: .*move it away"):
        back_up(server, place, NOW + DAY)
    assert run(["backup", "list", str(place)]) == 1


def test_moment_before_all_backups__refused(server: Server, tmp_path: Path) -> None:
    place = tmp_path / "place"
    write(server, 0, 5)
    back_up(server, place)
    with pytest.raises(BackupRefused, match="begins after"):
        chain_at(str(place), Zxid(1), None)
    with pytest.raises(BackupRefused, match="holds no backup"):
        chain_at(str(tmp_path / "nothing"), None, None)


def test_command_says_what_it_did(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    write(server, 0, 5)
    assert run(["backup", server.data_dir, "--to", str(place), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["new_because"] == "it is the first"
    assert run(["backup", server.data_dir, "--to", str(place)]) == 0
    assert "(continued)" in capsys.readouterr().out
    assert run(["backup", "list", str(place)]) == 0
    assert "whole" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["DATA", "--to", "PLACE", "--keep", "soon"], 2, "--keep soon: not a duration"),
        (["DATA", "127.0.0.1:1", "--to", "PLACE"], 2, "not both"),
        (["127.0.0.1:1", "--to", "PLACE", "--admin-port", "1"], 4, "Connection refused"),
        (["127.0.0.1:1", "--to", "PLACE", "--auth", "x"], 2, "--auth wants"),
        (["/no/such/place", "--to", "PLACE"], 2, "no such directory"),
        (["list", "PLACE"], 2, "holds no backup"),
    ],
)
def test_bad_input__one_sentence(
    words: list[str],
    code: int,
    sentence: str,
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"DATA": server.data_dir, "PLACE": str(tmp_path / "place")}
    assert run(["backup", *(places.get(word, word) for word in words)]) == code
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert len(complaint.splitlines()) == 1


def test_running_server_by_its_address__a_chain_of_one_snapshot(
    with_admin: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, admin_port = with_admin
    with Client(parse_target(f"127.0.0.1:{port}")) as client:
        for number in range(7):
            client.create(f"/n{number}", b"")
        place = tmp_path / "place"
        address = [f"127.0.0.1:{port}", "--admin-port", str(admin_port)]
        assert run(["backup", *address, "--to", str(place)]) == 0
        assert znodes(place) == {f"/n{number}" for number in range(7)}
        assert os.listdir(place) == [list_chains(str(place))[0].name]
        client.set_acl("/", (ACL(Perms.READ, ANYONE),))
    # Who may not do everything gets nothing.
    assert run(["backup", *address, "--to", str(place)]) == 4
    assert "the root's ACL does not let this id do everything" in capsys.readouterr().err
    assert len(list_chains(str(place))) == 1
