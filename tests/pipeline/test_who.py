"""`keepfast who`: who changed a znode, by the files of all servers and the audit logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cases import CASES_DIR
from tests.cli.runs import call

CASE = CASES_DIR / "healthy-plain-3.9.5"
SESSION = "0x6599c60000"


def line(session: str, user: str, address: str, path: str) -> str:
    """As Apache's log4j layout writes it."""
    fields = f"session={session}\tuser={user}\tip={address}\toperation=setData\tznode={path}"
    return f"2026-11-15 10:49:30,700 INFO audit.Log4jAuditLogger: {fields}\tresult=success\n"


def test_changes_of_a_znode__with_user_and_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.log"
    other = line(SESSION, "bob,10.0.0.9", "10.0.0.9", "/elsewhere")
    log.write_text(line(SESSION, "alice", "10.0.0.7", "/c/n04") + other + "no audit line\n")
    result = call(capsys, "who", "/c/n04", CASE, "--audit-log", log, "--json")
    document = json.loads(result.out)
    assert result.code == 0
    assert document["gaps"] == []
    assert [
        (one["zxid"], one["operation"], one["change"], one["session"], one["user"], one["address"])
        for one in document["changes"]
    ] == [
        ("0x200000006", "create", "created", SESSION, "alice", "10.0.0.7"),
        ("0x200000018", "setData", "data set", SESSION, "alice", "10.0.0.7"),
        ("0x200000032", "multi", "deleted", SESSION, "alice", "10.0.0.7"),
    ]
    below = json.loads(call(capsys, "who", "/c", CASE, "--below", "--json").out)["changes"]
    assert {one["path"] for one in below} > {"/c", "/c/n04"}
    assert {one["user"] for one in below} == {None}


def test_since_and_limit__leave_out_what_is_older(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(call(capsys, "who", "/c/n04", CASE, "--json", "--limit", "1").out)["changes"][
        0
    ]["change"] == ("deleted")
    result = call(capsys, "who", "/c/n04", CASE, "--since", "1s")
    assert (result.code, result.out.splitlines()[-1]) == (0, "0 changes of /c/n04")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("c/n04", CASE), "is not the path of a znode"),
        (("/c", CASE, "--since", "7"), "--since 7: not a duration"),
        (("/c", CASE, "--audit-log", CASE / "truth.json"), "no line names a session"),
        (("/c", CASE, "--audit-log", CASE / "none"), "No such file or directory"),
    ],
)
def test_bad_input__is_said_in_a_sentence(
    arguments: tuple[str | Path, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(capsys, "who", *arguments)
    assert result.code == 2
    assert sentence in result.err


@pytest.mark.parametrize("is_listed", [True, False])
def test_server_that_cannot_be_read__is_named_and_the_code_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_listed: bool
) -> None:
    place = shutil.copytree(CASE, tmp_path / "ensemble")
    log = max((place / "2").rglob("log.*"))
    if is_listed:
        # A file that opens and does not read, for root too.
        log.unlink()
        log.symlink_to("/proc/self/mem")
    else:
        log.rename(log.with_name("was"))
        log.symlink_to(log.name)
    document = json.loads((result := call(capsys, "who", "/c/n04", place, "--json")).out)
    assert (result.code, document["exit_code"]) == (3, 3)
    (text,) = document["unchecked"]
    assert text.startswith("server 2: ")
    assert str(log) in text
    assert len(document["changes"]) == 3
    printed = call(capsys, "who", "/c/n04", place)
    assert (printed.code, printed.out.splitlines()[-1]) == (3, f"not everything is known: {text}")
