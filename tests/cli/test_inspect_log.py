"""Logs as text and as JSON, judged by what is known of files that real servers wrote."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from keepfast.cli.log_view import LogOptions, show_log
from keepfast.cli.output import Out
from keepfast.storage import RealDisk
from keepfast.wire import (
    ACL,
    CreateTxn,
    Id,
    LogEntry,
    OpCode,
    SessionId,
    SetACLTxn,
    TxnBody,
    TxnHeader,
    encode_entry,
    make_zxid,
)
from tests.cases import CASES_DIR, case_names, load_case
from tests.cli.runs import call, run, write_long_log
from tests.storage.directories import Place, line, log_bytes, zxid

PLAIN = CASES_DIR / "healthy-plain-3.9.5" / "2" / "version-2"
WITH_MULTI = PLAIN / "log.200000001"
TORN = PLAIN / "log.200000036"


def spans(records: list[dict[str, Any]]) -> list[str]:
    """The zxids of records as truth.json writes them: contiguous stretches."""
    stretches: list[list[int]] = []
    for record in records:
        zxid = int(record["zxid"], 16)
        if stretches and zxid == stretches[-1][1] + 1:
            stretches[-1][1] = zxid
        else:
            stretches.append([zxid, zxid])
    return [f"{a:#x}" if a == b else f"{a:#x}-{b:#x}" for a, b in stretches]


@pytest.mark.parametrize("name", case_names())
def test_every_log_of_a_case__holds_what_is_known_of_it(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    case = load_case(name)
    for server_id, files in case.truth["files"].items():
        for file, truth in files.items():
            path = case.server_dir(server_id) / "version-2" / file
            if not file.startswith("log.") or not path.exists():
                continue
            result = call(capsys, "inspect", path, "--json")
            document = result.document
            assert (result.code, result.err, document["damage"]) == (0, "", [])
            assert spans(document["records"]) == truth["zxids"]
            assert document["count"] == document["shown"] == len(document["records"])
            assert document["ending"]["offset"] == truth["bytes_used"]
            assert document["undecodable"] == 0
            text = call(capsys, "inspect", path, "--redact").out.splitlines()
            assert text[-1].startswith(f"{document['count']} record")


def test_record__has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", TORN, "--json").document
    assert document["schema"] == "keepfast.log/1"
    assert (document["magic"], document["format_version"], document["dbid"]) == ("ZKLG", 2, 0)
    assert document["ending"] == {
        "kind": "torn",
        "offset": 1164,
        "reason": "a record's end mark is missing",
    }
    by_type = {record["type"]: record for record in document["records"]}
    assert by_type["createTTL"] == {
        "offset": 806,
        "zxid": "0x20000003d",
        "time": "2026-11-15T10:49:31.001Z",
        "session": "0x6599c60000",
        "cxid": 64,
        "type": "createTTL",
        "path": "/c/ttl",
        "data": {"length": 1, "text": "t"},
        "acl": ["world:anyone:cdrwa"],
        "parent_cversion": 30,
        "ttl": 3600000,
        "digest": "0x3251108de0",
    }
    assert by_type["closeSession"]["paths"] == ["/c/visitor"]
    assert by_type["createSession"]["timeout_ms"] == 30000
    assert by_type["error"]["error_name"] == "NODE_EXISTS (-110)"


def test_multi__is_expanded(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "inspect", WITH_MULTI, "--json", "--type", "multi").document
    done, failed = document["records"]
    assert (done["failed"], failed["failed"]) == (False, True)
    assert {operation["type"] for operation in done["operations"]} >= {"create", "setData"}
    assert any(operation["type"] == "error" for operation in failed["operations"])
    text = call(capsys, "inspect", WITH_MULTI, "--type", "multi").out
    assert f"{len(done['operations'])} operations" in text
    assert "1. create" in text
    assert "failed: nothing is applied" in text


def zxids_of(document: dict[str, Any]) -> list[str]:
    return [record["zxid"] for record in document["records"]]


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*options: str) -> list[str]:
        return zxids_of(call(capsys, "inspect", TORN, "--json", *options).document)

    assert shown("--type", "createsession") == ["0x20000003e"]
    assert shown("--type", "createContainer", "--type", "createTTL") == [
        "0x20000003b",
        "0x20000003d",
    ]
    assert shown("--path", "/c/box") == ["0x20000003b", "0x20000003c"]
    assert shown("--path", "/c/bo") == []
    assert shown("--path", "/c/visitor") == ["0x20000003f", "0x200000040"]
    assert len(shown("--path", "/")) == 9  # all but the error and the createSession
    for at in ("0x20000003c", "20000003c", "2.3c", "2026-11-15T10:49:31Z"):
        assert shown("--at", at) == ["0x20000003c"]
    assert shown("--limit", "2") == ["0x200000036", "0x200000037"]
    assert shown("--limit", "0") == []


def test_path_filter__finds_operations_of_a_multi(capsys: pytest.CaptureFixture[str]) -> None:
    everything = call(capsys, "inspect", WITH_MULTI, "--json", "--type", "multi").document
    path = everything["records"][0]["operations"][0]["path"]
    found = call(capsys, "inspect", WITH_MULTI, "--json", "--path", path).document
    assert everything["records"][0]["zxid"] in zxids_of(found)


def test_record_that_is_not_there__refused(capsys: pytest.CaptureFixture[str]) -> None:
    for at in ("0x999", "2001-01-01"):
        result = call(capsys, "inspect", TORN, "--at", at)
        assert result.code == 4
        result.check_sentence("no such record")


def test_limit__says_that_the_rest_was_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "inspect", TORN, "--limit", "3")
    assert result.code == 0
    assert result.out.endswith("3 records shown; the rest of the log was not read\n")


def test_redact__no_value_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("--json",), ("--jsonl",)):
        shown = call(capsys, "inspect", TORN, *options).out
        redacted = call(capsys, "inspect", TORN, "--redact", *options).out
        assert "kept" in shown
        assert "kept" not in redacted
        assert "sha256" in redacted


def test_password_hash_in_an_acl__is_never_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    secret = "x" * 27 + "="
    acl = (ACL(31, Id("digest", f"joe:{secret}")), ACL(1, Id("ip", "10.0.0.0/8")))
    bodies: list[tuple[int, TxnBody]] = [
        (OpCode.CREATE, CreateTxn("/a", b"", acl, False, 1)),
        (OpCode.SET_ACL, SetACLTxn("/a", acl, 1)),
    ]
    entries = [
        encode_entry(LogEntry(TxnHeader(SessionId(1), 0, make_zxid(1, n), 0, kind), body))
        for n, (kind, body) in enumerate(bodies, 1)
    ]
    path = tmp_path / "log.100000001"
    path.write_bytes(log_bytes(entries))
    for options in ((), ("--json",)):
        out = call(capsys, "inspect", path, *options).out
        assert secret not in out
        assert out.count("digest:joe:(hidden):cdrwa") == 2
        assert out.count("ip:10.0.0.0/8:r") == 2


@pytest.mark.parametrize(
    ("data", "text", "fields"),
    [
        (None, "null", None),
        (b"", '""', {"length": 0, "text": ""}),
        (b'say "hi"', r'"say \"hi\""', {"length": 8, "text": 'say "hi"'}),
        (b"two\nlines", r'"two\nlines"', {"length": 9, "text": "two\nlines"}),
        ("grün".encode(), '"grün"', {"length": 5, "text": "grün"}),
        (b"\x00\xff", "0x00ff", {"length": 2, "base64": "AP8="}),
        (b"\x1b[31mred", "0x1b5b33316d726564", {"length": 8, "base64": "G1szMW1yZWQ="}),
        (b"x" * 100, f'"{"x" * 64}"… (100 bytes)', {"length": 100, "text": "x" * 100}),
        (bytes(100), f"0x{'00' * 32}… (100 bytes)", None),
    ],
)
def test_values(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    data: bytes | None,
    text: str,
    fields: dict[str, object] | None,
) -> None:
    header = TxnHeader(SessionId(1), 0, make_zxid(1, 1), 0, OpCode.CREATE)
    entry = encode_entry(LogEntry(header, CreateTxn("/a", data, None, False, 1)))
    path = tmp_path / "log.100000001"
    path.write_bytes(log_bytes([entry]))
    assert f"/a  {text}  acl=open" in call(capsys, "inspect", path).out
    (record,) = call(capsys, "inspect", path, "--json").document["records"]
    if data is None or fields is not None:
        assert record["data"] == fields


def test_jsonl__one_value_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(text) for text in call(capsys, "inspect", TORN, "--jsonl").out.splitlines()]
    document = call(capsys, "inspect", TORN, "--json").document
    assert lines[:-1] == document["records"]
    assert lines[-1]["ending"] == document["ending"]


def test_damage_in_the_middle__named_and_the_rest_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    history = line("1.1-1.9")
    offsets = place.log("1.1-1.9", history)
    place.overwrite("log.100000001", offsets[zxid("1.4")] + 50, b"\xff")
    path = tmp_path / "version-2" / "log.100000001"
    result = call(capsys, "inspect", path)
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[4].startswith(f"DAMAGE at offset {offsets[zxid('1.4')]}: ")
    assert f"sound records follow at offset {offsets[zxid('1.5')]}" in lines[4]
    assert "0x100000005" in lines[5]
    document = call(capsys, "inspect", path, "--json").document
    assert (document["count"], document["exit_code"]) == (8, 1)
    assert document["damage"] == [
        {
            "offset": offsets[zxid("1.4")],
            "reason": "a record fails its checksum",
            "sound_records_at": offsets[zxid("1.5")],
        }
    ]


def test_damage_at_the_end__exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = Place(tmp_path)
    offsets = place.log("1.1-1.3", line("1.1-1.3"))
    place.overwrite("log.100000001", offsets[zxid("1.3")] + 50, b"\xff")
    result = call(capsys, "inspect", tmp_path / "version-2" / "log.100000001")
    assert result.code == 1
    assert result.out.splitlines()[-1].endswith(f"ends in damage at offset {offsets[zxid('1.3')]}")


def test_record_of_an_unknown_type__shown_as_such(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    header = encode_entry(
        LogEntry(TxnHeader(SessionId(1), 0, make_zxid(1, 1), 0, OpCode.CLOSE_SESSION), None)
    )
    path = tmp_path / "log.100000001"
    path.write_bytes(log_bytes([header[:28] + (77).to_bytes(4, "big")]))
    result = call(capsys, "inspect", path)
    assert result.code == 1
    assert "cannot be decoded: unknown txn type 77" in result.out
    document = call(capsys, "inspect", path, "--json").document
    assert (document["undecodable"], "problem" in document["records"][0]) == (1, True)


def test_path_that_moves_the_cursor__is_escaped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    header = TxnHeader(SessionId(1), 0, make_zxid(1, 1), 0, OpCode.CREATE)
    entry = encode_entry(LogEntry(header, CreateTxn("/a\x1b[2J", b"", None, False, 1)))
    path = tmp_path / "log.100000001"
    path.write_bytes(log_bytes([entry]))
    out = call(capsys, "inspect", path).out
    assert r"/a\x1b[2J" in out
    assert "\x1b" not in out


def test_long_log_as_one_document__memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log.100000001"
    write_long_log(path, 30_000)

    class Nowhere(io.StringIO):
        def write(self, text: str) -> int:
            return len(text)

    with RealDisk().open_read(str(path)) as file:
        tracemalloc.start()
        show_log(file, str(path), LogOptions(as_json=True), Out(Nowhere()))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 6 << 20


@pytest.mark.parametrize("name", ["log-3.4.14", "log-3.9.5-multi"])
def test_golden_text(name: str) -> None:
    """To renew one: run its command below tests/data/cases and look at the difference."""
    commands = {
        "log-3.4.14": ("inspect", "healthy-latent-3.4.14/1/version-2/log.100000001", "--redact"),
        "log-3.9.5-multi": (
            *("inspect", "healthy-plain-3.9.5/2/version-2/log.200000001"),
            *("--type", "multi", "--type", "createSession", "--redact"),
        ),
    }
    golden = Path(__file__).parent / "golden" / f"{name}.txt"
    result = run(*commands[name], cwd=CASES_DIR)
    assert result.out == golden.read_text()
    assert (result.code, result.err) == (0, "")
