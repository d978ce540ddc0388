"""The files beside zoo.cfg: what is written, what stays, and what a loss of power may leave."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest

from keepfast.apache.properties import parse_properties, without_properties
from keepfast.quorum import Membership, Quorums, parse_membership
from keepfast.server.dynamic_files import DynamicFileKeeper, DynamicFiles
from keepfast.server.logs import EventLog
from keepfast.sim import MemoryDisk
from keepfast.wire import (
    LogEntry,
    OpCode,
    ServerId,
    SessionId,
    SetDataTxn,
    TxnHeader,
    Zxid,
    encode_entry,
)

ME = ServerId(1)
CONFIG = "/conf/zoo.cfg"
OPERATORS = """\
# The ensemble of the third floor: ask Ada before you touch it.
tickTime=2000
dataDir = /data
clientPort=2181
server.1=zk1:2888:3888
! and its peers
server.2=\\
   zk2:2888:3888
server.3:zk3:2888:3888
peerType=participant

autopurge.snapRetainCount=5
"""
MEMBERS = "server.1=zk1:2888:3888:participant\nserver.2=zk2:2888:3888:participant"


def membership(version: int, more: str = "") -> Membership:
    return parse_membership(f"{MEMBERS}{more}\nversion={version:x}".encode())


def memory_disk(text: str = OPERATORS) -> MemoryDisk:
    disk = MemoryDisk()
    disk.put(CONFIG, text.encode("iso-8859-1"))
    return disk


def files_on(disk: MemoryDisk, version: int = 0) -> DynamicFiles:
    return DynamicFiles(CONFIG, ME, version, disk, prepare=lambda _model, _path: None)


def values(text: bytes) -> dict[str, str]:
    return {key: value for key, value, _ in parse_properties(text)}


# -- what is written -----------------------------------------------------------------------------


def test_agreed_membership__moves_the_members_and_leaves_every_other_line() -> None:
    disk = memory_disk()
    files_on(disk).bring_up_to(membership(0x100000000), None)
    assert disk.files() == {
        CONFIG: b"# The ensemble of the third floor: ask Ada before you touch it.\n"
        b"tickTime=2000\ndataDir = /data\nclientPort=2181\n! and its peers\n\n"
        b"autopurge.snapRetainCount=5\n"
        b"dynamicConfigFile=/conf/zoo.cfg.dynamic.100000000\n",
        f"{CONFIG}.bak": OPERATORS.encode(),
        f"{CONFIG}.dynamic.100000000": MEMBERS.encode(),
    }


def test_next_version__has_a_file_of_its_own_and_the_backup_stays() -> None:
    disk = memory_disk()
    files = files_on(disk)
    files.bring_up_to(membership(0x100000000), None)
    files.bring_up_to(membership(0x10000000A, "\nserver.10=zk10:1:2:observer;2181"), None)
    found = disk.files()
    assert found[f"{CONFIG}.dynamic.10000000a"] == (
        b"server.10=zk10:1:2:observer;0.0.0.0:2181\n"  # sorted as text, as Java does
        b"server.1=zk1:2888:3888:participant\n"
        b"server.2=zk2:2888:3888:participant"
    )
    assert found[f"{CONFIG}.dynamic.100000000"] == MEMBERS.encode()
    assert values(found[CONFIG])["dynamicConfigFile"] == f"{CONFIG}.dynamic.10000000a"
    assert found[CONFIG].count(b"dynamicConfigFile") == 1
    assert found[f"{CONFIG}.bak"] == OPERATORS.encode()


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("zk1:2888:3888", set()),
        ("zk1:2888:3888;2182", {"clientPort", "clientPortAddress"}),
        (
            "zk1:2888:3888;2182;2183",
            {"clientPort", "clientPortAddress", "secureClientPort", "secureClientPortAddress"},
        ),
    ],
)
def test_client_port__goes_if_the_own_line_says_it(line: str, gone: set[str]) -> None:
    ports = {
        "clientPort": "2181",
        "clientPortAddress": "0.0.0.0",
        "clientPortListenBacklog": "9",
        "secureClientPort": "2281",
        "secureClientPortAddress": "0.0.0.0",
    }
    disk = memory_disk("".join(f"{key}={value}\n" for key, value in ports.items()))
    text = f"server.1={line}\nserver.2=zk2:2888:3888;2184\nversion=1".encode()
    files_on(disk).bring_up_to(parse_membership(text), None)
    assert ports.keys() - values(disk.contents(CONFIG)).keys() == gone


def test_proposed_change__is_there_until_it_is_agreed_on() -> None:
    disk = memory_disk()
    files = files_on(disk)
    files.bring_up_to(membership(5), membership(7, "\nserver.4=zk4:1:2:observer"))
    assert disk.contents(f"{CONFIG}.dynamic.next") == (
        f"{MEMBERS}\nserver.4=zk4:1:2:observer\nversion=7".encode()
    )
    files.bring_up_to(membership(7, "\nserver.4=zk4:1:2:observer"), None)
    assert f"{CONFIG}.dynamic.next" not in disk.files()


def test_proposed_change_of_another_run__goes_with_what_is_as_new_as_it_is() -> None:
    disk = memory_disk()
    disk.put(f"{CONFIG}.dynamic.next", f"{MEMBERS}\nversion=8".encode())
    files_on(disk).bring_up_to(membership(7), None)
    assert f"{CONFIG}.dynamic.next" in disk.files()
    files_on(disk).bring_up_to(membership(8), None)
    assert f"{CONFIG}.dynamic.next" not in disk.files()


@pytest.mark.parametrize(("version", "stays"), [(7, True), (8, False), (9, False)])
def test_proposed_change_that_zoo_cfg_has_already__goes_at_the_start(
    version: int, stays: bool
) -> None:
    disk = memory_disk(f"dynamicConfigFile={CONFIG}.dynamic.{version}\n")
    disk.put(f"{CONFIG}.dynamic.next", f"{MEMBERS}\nversion=8".encode())
    files_on(disk, version).bring_up_to(None, None)
    assert (f"{CONFIG}.dynamic.next" in disk.files()) == stays


def test_host_that_is_not_ascii__is_read_back_by_java() -> None:
    disk = memory_disk()
    named = parse_membership("server.1=zoë:1:2\nversion=1".encode())
    files_on(disk).bring_up_to(named, None)
    found = disk.contents(f"{CONFIG}.dynamic.1")
    assert found == b"server.1=zo\\u00EB:1:2:participant"
    assert values(found) == {"server.1": "zoë:1:2:participant"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_last_line_without_an_end__gets_one(end: str) -> None:
    disk = memory_disk(f"tickTime=2000{end}server.1=a:1:2{end}initLimit=5")
    files_on(disk).bring_up_to(membership(1), None)
    assert disk.contents(CONFIG).decode() == (
        f"tickTime=2000{end}initLimit=5{end}dynamicConfigFile={CONFIG}.dynamic.1{end}"
    )


def test_file_that_cannot_be_edited_by_lines__stays_as_it_is() -> None:
    text = "server.1=a:1:2\ntickTime=\\"
    disk = memory_disk(text)
    with pytest.raises(OSError, match="cannot be edited"):
        files_on(disk).bring_up_to(membership(1), None)
    assert disk.contents(CONFIG).decode() == text


def test_without_properties__takes_whole_lines_and_nothing_else() -> None:
    text = "a=1\n# c\\\nb=2\\\n  3\n\nc=4\r\n!x\nb:5"
    assert without_properties(text, lambda key: key == "b") == "a=1\n# c\\\n\nc=4\r\n!x\n"
    assert without_properties(text, lambda key: False) == text


def test_permissions_of_the_file__are_those_of_its_backup_and_of_its_successor(
    tmp_path: Path,
) -> None:
    path = tmp_path / "zoo.cfg"
    path.write_text(OPERATORS + "ssl.keyStore.password=secret\n")
    path.chmod(0o640)
    DynamicFiles(str(path), ME, 0).bring_up_to(membership(1), None)
    for name in ("zoo.cfg", "zoo.cfg.bak"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["zoo.cfg", "zoo.cfg.bak", "zoo.cfg.dynamic.1"]


# -- a loss of power -----------------------------------------------------------------------------


def check_after_crash(disk: MemoryDisk) -> None:
    """zoo.cfg is whole, names a whole file, and nothing that the operator wrote is lost."""
    found = disk.files()
    text = found[CONFIG].decode()
    if text != OPERATORS:
        assert found[f"{CONFIG}.bak"] == OPERATORS.encode()
        settings = values(found[CONFIG])
        assert settings["autopurge.snapRetainCount"] == "5"
        dynamic = settings["dynamicConfigFile"]
        assert found[dynamic].decode().startswith(MEMBERS)
    proposed = found.get(f"{CONFIG}.dynamic.next")
    assert proposed is None or b"version=" in proposed


def write_everything(disk: MemoryDisk) -> None:
    files = files_on(disk)
    files.bring_up_to(None, None)
    files.bring_up_to(membership(1), None)
    later = membership(2, "\nserver.4=zk4:1:2:observer")
    files.bring_up_to(None, later)
    files.bring_up_to(later, None)


def test_power_loss_at_every_call__leaves_whole_files() -> None:
    disk = memory_disk()
    states = 0

    def look(*_: object) -> None:
        nonlocal states
        for state in disk.crash_states(limit_pending=6):
            check_after_crash(state)
            states += 1

    disk.on_call = look
    write_everything(disk)
    assert states > 100
    # And whoever comes next finishes it, on whatever was left.
    for state in disk.crash_states():
        write_everything(state)
        assert values(state.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.2"


@pytest.mark.parametrize("lie", ["fsync", "fsync_directory"])
def test_power_loss_with_a_sync_that_does_nothing__is_noticed(lie: str) -> None:
    """The check above can fail: it does where the files are not made durable."""
    disk = memory_disk()
    disk.ignored = frozenset({lie})
    write_everything(disk)

    def check() -> None:
        for state in disk.crash_states(limit_pending=12):
            check_after_crash(state)

    with pytest.raises((AssertionError, KeyError)):
        check()


@pytest.mark.parametrize("operation", ["create", "write_at", "fsync", "rename", "fsync_directory"])
def test_disk_that_fails_once__leaves_whole_files_and_the_next_try_succeeds(operation: str) -> None:
    for name in ("zoo.cfg.bak", "zoo.cfg.dynamic.1", "zoo.cfg"):
        disk = memory_disk()
        pattern = "/conf" if operation == "fsync_directory" else f"*keepfast.{name}.tmp"
        disk.inject(operation, pattern, errno.ENOSPC)
        with pytest.raises(OSError):
            files_on(disk).bring_up_to(membership(1), None)
        check_after_crash(disk)
        files_on(disk).bring_up_to(membership(1), None)
        assert values(disk.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.1"


# -- following a server --------------------------------------------------------------------------


def keeper_on(disk: MemoryDisk, configured: Membership | None = None) -> DynamicFileKeeper:
    log = EventLog(dict, "keepfast.test")
    configured = configured or membership(0)
    return DynamicFileKeeper(files_on(disk, configured.version), ME, configured, log)


def reconfig_record(changed: Membership) -> bytes:
    header = TxnHeader(SessionId(1), 1, changed.version, 0, OpCode.RECONFIG)
    body = SetDataTxn("/zookeeper/config", changed.text(), -1)
    return encode_entry(LogEntry(header, body, None))


def test_keeper__follows_proposal_and_agreement() -> None:
    async def run() -> None:
        disk = memory_disk()
        keeper = keeper_on(disk)
        keeper.start(membership(0))
        await keeper.stop()
        assert sorted(disk.files()) == [CONFIG, f"{CONFIG}.bak"]
        first, later = membership(1), membership(2, "\nserver.4=zk4:1:2:observer")
        keeper.use(first)
        keeper.note_proposals([reconfig_record(later)])
        await keeper.stop()
        assert f"{CONFIG}.dynamic.1" in disk.files()
        assert b"version=2" in disk.contents(f"{CONFIG}.dynamic.next")
        # Agreed on, and not yet stored: its only trace in the files must not go.
        keeper.follow(Quorums(later))
        await keeper.stop()
        assert f"{CONFIG}.dynamic.next" in disk.files()
        keeper.use(later)
        await keeper.stop()
        assert values(disk.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.2"
        assert f"{CONFIG}.dynamic.next" not in disk.files()

    asyncio.run(run())


def test_keeper__drops_a_proposal_that_was_taken_back() -> None:
    async def run() -> None:
        disk = memory_disk()
        keeper = keeper_on(disk, membership(1))
        keeper.follow(Quorums(membership(1), membership(2)))
        await keeper.stop()
        assert f"{CONFIG}.dynamic.next" in disk.files()
        keeper.follow(Quorums(membership(1)))
        await keeper.stop()
        assert f"{CONFIG}.dynamic.next" not in disk.files()

    asyncio.run(run())


def test_keeper__writes_at_its_start_what_an_earlier_run_could_not() -> None:
    async def run() -> None:
        disk = memory_disk()
        keeper = keeper_on(disk, membership(3))
        keeper.start(membership(4))
        await keeper.stop()
        assert values(disk.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.4"

    asyncio.run(run())


def test_keeper__of_a_server_that_is_no_member_yet_leaves_its_file_alone() -> None:
    async def run() -> None:
        others = parse_membership(b"server.2=zk2:1:2\nserver.3=zk3:1:2\nversion=9")
        disk = memory_disk()
        keeper = keeper_on(disk)
        keeper.use(others)
        await keeper.stop()
        assert disk.files() == {CONFIG: OPERATORS.encode()}
        # One that was a member and was removed is told so by its files.
        keeper.use(membership(10))
        keeper.use(others.with_version(Zxid(11)))
        await keeper.stop()
        assert values(disk.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.b"

    asyncio.run(run())


def test_keeper__tells_one_trouble_once_and_tries_again_when_it_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        disk = memory_disk()
        disk.inject("create", "*", errno.EROFS, times=None)
        keeper = keeper_on(disk)
        keeper.start(membership(0))
        await keeper.stop()
        for version in (1, 2):
            keeper.use(membership(version))
            await keeper.stop()
        assert disk.files() == {CONFIG: OPERATORS.encode()}
        disk.heal()
        await keeper.stop()
        assert values(disk.contents(CONFIG))["dynamicConfigFile"] == f"{CONFIG}.dynamic.2"

    caplog.set_level(logging.WARNING, "keepfast.test")
    asyncio.run(run())
    (line,) = caplog.messages
    assert line.startswith("membership-files-not-written")
    assert "Read-only" in line
