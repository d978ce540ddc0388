"""What stands before the command: servers, timeouts, TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from keepfast.shell.shell import ALL_COMMANDS
from keepfast.shell.shell_failures import UsageError
from keepfast.shell.shell_options import ShellOptions, Tls, parse_arguments


def parse(*arguments: str) -> ShellOptions:
    return parse_arguments(list(arguments), ALL_COMMANDS)


def test_first_word__is_a_server_unless_it_is_a_command() -> None:
    assert parse() == ShellOptions()
    assert parse("zk1:2182").server == "zk1:2182"
    assert parse("ls", "/").server == "localhost:2181"
    assert parse("ls", "/").command == ("ls", "/")
    both = parse("zk1", "ls", "-s", "/")
    assert (both.server, both.command) == ("zk1", ("ls", "-s", "/"))
    assert parse("zk1", "nosuch").command == ("nosuch",)
    assert parse("-server", "zk1", "zk2").command == ("zk2",)


def test_zookeepers_spelling_and_ours() -> None:
    for arguments in (
        ("-server", "a:1", "-timeout", "5000", "-r", "-waitforconnection"),
        ("--server=a:1", "--timeout=5000", "--read-only", "--wait"),
    ):
        options = parse(*arguments)
        assert options == ShellOptions("a:1", 5000, is_read_only=True, is_patient=True)
        client = options.client_options()
        assert (client.session_timeout_ms, client.read_only) == (5000, True)
        assert client.connect_timeout_s == 5


def test_json__may_stand_behind_the_command() -> None:
    assert parse("--json", "ls", "/").is_json
    late = parse("ls", "/", "--json")
    assert (late.is_json, late.command) == (True, ("ls", "/"))
    data = parse("set", "/", "--", "--json")
    assert (data.is_json, data.command) == (False, ("set", "/", "--", "--json"))


def test_credentials() -> None:
    assert parse("--auth", "digest:u:p", "--auth=ip:").auths == (("digest", "u:p"), ("ip", ""))


@pytest.mark.parametrize(
    "arguments",
    [
        ["-server"],
        ["-timeout", "x"],
        ["-timeout", "0"],
        ["-timeout", "9999999999999"],
        ["--auth", "digest"],
        ["--nosuch"],
        ["-client-configuration", "no/such/file"],
    ],
)
def test_bad_options__are_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(*arguments)


@pytest.mark.parametrize("server", ["a:b", "a:1/x/", ","])
def test_bad_server__is_refused(server: str) -> None:
    with pytest.raises(UsageError):
        parse(server).target()


def test_tls() -> None:
    assert parse().client_options().ssl_context is None
    context = parse("--tls").client_options().ssl_context
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    lax = parse("--no-verify").client_options().ssl_context
    assert lax is not None
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_NONE)
    with pytest.raises(UsageError, match="TLS cannot be set up"):
        parse("--ca", "no/such/file").client_options()


def test_client_configuration_of_zookeeper(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# nothing about TLS\nzookeeper.request.timeout=5\n")
    assert parse("-client-configuration", str(file)).tls == Tls()
    file.write_text(
        "zookeeper.client.secure = true\n"
        "zookeeper.ssl.keyStore.location=key.pem\n"
        "zookeeper.ssl.keyStore.password=secret\n"
        "zookeeper.ssl.trustStore.location=trust\n"
        "zookeeper.ssl.trustStore.type=PEM\n"
        "zookeeper.ssl.hostnameVerification=false\n"
    )
    assert parse("-client-configuration", str(file)).tls == Tls(
        is_on=True,
        authorities="trust",
        certificate="key.pem",
        password="secret",
        checks_host_name=False,
    )
    file.write_text("zookeeper.client.secure=true\nzookeeper.ssl.keyStore.location=a.jks\n")
    with pytest.raises(UsageError, match="is not PEM"):
        parse("-client-configuration", str(file))
