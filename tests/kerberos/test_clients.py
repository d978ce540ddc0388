"""Clients that log in by Kerberos: kazoo, Apache's Java client, and tokens made by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from keepfast.apache import ConfigError, KerberosLogin, NameRules, load_config
from keepfast.server import options_of
from keepfast.server.kerberos import GssapiClient, GssapiServer, Realm, client_judge
from keepfast.wire import KeeperError
from tests.apache import java_command, wait_until
from tests.kerberos.conftest import HOST
from tests.kerberos.kdc import REALM, Kdc
from tests.server.secured import Running, running

PROVIDER = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = f"zookeeper/{HOST}@{REALM}"
GSSAPI: dict[str, Any] = {"sasl_options": {"mechanism": "GSSAPI"}}


def table_of(kdc: Kdc, principal: str) -> Path:
    return kdc.folder / f"{principal.replace('/', '_')}.keytab"


def section(name: str, principal: str, table: Path) -> str:
    return (
        f"{name} {{ {MODULE} required useKeyTab=true storeKey=true useTicketCache=false\n"
        f'  keyTab="{table}" principal="{principal}"; }};\n'
    )


def properties(kdc: Kdc, folder: Path, text: str | None = None, **more: str) -> dict[str, str]:
    jaas = folder / "jaas.conf"
    jaas.write_text(text or section("Server", SERVICE, table_of(kdc, f"zookeeper/{HOST}")))
    return {
        "java.security.auth.login.config": str(jaas),
        "java.security.krb5.conf": str(kdc.config),
        **{f"zookeeper.{key.replace('__', '.')}": value for key, value in more.items()},
    }


def log_in(kdc: Kdc, principal: str, folder: Path, *options: str) -> None:
    kdc.log_in(principal, folder / "tickets", *options)


def wait_ids(server: Running, name: str) -> None:
    """Wait until somebody is logged in by this name; kazoo does not wait for the last token."""
    wait_until(lambda: server.ids() == [("sasl", name)], f"{name} to be logged in", timeout=60)


def test_ticket__is_an_id_that_acls_know(kdc: Kdc, tmp_path: Path) -> None:
    log_in(kdc, "bob", tmp_path)
    with (
        running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path)) as server,
        server.client(**GSSAPI) as bob,
        server.client() as nobody,
    ):
        wait_ids(server, f"bob@{REALM}")
        bob.create("/own", b"1", acl=[make_acl("sasl", credential=f"bob@{REALM}", all=True)])
        with pytest.raises(NoAuthError):
            nobody.get("/own")
        bob.set("/own", b"2")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, f"ann/desk@{REALM}"),
        ({"kerberos__removeHostFromPrincipal": "true"}, f"ann@{REALM}"),
        ({"kerberos__removeRealmFromPrincipal": "true"}, "ann/desk"),
        (
            {
                "kerberos__removeHostFromPrincipal": "true",
                "kerberos__removeRealmFromPrincipal": "true",
                "security__auth_to_local": "RULE:[2:$1-$2](.*-desk)s/-desk/-of-desk/ DEFAULT",
            },
            "ann-of-desk",
        ),
    ],
    ids=["whole", "no host", "no realm", "by a rule"],
)
def test_name_rules__are_apaches(
    kdc: Kdc, tmp_path: Path, settings: dict[str, str], name: str
) -> None:
    log_in(kdc, "ann/desk", tmp_path)
    with (
        running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path, **settings)) as server,
        server.client(**GSSAPI),
    ):
        wait_ids(server, name)


def test_super_user__may_do_anything(kdc: Kdc, tmp_path: Path) -> None:
    log_in(kdc, "bob", tmp_path)
    found = properties(kdc, tmp_path, superUser=f"bob@{REALM}")
    with running(tmp_path, PROVIDER, properties=found) as server:
        with server.client() as nobody:
            nobody.create("/closed", b"1", acl=[make_acl("digest", credential="x:y", all=True)])
        with server.client(**GSSAPI) as bob:
            assert bob.get("/closed")[0] == b"1"


def test_required_login__by_a_ticket(kdc: Kdc, tmp_path: Path) -> None:
    log_in(kdc, "bob", tmp_path)
    text = f"{PROVIDER}\nsessionRequireClientSASLAuth=true"
    with (
        running(tmp_path, text, properties=properties(kdc, tmp_path)) as server,
        server.client(**GSSAPI) as bob,
    ):
        bob.create("/a")


def test_no_kdc__is_needed_for_a_ticket_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, realm: Kdc
) -> None:
    kdc = Kdc(tmp_path / "kdc")
    for name, value in kdc.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    try:
        kdc.start()
        for principal in (f"zookeeper/{HOST}", "bob"):
            kdc.add(principal)
        log_in(kdc, "bob", tmp_path)
        kdc.run("kvno", f"zookeeper/{HOST}")
        kdc.stop()
        with (
            running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path)) as server,
            server.client(**GSSAPI),
        ):
            wait_ids(server, f"bob@{REALM}")
    finally:
        kdc.close()


def test_ticket_for_another_service__is_refused_with_the_reason(
    kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(kdc, "bob", tmp_path)
    caplog.set_level("INFO", "keepfast.server")
    wrong: dict[str, Any] = {"sasl_options": {"mechanism": "GSSAPI", "service": "HTTP"}}
    with running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path)) as server:
        server.refuses_login(**wrong)
    assert "SASL authentication failed: " in caplog.text
    assert f"HTTP/{HOST}" in caplog.text


# -- by hand: what stock clients do not do --------------------------------------------------------


def parties(kdc: Kdc) -> tuple[Realm, KerberosLogin, KerberosLogin]:
    """The realm, the server's login and bob's."""
    ours = KerberosLogin(SERVICE, str(table_of(kdc, f"zookeeper/{HOST}")), None)
    return Realm(str(kdc.config)), ours, KerberosLogin("bob", str(table_of(kdc, "bob")), None)


def server_side(realm: Realm, ours: KerberosLogin) -> GssapiServer:
    rules = NameRules("DEFAULT", keeps_host=True, keeps_realm=True)
    return GssapiServer(realm, ours, client_judge(rules, realm.default))


def test_exchange__proves_both_sides(kdc: Kdc) -> None:
    realm, ours, bobs = parties(kdc)
    server = server_side(realm, ours)
    client = GssapiClient(realm, bobs, realm.principal(SERVICE))
    token: bytes | None = b""
    while server.user is None:
        token = server.step(client.step(token or b""))
    assert (server.user, token, client.is_complete) == (f"bob@{REALM}", None, True)
    with pytest.raises(KeeperError, match="the exchange is over"):
        server.step(b"more")


@pytest.mark.parametrize("layer", [2, 4], ids=["auth-int", "auth-conf"])
def test_layers_of_protection__are_refused_in_a_sentence(kdc: Kdc, layer: int) -> None:
    realm, ours, bobs = parties(kdc)
    server = server_side(realm, ours)
    context = realm.new_request(bobs, realm.principal(SERVICE))
    context.step(server.step(context.step(None)))
    offer = context.unwrap(server.step(b"") or b"").message
    assert offer == b"\1\0\0\0"
    with pytest.raises(KeeperError, match="auth-int and auth-conf are not offered: use TLS"):
        server.step(context.wrap(bytes((layer, 0, 255, 255)), False).message)
    assert server.user is None


def test_ticket_shown_twice__is_refused(kdc: Kdc, tmp_path: Path) -> None:
    import gssapi

    realm, ours, _ = parties(kdc)
    log_in(kdc, "bob", tmp_path)
    # Without a proof of the server's, as Java's clients ask for it.
    flags = gssapi.RequirementFlag.integrity
    name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    token = gssapi.SecurityContext(name=name, usage="initiate", flags=flags).step(None)
    assert server_side(realm, ours).step(token)
    with pytest.raises(KeeperError, match="replay"):
        server_side(realm, ours).step(token)


@pytest.mark.parametrize("token", [b"", b"\0", b"\x60\x82\xff\xff" * 9, b"x" * 70_000])
def test_what_is_no_token__is_refused(kdc: Kdc, token: bytes) -> None:
    realm, ours, _ = parties(kdc)
    server = server_side(realm, ours)
    with pytest.raises(KeeperError):
        server.step(token)
    with pytest.raises(KeeperError, match="the exchange is over"):
        server.step(token)


def test_expired_ticket__is_refused_on_both_sides(kdc: Kdc, tmp_path: Path) -> None:
    log_in(kdc, "bob", tmp_path, "-l", "1s")
    realm, ours, bobs = parties(kdc)
    tickets = bobs._replace(key_table=None, ticket_cache=f"FILE:{tmp_path / 'tickets'}")
    token = GssapiClient(realm, tickets, realm.principal(SERVICE)).step(b"")
    reasons = []

    def is_over() -> bool:
        try:
            GssapiClient(realm, tickets, realm.principal(SERVICE)).step(b"")
        except KeeperError as error:
            reasons.append(error.detail)
        return bool(reasons)

    wait_until(is_over, "the ticket to expire", timeout=60)
    assert re.match("bob to zookeeper/.*expired", reasons[0]), reasons
    # The server allows for clocks that are five minutes apart, unless its realm says otherwise.
    strict = tmp_path / "strict.conf"
    strict.write_text(kdc.config.read_text().replace("[libdefaults]", "[libdefaults]\nclockskew=1"))
    server = Realm(str(strict))

    def is_refused() -> bool:
        try:
            server_side(server, ours).step(token)
        except KeeperError as error:
            reasons.append(error.detail)
        return len(reasons) == 2

    wait_until(is_refused, "the server to refuse it", timeout=60)
    assert reasons[1] in ("Ticket expired", "Clock skew too great"), reasons


# -- what a start says ----------------------------------------------------------------------------


def no_table(kdc: Kdc) -> str:
    return section("Server", SERVICE, kdc.folder / "missing.keytab")


def no_key(kdc: Kdc) -> str:
    return section("Server", SERVICE, table_of(kdc, "bob"))


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        (no_table, {}, "section Server: no key of zookeeper/.*missing.keytab"),
        (no_key, {}, "section Server: no key of zookeeper/.*bob.keytab"),
        (None, {"security__auth_to_local": "RULE:[oops"}, "not a rule: 'RULE:\\[oops'"),
    ],
    ids=["no table", "no key", "no rule"],
)
def test_start__says_what_is_wrong(
    kdc: Kdc,
    tmp_path: Path,
    text: Callable[[Kdc], str] | None,
    settings: dict[str, str],
    reason: str,
) -> None:
    with pytest.raises(ConfigError, match=reason):
        start(kdc, tmp_path, None if text is None else text(kdc), **settings)


def start(kdc: Kdc, folder: Path, text: str | None, **settings: str) -> None:
    file = folder / "zoo.cfg"
    file.write_text(f"dataDir={folder}/data\nclientPort=0\n{PROVIDER}\n")
    options_of(load_config(file, overrides=properties(kdc, folder, text, **settings)))


def test_start__without_the_library_says_which_package(
    kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"Kerberos needs the packages of keepfast\[kerberos\]"):
        start(kdc, tmp_path, None)


# -- Apache's Java client -------------------------------------------------------------------------


def java_client(
    kdc: Kdc, folder: Path, server: Running, principal: str, **more: Any
) -> subprocess.CompletedProcess[str]:
    jaas = folder / "client.conf"
    jaas.write_text(section("Client", principal, table_of(kdc, principal.partition("@")[0])))
    command = java_command(
        "org.apache.zookeeper.ZooKeeperMain",
        ["-server", f"{HOST}:{server.port}", "-waitforconnection"],
        properties=[
            ("jline.terminal", "jline.UnsupportedTerminal"),
            ("java.security.auth.login.config", str(jaas)),
            ("java.security.krb5.conf", str(kdc.config)),
            ("zookeeper.server.principal", more.get("service", SERVICE)),
        ],
        jars=("commons-cli-", "jline-2"),
    )
    return subprocess.run(
        command,
        input="whoami\ncreate /mine data sasl:" + principal + ":cdrwa\ngetAcl /mine\nquit\n",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.conformance
def test_java_client__logs_in(kdc: Kdc, tmp_path: Path) -> None:
    with running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path)) as server:
        found = java_client(kdc, tmp_path, server, f"bob@{REALM}")
    assert f"sasl: bob@{REALM}" in found.stdout, found.stdout + found.stderr
    assert f"'sasl,'bob@{REALM}" in found.stdout, found.stdout + found.stderr


@pytest.mark.conformance
def test_java_client__with_a_ticket_for_another_service_is_refused(
    kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "keepfast.server")
    with running(tmp_path, PROVIDER, properties=properties(kdc, tmp_path)) as server:
        wrong = f"HTTP/{HOST}@{REALM}"
        found = java_client(kdc, tmp_path, server, f"bob@{REALM}", service=wrong)
    assert "sasl: bob" not in found.stdout
    assert "SASL authentication failed: " in caplog.text, found.stdout + found.stderr
