"""Repairing real directories: a dry run changes nothing, a repair is followed by a good verdict."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cases import CASES_DIR
from tests.cli.runs import call, fingerprint, run
from tests.storage.directories import Place
from tests.storage.fixture_table import FIXTURES
from tests.storage.workload import Server

# Directory -> head and standing after the repair.
REPAIRED = {
    "diff-over-gap-3.6.3/3": ("0x200000002", "catching up"),
    "diff-over-gap-3.9.5/3": ("0x200000002", "catching up"),
    "snap-stale-log-served-3.9.5/4": ("0x200000001", "catching up"),
    "trunc-misses-record-short-3.9.5/2": ("0x300000001", "catching up"),
    "unsynced-snapshot-3.4.14-trunc/2": ("0x100000009", "unproven"),
    "unsynced-snapshot-leader-3.9.5-delete/2": ("0x100000004", "catching up"),
}
REFUSED = ["disk-full-3.4.14/0", "disk-full-3.9.5-gz/0"]
FIELDS = {
    *("schema", "needed", "applied", "standing", "head", "tree_digest", "state_digest", "base"),
    *("ends_because", "lost", "lost_acknowledged_zxid", "moved", "copied", "cut", "problems"),
    *("may_vote", "exit_code"),
}


def copy_of(name: str, root: Path) -> Path:
    return Path(shutil.copytree(CASES_DIR / name, root / "data"))


@pytest.mark.parametrize("name", REPAIRED)
def test_repair_then_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    place = copy_of(name, tmp_path)
    head, standing = REPAIRED[name]
    before = fingerprint(place)
    dry = call(capsys, "repair", place)
    assert dry.code == 1
    assert "Nothing was changed. To carry it out: keepfast repair" in dry.out
    assert "it has no vote until it caught up from a quorum without it" in dry.out
    planned = call(capsys, "repair", place, "--json").document
    assert set(planned) == FIELDS
    assert (planned["applied"], planned["standing"], planned["head"]["zxid"]) == (
        *(False, standing, head),
    )
    assert fingerprint(place) == before
    done = call(capsys, "repair", place, "--apply", "--json")
    assert (done.code, done.document["applied"], done.document["may_vote"]) == (3, True, False)
    verdict = call(capsys, "verify", place, "--json").document
    assert (verdict["standing"], verdict["head"]["zxid"]) == (standing, head)
    assert not verdict["may_vote"]
    assert "repaired" in {problem["code"] for problem in verdict["problems"]}
    assert verdict["tree"]["tree_digest"] == planned["tree_digest"]
    for move in (*planned["moved"], *planned["copied"]):
        assert Path(move["to"]).exists()
    for move in planned["moved"]:
        assert not Path(move["file"]).exists()
    again = call(capsys, "repair", place, "--apply")
    assert again.code == done.code
    assert "nothing to repair" in again.out


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_proven__refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    place = copy_of(name, tmp_path)
    before = fingerprint(place)
    result = call(capsys, "repair", place)
    assert result.code == 4
    result.check_sentence("refused: nothing is proven", "restore a backup")
    assert fingerprint(place) == before
    assert call(capsys, "repair", place, "--apply").code == 4
    # All that is new is the file that stands for the lock.
    assert fingerprint(place / "version-2").keys() - before.keys() <= {
        *(key.removeprefix("version-2/") for key in before),
        "keepfast.lock",
    }


def test_nothing_to_repair(capsys: pytest.CaptureFixture[str]) -> None:
    whole = call(capsys, "repair", CASES_DIR / "healthy-plain-3.9.5" / "0")
    assert (whole.code, "nothing to repair: whole at" in whole.out) == (0, True)
    unproven = call(capsys, "repair", CASES_DIR / "trunc-misses-record-3.4.14" / "0", "--json")
    assert (unproven.code, unproven.document["needed"]) == (3, False)
    assert unproven.document["standing"] == "unproven"


def test_empty_directory__refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    result = call(capsys, "repair", tmp_path)
    assert result.code == 4
    result.check_sentence("there is no history here")


@pytest.mark.parametrize("name", ["FX7", "FX9", "FX14", "FX17"])
def test_fixture__repaired(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    FIXTURES[name].write(Place(tmp_path / "data"))
    done = call(capsys, "repair", tmp_path / "data", "--apply")
    assert done.code == 0
    assert "Done. The directory is now whole." in done.out
    assert call(capsys, "verify", tmp_path / "data").code == 0


def test_loss__is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    FIXTURES["FX7"].write(Place(tmp_path / "data"))
    out = call(capsys, "repair", tmp_path / "data").out
    assert "lost         0x100000003 to 0x100000005 (log.100000001), 0x200000001" in out
    assert "    cut    log.100000001 at offset 99" in out
    assert "    move   log.200000001 to keepfast.aside/g2/log.200000001" in out
    document = call(capsys, "repair", tmp_path / "data", "--json").document
    assert document["ends_because"]["offset"] == 99
    assert document["lost"][0]["first_zxid"] == "0x100000003"


def test_record_contradicts_the_tree__said(capsys: pytest.CaptureFixture[str]) -> None:
    place = CASES_DIR / "trunc-misses-record-short-3.9.5" / "2"
    assert "compare with the other servers first" in call(capsys, "repair", place).out


def test_server_is_running__refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = Place(tmp_path)
    server = Server(place.disk, place.directory)
    server.start()
    for options in ((), ("--apply",)):
        result = run("repair", tmp_path, *options)
        assert result.code == 4
        result.check_sentence("a server is running", "stop it first")
    server.close()
    assert call(capsys, "repair", tmp_path).code == 0


def test_damaged_manifest__written_anew(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = Place(tmp_path)
    server = Server(place.disk, place.directory)
    server.start()
    server.write(20, 20)
    server.close()
    place.overwrite("keepfast.manifest", 100, b"#")
    assert call(capsys, "verify", tmp_path).code == 1
    out = call(capsys, "repair", tmp_path).out
    assert "copy   keepfast.manifest to keepfast.aside/" in out
    assert "write  keepfast.manifest" in out
    assert call(capsys, "repair", tmp_path, "--apply").code == 0
    document = call(capsys, "verify", tmp_path, "--json").document
    assert (document["standing"], document["head"]["zxid"]) == ("whole", "0x100000002")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("command", [("repair", "--apply"), ("ensemble", "rescue", "--yes")])
def test_root_in_the_directory_of_a_servers_user__is_refused(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = copy_of("unsynced-snapshot-leader-3.9.5-delete/2", tmp_path)
    os.chown(place, 1, -1)
    before = fingerprint(place)
    done = call(capsys, *command, place)
    assert done.code == 4
    assert "runuser -u daemon -- keepfast" in done.err
    assert fingerprint(place) == before
