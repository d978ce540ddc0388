"""Random requests, good and bad, for a leader: ours or a live Apache server."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    CheckVersionRequest,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    Id,
    MultiOp,
    OpCode,
    SetACLRequest,
    SetDataRequest,
    encode,
    encode_multi_request,
)
from keepfast.wire.multi import SubRequest

# Mostly a few names, so that requests meet; and all kinds of wrong ones.
NAMES = ("a", "b", "c", "d")
BAD_PATHS = (
    *("", "a", "/", "//", "/a/", "/a//b", "/.", "/a/..", "/a/./b", "/a\x01", "/\u0080", "/a\0b"),
    *("/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/x", "/\ue000", "/\uffff"),
)
BOB = Id("digest", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=")
ACLS: tuple[AclList | None, ...] = (
    *(OPEN_ACL, OPEN_ACL, OPEN_ACL, OPEN_ACL, OPEN_ACL, OPEN_ACL),
    (ACL(31, Id("auth", "")), ACL(1, Id("world", "anyone"))),
    (ACL(31, BOB), ACL(31, BOB), ACL(31, Id("ip", "127.0.0.1"))),
    (ACL(29, Id("world", "anyone")), ACL(2, Id("ip", "10.0.0.0/8"))),
    (ACL(31, Id("ip", "127.0.0.0/8")), ACL(31, Id("ip", "::1/128"))),
)
BAD_ACLS: tuple[AclList | None, ...] = (
    None,
    (),
    (ACL(31, Id("world", "someone")),),
    (ACL(31, Id("digest", "no-colon")),),
    (ACL(31, Id("digest", "a:b:c")),),
    (ACL(31, Id("ip", "127.0.0.1/33")),),
    (ACL(31, Id("ip", "127.0.0")),),
    (ACL(31, Id("ip", "127.0.0.1/255.0.0.0")),),
    (ACL(31, Id("nobody", "x")),),
    (ACL(31, Id("super", "x")),),
)
TTLS_MS = (1, 60_000, (1 << 40) - 1, 1 << 40, 0, -1)


class Wish(NamedTuple):
    """One write request."""

    type: int
    request: SubRequest | SetACLRequest | tuple[MultiOp, ...]

    @property
    def is_on_root(self) -> bool:
        return self.type != OpCode.MULTI and getattr(self.request, "path", None) == "/"

    def encode(self) -> bytes:
        if self.type == OpCode.MULTI:
            ops = tuple(op for op in self.request if isinstance(op, MultiOp))
            return encode_multi_request(ops)
        return encode(self.request)


class Wisher:
    """Draws requests.

    `is_harmless` leaves out what Apache does not take in its stride: the container flag outside
    of createContainer and, in a multi, the root (of which it then keeps two pending records, "/"
    and "", and logs a wrong digest) and a null ACL (which it logs under the zxid of another txn).
    """

    def __init__(self, random: Random, *, is_harmless: bool = True) -> None:
        self._random = random
        self._is_harmless = is_harmless

    def wish(self) -> Wish:
        random = self._random
        kind = random.choices(("simple", "acl", "multi"), (80, 8, 12))[0]
        if kind == "acl":
            version = self._version()
            return Wish(OpCode.SET_ACL, SetACLRequest(self._path(), self._acl(), version))
        if kind == "multi":
            ops = [MultiOp(*self._simple(True)) for _ in range(random.randrange(5))]
            if self._is_harmless:
                ops = [op for op in ops if not self._is_harmful(op.request)]
            return Wish(OpCode.MULTI, tuple(ops))
        return Wish(*self._simple(False))

    def _simple(self, is_in_multi: bool) -> tuple[int, SubRequest]:
        random = self._random
        kinds = ["create", "create", "create", "delete", "set"]
        kind = random.choice([*kinds, "check"] if is_in_multi else kinds)
        if kind == "create":
            return self._create()
        if kind == "delete":
            return OpCode.DELETE, DeleteRequest(self._path(), self._version())
        if kind == "check":
            return OpCode.CHECK, CheckVersionRequest(self._path(), self._version())
        return OpCode.SET_DATA, SetDataRequest(self._path(), self._data(), self._version())

    @staticmethod
    def _is_harmful(request: SubRequest) -> bool:
        if request.path == "/":
            return True
        return isinstance(request, CreateRequest | CreateTTLRequest) and request.acl is None

    def _create(self) -> tuple[int, SubRequest]:
        random = self._random
        path, data, acl = self._path(), self._data(), self._acl()
        match random.randrange(10):
            case 0:
                return OpCode.CREATE_CONTAINER, CreateRequest(path, data, acl, 4)
            case 1 | 2:
                flags = random.choice((5, 6))
                ttl = CreateTTLRequest(path, data, acl, flags, random.choice(TTLS_MS))
                return OpCode.CREATE_TTL, ttl
            case _:
                flags = random.choice((0, 0, 0, 1, 1, 2, 3, 5, 7, -1))
                if not self._is_harmless and random.random() < 0.1:
                    flags = 4
                type_ = random.choice((OpCode.CREATE, OpCode.CREATE2))
                return type_, CreateRequest(path, data, acl, flags)

    def _path(self) -> str:
        random = self._random
        if random.random() < 0.06:
            return random.choice(BAD_PATHS)
        depth = random.choice((1, 2, 2, 3))
        return "".join(f"/{random.choice(NAMES)}" for _ in range(depth))

    def _acl(self) -> AclList | None:
        return self._random.choice(BAD_ACLS if self._random.random() < 0.05 else ACLS)

    def _data(self) -> bytes | None:
        size = self._random.choice((-1, 0, 1, 10, 100))
        return None if size < 0 else self._random.randbytes(size)

    def _version(self) -> int:
        return self._random.choice((-1, -1, -1, 0, 1, 2))
