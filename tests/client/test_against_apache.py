"""Every operation of the client, judged by a real server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.client import Client, ClientEvent, ClientOptions, ClientState, OperationFailed
from keepfast.harness import HeldPorts
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    READ_ACL,
    AddWatchMode,
    CheckVersionRequest,
    ClientInfo,
    CreateMode,
    CreateRequest,
    DeleteRequest,
    ErrorCode,
    EventType,
    GetChildrenRequest,
    GetDataRequest,
    Id,
    KeeperState,
    MultiOp,
    OpCode,
    Perms,
    SetDataRequest,
    WatcherType,
)
from tests.apache import SUPER_CREDENTIAL, ApacheServer
from tests.client.fake_server import eventually

pytestmark = pytest.mark.conformance

# Longer than a Java server takes to start again on a slow machine.
OPTIONS = ClientOptions(session_timeout_ms=240_000, connect_timeout_s=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    with ApacheServer(tmp_path_factory.mktemp("apache") / "data") as server:
        yield server


@pytest.fixture
def client(server: ApacheServer, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A session in a chroot of the test's own."""
    chroot = "/" + request.node.name.replace("/", "-")
    with Client(server.hosts, OPTIONS) as outside:
        outside.create(chroot)
    with Client(server.hosts + chroot, OPTIONS) as client:
        yield client


def failure_of(operation: object, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(OperationFailed) as failure:
        operation(*arguments, **options)  # type: ignore[operator]
    return failure.value.code


def test_reads_and_writes(client: Client) -> None:
    assert client.create("/a", b"one") == "/a"
    data, stat = client.get_data("/a")
    assert data == b"one"
    assert client.exists("/a") == stat
    assert client.exists("/none") is None
    assert client.set_data("/a", None, 0).version == 1
    assert client.get_data("/a").data is None
    assert client.create("/a/b") == "/a/b"
    assert client.get_children("/a") == ("b",)
    children, stat = client.get_children2("/a")
    assert (children, stat.num_children) == (("b",), 1)
    assert client.get_all_children_number("/") == 2
    client.sync("/a")
    assert client.last_zxid == stat.pzxid
    client.delete("/a/b", 0)
    assert failure_of(client.delete, "/a", 7) is ErrorCode.BAD_VERSION
    assert failure_of(client.delete, "/") is ErrorCode.BAD_ARGUMENTS
    assert failure_of(client.get_data, "/none") is ErrorCode.NO_NODE
    assert failure_of(client.create, "/a") is ErrorCode.NODE_EXISTS


def test_every_kind_of_znode(client: Client, server: ApacheServer) -> None:
    assert client.create("/c", mode=CreateMode.CONTAINER) == "/c"
    assert client.create("/t", mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=1000) == "/t"
    numbered = client.create2(
        "/t-", b"x", mode=CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, ttl_ms=1000
    )
    assert numbered.path == "/t-0000000002"
    assert numbered.stat.data_length == 1
    assert client.create("/", mode=CreateMode.PERSISTENT_SEQUENTIAL) == "/0000000003"
    own = client.create2("/e", mode=CreateMode.EPHEMERAL)
    assert own.stat.ephemeral_owner == client.session_id
    client.create("/e-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
    chroot = client.target.chroot
    assert sorted(client.get_ephemerals()) == [f"{chroot}/e", f"{chroot}/e-0000000005"]
    assert client.get_ephemerals(f"{chroot}/e-") == (f"{chroot}/e-0000000005",)
    assert client.create2("/c2", mode=CreateMode.CONTAINER).path == "/c2"
    assert server.sessions()[client.session_id] == set(client.get_ephemerals())


def test_acls_and_credentials(client: Client, server: ApacheServer) -> None:
    client.create("/a")
    assert client.get_acl("/a").acl == OPEN_ACL
    assert client.set_acl("/a", READ_ACL, 0).aversion == 1
    assert failure_of(client.set_data, "/a", b"") is ErrorCode.NO_AUTH
    assert client.who_am_i() == (ClientInfo("ip", "127.0.0.1"),)
    scheme, credential = "digest", SUPER_CREDENTIAL.encode()
    client.add_auth(scheme, credential)
    assert {info.auth_scheme for info in client.who_am_i()} == {"ip", "digest", "super"}
    client.set_data("/a", b"as super")
    client.set_acl("/a", (ACL(Perms.ALL, Id("auth", "")),))
    assert {entry.id.scheme for entry in client.get_acl("/a").acl or ()} >= {"digest"}

    with Client(server.hosts, OPTIONS) as other:
        assert failure_of(other.add_auth, "nosuch", b"") is ErrorCode.AUTH_FAILED
        assert other.state is ClientState.AUTH_FAILED


def test_multi_and_multi_read(client: Client) -> None:
    results = client.multi(
        [
            MultiOp(OpCode.CREATE, CreateRequest("/a", b"1", OPEN_ACL, 0)),
            MultiOp(OpCode.CREATE2, CreateRequest("/a/b", b"2", OPEN_ACL, 0)),
            MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"3", 0)),
            MultiOp(OpCode.CHECK, CheckVersionRequest("/a", 1)),
            MultiOp(OpCode.DELETE, DeleteRequest("/a/b", 0)),
        ]
    )
    assert [result.err for result in results] == [0] * 5
    assert [getattr(result.result, "path", None) for result in results[:2]] == ["/a", "/a/b"]
    failed = client.multi(
        [
            MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"4", -1)),
            MultiOp(OpCode.CHECK, CheckVersionRequest("/a", 9)),
            MultiOp(OpCode.DELETE, DeleteRequest("/a", -1)),
        ]
    )
    assert [result.err for result in failed] == [0, ErrorCode.BAD_VERSION, -2]
    found, children, missing = client.multi_read(
        [
            MultiOp(OpCode.GET_DATA, GetDataRequest("/a", False)),
            MultiOp(OpCode.GET_CHILDREN, GetChildrenRequest("/", False)),
            MultiOp(OpCode.GET_DATA, GetDataRequest("/none", False)),
        ]
    )
    assert getattr(found.result, "data", None) == b"3"
    assert getattr(children.result, "children", None) == ("a",)
    assert missing.err == ErrorCode.NO_NODE


def test_watches(server: ApacheServer) -> None:
    events: list[ClientEvent] = []
    with Client(server.hosts, OPTIONS, events.append) as client:
        client.create("/watched")
        events.clear()
        client.get_data("/watched", watch=True)
        client.get_children("/watched", watch=True)
        client.exists("/watched/a", watch=True)
        assert client.has_watch("/watched", WatcherType.DATA)
        assert not client.has_watch("/watched", WatcherType.PERSISTENT)
        client.create("/watched/a")
        client.set_data("/watched", b"")
        client.add_watch("/watched", AddWatchMode.PERSISTENT_RECURSIVE)
        client.create("/watched/a/b")
        client.remove_watches("/watched", WatcherType.ANY)
        client.set_data("/watched/a", b"")
        assert failure_of(client.remove_watches, "/watched", WatcherType.ANY) is (
            ErrorCode.NO_WATCHER
        )
        client.get_config(watch=True)
        client.remove_watches("/zookeeper/config", WatcherType.DATA)
    assert [(event.type.name, event.path) for event in events] == [
        ("NODE_CREATED", "/watched/a"),
        ("NODE_CHILDREN_CHANGED", "/watched"),
        ("NODE_DATA_CHANGED", "/watched"),
        ("NODE_CREATED", "/watched/a/b"),
        ("PERSISTENT_WATCH_REMOVED", "/watched"),
        ("DATA_WATCH_REMOVED", "/zookeeper/config"),
        ("NONE", None),
    ]
    assert events[-1].state is KeeperState.CLOSED


def test_operations_that_a_standalone_server_refuses(client: Client) -> None:
    assert failure_of(client.reconfig, None, "3", None) is ErrorCode.RECONFIG_DISABLED
    assert client.sasl(b"") is None
    assert client.get_config().data == b""


def test_server_restart__session_ephemerals_and_watches_survive(tmp_path: Path) -> None:
    events: list[ClientEvent] = []
    with (
        HeldPorts(1) as held,
        ApacheServer(tmp_path / "data", port=held.numbers[0]) as server,
        Client(server.hosts, OPTIONS, events.append) as client,
    ):
        client.create("/own", b"", mode=CreateMode.EPHEMERAL)
        client.create("/a")
        client.get_data("/a", watch=True)
        session = client.session_id
        server.kill()
        assert eventually(lambda: client.state is ClientState.CONNECTING)
        server.start()
        with Client(server.hosts, OPTIONS) as other:
            other.set_data("/a", b"changed while away")
        client.wait_connected(120, is_patient=True)
        assert client.session_id == session
        assert client.get_ephemerals() == ("/own",)
        assert eventually(lambda: EventType.NODE_DATA_CHANGED in [e.type for e in events])
    states = [event.state for event in events if event.type is EventType.NONE]
    assert states[:3] == [
        KeeperState.SYNC_CONNECTED,
        KeeperState.DISCONNECTED,
        KeeperState.SYNC_CONNECTED,
    ]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_tls(tmp_path: Path) -> None:
    key, certificate, both = (tmp_path / name for name in ("key.pem", "cert.pem", "both.pem"))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + certificate.read_text())
    held = HeldPorts(1)
    (secure_port,) = held.numbers
    configuration = {
        "secureClientPort": str(secure_port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(certificate),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    with held, ApacheServer(tmp_path / "data", configuration=configuration):
        context = ssl.create_default_context(cafile=str(certificate))
        context.load_cert_chain(str(both))
        options = replace(OPTIONS, ssl_context=context)
        with Client(f"localhost:{secure_port}", options) as client:
            client.create("/big", b"x" * 900_000)
            assert client.get_data("/big").data == b"x" * 900_000
            assert ClientInfo("x509", "CN=localhost") in client.who_am_i()
        with pytest.raises(OperationFailed, match=r"(?i)certificate"):
            Client(
                f"localhost:{secure_port}",
                replace(OPTIONS, ssl_context=ssl.create_default_context()),
            ).__enter__()
