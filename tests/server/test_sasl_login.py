"""SASL logins from a configuration, by a stock client."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError, SessionClosedRequireSaslError
from kazoo.security import make_acl

from keepfast.apache import ConfigError, load_config
from keepfast.server import ServerOptions, options_of
from tests.apache.words import wait_until
from tests.server.secured import running

PROVIDER = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
JAAS_KEY = "java.security.auth.login.config"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
USERS = 'user_super="first" user_bob="hush-hush" user_eve="other"'


def login(user: str, password: str) -> dict[str, Any]:
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}


def jaas(folder: Path, text: str | None = None) -> dict[str, str]:
    file = folder / "jaas.conf"
    file.write_text(f"Server {{ {MODULE} required {USERS}; }};" if text is None else text)
    return {JAAS_KEY: str(file)}


def options(folder: Path, text: str | None = None, **settings: str) -> ServerOptions:
    file = folder / "zoo.cfg"
    lines = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    file.write_text("\n".join((f"dataDir={folder}/data", "clientPort=0", PROVIDER, *lines)))
    return options_of(load_config(file, overrides=jaas(folder, text)))


def test_right_password__owns_its_znodes(tmp_path: Path) -> None:
    with (
        running(tmp_path, PROVIDER, properties=jaas(tmp_path)) as server,
        server.client(**login("bob", "hush-hush")) as bob,
        server.client(**login("eve", "other")) as eve,
        server.client() as nobody,
    ):
        # kazoo logs in after it has told that it is connected.
        both = [("sasl", "bob"), ("sasl", "eve")]
        wait_until(lambda: sorted(server.ids()) == both, "both to be logged in")
        bob.create("/own", b"1", acl=[make_acl("sasl", credential="bob", all=True)])
        bob.create("/auth", b"1", acl=[make_acl("auth", credential="", all=True)])
        for stranger in (eve, nobody):
            for path in ("/own", "/auth"):
                with pytest.raises(NoAuthError):
                    stranger.get(path)
        bob.set("/own", b"2")
        with server.client(**login("super", "first")) as superuser:
            # Scheme sasl, user super: matches every entry of scheme sasl.
            assert superuser.get("/own")[0] == b"2"


def test_wrong_password__fails_and_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "keepfast.server")
    with running(tmp_path, PROVIDER, properties=jaas(tmp_path)) as server:
        server.refuses_login(**login("bob", "wrong"))
    assert "SASL authentication failed: wrong password for 'bob'" in caplog.text


def test_super_users__may_do_anything(tmp_path: Path) -> None:
    properties = jaas(tmp_path) | {"zookeeper.superUser": "bob", "zookeeper.superUser.2": "eve"}
    with running(tmp_path, PROVIDER, properties=properties) as server:
        with server.client() as nobody:
            nobody.create("/closed", b"1", acl=[make_acl("digest", credential="x:y", all=True)])
        for user, password in (("bob", "hush-hush"), ("eve", "other")):
            with server.client(**login(user, password)) as client:
                assert client.get("/closed")[0] == b"1"


def test_required_login__refuses_everybody_else(tmp_path: Path) -> None:
    text = f"{PROVIDER}\nsessionRequireClientSASLAuth=true"
    with running(tmp_path, text, properties=jaas(tmp_path)) as server:
        with server.client(**login("bob", "hush-hush")) as bob:
            bob.create("/a")
        with server.client() as nobody, pytest.raises(SessionClosedRequireSaslError):
            nobody.get("/a")


def test_required_scheme__is_satisfied_by_a_digest(tmp_path: Path) -> None:
    text = f"{PROVIDER}\nenforce.auth.enabled=true\nenforce.auth.schemes=digest,sasl"
    with running(tmp_path, text, properties=jaas(tmp_path)) as server:
        with server.client(auth_data=[("digest", "a:b")]) as client:
            client.create("/a")
        with server.client(**login("bob", "hush-hush")) as client:
            client.create("/b")


def test_without_the_provider__there_is_no_sasl(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\n")
    found = options_of(load_config(file, overrides=jaas(tmp_path)))
    assert found.replica.authentication.sasl_users is None
    assert "sasl" not in found.replica.prepare.schemes


def test_file_without_the_section__is_a_warning_and_no_sasl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert options(tmp_path, "").replica.authentication.sasl_users is None
    assert "no-section section=Server" in caplog.text


def test_file_without_the_section__is_an_error_where_a_login_is_required(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no section Server, and clients have to log in"):
        options(tmp_path, "", sessionRequireClientSASLAuth="true")


def test_section_by_another_name__is_read(tmp_path: Path) -> None:
    text = f"Mine {{ {MODULE} required {USERS}; }};"
    found = options(tmp_path, text, sasl__serverconfig="Mine")
    assert found.replica.authentication.sasl_users == {
        "super": "first",
        "bob": "hush-hush",
        "eve": "other",
    }


def test_super_password__counts_more_than_the_files(tmp_path: Path) -> None:
    found = options(tmp_path, SASLAuthenticationProvider__superPassword="second")
    assert (found.replica.authentication.sasl_users or {})["super"] == "second"


def test_passwords__are_not_in_the_options_text(tmp_path: Path) -> None:
    assert "hush-hush" not in repr(options(tmp_path))
