"""SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's clients and servers speak it.

    client                                  server
    (empty token)                     ->
                                      <-    realm="zk-sasl-md5",nonce="...",charset=utf-8,...
    username="bob",response=...,...   ->
                                      <-    rspauth=...

One exchange per connection: whatever comes after it fails, as in Java's own implementation. Nonces
are an argument, so that a simulated server gives the same answers every time. Only the quality of
protection `auth` is offered: nothing after the exchange is signed or encrypted by it; that is for
TLS to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import md5
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from keepfast.wire import ErrorCode, KeeperError

# RFC 2831, 2.1.2.
_MAX_RESPONSE_BYTES: Final = 4096
_FIRST_COUNT: Final = b"00000001"

_DIRECTIVE: Final = re.compile(
    rb'[ \t\r\n]*([A-Za-z-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))[ \t\r\n]*(?:,|$)',
    re.DOTALL,
)
_NOTHING: Final = re.compile(rb"[ \t\r\n,]*$")
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class Exchange(Protocol):
    """The server's side of one exchange, with any mechanism."""

    # The name that was proven; None until then.
    user: str | None

    def step(self, token: bytes) -> bytes | None:
        """The answer to a token. Raises KeeperError(AUTH_FAILED) if the client proves nothing."""


class DigestService(NamedTuple):
    """What both sides have to agree on besides the password."""

    protocol: str
    realm: str

    @property
    def uri(self) -> bytes:
        return f"{self.protocol}/{self.realm}".encode()


# Apache's servers all have these names, whatever their hosts are called.
CLIENT_SERVICE: Final = DigestService("zookeeper", "zk-sasl-md5")
QUORUM_SERVICE: Final = DigestService("zookeeper-quorum", "zk-quorum-sasl-md5")


class _State(Enum):
    NEW = "new"
    CHALLENGED = "challenged"
    OVER = "over"


class DigestMd5:
    """The server's side of one exchange. `users` are passwords by name; `nonce` never comes twice.

    `user` is the name that was proven; None until then.
    """

    __slots__ = ("_nonce", "_service", "_state", "_users", "user")

    def __init__(
        self, users: Mapping[str, str], nonce: str, service: DigestService = CLIENT_SERVICE
    ) -> None:
        self._users = users
        self._nonce = nonce
        self._service = service
        self._state = _State.NEW
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """The answer to a token. Raises KeeperError(AUTH_FAILED) if the client proves nothing."""
        if self._state is _State.NEW:
            # Java's server does not look at a first token either.
            self._state = _State.CHALLENGED
            realm = self._service.realm
            challenge = f'realm="{realm}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'
            return challenge.encode()
        if self._state is _State.OVER:
            raise _failed("the exchange is over")
        # Whatever happens now: a nonce is valid for one attempt.
        self._state = _State.OVER
        user, answer = self._check(_directives(token))
        self.user = user
        return b"rspauth=" + answer

    def _check(self, given: dict[str, bytes]) -> tuple[str, bytes]:
        """The user and the proof that this server knows the password, too."""
        for name in ("username", "realm", "nonce", "cnonce", "nc", "digest-uri", "response"):
            if name not in given:
                raise _failed(f"no {name}")
        expected = {
            "realm": self._service.realm.encode(),
            "nonce": self._nonce.encode(),
            "nc": _FIRST_COUNT,
            "qop": b"auth",
            "charset": b"utf-8",
        }
        for name, value in expected.items():
            if given.get(name, value) != value:
                raise _failed(f"{name} is {_shown(given[name])}")
        if given["digest-uri"].lower() != self._service.uri:
            raise _failed(f"digest-uri is {_shown(given['digest-uri'])}")
        try:
            user = given["username"].decode()
        except UnicodeDecodeError:
            raise _failed("username is not UTF-8") from None
        password = self._users.get(user)
        if password is None:
            raise _failed(f"no user {_shown(given['username'])}")
        for secret in _secrets(user, self._service.realm, password):
            if compare_digest(_response(secret, given, b"AUTHENTICATE"), given["response"]):
                return user, _response(secret, given, b"")
        raise _failed(f"wrong password for {_shown(given['username'])}")


class DigestMd5Client:
    """The client's side of one exchange. `nonce` must never come twice."""

    __slots__ = ("_nonce", "_password", "_service", "_user", "_wanted", "is_complete")

    def __init__(self, user: str, password: str, nonce: str, service: DigestService) -> None:
        self._user = user
        self._password = password
        self._nonce = nonce
        self._service = service
        self._wanted: bytes | None = None
        # Whether the server has proven that it knows the password, too.
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """The answer to the server's token; nothing to its last one, and as the first of all.

        Raises KeeperError(AUTH_FAILED) if the server proves nothing.
        """
        if not token and self._wanted is None:
            return b""
        given = _directives(token)
        if self._wanted is not None:
            if not compare_digest(given.get("rspauth", b""), self._wanted):
                raise _failed("the server does not know the password")
            self.is_complete = True
            return b""
        if "nonce" not in given:
            raise _failed("no nonce")
        # A name that is not ASCII is hashed as Java hashes it.
        realm = given.get("realm", self._service.realm.encode())
        secret = next(_secrets(self._user, realm.decode("utf-8", "replace"), self._password))
        answer = {
            "username": self._user.encode(),
            "realm": realm,
            "nonce": given["nonce"],
            "cnonce": self._nonce.encode(),
            "nc": _FIRST_COUNT,
            "digest-uri": self._service.uri,
        }
        response = _response(secret, answer, b"AUTHENTICATE")
        self._wanted = _response(secret, answer, b"")
        quoted = {name: _quoted(value) for name, value in answer.items() if name != "nc"}
        fields = {"charset": b"utf-8", **quoted, "nc": _FIRST_COUNT, "maxbuf": b"65536"}
        fields |= {"response": response, "qop": b"auth"}
        return b",".join(name.encode() + b"=" + value for name, value in fields.items())


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _secrets(user: str, realm: str, password: str) -> Iterator[bytes]:
    """H(user:realm:password), in the forms that clients hash it in.

    The RFC wants ISO 8859-1 where that is possible, which is what Java does; Python's clients
    always hash UTF-8. Whoever has either of them knows the password.
    """
    text = f"{user}:{realm}:{password}"
    try:
        yield md5(text.encode("iso-8859-1"), usedforsecurity=False).digest()
    except UnicodeEncodeError:
        pass
    if not text.isascii():
        yield md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()


def _response(secret: bytes, given: dict[str, bytes], method: bytes) -> bytes:
    """RFC 2831, 2.1.2.1, for the client (method AUTHENTICATE) and for the server (no method)."""
    nonce, cnonce = given["nonce"], given["cnonce"]
    session = b":".join((secret, nonce, cnonce))
    if "authzid" in given:
        # It is part of what was hashed; as whom the client wants to act is not up to the client.
        session += b":" + given["authzid"]
    parts = (_hex(session), nonce, given["nc"], cnonce, b"auth", _hex(_a2(method, given)))
    return _hex(b":".join(parts))


def _a2(method: bytes, given: dict[str, bytes]) -> bytes:
    return method + b":" + given["digest-uri"]


def _hex(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).hexdigest().encode()


def _directives(token: bytes) -> dict[str, bytes]:
    """`name=value` or `name="value"`, separated by commas; names that are not known are ignored."""
    if len(token) > _MAX_RESPONSE_BYTES:
        raise _failed(f"a response of {len(token)} bytes")
    found: dict[str, bytes] = {}
    position = 0
    while not _NOTHING.match(token, position):
        match = _DIRECTIVE.match(token, position)
        if match is None:
            raise _failed(f"not a digest response from byte {position} on")
        name, quoted, plain = match[1].decode().lower(), match[2], match[3]
        value = plain if quoted is None else _ESCAPED.sub(rb"\1", quoted)
        # Two different values: another reader might see another user.
        if found.setdefault(name, value) != value:
            raise _failed(f"{name} is given twice")
        position = match.end()
    return found


def _shown(value: bytes) -> str:
    """Bytes of a client as they may stand in a log line."""
    return repr(value[:64].decode("utf-8", "replace"))


def _failed(reason: str) -> KeeperError:
    return KeeperError(ErrorCode.AUTH_FAILED, reason)
