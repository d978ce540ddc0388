"""Logins by SASL and by certificate: the same bytes to Apache 3.9.5 and to us, the same answers."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keepfast.harness import HeldPorts
from tests.apache import ApacheServer, java_command, wait_until
from tests.server.authority import HOST, PASSWORD, Authority, Client
from tests.server.secured import running

pytestmark = pytest.mark.conformance

PING, CLOSE, WHO_AM_I, SYNC, AUTH, SASL, UNKNOWN = 11, -11, 107, 9, 100, 102, 1234
PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
JAAS = """
// Server's users
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required /* all of
    them */ user_super="sup" user_bob="secret" user_admin=pw1 "user_jörg"="päss"
    user_quo="a\\"b\\\\c" "user_a/b"="x";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob"; };
"""
CLOSED = "closed"
_PATIENCE_SECONDS = 90.0


class Reply(NamedTuple):
    """A reply, without what may differ: the zxid is -1, 0 or 1, nonces and proofs are left out."""

    xid: int
    zxid: int
    error: int
    body: bytes


class Wire:
    """One connection with a session."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._socket = (
            plain if context is None else context.wrap_socket(plain, server_hostname=HOST)
        )
        self._send(struct.pack(">iqiqi16s?", 0, 0, 60_000, 0, 16, bytes(16), False))
        assert self._receive() is not None

    def close(self) -> None:
        self._socket.close()

    def ask(self, xid: int, op: int, body: bytes = b"") -> Reply | str:
        """The reply to a request, or that there is none."""
        try:
            self._send(struct.pack(">ii", xid, op) + body)
            answer = self._receive()
        except ConnectionError:
            return CLOSED
        if answer is None:
            return CLOSED
        answered, zxid, error = struct.unpack_from(">iqi", answer)
        return Reply(answered, max(min(zxid, 1), -1), error, answer[16:])

    def token(self, xid: int, token: bytes | None) -> Reply | str:
        """The reply to a SASL token."""
        return self.ask(xid, SASL, _buffer(token))

    def who_am_i(self) -> object:
        """The ids of this connection, or why they are not told."""
        reply = self.ask(9, WHO_AM_I)
        if isinstance(reply, str) or reply.error:
            return reply
        texts = _strings(reply.body[4:])
        return sorted(zip(texts[::2], texts[1::2], strict=True))

    def _send(self, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)

    def _receive(self) -> bytes | None:
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return data


def _buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _strings(data: bytes) -> list[str]:
    texts = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        texts.append(data[4 : 4 + size].decode())
        data = data[4 + size :]
    return texts


class Attempt(NamedTuple):
    """A response to a challenge, right unless something is changed."""

    user: str = "bob"
    password: str = "secret"
    encoding: str = "iso-8859-1"
    realm: bytes | None = b"zk-sasl-md5"
    nonce: bytes | None = None
    cnonce: bytes | None = b"abc"
    times: bytes = b"00000001"
    qop: bytes | None = b"auth"
    charset: bytes | None = b"utf-8"
    uri: bytes = b"zookeeper/zk-sasl-md5"
    authzid: bytes | None = None
    separator: bytes = b","
    more: tuple[bytes, ...] = ()

    def token(self, challenge: bytes) -> bytes:
        match = re.search(rb'nonce="([^"]*)"', challenge)
        assert match is not None
        nonce = self.nonce or match[1]
        secret = f"{self.user}:".encode(self.encoding) + (self.realm or b"") + b":"
        secret = hashlib.md5(secret + self.password.encode(self.encoding)).digest()
        parts = [secret, nonce, self.cnonce or b""]
        if self.authzid is not None:
            parts.append(self.authzid)
        proof = b":".join(
            (
                hashlib.md5(b":".join(parts)).hexdigest().encode(),
                *(nonce, self.times, self.cnonce or b"", self.qop or b"auth"),
                hashlib.md5(b"AUTHENTICATE:" + self.uri).hexdigest().encode(),
            )
        )
        quoted: dict[bytes, bytes | None] = {
            b"username": self.user.encode(),
            b"realm": self.realm,
            b"nonce": nonce,
            b"cnonce": self.cnonce,
            b"digest-uri": self.uri,
            b"authzid": self.authzid,
        }
        bare: dict[bytes, bytes | None] = {
            b"charset": self.charset,
            b"nc": self.times,
            b"qop": self.qop,
            b"response": hashlib.md5(proof).hexdigest().encode(),
        }
        directives = [
            b'%s="%s"' % (name, value) for name, value in quoted.items() if value is not None
        ]
        directives += [
            b"%s=%s" % (name, value) for name, value in bare.items() if value is not None
        ]
        return self.separator.join((*directives, *self.more))


ATTEMPTS = {
    "right": Attempt(),
    "wrong password": Attempt(password="no"),
    "no such user": Attempt(user="zed"),
    "super": Attempt("super", "sup"),
    "super user": Attempt("admin", "pw1"),
    "not ASCII": Attempt("jörg", "päss"),
    "not ASCII, no charset": Attempt("jörg", "päss", charset=None),
    "quotes": Attempt("quo", 'a"b\\c'),
    "slash": Attempt("a/b", "x"),
    "as another": Attempt(authzid=b"super"),
    "no realm": Attempt(realm=None),
    "another realm": Attempt(realm=b"x"),
    "another nonce": Attempt(nonce=b"abc"),
    "no cnonce": Attempt(cnonce=None),
    "empty cnonce": Attempt(cnonce=b""),
    "second count": Attempt(times=b"00000002"),
    "no qop": Attempt(qop=None),
    "another qop": Attempt(qop=b"auth-conf"),
    "another charset": Attempt(charset=b"x"),
    "another uri": Attempt(uri=b"zookeeper/x"),
    "uri in another case": Attempt(uri=b"ZooKeeper/ZK-SASL-md5"),
    "unknown directive": Attempt(more=(b"foo=bar",)),
    "spaces": Attempt(separator=b" ,  "),
    "a user twice": Attempt(more=(b'username="zed"',)),
}


def log_in(port: int, attempt: Attempt) -> list[object]:
    """What a server says to a login, and as whom it then takes the client."""
    wire = Wire(port)
    try:
        challenge = wire.token(1, b"")
        assert isinstance(challenge, Reply)
        answer = wire.token(2, attempt.token(challenge.body[4:]))
        # Java's nonce is longer than ours; nobody minds. A proof depends on it.
        shown = re.sub(rb'(?s)^....(realm.*nonce=").*(",charset.*)$', rb"\1\2", challenge.body)
        if isinstance(answer, Reply):
            answer = answer._replace(body=re.sub(rb"=[0-9a-f]{32}$", b"=", answer.body))
        return [challenge._replace(body=shown), answer, wire.who_am_i(), wire.token(3, b"")]
    finally:
        wire.close()


def speak(port: int, *requests: tuple[int, bytes]) -> list[object]:
    """What a server says to some requests in a row."""
    wire = Wire(port)
    try:
        return [wire.ask(xid, op, body) for xid, (op, body) in enumerate(requests, 5)]
    finally:
        wire.close()


def everything(port: int) -> dict[str, list[object]]:
    """All that is compared."""
    digest, x509, sasl, foo = (
        struct.pack(">i", 0) + _buffer(scheme) + _buffer(b"a:b")
        for scheme in (b"digest", b"x509", b"sasl", b"foo")
    )
    found = {name: log_in(port, attempt) for name, attempt in ATTEMPTS.items()}
    for op in (PING, WHO_AM_I, CLOSE, UNKNOWN):
        found[f"op {op}"] = speak(port, (op, b""), (op, b""))[: 1 if op == PING else 2]
    for name, body in (("digest", digest), ("x509", x509), ("sasl", sasl), ("foo", foo)):
        found[f"auth {name}"] = speak(port, (AUTH, body), (PING, b""))
    found["null token"] = speak(port, (SASL, _buffer(None)))
    found["garbage"] = speak(
        port, (SASL, _buffer(b"")), (SASL, _buffer(b"x")), (SASL, _buffer(b"")), (PING, b"")
    )[1:]
    found["first token not empty"] = [
        getattr(reply, "error", reply) for reply in speak(port, (SASL, _buffer(b"x")))
    ]
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"allowSaslFailedClients": "true"},
        {"sessionRequireClientSASLAuth": "true"},
        {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"},
        {"sessionRequireClientSASLAuth": "true", "allowSaslFailedClients": "true"},
    ],
    ids=["plain", "failures allowed", "SASL required", "digest required", "required and allowed"],
)
def test_logins__are_answered_as_by_apache(tmp_path: Path, settings: Mapping[str, str]) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(JAAS, encoding="utf-8")
    properties = {
        "java.security.auth.login.config": str(file),
        "zookeeper.authProvider.1": PROVIDER,
        "zookeeper.superUser": "admin",
        **{f"zookeeper.{key}": value for key, value in settings.items()},
    }
    with ApacheServer(tmp_path / "apache", properties=properties) as apache:
        expected = everything(apache.port)
    with running(tmp_path, "", properties=properties) as server:
        found = everything(server.port)
    for name, replies in expected.items():
        if name in (f"op {CLOSE}", f"op {UNKNOWN}"):
            # Apache closes the connection, but whether it answers the next request first is chance.
            assert found[name][:1] == replies[:1], name
            continue
        assert found[name] == replies, name
    assert found.keys() == expected.keys()


def test_required_sasl_without_a_jaas_file__turns_everybody_away_as_apache_does(
    tmp_path: Path,
) -> None:
    properties = {
        "zookeeper.authProvider.1": PROVIDER,
        "zookeeper.sessionRequireClientSASLAuth": "true",
    }

    def answers(port: int) -> list[object]:
        digest = struct.pack(">i", 0) + _buffer(b"digest") + _buffer(b"a:b")
        return [
            speak(port, (WHO_AM_I, b"")),
            speak(port, (PING, b"")),
            speak(port, (AUTH, digest), (WHO_AM_I, b"")),
            speak(port, (SASL, _buffer(b""))),
        ]

    with ApacheServer(tmp_path / "apache", properties=properties) as apache:
        expected = answers(apache.port)
    with running(tmp_path, "", properties=properties) as server:
        assert answers(server.port) == expected


@contextmanager
def apache_with_tls(folder: Path, settings: str) -> Iterator[int]:
    """The port of an Apache server with the same lines in its zoo.cfg."""
    held = HeldPorts(1)
    (port,) = held.numbers
    lines = dict(line.split("=", 1) for line in settings.splitlines())
    lines |= {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    }
    with held, ApacheServer(folder / "apache", configuration=lines):
        # It serves plain clients a moment earlier.
        wait_until(lambda: _is_open(port), "the secure port", timeout=_PATIENCE_SECONDS)
        yield port


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def subjects(authority: Authority) -> list[Client]:
    return [
        authority.client(common_name="bob", organization="Acme, Inc."),
        authority.client(common_name=" lead and trail ", organization='a=b+c<d>e;f"g\\h#i'),
        authority.client(common_name="jörg 漢字", organization="#hash"),
    ]


@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_certificates__are_taken_from_the_same_stores_for_the_same_ids(
    tmp_path: Path, kind: str
) -> None:
    authority = Authority(tmp_path / "authority")
    endings = {"PEM": ".pem", "JKS": ".jks", "PKCS12": ".p12"}
    stores: dict[str, Any] = {"keyStore": authority.pkcs8_pem(), "trustStore": authority.pem}
    if kind != "PEM":
        stores = {
            "keyStore": authority.key_store(kind, f"key{endings[kind]}"),
            "trustStore": authority.trust_store(kind, f"trust{endings[kind]}"),
        }
    lines = [f"ssl.{name}.location={path}" for name, path in stores.items()]
    if kind != "PEM":
        lines += [f"ssl.{name}.password={PASSWORD}" for name in stores]
    settings = "\n".join(lines)
    clients = subjects(authority)

    def who(port: int) -> list[object]:
        found = []
        for client in clients:
            wire = Wire(port, client.context())
            try:
                found.append(wire.who_am_i())
            finally:
                wire.close()
        return found

    with apache_with_tls(tmp_path, settings) as port:
        expected = who(port)
    with running(tmp_path, f"secureClientPort=0\n{settings}") as server:
        found = who(server.secure_port)
    assert found == expected
    assert "x509" in str(found)


def run_java_client(folder: Path, place: str, *command: str, **properties: str) -> str:
    """What Apache's shell prints, with Java's own TLS and SASL."""
    names = {name.replace("__", "."): value for name, value in properties.items()}
    done = subprocess.run(
        java_command(
            "org.apache.zookeeper.ZooKeeperMain",
            ["-server", place, *command],
            properties=list(names.items()),
        ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
    )
    return done.stdout + done.stderr


def test_java_client__connects_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    client = authority.key_store("JKS", "client.jks")
    trust = authority.trust_store("JKS", "trust.jks")
    settings = "\n".join(
        (
            "secureClientPort=0",
            f"ssl.keyStore.location={authority.pkcs8_pem()}",
            f"ssl.trustStore.location={authority.pem}",
        )
    )
    with running(tmp_path, settings) as server:
        printed = run_java_client(
            tmp_path,
            f"{HOST}:{server.secure_port}",
            "whoami",
            zookeeper__client__secure="true",
            zookeeper__clientCnxnSocket="org.apache.zookeeper.ClientCnxnSocketNetty",
            zookeeper__ssl__keyStore__location=str(client),
            zookeeper__ssl__keyStore__password=PASSWORD,
            zookeeper__ssl__trustStore__location=str(trust),
            zookeeper__ssl__trustStore__password=PASSWORD,
        )
    assert re.search(r"^x509: OU=Testing cert", printed, re.MULTILINE), printed


@pytest.mark.parametrize(("password", "word"), [("secret", "sasl: bob"), ("wrong", "AuthFailed")])
def test_java_client__logs_in_by_sasl(tmp_path: Path, password: str, word: str) -> None:
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    file = tmp_path / "jaas.conf"
    file.write_text(
        f'Server {{ {module} required user_bob="secret"; }};\n'
        f'Client {{ {module} required username="bob" password="{password}"; }};\n'
    )
    properties = {
        "java.security.auth.login.config": str(file),
        "zookeeper.authProvider.1": PROVIDER,
    }
    with running(tmp_path, "", properties=properties) as server:
        printed = run_java_client(
            tmp_path,
            # Not by name: where that is ::1, too, the client is refused there first, and asks who
            # it is before it has logged in.
            f"127.0.0.1:{server.port}",
            "whoami",
            java__security__auth__login__config=str(file),
            # Otherwise Apache's client does not speak DIGEST-MD5 at all.
            **{"zookeeper__fips-mode": "false"},
        )
    assert word in printed, printed
