"""JAAS files: what is read, and what is said about one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.apache.config_errors import ConfigError
from keepfast.apache.jaas import (
    KerberosLogin,
    LoginModule,
    digest_users,
    kerberos_login,
    parse_jaas,
    read_jaas,
)

_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def test_file_as_the_manual_shows_it__gives_the_users() -> None:
    text = f"""
Server {{
    {_MODULE} required
    user_super="adminsecret"
    user_bob="bobsecret";
}};
Client {{
    {_MODULE} required
    username="bob"
    password="bobsecret";
}};
"""
    sections = parse_jaas(text, "jaas.conf")
    assert list(sections) == ["Server", "Client"]
    assert digest_users(sections["Server"]) == {"super": "adminsecret", "bob": "bobsecret"}
    assert digest_users(sections["Client"]) == {}
    options = {"username": "bob", "password": "bobsecret"}
    assert sections["Client"] == (LoginModule(_MODULE, "required", options),)


def test_comments_quotes_and_escapes__are_javas() -> None:
    text = """# a comment, and "another { one
// user_x="y";
   # indented
Server { /* over
 lines; */ a.B REQUIRED "user_jörg"="p\\"ä\\\\s\\163\\n" user_plain=word user_hash="a#b//c"; };
"""
    (module,) = parse_jaas(text, "jaas.conf")["Server"]
    assert module.flag == "required"
    assert digest_users((module,)) == {"jörg": 'p"ä\\ss\n', "plain": "word", "hash": "a#b//c"}


def test_users_of_several_modules__are_all_there() -> None:
    text = 'S { a.B required user_a="1"; c.D optional debug=true user_b="2"; };'
    assert digest_users(parse_jaas(text, "f")["S"]) == {"a": "1", "b": "2"}


KERBEROS = "S {{ com.sun.security.auth.module.Krb5LoginModule required {0}; }};"


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ('principal="a/b@C" useKeyTab=true keyTab="/k"', KerberosLogin("a/b@C", "/k", None)),
        ('principal="a" useKeyTab=TRUE keyTab="FILE:/k"', KerberosLogin("a", "/k", None)),
        ('principal="a" useKeyTab=true useTicketCache=true', KerberosLogin("a", None, None)),
        ('principal="a" useTicketCache=true', KerberosLogin("a", None, "")),
        ('principal="a" useTicketCache=true ticketCache="/t"', KerberosLogin("a", None, "/t")),
    ],
)
def test_kerberos__is_a_principal_and_its_key(options: str, login: KerberosLogin) -> None:
    assert kerberos_login(parse_jaas(KERBEROS.format(options), "f")["S"], "S", "f") == login
    assert kerberos_login(parse_jaas('S { a.B required user_a="1"; };', "f")["S"], "S", "f") is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("useKeyTab=true", "section S needs the server's principal"),
        ('useKeyTab=true principal="*"', "section S needs the server's principal"),
        ('principal="a"', "section S needs useKeyTab=true"),
    ],
)
def test_kerberos_that_cannot_work__is_refused(options: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        kerberos_login(parse_jaas(KERBEROS.format(options), "f")["S"], "S", "f")


def test_empty_file__has_no_sections() -> None:
    assert parse_jaas("", "f") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Server {", "f:1: a login module's class must follow, the file ends instead"),
        ("Server\n{ a.B required\n  x", "f:3: = must follow, the file ends instead"),
        ("Server { a.B required };", "f:1: an option or ; must follow, there is } instead"),
        ("Server { a.B required x=1; }", "f:1: ; must follow, the file ends instead"),
        ("Server { a.B must x=1; };", "f:1: must: must be one of optional, required"),
        (
            '\nA { b required "pw" "pw"; };',
            "f:2: = must follow, there is a name or a value instead",
        ),
        ("A { b required x=; };", "f:1: a value must follow, there is ; instead"),
        ("A {};\nA {};", "f:2: there are two sections A"),
        ('A {\n b required x="open;\n};', "f:2: a quote does not end"),
    ],
)
def test_wrong_file__is_an_error_with_the_line_and_no_password(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_jaas(text, "f")
    assert str(error.value).startswith(message)


def test_missing_file__is_an_error_with_its_name(tmp_path: Path) -> None:
    file = str(tmp_path / "jaas.conf")
    with pytest.raises(ConfigError, match=r"jaas\.conf: the JAAS file cannot be read: No such"):
        read_jaas(file)


def test_file_that_is_no_text__is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_jaas(str(file))
