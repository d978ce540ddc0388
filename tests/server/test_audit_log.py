"""The audit log: every change, by whom, and what Apache writes for the same requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.apache.java_text import java_hex
from keepfast.client import Client, ClientOptions, OperationFailed
from keepfast.replica import AuditRecord
from keepfast.server.audit_log import AuditLog
from keepfast.server.logs import AUDIT_LOGGER
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    CheckVersionRequest,
    CreateMode,
    CreateRequest,
    DeleteRequest,
    Id,
    MultiOp,
    OpCode,
    SetDataRequest,
)
from tests.apache import ApacheServer, wait_until
from tests.server.live import live


def attempt(action: Callable[[], object]) -> None:
    """Do something that may be refused; that is told, too."""
    try:
        action()
    except OperationFailed:
        pass


def changes(client: Client) -> None:
    """Changes of every kind and attempts at some; reads between them are not told."""
    client.add_auth("digest", b"bob:pw")
    client.create("/a", b"1")
    client.get_data("/a")
    client.create("/a/s-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
    client.create("/a/c", mode=CreateMode.CONTAINER)
    client.create2("/a/p-", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    client.create("/a/t", mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=100_000)
    client.set_data("/a", b"2")
    attempt(lambda: client.set_data("/a", b"3", 9))
    attempt(lambda: client.set_data("/nothing", b""))
    client.set_acl("/a/c", (ACL(31, Id("world", "anyone")),))
    attempt(lambda: client.delete("/nothing"))
    attempt(lambda: client.delete("/a"))
    attempt(lambda: client.create("/a"))
    created = MultiOp(OpCode.CREATE, CreateRequest("/a/m", b"", OPEN_ACL, 0))
    client.multi(
        [
            created,
            MultiOp(OpCode.SET_DATA, SetDataRequest("/a/m", b"1", -1)),
            MultiOp(OpCode.CHECK, CheckVersionRequest("/a/m", -1)),
            MultiOp(OpCode.DELETE, DeleteRequest("/a/m", -1)),
        ]
    )
    client.multi([created, MultiOp(OpCode.SET_DATA, SetDataRequest("/nothing", b"", -1))])
    client.delete("/a/t")


def fields(line: str, session_id: int) -> dict[str, str]:
    """A line as its fields, with the session by name and the users in order."""
    found = dict(pair.split("=", 1) for pair in line.split("\t"))
    if found.get("session") == f"0x{java_hex(session_id)}":
        found["session"] = "SESSION"
    found["user"] = ",".join(sorted(found["user"].split(",")))
    return found


def our_lines(data_dir: Path, caplog: pytest.LogCaptureFixture) -> tuple[list[str], int]:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER), live(data_dir, is_audited=True) as server:
        with server.client() as client:
            session_id = client.session_id
            changes(client)
        server.ask("ruok")
    return [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER], (
        session_id
    )


def test_start_changes_and_stop_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines, session_id = our_lines(tmp_path / "data", caplog)
    told = [fields(line, session_id) for line in lines]
    assert (told[0]["operation"], told[0]["result"]) == ("serverStart", "success")
    assert (told[-1]["operation"], told[-1]["result"]) == ("serverStop", "invoked")
    assert lines[1].split("\t")[1:] == [
        "user=127.0.0.1,bob",
        "ip=127.0.0.1",
        "operation=create",
        "znode=/a",
        "znode_type=persistent",
        "result=success",
    ]


def test_nothing_is_told_unless_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER), live(tmp_path / "data") as server:
        with server.client() as client:
            client.create("/a")
        assert server.call(lambda s: s.running.replica.service.audits) is None
    assert not [record for record in caplog.records if record.name == AUDIT_LOGGER]


def test_secrets_in_acls_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, AUDIT_LOGGER),
        live(tmp_path / "data", is_audited=True) as server,
        server.client() as client,
    ):
        client.create("/a")
        acl = (ACL(1, Id("digest", "bob:SECRET")), ACL(31, Id("world", "anyone")))
        client.set_acl("/a", acl)
    assert "acl=digest:bob:x:r,world:anyone:cdrwa" in caplog.text
    assert "SECRET" not in caplog.text


def test_path_cannot_forge_a_field_or_a_line(caplog: pytest.LogCaptureFixture) -> None:
    path = "/a\tresult=success\noperation=x"
    record = AuditRecord(1, "eve", "1.2.3.4", "create", path, None, None, False)
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        AuditLog().write([record])
    (line,) = caplog.messages
    assert "\n" not in line
    assert line.split("\t")[4:] == ["znode=/a\\tresult=success\\noperation=x", "result=failure"]


@pytest.mark.conformance
def test_lines_are_apaches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    properties = {"zookeeper.audit.enable": "true", "keepfast.apache.log": "info"}
    ours, ours_id = our_lines(tmp_path / "data", caplog)
    mark = "Slf4jAuditLogger] - "
    with ApacheServer(tmp_path / "apache", properties=properties) as apache:
        options = ClientOptions(session_timeout_ms=120_000)
        with Client(apache.hosts, options) as client:
            theirs_id = client.session_id
            changes(client)
        # Some are written behind the answer; all of ours but that of the stop.
        wait_until(
            lambda: apache.output().count(mark) >= len(ours) - 1 and apache.output()[-1] == "\n",
            "its lines",
        )
        output = apache.output()
    theirs = [line.partition(mark)[2] for line in output.splitlines() if mark in line]
    expected = [fields(line, theirs_id) for line in theirs]
    found = [fields(line, ours_id) for line in ours[:-1]]
    assert found == expected
    # The order of the fields, too.
    assert [list(line) for line in found] == [list(line) for line in expected]
