"""TLS and SASL on the connections between servers: who gets in, and who does not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepfast.apache.config import load_config
from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_security import QuorumAuthConfig, TlsConfig
from keepfast.harness import HeldPorts
from keepfast.quorum import Address
from keepfast.replica import QUORUM_SERVICE, DigestMd5, DigestMd5Client
from keepfast.server.election_links import LinkOptions, LinkSecurity
from keepfast.server.logs import EventLog
from keepfast.server.peer_sasl import PeerSasl, digest_sasl, load_peer_sasl
from keepfast.server.peer_stream import PeerListener, PeerStream, connect
from keepfast.server.peer_tls import PeerTls, load_peer_tls
from keepfast.server.serve import options_of
from keepfast.wire import (
    QUORUM_AUTH_MAGIC,
    KeeperError,
    PeerProtocolError,
    QuorumAuthPacket,
    encode,
)
from tests.apache.words import wait_until
from tests.server.authority import Authority
from tests.server.test_election_links import ensemble
from tests.server.voters import PATIENCE_SECONDS, Run, Voter, run_on

LOG = EventLog(dict, "keepfast.server")
HERE = "127.0.0.1"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def tls_of(
    keys: Path, trust: Path, *, is_dialling: bool = True, takes_plain: bool = False, **more: bool
) -> PeerTls:
    settings: dict[str, Any] = {"client_hostname_verification": True, **more}
    config = TlsConfig(key_store_location=str(keys), trust_store_location=str(trust), **settings)
    return PeerTls(config, LOG, is_dialling=is_dialling, takes_plain=takes_plain)


def sasl_of(
    password: str = "secret", *, is_proving: bool = True, is_required: bool = True
) -> PeerSasl:
    users = {"zk": "secret", "jörg": "päss"} if password == "secret" else {"zk": password}
    sasl = digest_sasl("zk", password, users, LOG)
    return replace(sasl, is_proving=is_proving, is_required=is_required)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, on both kinds of loop."""
    return partial(run_on, request.param)


async def exchange(dialling: LinkSecurity, accepting: LinkSecurity) -> None:
    """A connection over which a word comes back; raises what the dialler gets instead."""

    async def welcome(stream: PeerStream) -> None:
        if accepting.sasl is not None:
            await accepting.sasl.check(stream)
        stream.write(await stream.read_exactly(9))
        stream.close()

    listener = PeerListener(welcome, LOG, tls=accepting.tls)
    (port,) = await listener.open([Address(HERE, 0)])
    try:
        stream = await connect(
            [Address(HERE, port)], timeout_seconds=PATIENCE_SECONDS, tls=dialling.tls
        )
        try:
            if dialling.sasl is not None:
                await dialling.sasl.prove(stream)
            stream.write(b"a word or")
            assert await stream.read_exactly(9) == b"a word or"
        finally:
            stream.abort()
    finally:
        listener.close()
        await listener.wait_closed()


def test_tls__both_sides_with_the_same_authority(run: Run, authority: Authority) -> None:
    tls = tls_of(authority.server_pem(), authority.pem)
    run(exchange(LinkSecurity(tls), LinkSecurity(tls)))


@pytest.mark.parametrize("who", ["dialler", "acceptor"])
def test_tls__certificate_of_another_authority_is_refused(
    run: Run, authority: Authority, stranger: Authority, who: str
) -> None:
    ours = tls_of(authority.server_pem(), authority.pem)
    theirs = tls_of(stranger.server_pem(), authority.pem)
    dialling, accepting = (theirs, ours) if who == "dialler" else (ours, theirs)

    with pytest.raises(OSError):
        run(exchange(LinkSecurity(dialling), LinkSecurity(accepting)))


@pytest.mark.parametrize("who", ["dialler", "acceptor"])
def test_tls__certificate_of_another_host_is_refused_unless_hosts_do_not_matter(
    run: Run, authority: Authority, who: str
) -> None:
    elsewhere = authority.client("elsewhere.test", common_name="elsewhere")
    keys = authority.folder / "elsewhere.both.pem"
    keys.write_bytes(elsewhere.key.read_bytes() + elsewhere.certificate.read_bytes())
    right, wrong = authority.server_pem(), keys

    def pair(**more: bool) -> tuple[LinkSecurity, LinkSecurity]:
        sides = [tls_of(store, authority.pem, **more) for store in (wrong, right)]
        if who == "acceptor":
            sides.reverse()
        return LinkSecurity(sides[0]), LinkSecurity(sides[1])

    with pytest.raises(OSError):
        run(exchange(*pair()))
    run(exchange(*pair(hostname_verification=False)))


def test_tls__plain_connection_is_refused_unless_the_ports_are_unified(
    run: Run,
    authority: Authority,
) -> None:
    keys = authority.server_pem()
    plain = LinkSecurity()

    with pytest.raises(OSError):
        run(exchange(plain, LinkSecurity(tls_of(keys, authority.pem))))
    unified = LinkSecurity(tls_of(keys, authority.pem, takes_plain=True))
    run(exchange(plain, unified))
    run(exchange(unified, unified))


def test_tls__dialler_in_the_clear_reaches_unified_ports(run: Run, authority: Authority) -> None:
    keys = authority.server_pem()
    before = LinkSecurity(tls_of(keys, authority.pem, is_dialling=False, takes_plain=True))

    run(exchange(before, before))
    run(exchange(before, LinkSecurity()))


def test_tls__who_says_nothing_is_cut_off(
    run: Run, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        config = TlsConfig(
            key_store_location=str(authority.server_pem()),
            trust_store_location=str(authority.pem),
            handshake_detection_timeout_ms=50,
        )
        log = EventLog(dict, "keepfast.server")
        tls = PeerTls(config, log, is_dialling=True, takes_plain=True)

        async def welcome(_: PeerStream) -> None:
            raise AssertionError("nobody came")

        listener = PeerListener(welcome, log, tls=tls)
        (port,) = await listener.open([Address(HERE, 0)])
        reader, writer = await asyncio.open_connection(HERE, port)
        assert await reader.read() == b""
        writer.close()
        listener.close()
        await listener.wait_closed()

    with caplog.at_level(logging.WARNING):
        run(play())
    assert "did not say anything in time" in caplog.text


def test_election__over_tls_and_sasl(run: Run, authority: Authority) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        security = LinkSecurity(tls_of(authority.server_pem(), authority.pem), sasl_of())
        async with (
            Voter(1, members, security=security) as one,
            Voter(2, members, security=security) as two,
        ):
            one.look()
            two.look()
            assert (await one.wait_elected()).leader == 2
            assert (await two.wait_elected()).leader == 2

    run(play())


def test_election__server_with_a_wrong_password_is_never_heard(
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        options = LinkOptions(first_retry_ms=20, longest_retry_ms=20, dial_back_ms=20)
        async with (
            Voter(1, members, security=LinkSecurity(sasl=sasl_of("wrong")), options=options) as one,
            Voter(2, members, security=LinkSecurity(sasl=sasl_of()), options=options) as two,
        ):
            one.look()
            two.look()
            for text in ("wrong password", "does not accept"):
                await asyncio.to_thread(wait_until, partial(contains, caplog, text), text)
            assert one.heard == []
            assert two.heard == []

    with caplog.at_level(logging.INFO):
        run(play())


def contains(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


def test_sasl__right_password_gets_in(run: Run) -> None:
    run(exchange(LinkSecurity(sasl=sasl_of()), LinkSecurity(sasl=sasl_of())))


@pytest.mark.parametrize("password", ["wrong", ""])
def test_sasl__wrong_password_is_refused(run: Run, password: str) -> None:
    with pytest.raises(PeerProtocolError, match="does not accept"):
        run(exchange(LinkSecurity(sasl=sasl_of(password)), LinkSecurity(sasl=sasl_of())))


def test_sasl__silent_dialler_is_refused_where_it_is_required(run: Run) -> None:
    dialling = LinkSecurity(sasl=sasl_of(is_proving=False))

    with pytest.raises(OSError):
        run(exchange(dialling, LinkSecurity(sasl=sasl_of())))
    with pytest.raises(OSError):
        run(exchange(LinkSecurity(), LinkSecurity(sasl=sasl_of())))


def test_sasl__dialler_goes_on_where_it_is_not_required(run: Run) -> None:
    lenient = LinkSecurity(sasl=sasl_of(is_required=False))

    run(exchange(LinkSecurity(), lenient))
    run(exchange(LinkSecurity(sasl=sasl_of(is_proving=False)), lenient))
    run(exchange(LinkSecurity(sasl=sasl_of()), lenient))


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 16,
        encode(QuorumAuthPacket(QUORUM_AUTH_MAGIC, 0, b"x" * 5000)),
        encode(QuorumAuthPacket(QUORUM_AUTH_MAGIC, 0, b"x"))[:-1],
        encode(QuorumAuthPacket(QUORUM_AUTH_MAGIC, 0, None)) * 2,
    ],
)
def test_sasl__who_breaks_the_protocol_is_cut_off(run: Run, data: bytes) -> None:
    async def play() -> None:
        async def welcome(stream: PeerStream) -> None:
            await sasl_of().check(stream)
            raise AssertionError("got in")

        listener = PeerListener(welcome, LOG)
        (port,) = await listener.open([Address(HERE, 0)])
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(data)
        writer.write_eof()
        try:
            await reader.read()
        except ConnectionError:
            pass
        writer.close()
        listener.close()
        await listener.wait_closed()

    run(play())


def test_hand_over__gives_the_rest_to_the_next_protocol(run: Run) -> None:
    async def play() -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()
        lost = asyncio.Event()

        class Next(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                got.put_nowait(data)

            def connection_lost(self, exc: Exception | None) -> None:
                lost.set()

        async def welcome(stream: PeerStream) -> None:
            assert await stream.read_exactly(2) == b"ab"
            assert await stream.fill(1) == b"c"
            stream.hand_over(Next())

        listener = PeerListener(welcome, LOG)
        (port,) = await listener.open([Address(HERE, 0)])
        stream = await connect([Address(HERE, port)], timeout_seconds=PATIENCE_SECONDS)
        stream.write(b"abcd")
        data = b""
        while data != b"cd":
            data += await got.get()
        stream.write(b"ef")
        while data != b"cdef":
            data += await got.get()
        stream.close()
        await lost.wait()
        listener.close()
        await listener.wait_closed()

    run(play())


def test_nobody_listens__the_failure_names_the_address_in_plain_words(run: Run) -> None:
    async def play() -> None:
        with HeldPorts(1) as held:
            address = Address(HERE, held.numbers[0])
            with pytest.raises(ConnectionError) as caught:
                await connect([address], timeout_seconds=PATIENCE_SECONDS)
        assert str(caught.value) == f"{address}: connection refused"

    run(play())


def test_digest__both_sides_prove_the_password() -> None:
    server = DigestMd5({'a"\\b': "päss"}, "n1", QUORUM_SERVICE)
    client = DigestMd5Client('a"\\b', "päss", "n2", QUORUM_SERVICE)

    last = server.step(client.step(server.step(b"")))

    assert server.user == 'a"\\b'
    assert not client.is_complete
    assert client.step(last) == b""
    assert client.is_complete


def test_digest__server_that_does_not_know_the_password_is_found_out() -> None:
    server = DigestMd5({"zk": "secret"}, "n1", QUORUM_SERVICE)
    client = DigestMd5Client("zk", "secret", "n2", QUORUM_SERVICE)
    client.step(server.step(b""))

    with pytest.raises(KeeperError):
        client.step(b"rspauth=0123456789abcdef0123456789abcdef")
    with pytest.raises(KeeperError):
        DigestMd5Client("zk", "secret", "n2", QUORUM_SERVICE).step(b"realm=x")


JAAS = (
    f'QuorumServer {{ {MODULE} required user_zk="secret"; }};\n'
    f'QuorumLearner {{ {MODULE} required username="zk" password="secret"; }};\n'
)
ON = QuorumAuthConfig(enable_sasl=True, learner_require_sasl=True, fips_mode=False)


def test_settings__are_read_from_the_jaas_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(JAAS)

    sasl = load_peer_sasl(ON, str(file), LOG)

    assert sasl is not None
    run(exchange(LinkSecurity(sasl=sasl), LinkSecurity(sasl=sasl_of())))
    assert (sasl.is_proving, sasl.is_required) == (True, False)
    assert "secret" not in repr(sasl)
    assert load_peer_sasl(QuorumAuthConfig(), "", LOG) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no section QuorumServer"),
        (f'QuorumServer {{ {MODULE} required user_a="b"; }};', "no section QuorumLearner"),
        (JAAS.replace("username", "name"), "needs username and password"),
        (
            JAAS.replace(MODULE, "com.sun.security.auth.module.Krb5LoginModule"),
            "needs the server's principal",
        ),
    ],
)
def test_settings_that_cannot_work__are_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(text)

    with pytest.raises(ConfigError, match=reason):
        load_peer_sasl(ON, str(file), LOG)


def test_settings_without_what_they_need__are_refused(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(JAAS)
    with pytest.raises(ConfigError, match="needed"):
        load_peer_sasl(ON, "", LOG)
    strict = QuorumAuthConfig(enable_sasl=True, learner_require_sasl=True, fips_mode=True)
    with pytest.raises(ConfigError, match="DIGEST-MD5"):
        load_peer_sasl(strict, str(file), LOG)
    alone = TlsConfig(key_store_location=str(authority.server_pem()))
    with pytest.raises(ConfigError, match="needed to check"):
        PeerTls(alone, LOG, is_dialling=True, takes_plain=False)


def test_settings_that_cannot_be_met__end_the_start_instead_of_talking_in_the_clear(
    tmp_path: Path,
) -> None:
    (tmp_path / "myid").write_text("1\n")
    file = tmp_path / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path}\nclientPort=2181\ninitLimit=5\nsyncLimit=2\n"
        "server.1=a:1:2\nserver.2=b:1:2\nsslQuorum=true\n"
        f"ssl.quorum.keyStore.location={tmp_path / 'none.pem'}\n"
        f"ssl.quorum.trustStore.location={tmp_path / 'none.pem'}\n"
    )
    with pytest.raises(ConfigError):
        options_of(load_config(str(file)))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", None),
        ("sslQuorum=true", (True, False)),
        ("portUnification=true", (False, True)),
        ("sslQuorum=true\nportUnification=true", (True, True)),
    ],
)
def test_settings_of_tls__say_who_speaks_it(
    tmp_path: Path, authority: Authority, lines: str, expected: tuple[bool, bool] | None
) -> None:
    (tmp_path / "myid").write_text("1\n")
    file = tmp_path / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path}\nclientPort=2181\ninitLimit=5\nsyncLimit=2\n"
        f"server.1=a:1:2\nserver.2=b:1:2\n{lines}\n"
        f"ssl.quorum.keyStore.location={authority.server_pem()}\n"
        f"ssl.quorum.trustStore.location={authority.pem}\n"
    )
    config = load_config(str(file))

    tls = load_peer_tls(config.ensemble, config.quorum_tls, LOG)
    security = options_of(config).security

    assert security is not None
    assert (tls is None) == (security.tls is None)
    assert security.sasl is None
    assert (None if tls is None else (tls.is_dialling, tls.takes_plain)) == expected
