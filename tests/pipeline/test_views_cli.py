"""The commands state, diff, restore, undelete and history, as they are typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cases import CASES_DIR
from tests.cli.runs import call, fingerprint

HEALTHY = CASES_DIR / "healthy-plain-3.9.5"
WRONG = CASES_DIR / "trunc-misses-record-3.4.14"


def test_state__shows_the_tree_and_who_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "state", HEALTHY, "--at", "2.3", "--path", "/c")
    assert result.code == 0
    assert "tree at       0x200000003" in result.out
    assert "server 0, server 1, server 2" in result.out
    assert "/c/n01" in result.out


def test_state_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "state", HEALTHY, "--at", "2.3", "--json", "--redact").document
    assert document["schema"] == "keepfast.state/1"
    assert document["head"]["zxid"] == "0x200000003"
    assert (document["agreeing"], document["exit_code"]) == (["0", "1", "2"], 0)
    nodes = {node["path"]: node for node in document["nodes"]}
    assert nodes["/c/n00"]["data"]["length"] == 4
    assert "text" not in nodes["/c/n00"]["data"]


def test_state_of_servers_of_two_minds__exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "state", WRONG)
    assert result.code == 1
    assert "another on" in result.out
    call(capsys, "state", WRONG / "0", WRONG / "2").check_sentence("different states", "audit")


def test_state_that_is_not_proven__exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "state", CASES_DIR / "diff-over-gap-3.9.5" / "3")
    assert result.code == 3
    assert "hole in the history" in result.out


def test_diff_of_two_servers(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "diff", WRONG / "0", WRONG / "2")
    assert result.code == 1
    assert "~ /testDivergenceResync3" in result.out
    assert 'data: "3" -> "1003"' in result.out
    document = call(capsys, "diff", WRONG / "0", WRONG / "2", "--json").document
    assert (document["count"], document["exit_code"]) == (1, 1)
    assert document["differences"][0]["fields"] == ["data", "mzxid", "mtime", "version"]
    assert call(capsys, "diff", HEALTHY / "0", HEALTHY / "1").code == 0


def test_diff_of_two_moments__is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "diff", HEALTHY, "--from", "2.3", "--to", "2.6", "--path", "/c")
    assert result.code == 0
    assert '+ /c/n02  "v0-2"' in result.out
    back = call(capsys, "diff", HEALTHY, "--from", "2.6", "--to", "2.3", "--json").document
    kinds = {one["path"]: one["kind"] for one in back["differences"]}
    assert kinds["/c/n02"] == "only left"


def test_diff_of_servers_that_end_apart__is_made_where_both_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for server in "02":
        shutil.copytree(HEALTHY / server, tmp_path / server)
    for name in ("log.200000036", "snapshot.200000034"):
        (tmp_path / "2" / "version-2" / name).unlink()
    result = call(capsys, "diff", tmp_path / "0", tmp_path / "2")
    assert result.code == 0
    assert result.out.count("0x200000035") == 2


def test_restore_and_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "new"
    result = call(capsys, "restore", HEALTHY, "--at", "2.20", "--to", target)
    assert result.code == 0
    assert "found to be this very state" in result.out
    assert call(capsys, "verify", target).code == 0
    document = call(capsys, "state", target, "--json").document
    assert document["head"]["zxid"] == "0x200000020"
    assert call(capsys, "restore", HEALTHY, "--to", target).code == 4


def test_restore_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = call(capsys, "restore", HEALTHY, "--to", tmp_path / "new", "--json").document
    assert document["schema"] == "keepfast.restore/1"
    assert document["restored"]["tree_digest"] == "0x3256dae9c9"
    assert document["restored"]["snapshot"] == "snapshot.200000040"


def test_undelete(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "undelete", HEALTHY, "--path", "/c/n04")
    assert result.code == 0
    assert "create -- /c/n04 v1-4" in result.out.splitlines()
    document = call(capsys, "undelete", HEALTHY, "--path", "/c/n04", "--json").document
    assert document["deletion"]["session"] == "0x6599c60000"
    assert document["creations"][0]["commands"] == ["create -- /c/n04 v1-4"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("state",), 2),
        (("state", "no-such-place"), 2),
        (("state", CASES_DIR), 2),
        (("state", HEALTHY, "--at", "yesterday"), 2),
        (("state", HEALTHY, "--path", "no-slash"), 2),
        (("state", HEALTHY, "--path", "/no-such-znode"), 4),
        (("state", HEALTHY, "--at", "2001-01-01"), 4),
        (("state", CASES_DIR / "disk-full-3.9.5-gz" / "0"), 4),
        (("diff", HEALTHY), 2),
        (("diff", HEALTHY / "0", HEALTHY / "1", "--path", "x"), 2),
        (("diff", HEALTHY / "0", HEALTHY / "1", "--to", "2.3"), 2),
        (("diff", HEALTHY, "--from", "2.3", "--at", "2.4"), 2),
        (("diff", HEALTHY, "--from", "yesterday"), 2),
        (("diff", HEALTHY / "0", HEALTHY / "1", "--path", "/no-such-znode"), 4),
        (("restore", HEALTHY), 2),
        (("restore", HEALTHY, "--to", HEALTHY / "0" / "new"), 4),
        (("undelete", HEALTHY), 2),
        (("undelete", HEALTHY, "--path", "x"), 2),
        (("undelete", HEALTHY, "--path", "/"), 2),
        (("undelete", HEALTHY, "--path", "/c/n02"), 4),
        (("undelete", HEALTHY, "--path", "/c/n02", "--at", "1.1"), 4),
        (("history", HEALTHY), 2),
        (("history", HEALTHY, "--out", "x", "--quorum", "0"), 2),
    ],
    ids=lambda value: (
        " ".join(str(a).rpartition("/")[2] for a in value)
        if isinstance(value, tuple)
        else str(value)
    ),
)
def test_bad_input__one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str | Path, ...], code: int
) -> None:
    result = call(capsys, *arguments)
    assert result.code == code
    result.check_sentence()


@pytest.mark.parametrize("name", ["healthy-plain-3.9.5", "snap-stale-log-served-3.9.5"])
def test_looking__changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    place = Path(shutil.copytree(CASES_DIR / name, tmp_path / "e"))
    before = fingerprint(place)
    for command in (
        ("state", place),
        ("state", place, "--at", "1.2"),
        ("diff", place / "0", place / "1"),
        ("diff", place, "--from", "1.2"),
        ("undelete", place, "--path", "/a", "--at", "1.2"),
        ("restore", place, "--to", tmp_path / "new"),
    ):
        assert call(capsys, *command).code in (0, 1, 3, 4)
        assert fingerprint(place) == before, command
