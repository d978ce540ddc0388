"""TLS for clients, with real sockets: who gets in, as whom, and what happens to the others."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from keepfast.apache import load_config
from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_security import TlsConfig
from keepfast.server import ServerOptions, check_files
from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.certificates import confirmed_name
from keepfast.server.logs import EventLog
from tests.apache.words import wait_until
from tests.server.authority import HOST, PASSWORD, Authority, Client
from tests.server.secured import LOOPS, Running, running

_LARGE_BYTES = 900_000
_TIMEOUT_SECONDS = 60.0
# Longer than anything is waited for: what is cut off with this was not cut off for its silence.
_PATIENT = "ssl.handshakeDetectionTimeoutMillis=600000"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Client:
    return authority.client()


def settings(authority: Authority, *lines: str, key_store: Path | None = None) -> str:
    return "\n".join(
        (
            "secureClientPort=0",
            "secureClientPortAddress=127.0.0.1",
            f"ssl.keyStore.location={key_store or authority.server_pem()}",
            f"ssl.trustStore.location={authority.pem}",
            *lines,
        )
    )


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)


def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(dial(port), server_hostname=HOST)


def has_ended(connection: socket.socket) -> bool:
    """Whether the server ends a connection, in order or not."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def ask(port: int, context: ssl.SSLContext | None) -> bytes:
    """The answer to a four-letter word; nothing if the server closes."""
    plain = dial(port)
    with plain if context is None else context.wrap_socket(plain, server_hostname=HOST) as stream:
        stream.sendall(b"srvr")
        answer = b""
        while more := stream.recv(4096):
            answer += more
        return answer


def is_refused(server: Running, context: ssl.SSLContext | None) -> bool:
    """Whether a client gets no answer: with TLS 1.3 it learns of a refusal by the end of stream."""
    try:
        return ask(server.secure_port, context) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("keepfast") and "refused" in record.getMessage()
    ]


@pytest.mark.parametrize("loop_kind", LOOPS)
class TestPorts:
    def test_secure_port__serves_clients_by_their_certificates(
        self, tmp_path: Path, authority: Authority, client: Client, loop_kind: str
    ) -> None:
        text = settings(authority)
        with (
            running(tmp_path, text, loop_kind=loop_kind) as server,
            server.client(server.secure_port, **client.kazoo()) as zk,
        ):
            zk.create("/a", b"x" * _LARGE_BYTES)
            assert len(zk.get("/a")[0]) == _LARGE_BYTES
            ((scheme, name),) = server.ids()
            assert scheme == "x509"
            assert name.startswith("CN=bob,OU=")
            assert name.endswith(r",O=Acme\, Inc.")
            assert b"Mode: standalone" in ask(server.secure_port, client.context())
            assert b"Mode: standalone" in ask(server.port, None)

    def test_shared_port__serves_both_kinds(
        self, tmp_path: Path, authority: Authority, client: Client, loop_kind: str
    ) -> None:
        text = settings(authority, "client.portUnification=true")
        with (
            running(tmp_path, text, loop_kind=loop_kind) as server,
            server.client(server.port, **client.kazoo()) as inside,
            server.client(server.port) as outside,
        ):
            inside.create("/a", b"x" * _LARGE_BYTES)
            assert len(outside.get("/a")[0]) == _LARGE_BYTES
            assert [scheme for scheme, _ in server.ids()] == ["x509"]
            assert b"Mode: standalone" in ask(server.port, client.context())
            assert b"Mode: standalone" in ask(server.port, None)

    def test_connection_that_is_closed_twice__can_still_be_aborted(
        self, tmp_path: Path, authority: Authority, client: Client, loop_kind: str
    ) -> None:
        with (
            running(tmp_path, settings(authority), loop_kind=loop_kind) as server,
            connect(server.secure_port, client.context()) as stream,
        ):
            wait_until(lambda: bool(server.server.running.world.clients), "the client is there")

            async def close_twice() -> int:
                (protocol,) = server.server.running.world.clients.values()
                protocol.close()
                protocol.close()
                waiting = protocol.unsent_bytes
                protocol.abort()
                return waiting

            assert server.run(close_twice()) == 0
            assert has_ended(stream)

    def test_stop__ends_connections_and_handshakes(
        self, tmp_path: Path, authority: Authority, client: Client, loop_kind: str
    ) -> None:
        text = settings(authority, _PATIENT)
        with ExitStack() as stack:
            with running(tmp_path, text, loop_kind=loop_kind) as server:
                open_one = stack.enter_context(connect(server.secure_port, client.context()))
                open_one.sendall(b"\0\0")
                silent = stack.enter_context(dial(server.secure_port))
                # Accepted behind the silent one, which therefore is in its handshake now.
                assert ask(server.secure_port, client.context())
            assert has_ended(open_one)
            assert has_ended(silent)

    def test_client_that_does_not_read__is_cut_off(
        self, tmp_path: Path, authority: Authority, client: Client, loop_kind: str
    ) -> None:
        def small(options: ServerOptions) -> ServerOptions:
            return replace(options, replica=replace(options.replica, max_unsent_bytes=1 << 20))

        text = settings(authority)
        with (
            running(tmp_path, text, loop_kind=loop_kind, adjust=small) as server,
            server.client(server.secure_port, **client.kazoo()) as zk,
            connect(server.secure_port, client.context()) as greedy,
        ):
            zk.create("/large", b"x" * _LARGE_BYTES)
            hello = struct.pack(">iqiqi16s?", 0, 0, 30_000, 0, 16, bytes(16), False)
            wish = struct.pack(">iii6s?", 1, 4, 6, b"/large", False)
            greedy.sendall(struct.pack(">i", len(hello)) + hello)
            assert greedy.recv(1)
            assert len(server.ids()) == 2
            # It may be cut off in the middle of its wishes.
            with suppress(OSError):
                greedy.sendall((struct.pack(">i", len(wish)) + wish) * 100)
            wait_until(lambda: len(server.ids()) == 1, "the greedy client is cut off")
            assert zk.exists("/large") is not None


class TestWhoGetsIn:
    def test_client_of_another_authority__is_refused(
        self,
        tmp_path: Path,
        authority: Authority,
        client: Client,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        stranger = Authority(tmp_path / "other").client()
        context = ssl.create_default_context(cafile=str(client.authority))
        context.load_cert_chain(stranger.certificate, stranger.key)
        with running(tmp_path, settings(authority)) as server:
            assert is_refused(server, context)
            with server.client(server.secure_port, **client.kazoo()) as zk:
                assert zk.exists("/") is not None
        (line,) = refusals(caplog)
        assert "its certificate is not trusted" in line

    def test_certificate_with_the_subject_of_its_authority__is_refused_and_the_cure_is_named(
        self, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("1", "2", "3"):
            (tmp_path / name).mkdir()
        client = authority.namesake(has_identifiers=False)
        with running(tmp_path / "1", settings(authority)) as server:
            assert is_refused(server, client.context())
        (line,) = refusals(caplog)
        assert "subjectKeyIdentifier and authorityKeyIdentifier" in line
        assert "a subject of its own" in line
        # Both cures; and what is in the trust store itself gets in, as on Apache.
        cured = (authority.namesake(has_identifiers=True), authority.client(common_name="eve"))
        with running(tmp_path / "2", settings(authority)) as server:
            for other in cured:
                assert not is_refused(server, other.context())
        client = authority.namesake(has_identifiers=False)
        trusted = tmp_path / "trusted.pem"
        trusted.write_bytes(authority.pem.read_bytes() + client.certificate.read_bytes())
        text = settings(authority).replace(str(authority.pem), str(trusted))
        with running(tmp_path / "3", text) as server:
            assert not is_refused(server, client.context())

    def test_client_without_a_certificate__is_refused(
        self, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = ssl.create_default_context(cafile=str(authority.pem))
        with running(tmp_path, settings(authority)) as server:
            assert is_refused(server, context)
        (line,) = refusals(caplog)
        assert "it shows no certificate" in line

    @pytest.mark.parametrize("rule", ["want", "none"])
    def test_client_without_a_certificate__gets_in_without_a_name_if_it_may(
        self, tmp_path: Path, authority: Authority, rule: str
    ) -> None:
        with (
            running(tmp_path, settings(authority, f"ssl.clientAuth={rule}")) as server,
            server.client(
                server.secure_port, use_ssl=True, ca=str(authority.pem), verify_certs=True
            ) as zk,
        ):
            assert zk.exists("/") is not None
            assert server.ids() == []

    def test_plain_client_on_the_tls_port__is_cut_off_at_once(
        self, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(tmp_path, settings(authority, _PATIENT)) as server:
            assert is_refused(server, None)
        (line,) = refusals(caplog)
        assert "it does not speak TLS" in line

    def test_client_that_says_nothing__is_cut_off(
        self, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = settings(authority, "ssl.handshakeDetectionTimeoutMillis=100")
        with (
            running(tmp_path, text) as server,
            dial(server.secure_port) as silent,
        ):
            assert silent.recv(1) == b""
        (line,) = refusals(caplog)
        assert "it did not say anything in time" in line

    def test_silent_sockets__count_toward_the_limit_of_an_address(
        self, tmp_path: Path, authority: Authority, client: Client
    ) -> None:
        with (
            running(tmp_path, settings(authority, "maxClientCnxns=2", _PATIENT)) as server,
            dial(server.secure_port),
        ):
            with dial(server.secure_port):
                # Accepted behind the two.
                assert is_refused(server, client.context())
            wait_until(lambda: not is_refused(server, client.context()), "a place is free")

    def test_handshakes_under_way__are_limited(
        self,
        tmp_path: Path,
        authority: Authority,
        client: Client,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        text = settings(authority, "netty.server.outstandingHandshake.limit=1", _PATIENT)
        with running(tmp_path, text) as server, dial(server.secure_port):
            # Accepted behind the silent one.
            assert is_refused(server, client.context())
        assert "too many handshakes" in refusals(caplog)[0]

    def test_certificate_for_another_host__is_refused_if_hosts_are_checked(
        self, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = settings(authority, "ssl.clientHostnameVerification=true")
        from_here = authority.client("127.0.0.1", common_name="here")
        from_there = authority.client("10.0.0.7", "localhost", common_name="there")
        with running(tmp_path, text) as server:
            assert ask(server.secure_port, from_here.context())
            assert refusals(caplog) == []
            assert is_refused(server, from_there.context())
        assert "its certificate does not name its address" in refusals(caplog)[0]

    @pytest.mark.parametrize("loop_kind", LOOPS)
    def test_name_of_the_host__is_looked_up_if_that_is_allowed(
        self,
        tmp_path: Path,
        authority: Authority,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        loop_kind: str,
    ) -> None:
        async def name_of(address: str) -> str:
            assert address == "127.0.0.1"
            return "here.test"

        monkeypatch.setattr("keepfast.server.tls_port.confirmed_name", name_of)
        text = settings(
            authority, "ssl.clientHostnameVerification=true", "ssl.allowReverseDnsLookup=true"
        )
        named = authority.client("here.test", common_name="named")
        with running(tmp_path, text, loop_kind=loop_kind) as server:
            with server.client(server.secure_port, **named.kazoo()) as zk:
                assert zk.exists("/") is not None
            other = authority.client("there.test", common_name="other")
            assert is_refused(server, other.context())
        assert "names neither its address nor here.test" in refusals(caplog)[0]


class TestIds:
    def test_acl_of_a_certificate__holds(
        self, tmp_path: Path, authority: Authority, client: Client
    ) -> None:
        other = authority.client(common_name="eve")
        with (
            running(tmp_path, settings(authority)) as server,
            server.client(server.secure_port, **client.kazoo()) as bob,
        ):
            ((_, name),) = server.ids()
            bob.create("/own", b"1", acl=[make_acl("x509", credential=name, all=True)])
            bob.create("/auth", b"1", acl=[make_acl("auth", credential="", all=True)])
            assert bob.get_acls("/auth")[0][0].id.id == name
            with server.client(server.secure_port, **other.kazoo()) as eve:
                for path in ("/own", "/auth"):
                    with pytest.raises(NoAuthError):
                        eve.get(path)
            bob.set("/own", b"2")

    def test_super_user__may_do_anything(
        self, tmp_path: Path, authority: Authority, client: Client
    ) -> None:
        with (
            running(tmp_path, settings(authority)) as server,
            server.client(server.secure_port, **client.kazoo()) as bob,
        ):
            ((_, name),) = server.ids()
            bob.create("/closed", b"1", acl=[make_acl("digest", credential="x:y", all=True)])
            with pytest.raises(NoAuthError):
                bob.get("/closed")
        key = "zookeeper.X509AuthenticationProvider.superUser"
        with (
            running(tmp_path, settings(authority), properties={key: name}) as server,
            server.client(server.secure_port, **client.kazoo()) as bob,
        ):
            assert bob.get("/closed")[0] == b"1"
            assert server.ids() == [("x509", name), ("super", name)]

    def test_secure_port_alone__is_enough(
        self, tmp_path: Path, authority: Authority, client: Client
    ) -> None:
        with running(tmp_path, settings(authority), has_plain_port=False) as server:
            assert server.port == 0
            assert b"Mode" in ask(server.secure_port, client.context())


class TestReload:
    def test_renewed_certificate__is_used_and_connections_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quickly(monkeypatch)
        old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
        store = old.server_pem()
        text = settings(old, "client.certReload=true", key_store=store)
        with (
            running(tmp_path, text) as server,
            server.client(server.secure_port, **old.client().kazoo()) as zk,
        ):
            before = shown_certificate(server)
            put_in_place(store, new.server_pem().read_bytes())
            wait_until(lambda: shown_certificate(server) != before, "the renewed certificate")
            zk.create("/still-there")
            # The trust store has not changed: clients are still those of the old authority.
            context = ssl.create_default_context(cafile=str(new.pem))
            shown = old.client()
            context.load_cert_chain(shown.certificate, shown.key)
            assert b"Mode" in ask(server.secure_port, context)

    def test_half_written_store__keeps_the_old_certificate_and_warns_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        looks = quickly(monkeypatch)
        authority = Authority(tmp_path / "a")
        store = authority.server_pem()
        renewed = authority.server_pem("next.pem").read_bytes()
        text = settings(authority, "client.certReload=true", key_store=store)
        with running(tmp_path, text) as server:
            before = shown_certificate(server)
            # At once: an empty file between the two would be another one to warn of.
            put_in_place(store, renewed[: len(renewed) // 2])
            wait_until(lambda: "certificates-refused" in caplog.text, "the warning")
            enough = len(looks) + 5
            wait_until(lambda: len(looks) >= enough, "more looks at the files")
            assert shown_certificate(server) == before
            assert sum("certificates-refused" in message for message in caplog.messages) == 1
            put_in_place(store, renewed)
            wait_until(lambda: shown_certificate(server) != before, "the renewed certificate")

    def test_renewed_trust_store__shuts_out_those_it_no_longer_vouches_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quickly(monkeypatch)
        own, partner = Authority(tmp_path / "own"), Authority(tmp_path / "partner")
        trust = tmp_path / "trust.pem"
        trust.write_bytes(own.pem.read_bytes() + partner.pem.read_bytes())
        text = settings(own, "client.certReload=true", f"ssl.trustStore.location={trust}")
        context = ssl.create_default_context(cafile=str(own.pem))
        shown = partner.client()
        context.load_cert_chain(shown.certificate, shown.key)
        with running(tmp_path, text) as server:
            assert b"Mode" in ask(server.secure_port, context)
            put_in_place(trust, own.pem.read_bytes())
            wait_until(lambda: is_refused(server, context), "the partner's clients are refused")
            assert b"Mode" in ask(server.secure_port, own.client().context())

    def test_without_the_setting__nothing_is_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quickly(monkeypatch)
        authority = Authority(tmp_path / "a")
        with running(tmp_path, settings(authority, key_store=authority.server_pem())) as server:
            before = shown_certificate(server)
            authority.server_pem()
            time.sleep(0.2)
            assert shown_certificate(server) == before

    def test_password_file__is_watched_too(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path / "a")
        password = tmp_path / "password"
        password.write_text("wrong")
        tls = TlsConfig(
            key_store_location=str(authority.encrypted_pem()),
            key_store_password_path=str(password),
            trust_store_location=str(authority.pem),
        )
        with pytest.raises(ConfigError, match="the password does not fit"):
            CertificateKeeper(tls, EventLog(dict, "keepfast.server"))
        password.write_text(PASSWORD)
        keeper = CertificateKeeper(tls, EventLog(dict, "keepfast.server"))
        traces = keeper._traces()
        put_in_place(password, b"another")
        assert keeper._traces() != traces


def quickly(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Look at the files often; gives what was seen at each look."""
    watch, look = CertificateKeeper.watch, CertificateKeeper._traces
    looks: list[Any] = []

    async def often(keeper: CertificateKeeper, interval_seconds: float = 0.02) -> None:
        await watch(keeper, interval_seconds)

    def noted(keeper: CertificateKeeper) -> Any:
        looks.append(look(keeper))
        return looks[-1]

    monkeypatch.setattr(CertificateKeeper, "watch", often)
    monkeypatch.setattr(CertificateKeeper, "_traces", noted)
    return looks


def put_in_place(path: Path, content: bytes) -> None:
    """As certificate managers do: whole or not at all."""
    temporary = path.with_name("temporary")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def shown_certificate(server: Running) -> bytes | None:
    """What the server shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connect(server.secure_port, context) as stream:
        return stream.getpeercert(binary_form=True)


def test_wrong_key_store__stops_the_start_before_the_data_is_touched(
    tmp_path: Path, authority: Authority
) -> None:
    text = settings(authority, key_store=tmp_path / "no.pem")
    with pytest.raises(ConfigError, match="there is no such file"), running(tmp_path, text):
        pass
    assert not (tmp_path / "data").exists()


def test_check__reads_the_stores_and_starts_nothing(tmp_path: Path, authority: Authority) -> None:
    def check(key_store: Path) -> list[str]:
        file = tmp_path / "zoo.cfg"
        text = settings(authority, key_store=key_store)
        file.write_text(f"dataDir={tmp_path / 'data'}\n{text}\n")
        return check_files(load_config(file))

    past = datetime.now(UTC) - timedelta(days=1)
    assert check(authority.server_pem()) == []
    (warning,) = check(authority.server_pem("past.pem", expires_at=past))
    assert "the certificate expired at" in warning
    with pytest.raises(ConfigError, match="there is no such file"):
        check(tmp_path / "no.pem")
    assert not (tmp_path / "data").exists()


def test_client_with_another_authority__does_not_trust_the_server(
    tmp_path: Path, authority: Authority, client: Client
) -> None:
    """The clients of these tests look at the server's certificate, too."""
    context = ssl.create_default_context(cafile=str(Authority(tmp_path / "other").pem))
    context.load_cert_chain(client.certificate, client.key)
    with (
        running(tmp_path, settings(authority)) as server,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        connect(server.secure_port, context)


class TestConfirmedName:
    """A name counts only if it leads back to the address."""

    @pytest.mark.parametrize("place", ["10.0.0.7", "10.0.0.8"])
    def test_name_of_an_address(self, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        async def name_of(_: object, address: tuple[str, int], flags: int) -> tuple[str, str]:
            assert (address[0], flags) == ("10.0.0.7", socket.NI_NAMEREQD)
            return "here.test", "0"

        async def addresses_of(_: object, name: str, *_more: object, **_rest: object) -> list[Any]:
            assert name == "here.test"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0))]

        monkeypatch.setattr(asyncio.BaseEventLoop, "getnameinfo", name_of)
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", addresses_of)
        if place == "10.0.0.7":
            assert asyncio.run(confirmed_name("10.0.0.7")) == "here.test"
        else:
            with pytest.raises(OSError, match=r"here\.test has another address"):
                asyncio.run(confirmed_name("10.0.0.7"))
