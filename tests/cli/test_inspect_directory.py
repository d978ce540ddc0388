"""A data directory: its files, and the tree as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.storage import DataDirectory, RealDisk
from tests.cases import CASES_DIR, case_names, load_case
from tests.cli.runs import call
from tests.storage.directories import Place, line, zxid
from tests.storage.workload import Server

PLAIN = CASES_DIR / "healthy-plain-3.9.5" / "2"


@pytest.mark.parametrize("name", case_names())
def test_every_server_of_a_case__files_and_standing(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    case = load_case(name)
    for server_id in case.server_ids:
        place = case.server_dir(server_id)
        result = call(capsys, "inspect", place, "--json")
        document = result.document
        assert (result.err, result.code) == ("", document["exit_code"])
        assert document["schema"] == "keepfast.directory/1"
        assert document["manifest"] is None
        names = {file["name"] for file in document["files"]}
        there = {path.name for path in (place / "version-2").iterdir()}
        assert names == there - {"acceptedEpoch", "currentEpoch"}
        text = call(capsys, "inspect", place)
        assert text.code == result.code
        assert document["standing"].upper() in text.out


def test_values_of_the_truth_file__are_in_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    for name in case_names("healthy"):
        case = load_case(name)
        document = call(capsys, "inspect", case.server_dir("0"), "-v", "--json").document
        found = {node["path"]: node["data"] for node in document["nodes"]}
        for path, value in case.values("0").items():
            data = found[path]
            if value.startswith("sha256:"):
                assert data["length"] == int(value.partition("/")[2])
            else:
                assert (data or {"text": ""})["text"] == value


def test_files__of_a_directory_of_keepfast(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    server = Server(place.disk, place.directory)
    server.start()
    server.write(20, 20)
    server.snapshot()
    document = call(capsys, "inspect", tmp_path, "--json").document
    assert document["held_by_a_server"] is True
    assert document["manifest"]["segments"] == ["log.100000001"]
    assert "In use: " in call(capsys, "inspect", tmp_path).out
    server.close()
    document = call(capsys, "inspect", tmp_path, "--json").document
    assert document["held_by_a_server"] is False
    states = {file["name"]: file["state"] for file in document["files"]}
    assert states["snapshot.100000002"] == "base of the recovery"
    assert states["log.100000001"] == "part of the history, plain end"
    (place.disk.create(place.directory.manifest)).close()
    assert "DAMAGED: " in call(capsys, "inspect", tmp_path).out


def write_history(root: Path) -> None:
    place = Place(root)
    history = line("1.1-1.9,2.1-2.4")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.9", history)
    place.snapshot("1.6", history.tree_at(zxid("1.6")))
    place.log("2.1-2.4", history)


def test_tree_at_every_zxid__is_the_one_of_that_moment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_history(tmp_path)
    history = line("1.1-1.9,2.1-2.4")
    for txn in history.txns:
        result = call(capsys, "inspect", tmp_path, "--at", hex(txn), "--json")
        document = result.document
        assert (result.code, document["head"]["zxid"], document["note"]) == (0, hex(txn), "")
        assert document["tree"]["tree_digest"] == hex(history.tree_at(txn).digest)
        is_set = [node["path"] for node in document["nodes"] if node["version"] == 1]
        assert len(is_set) == history.txns.index(txn) + 1


def test_tree_between_two_records__the_one_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_history(tmp_path)
    result = call(capsys, "inspect", tmp_path, "--at", "2.0", "--json")
    assert (result.code, result.document["head"]["zxid"]) == (0, "0x100000009")
    assert result.document["note"] == "0x100000009 is the last record at or before 0x200000000"


def test_tree_behind_the_last_record__not_everything_is_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_history(tmp_path)
    result = call(capsys, "inspect", tmp_path, "--at", "7.1", "--json")
    assert (result.code, result.document["head"]["zxid"]) == (3, "0x200000004")
    assert "nothing shows what came later" in result.document["note"]


def test_tree_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", PLAIN, "--at", "2026-11-15T10:49:30.690Z", "--path", "/c")
    assert result.code == 0
    assert "tree at      0x200000006 (epoch 2, counter 6)" in result.out
    assert "6 znodes shown" in result.out
    same = call(capsys, "inspect", PLAIN, "--at", "2026-11-15T11:49:30.690+01:00", "--path", "/c")
    assert same.out == result.out
    late = call(capsys, "inspect", PLAIN, "--at", "2100-01-01", "--json").document
    assert late["head"]["zxid"] == "0x200000040"


def test_tree_at_a_time_before_every_record__refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", PLAIN, "--at", "2001-01-01")
    assert result.code == 4
    result.check_sentence("nothing shows what the tree was then")


def test_tree_that_is_not_proven__refused_or_said(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", CASES_DIR / "disk-full-3.4.14" / "0", "-v")
    assert result.code == 4
    result.check_sentence("do not prove any state")
    broken = CASES_DIR / "diff-over-gap-3.9.5" / "3"
    document = call(capsys, "inspect", broken, "-v", "--json").document
    assert (document["exit_code"], document["head"]["zxid"]) == (3, "0x200000002")
    assert document["note"].startswith("proven up to 0x200000002 only: hole in the history")


def test_tree_at__on_a_directory_of_keepfast_with_two_places(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    places = DataDirectory(f"{data}/version-2", f"{logs}/version-2")
    server = Server(RealDisk(), places)
    server.start()
    server.write(20, 20)
    server.snapshot()
    server.change_epoch()
    server.write(20, 20)
    server.close()
    for at, point in server.ledger.past.items():
        if at <= 0:
            continue
        document = call(
            capsys, "inspect", data, "--log-dir", logs, "--at", hex(at), "--json"
        ).document
        assert document["tree"]["state_digest"] == hex(point.state_digest)
