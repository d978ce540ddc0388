"""SASL DIGEST-MD5, the server's side (RFC 2831), as ZooKeeper's clients speak it.

    client                                  server
    (empty token)                     ->
                                      <-    realm="zk-sasl-md5",nonce="...",charset=utf-8,...
    username="bob",response=...,...   ->
                                      <-    rspauth=...

One exchange a connection: whatever comes behind it fails, as in Java's own implementation. Nonces
are an argument, so that a simulated server gives the same answers every time. Only the quality of
protection `auth` is offered: nothing behind the exchange is signed or encrypted by it; that is for
TLS to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import md5
from hmac import compare_digest
from typing import Final

from keepfast.wire import ErrorCode, KeeperError

# Apache's servers all have this name, whatever their host is called.
_REALM: Final = "zk-sasl-md5"
_DIGEST_URI: Final = f"zookeeper/{_REALM}"
# RFC 2831, 2.1.2.
_LONGEST_RESPONSE: Final = 4096
_FIRST_COUNT: Final = b"00000001"

_DIRECTIVE: Final = re.compile(
    rb'[ \t\r\n]*([A-Za-z-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))[ \t\r\n]*(?:,|$)',
    re.DOTALL,
)
_NOTHING: Final = re.compile(rb"[ \t\r\n,]*$")
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class _State(Enum):
    NEW = "new"
    CHALLENGED = "challenged"
    OVER = "over"


class DigestMd5:
    """One exchange with one client. `users` are passwords by name; `nonce` must never come twice.

    `user` is the name that was proven; None until then.
    """

    __slots__ = ("_nonce", "_state", "_users", "user")

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        self._users = users
        self._nonce = nonce
        self._state = _State.NEW
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """The answer to a token. Raises KeeperError(AUTH_FAILED) if the client proves nothing."""
        if self._state is _State.NEW:
            # Java's server does not look at a first token either.
            self._state = _State.CHALLENGED
            challenge = f'realm="{_REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'
            return challenge.encode()
        if self._state is _State.OVER:
            raise _failed("the exchange is over")
        # Whatever happens now: a nonce is good for one attempt.
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
            "realm": _REALM.encode(),
            "nonce": self._nonce.encode(),
            "nc": _FIRST_COUNT,
            "qop": b"auth",
            "charset": b"utf-8",
        }
        for name, value in expected.items():
            if given.get(name, value) != value:
                raise _failed(f"{name} is {_shown(given[name])}")
        if given["digest-uri"].lower() != _DIGEST_URI.encode():
            raise _failed(f"digest-uri is {_shown(given['digest-uri'])}")
        try:
            user = given["username"].decode()
        except UnicodeDecodeError:
            raise _failed("username is not UTF-8") from None
        password = self._users.get(user)
        if password is None:
            raise _failed(f"no user {_shown(given['username'])}")
        for secret in _secrets(user, password):
            if compare_digest(_response(secret, given, b"AUTHENTICATE"), given["response"]):
                return user, _response(secret, given, b"")
        raise _failed(f"wrong password for {_shown(given['username'])}")


def _secrets(user: str, password: str) -> Iterator[bytes]:
    """H(user:realm:password), in the forms that clients hash it in.

    The RFC wants ISO 8859-1 where that is possible, which is what Java does; Python's clients
    always hash UTF-8. Whoever has either of them knows the password.
    """
    text = f"{user}:{_REALM}:{password}"
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
    if len(token) > _LONGEST_RESPONSE:
        raise _failed(f"a response of {len(token)} bytes")
    found: dict[str, bytes] = {}
    position = 0
    while not _NOTHING.match(token, position):
        match = _DIRECTIVE.match(token, position)
        if match is None:
            raise _failed(f"not a digest response from byte {position} on")
        name, quoted, plain = match[1].decode().lower(), match[2], match[3]
        value = plain if quoted is None else _ESCAPED.sub(rb"\1", quoted)
        # Two different values: whoever reads the other one sees another user.
        if found.setdefault(name, value) != value:
            raise _failed(f"{name} is given twice")
        position = match.end()
    return found


def _shown(value: bytes) -> str:
    """Bytes of a client as they may stand in a log line."""
    return repr(value[:64].decode("utf-8", "replace"))


def _failed(reason: str) -> KeeperError:
    return KeeperError(ErrorCode.AUTH_FAILED, reason)
