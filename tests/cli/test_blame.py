"""Which transactions changed a znode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepfast.storage import recover
from keepfast.wire import (
    OPEN_ACL,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetACLTxn,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnHeader,
    encode_entry,
    encode_txn_body,
    make_zxid,
)
from tests.cases import CASES_DIR
from tests.cli.runs import call
from tests.storage.directories import LOG_HEADER, Place, log_bytes

PLAIN = CASES_DIR / "healthy-plain-3.9.5" / "2"


def changes(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(event["zxid"], event["change"], event["path"]) for event in result["events"]]


def multi(*operations: tuple[OpCode, TxnBody]) -> MultiTxn:
    return MultiTxn(tuple(SubTxn(kind, encode_txn_body(body)) for kind, body in operations))


def write_log(root: Path, *txns: tuple[int, OpCode, TxnBody | None]) -> Place:
    """A log of a server of 3.4: session, type and body of each txn, from zxid 1.1 on."""
    entries = [
        encode_entry(
            LogEntry(
                TxnHeader(SessionId(session), number, make_zxid(1, number), number * 1000, kind),
                body,
            )
        )
        for number, (session, kind, body) in enumerate(txns, 1)
    ]
    place = Place(root)
    place.put("log.100000001", log_bytes(entries))
    return place


def test_every_kind_of_change__in_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    create = (OpCode.CREATE, CreateTxn("/a", b"1", OPEN_ACL, False, 1))
    place = write_log(
        tmp_path,
        (7, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (7, *create),
        (7, OpCode.SET_DATA, SetDataTxn("/a", b"2", 1)),
        (8, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (8, OpCode.SET_ACL, SetACLTxn("/a", OPEN_ACL, 1)),
        (8, OpCode.CREATE, CreateTxn("/a/b", b"", OPEN_ACL, False, 1)),
        (8, OpCode.CREATE, CreateTxn("/ab", b"", OPEN_ACL, False, 2)),
        (7, OpCode.ERROR, ErrorTxn(-103)),
        (7, OpCode.MULTI, multi(create, (OpCode.ERROR, ErrorTxn(-110)))),
        (8, OpCode.DELETE, DeleteTxn("/a/b")),
        (
            *(7, OpCode.MULTI),
            multi(
                (OpCode.SET_DATA, SetDataTxn("/ab", b"x", 1)),
                (OpCode.SET_DATA, SetDataTxn("/a", b"3", 2)),
            ),
        ),
        (7, OpCode.DELETE, DeleteTxn("/a")),
    )
    assert recover(place.disk, place.directory).tree is not None
    result = call(capsys, "inspect", "blame", "/a", tmp_path, "--json")
    document = result.document
    assert (document["schema"], document["now"], document["path"]) == (
        "keepfast.blame/1",
        None,
        "/a",
    )
    assert changes(document) == [
        ("0x100000002", "created", "/a"),
        ("0x100000003", "data set", "/a"),
        ("0x100000005", "ACL set", "/a"),
        ("0x10000000b", "data set", "/a"),
        ("0x10000000c", "deleted", "/a"),
    ]
    fourth = document["events"][3]
    assert (fourth["type"], fourth["operation"], fourth["session"]) == ("multi", 2, "0x7")
    assert (fourth["details"]["version"], fourth["time"]) == (2, "1970-01-01T00:00:11.000Z")
    with_children = call(capsys, "inspect", "blame", "/a", tmp_path, "--json", "--children")
    assert [change[1] for change in changes(with_children.document)] == [
        *("created", "data set", "ACL set", "child created", "child deleted", "data set", "deleted")
    ]
    text = call(capsys, "inspect", "blame", "/a", tmp_path).out
    assert "multi[2]" in text
    assert "5 changes of /a in the records that are left" in text
    assert "it does not exist" in text


def test_end_of_a_session_without_a_list__deletes_what_the_session_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_log(
        tmp_path,
        (7, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (8, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (7, OpCode.CREATE, CreateTxn("/e", b"", OPEN_ACL, True, 1)),
        (8, OpCode.CLOSE_SESSION, None),
        (7, OpCode.CLOSE_SESSION, None),
    )
    document = call(capsys, "inspect", "blame", "/e", tmp_path, "--json").document
    assert changes(document) == [("0x100000003", "created", "/e"), ("0x100000005", "deleted", "/e")]


def test_end_of_a_session_older_than_the_log__known_from_the_snapshot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = write_log(
        tmp_path,
        (7, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (7, OpCode.CREATE, CreateTxn("/e", b"", OPEN_ACL, True, 1)),
        (7, OpCode.CLOSE_SESSION, None),
    )
    data = place.contents("log.100000001").rstrip(b"\0")
    # Records one and two are only in a snapshot; the log begins with the third.
    found = recover(place.disk, place.directory)
    assert found.records == 3
    third = data[data.index(make_zxid(1, 3).to_bytes(8, "big")) - 24 :]
    place.put("log.100000001", data[: -len(third)])
    tree = recover(place.disk, place.directory).tree
    assert tree is not None
    place.snapshot("1.2", tree, sections=1)
    place.disk.remove(place.directory.in_logs("log.100000001"))
    place.put("log.100000003", LOG_HEADER + third)
    document = call(capsys, "inspect", "blame", "/e", tmp_path, "--json").document
    assert changes(document) == [("0x100000003", "deleted", "/e")]


def test_end_of_a_session_with_a_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_log(
        tmp_path,
        (7, OpCode.CREATE_SESSION, CreateSessionTxn(1000)),
        (7, OpCode.CREATE, CreateTxn("/p", b"", OPEN_ACL, False, 1)),
        (7, OpCode.CREATE, CreateTxn("/p/e", b"", OPEN_ACL, True, 1)),
        (7, OpCode.CLOSE_SESSION, CloseSessionTxn(("/p/e",))),
    )
    document = call(capsys, "inspect", "blame", "/p", tmp_path, "--children", "--json").document
    assert changes(document)[-1] == ("0x100000004", "child deleted", "/p/e")


def test_real_directory(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", "blame", "/c/visitor", PLAIN, "--json").document
    assert changes(document) == [
        ("0x20000003f", "created", "/c/visitor"),
        ("0x200000040", "deleted", "/c/visitor"),
    ]
    assert {event["place"] for event in document["events"]} == {"history"}
    result = call(capsys, "inspect", "blame", "/c", PLAIN, "--redact", "--limit", "2")
    assert result.code == 0
    assert "top" not in result.out
    result = call(capsys, "inspect", "blame", "/never", PLAIN)
    assert result.out.startswith("0 changes of /never")


def test_record_outside_the_proven_history__is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    broken = CASES_DIR / "snap-stale-log-served-3.9.5" / "4"
    document = call(capsys, "inspect", "blame", "/testDivergenceResync1", broken, "--json").document
    assert document["exit_code"] == 1
    assert {event["place"] for event in document["events"]} <= {"not in the proven history"}


def test_file_called_blame__is_still_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blame").write_bytes(log_bytes([]))
    monkeypatch.chdir(tmp_path)
    assert "0 records" in call(capsys, "inspect", "./blame").out


@pytest.mark.parametrize(
    "places", [[PLAIN.parent], [PLAIN.parent / "0", PLAIN.parent / "1", f"{PLAIN}:{PLAIN}"]]
)
def test_several_servers__each_is_shown(
    capsys: pytest.CaptureFixture[str], places: list[str | Path]
) -> None:
    document = call(capsys, "inspect", "blame", "/c/n04", *places, "--json").document
    assert document["schema"] == "keepfast.blame-servers/1"
    assert [one["server"] for one in document["servers"]] == ["0", "1", "2"]
    for one in document["servers"]:
        assert [change[1] for change in changes(one)] == ["created", "data set", "deleted"]
        assert one["now"] is None
    text = call(capsys, "inspect", "blame", "/c/n04", *places).out
    assert text.count("3 changes of /c/n04") == 3
    assert [line[:9] for line in text.splitlines() if line.startswith("server ")] == [
        *("server 0,", "server 1,", "server 2,")
    ]


def test_log_dir_with_several_directories__is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", "blame", "/c", PLAIN, PLAIN, "--log-dir", PLAIN)
    assert result.code == 2
    result.check_sentence("DIR:LOGDIR")
