"""What stands on the command line before the command: where to connect to, and how.

    keepfast shell [options] [HOST:PORT[,...][/chroot]] [command [arguments]]

Options are spelled as ZooKeeper's shell spells them (`-server`, `-timeout`, `-r`, ...), and with
two dashes as everything else here does.
"""

from __future__ import annotations

import ssl
import textwrap
from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from keepfast.client import ClientOptions, Target, parse_target
from keepfast.shell.shell_failures import UsageError

DEFAULT_SERVER: Final = "localhost:2181"
_MAX_CONNECT_S: Final = 5.0
_MAX_TIMEOUT_MS: Final = 0x7FFFFFFF

OPTIONS: Final = (
    ("-server, --server HOSTS", "the servers, instead of the first argument; localhost:2181"),
    ("-timeout, --timeout MS", "session timeout in milliseconds; 30000"),
    ("-r, --read-only", "accept a server that lost its quorum and serves reads only"),
    ("-waitforconnection, --wait", "keep trying to connect for the length of the session timeout"),
    ("--auth SCHEME:CREDENTIAL", "as the command addauth, before all others; repeatable"),
    ("--json", "one JSON document per command instead of text"),
    ("--tls", "connect by TLS, trusting the system's certificates"),
    ("--ca FILE", "trust these certificates (PEM) instead; implies --tls"),
    ("--cert FILE", "present this certificate (PEM)"),
    ("--key FILE", "its private key, unless the certificate's file holds it"),
    ("--no-verify", "do not check the server's certificate"),
    ("-client-configuration FILE", "a ZooKeeper client's properties file (TLS, PEM stores)"),
    ("-h, --help", "show this text"),
)
SYNOPSIS: Final = "[OPTIONS] [HOST:PORT[,HOST:PORT...][/chroot]] [COMMAND]"
DESCRIPTION: Final = (
    "Without a command: an interactive shell on a terminal, else commands from standard input. "
    "`keepfast shell help` lists the commands."
)
_NAME_WIDTH: Final = 30


def usage() -> str:
    """The text of --help, for 80 columns."""
    options = (
        textwrap.fill(
            text,
            79,
            initial_indent=f"  {name:{_NAME_WIDTH - 2}}",
            subsequent_indent=_NAME_WIDTH * " ",
        )
        for name, text in OPTIONS
    )
    return "\n".join(
        (
            f"Usage: keepfast shell {SYNOPSIS}",
            *("", textwrap.fill(DESCRIPTION, 79)),
            *("", "Options:", *options),
            *("", "Exit codes: 0 done; 1 the operation failed; 2 bad usage; 4 no connection."),
        )
    )


@dataclass(frozen=True, slots=True)
class Tls:
    """How to connect by TLS, if at all."""

    is_on: bool = False
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    password: str | None = None
    is_verified: bool = True
    checks_host_name: bool = True

    def context(self) -> ssl.SSLContext | None:
        """None if TLS is off; UsageError if the files cannot be used."""
        if not self.is_on:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authorities)
            if not self.checks_host_name or not self.is_verified:
                context.check_hostname = False
            if not self.is_verified:
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, self.password)
        except (OSError, ValueError) as error:
            raise UsageError(f"TLS cannot be set up from the given files: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class ShellOptions:
    server: str = DEFAULT_SERVER
    timeout_ms: int = 30_000
    is_read_only: bool = False
    is_patient: bool = False
    is_json: bool = False
    wants_help: bool = False
    auths: tuple[tuple[str, str], ...] = ()
    tls: Tls = field(default_factory=Tls)
    command: tuple[str, ...] = ()

    def target(self) -> Target:
        return to_target(self.server)

    def client_options(self) -> ClientOptions:
        return ClientOptions(
            session_timeout_ms=self.timeout_ms,
            connect_timeout_s=min(self.timeout_ms / 1000, _MAX_CONNECT_S),
            read_only=self.is_read_only,
            credentials=tuple((scheme, to_bytes(secret)) for scheme, secret in self.auths),
            ssl_context=self.tls.context(),
        )


def to_bytes(text: str) -> bytes:
    """Text as it was typed; bytes that were no text in the terminal's encoding come through."""
    return text.encode("utf-8", "surrogateescape")


def to_target(server: str) -> Target:
    """A connection string as people type it; UsageError if it is none."""
    try:
        return parse_target(server)
    except ValueError as error:
        raise UsageError(str(error)) from error


def parse_arguments(arguments: list[str], commands: Container[str]) -> ShellOptions:
    """Read the command line. The first word is a server unless it is one of `commands`."""
    options = ShellOptions()
    words = list(arguments)
    has_server = False
    while words:
        word = words.pop(0)
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            inline = value if equals else None
            has_server = has_server or name.lstrip("-") == "server"
            options = _take_option(options, name, inline, words)
        elif not has_server and word not in commands:
            options = replace(options, server=word)
            has_server = True
        else:
            command = [word, *words]
            is_json = options.is_json or _take_json(command)
            return replace(options, command=tuple(command), is_json=is_json)
    return options


def _take_json(command: list[str]) -> bool:
    """Take `--json` out of a command, where people type it too; no command has such a flag."""
    end = command.index("--") if "--" in command else len(command)
    if "--json" not in command[:end]:
        return False
    command.remove("--json")
    return True


def _take_option(
    options: ShellOptions, name: str, inline: str | None, words: list[str]
) -> ShellOptions:
    def value() -> str:
        if inline is not None:
            return inline
        if not words:
            raise UsageError(f"Error: no argument found for option {name}")
        return words.pop(0)

    match name:
        case "-server" | "--server":
            return replace(options, server=value())
        case "-timeout" | "--timeout":
            return replace(options, timeout_ms=_milliseconds(name, value()))
        case "-r" | "--read-only" | "-readonly":
            return replace(options, is_read_only=True)
        case "-waitforconnection" | "--waitforconnection" | "--wait":
            return replace(options, is_patient=True)
        case "--json":
            return replace(options, is_json=True)
        case "--auth":
            return replace(options, auths=(*options.auths, _credential(value())))
        case "--tls" | "--ca" | "--cert" | "--key" | "--no-verify":
            given = None if name in ("--tls", "--no-verify") else value()
            return replace(options, tls=_with_tls(options.tls, name, given))
        case "-client-configuration" | "--client-configuration":
            return replace(options, tls=read_client_configuration(value(), options.tls))
        case "-h" | "--help" | "-help":
            return replace(options, wants_help=True)
    raise UsageError(f"unknown option {name}; keepfast shell --help lists them")


def _with_tls(tls: Tls, name: str, value: str | None) -> Tls:
    tls = replace(tls, is_on=True)
    match name:
        case "--ca":
            return replace(tls, authorities=value)
        case "--cert":
            return replace(tls, certificate=value)
        case "--key":
            return replace(tls, key=value)
        case "--no-verify":
            return replace(tls, is_verified=False)
    return tls


def _milliseconds(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MAX_TIMEOUT_MS:
        raise UsageError(f"{name} {text}: expected milliseconds, for example {name} 30000")
    return int(text)


def _credential(text: str) -> tuple[str, str]:
    scheme, colon, credential = text.partition(":")
    if not colon or not scheme:
        raise UsageError("--auth wants SCHEME:CREDENTIAL, for example digest:user:password")
    return scheme, credential


def read_client_configuration(file: str, tls: Tls) -> Tls:
    """The TLS settings of a ZooKeeper client's properties file; its other settings have no use
    here."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}") from error
    settings: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", "!")):
            settings[name.strip()] = value.strip()
    if settings.get("zookeeper.client.secure", "").lower() != "true":
        return tls
    checks = settings.get("zookeeper.ssl.hostnameVerification", "true").lower() == "true"
    return replace(
        tls,
        is_on=True,
        authorities=_pem_store(settings, "trustStore", file),
        certificate=_pem_store(settings, "keyStore", file),
        password=settings.get("zookeeper.ssl.keyStore.password") or None,
        checks_host_name=checks,
    )


def _pem_store(settings: dict[str, str], store: str, file: str) -> str | None:
    location = settings.get(f"zookeeper.ssl.{store}.location")
    if not location:
        return None
    type = settings.get(f"zookeeper.ssl.{store}.type") or Path(location).suffix.lstrip(".")
    if type.upper() != "PEM":
        raise UsageError(
            f"{file}: {store} {location} is not PEM. Convert it (keytool -importkeystore, then "
            "openssl pkcs12), and name the result with --ca, --cert and --key"
        )
    return location
