"""Snapshots as text and as JSON, judged by what is known of files that real servers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import CASES_DIR, case_names, load_case
from tests.cli.runs import call
from tests.storage.directories import Place, line, zxid

PLAIN = CASES_DIR / "healthy-plain-3.9.5" / "2" / "version-2" / "snapshot.200000034"


@pytest.mark.parametrize("name", case_names())
def test_every_snapshot_of_a_case__holds_what_is_known_of_it(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    case = load_case(name)
    for server_id, files in case.truth["files"].items():
        for file, truth in files.items():
            path = case.server_dir(server_id) / "version-2" / file
            if not file.startswith("snapshot.") or not path.exists():
                continue
            result = call(capsys, "inspect", path, "--json")
            if not truth["valid"]:
                assert result.code in (1, 2)
                result.check_sentence(file)
                continue
            document = result.document
            assert (result.code, document["schema"]) == (0, "keepfast.snapshot/1")
            # A 3.4 file lacks /zookeeper/config, which is made on load.
            assert document["znodes"] - truth["nodes"] in (0, 1)
            assert document["digest_verdict"] in ("equal", "differs", "none stated")


def test_snapshot__has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", PLAIN, "--json").document
    assert document["zxid"] == document["last_processed_zxid"] == "0x200000034"
    assert document["seals"] == ["znodes", "digest", "last zxid"]
    assert document["stated_digest"] == document["tree_digest"] == "0x3091ccd30e"
    assert (document["digest_verdict"], document["packing"]) == ("equal", "none")
    assert document["session_count"] == len(document["sessions"]) == 3
    assert set(document["sessions"][0]) == {"session", "timeout_ms", "ephemerals"}
    assert set(document["acls"][0]) == {"key", "acl"}
    assert "nodes" not in document


def test_listing__parents_before_children(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", PLAIN, "--json", "-v").document
    paths = [node["path"] for node in document["nodes"]]
    assert len(paths) == document["znodes"]
    assert paths[0] == "/"
    seen = set()
    for path in paths:
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)
    assert set(document["nodes"][1]) >= {"path", "data", "acl", "kind", "czxid", "version"}


def test_listing_below_a_path__and_limit(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", PLAIN, "--json", "--path", "/c/lock").document
    assert [node["kind"] for node in document["nodes"]] == ["persistent", "ephemeral"]
    assert document["nodes"][1]["session"] == "0x6599c60000"
    document = call(capsys, "inspect", PLAIN, "--json", "-v", "--limit", "3").document
    assert len(document["nodes"]) == 3


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "inspect", PLAIN).out
    for words in ("good (znodes, digest, last zxid)", ": equal", "102 (", "-v lists"):
        assert words in out
    listed = call(capsys, "inspect", PLAIN, "-v", "--redact").out
    for words in ("timeout", "key  acl", "/c/empty  0 bytes sha256:", "102 znodes shown"):
        assert words in listed
    assert "alive" not in listed


def test_path_that_is_not_there__refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", PLAIN, "--path", "/missing")
    assert result.code == 4
    result.check_sentence("there is no znode /missing")


def test_bad_seal__exit_code_1_and_no_znode_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    tree = line("1.1-1.3").tree_at(zxid("1.3"))
    place.snapshot("1.3", tree, bad_seal=True)
    result = call(capsys, "inspect", tmp_path / "version-2" / "snapshot.100000003", "-v")
    assert result.code == 1
    result.check_sentence("fails its seal", "prove nothing")


def test_snapshot_ahead_of_its_name__said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    history = line("1.1-1.6")
    place.snapshot("1.3", history.tree_at(zxid("1.6")), ahead=zxid("1.5"))
    path = tmp_path / "version-2" / "snapshot.100000003"
    document = call(capsys, "inspect", path, "--json").document
    assert document["later_effects_zxid"] == "0x100000006"
    assert "up to 0x100000006" in call(capsys, "inspect", path).out
