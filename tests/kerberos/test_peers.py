"""Servers that log in to each other by Kerberos: ours, and Apache's in one ensemble with ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepfast.apache import ConfigError, load_config
from keepfast.apache.config_security import QuorumAuthConfig
from keepfast.server import options_of
from keepfast.server.election_links import LinkSecurity
from keepfast.server.logs import EventLog
from keepfast.server.peer_sasl import PeerSasl, load_peer_sasl
from keepfast.wire import PeerProtocolError
from tests.kerberos.conftest import HOST
from tests.kerberos.kdc import REALM, Kdc
from tests.kerberos.test_clients import MODULE, section, table_of
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble
from tests.mixed.test_mixed import write_through
from tests.server.test_peer_security import exchange
from tests.server.voters import run_on

MEMBER = f"zkquorum/{HOST}"
LOG = EventLog(dict, "keepfast.server")
ON: dict[str, Any] = {
    "enable_sasl": True,
    "learner_require_sasl": True,
    "server_require_sasl": True,
}
run = partial(run_on, "uvloop")


def jaas(kdc: Kdc, folder: Path, learner: str = MEMBER, table: Path | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "jaas.conf"
    file.write_text(
        section("QuorumServer", f"{MEMBER}@{REALM}", table_of(kdc, MEMBER))
        + section("QuorumLearner", f"{learner}@{REALM}", table or table_of(kdc, learner))
    )
    return file


def login(
    kdc: Kdc,
    folder: Path,
    learner: str = MEMBER,
    service: str = "zkquorum/_HOST",
    hosts: Sequence[str] = (HOST,),
) -> LinkSecurity:
    config = QuorumAuthConfig(**ON, service_principal=service)
    file = jaas(kdc, folder, learner)
    found = load_peer_sasl(config, str(file), LOG, hosts, str(kdc.config))
    assert isinstance(found, PeerSasl)
    return LinkSecurity(sasl=found)


def test_members__prove_themselves_to_each_other(kdc: Kdc, tmp_path: Path) -> None:
    ours = login(kdc, tmp_path)
    run(exchange(ours, ours))


@pytest.mark.parametrize("who", ["bob", f"HTTP/{HOST}", "zkquorum/elsewhere", "ann/desk"])
def test_principal_of_no_member__is_refused(
    kdc: Kdc, tmp_path: Path, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = login(kdc, tmp_path / "stranger", learner=who)
    with pytest.raises(PeerProtocolError, match="does not accept our login"):
        run(exchange(stranger, login(kdc, tmp_path)))
    assert f"SASL: {who}@{REALM} is " in caplog.text


def test_member_without_a_host_in_its_name__is_ours_alone(kdc: Kdc, tmp_path: Path) -> None:
    ours = login(kdc, tmp_path, learner="bob")
    run(exchange(ours, ours))


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ("zkquorum/nowhere", "not found in Kerberos database"),
        (f"HTTP/{HOST}", "does not accept our login"),
    ],
)
def test_wrong_service_principal__is_named(
    kdc: Kdc, tmp_path: Path, service: str, reason: str
) -> None:
    with pytest.raises(PeerProtocolError, match=reason):
        run(exchange(login(kdc, tmp_path, service=service), login(kdc, tmp_path / "other")))


def test_no_kdc__is_a_reason_and_nothing_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, realm: Kdc
) -> None:
    kdc = Kdc(tmp_path / "kdc")
    for name, value in kdc.variables.items():
        monkeypatch.setenv(name, value)
    try:
        kdc.start()
        kdc.add(MEMBER)
        kdc.stop()
        ours = login(kdc, tmp_path)
        with pytest.raises(PeerProtocolError, match=f"{MEMBER}@{REALM} to .*KDC"):
            run(exchange(ours, ours))
    finally:
        kdc.close()


def test_digest_and_kerberos__do_not_mix(kdc: Kdc, tmp_path: Path) -> None:
    file = tmp_path / "digest.conf"
    digest = "org.apache.zookeeper.server.auth.DigestLoginModule"
    file.write_text(
        f'QuorumServer {{ {digest} required user_zk="secret"; }};\n'
        f'QuorumLearner {{ {digest} required username="zk" password="secret"; }};\n'
    )
    config = QuorumAuthConfig(**ON, fips_mode=False)
    other = LinkSecurity(sasl=load_peer_sasl(config, str(file), LOG))
    ours = login(kdc, tmp_path)
    for dialling, accepting in ((other, ours), (ours, other)):
        with pytest.raises(PeerProtocolError):
            run(exchange(dialling, accepting))


def test_start__says_what_is_wrong(kdc: Kdc, tmp_path: Path) -> None:
    file = jaas(kdc, tmp_path, table=table_of(kdc, "bob"))
    with pytest.raises(ConfigError, match="section QuorumLearner: no key of zkquorum"):
        load_peer_sasl(QuorumAuthConfig(**ON), str(file), LOG, (HOST,), str(kdc.config))
    file.write_text(f"QuorumServer {{ {MODULE} required useKeyTab=true; }};\n")
    with pytest.raises(ConfigError, match="section QuorumServer needs the server's principal"):
        load_peer_sasl(QuorumAuthConfig(**ON), str(file), LOG, (HOST,), str(kdc.config))


def settings(kdc: Kdc, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Properties and lines of zoo.cfg, for Apache's servers and for ours."""
    return (
        {
            "java.security.auth.login.config": str(jaas(kdc, folder)),
            "java.security.krb5.conf": str(kdc.config),
        },
        {
            "quorum.auth.enableSasl": "true",
            "quorum.auth.learnerRequireSasl": "true",
            "quorum.auth.serverRequireSasl": "true",
            "quorum.auth.kerberos.servicePrincipal": "zkquorum/_HOST",
        },
    )


def test_hosts_of_the_file__are_those_of_members(kdc: Kdc, tmp_path: Path) -> None:
    properties, lines = settings(kdc, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "myid").write_text("1")
    file = tmp_path / "zoo.cfg"
    members = "".join(f"server.{id}={HOST}:{id}1:{id}2\n" for id in (1, 2, 3))
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    limits = "initLimit=5\nsyncLimit=5\n"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\n{limits}{members}{text}")
    security = options_of(load_config(file, overrides=properties)).security
    assert security is not None
    run(exchange(security, security))


@pytest.mark.conformance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("leader", [KEEPFAST, APACHE])
def test_apache_and_ours__in_one_ensemble(kdc: Kdc, tmp_path: Path, leader: str) -> None:
    """The greatest id leads: both kinds dial and are dialled, for votes and to follow."""
    other = APACHE if leader == KEEPFAST else KEEPFAST
    properties, lines = settings(kdc, tmp_path / "login")
    with MixedEnsemble(
        tmp_path,
        {1: KEEPFAST, 2: other, 3: leader},
        properties=properties,
        configuration=lines,
    ) as ensemble:
        ensemble.start()
        write_through(ensemble, "first", count=3)
        ensemble.make_lead(3)
        write_through(ensemble, "second", count=3)
        ensemble.assert_equal()


def test_silent_kdc__holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, realm: Kdc
) -> None:
    kdc = Kdc(tmp_path / "kdc")
    for name, value in kdc.variables.items():
        monkeypatch.setenv(name, value)
    kdc.add(MEMBER)

    async def work() -> None:
        asked = asyncio.Event()
        lines: list[asyncio.StreamWriter] = []

        def hear(_: asyncio.StreamReader, line: asyncio.StreamWriter) -> None:
            lines.append(line)
            asked.set()

        silent = await asyncio.start_server(hear, HOST, kdc.port)
        ours = login(kdc, tmp_path)
        dialling = asyncio.create_task(exchange(ours, ours))
        # Heard on the same loop on which the login waits.
        await asked.wait()
        assert not dialling.done()
        silent.close()
        for line in lines:
            line.close()
        with pytest.raises(PeerProtocolError, match="KDC"):
            await dialling

    try:
        run(work())
    finally:
        kdc.close()
