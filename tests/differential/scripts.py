"""What several clients do, made up by a seed; never by what a server answers, but for new names.

A script is a stream of steps. Requests of one step go to one connection back to back; the next step
begins when all of them are answered, so that both servers see one order. Paths come from a small
pool: most requests meet a znode that another client has made, locked, watched or deleted.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.differential import requests as wire
from tests.differential.requests import Entry, Op, Request

ALL = 31
OPEN: Sequence[Entry] = ((ALL, "world", "anyone"),)
SUPER = b"super:test"
USERS = (b"ann:secret", b"bob:hidden", b"no-colon", b"", b"ann:wrong", "jörg:pä".encode())
# user:base64(sha1(user:password)) of the first two.
ANN = "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="
SUPER_CLIENT = 0

_NAMES = ("a", "b", "c", "é", "d.e")
_ROOTS = ("/a", "/b", "/c", "/q")
_ODD_PATHS = (
    *("", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/.", "/a/...", "/a\0b", "/\x01", "/\x7f"),
    *("/\ue000", "/\ufff0", "/\ufffd", "/ ", "/\U0001f600", "/zookeeper/x", "/zookeeper", "/"),
    *("/zookeeper/config", "/zookeeper/quota", "/a b", "/\u0085", "/\uf8ff", "/\ud7ff", "/\uf900"),
)
_BIG = 3000
# Behind a path and data: a list that is null, and flags. In a multi, where Apache answers -5 for
# all of it, we refuse the one operation.
_NULL_ACL = wire.acl_list(None) + b"\0\0\0"


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one client, sent at once."""

    client: int
    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class Connect:
    """A connection: a `new` session, the old one `again`, or `wrong`ly. `is_behind`: see `Side`."""

    client: int
    how: str
    timeout_ms: int = 600_000
    flag: bool | None = False
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The client's machine is gone; behind a request, so that all events have come."""

    client: int


@dataclass(frozen=True, slots=True)
class Expire:
    """The session's end by silence; its connection is read to the end."""

    client: int


Step = Batch | Connect | Drop | Expire


@dataclass(slots=True)
class _Known:
    """What the script has learnt."""

    is_open: list[bool]
    names: deque[str] = field(default_factory=lambda: deque(maxlen=60))
    zxid: int = 0


class Script:
    """The steps of one seed. `is_pipelined` False sends one request at a time: then answers do not
    depend on how far a server is with earlier ones, which they do where hard quotas are counted."""

    def __init__(self, seed: int, clients: int = 5, *, is_pipelined: bool = True) -> None:
        self._random = random.Random(seed)
        self._clients = clients
        self._is_pipelined = is_pipelined
        self._known = _Known([False] * clients)
        self._makers: list[Callable[[], Request]] = []
        self._weights: list[int] = []
        for weight, maker in (
            *((14, self._create), (4, self._create_other), (9, self._delete), (10, self._set_data)),
            *((8, self._get_data), (6, self._exists), (6, self._children), (3, self._get_acl)),
            *((4, self._set_acl), (8, self._multi), (3, self._multi_read), (6, self._add_watch)),
            *((5, self._remove_watches), (3, self._set_watches), (2, self._small), (2, self._bad)),
            *((4, self._quota), (2, self._empty)),
        ):
            self._makers.append(maker)
            self._weights.append(weight)

    def learn(self, zxid: int, path: str | None = None) -> None:
        """Take in what a server answered: its last zxid, and the name of a new znode."""
        self._known.zxid = max(self._known.zxid, zxid)
        if path is None or path.startswith("/zookeeper/quota/"):
            return  # what is no quota, written there, stops Apache or all writes below
        if path not in self._known.names:
            self._known.names.append(path)

    def closed(self, client: int) -> None:
        """Take in that a connection is gone."""
        self._known.is_open[client] = False

    def steps(self) -> Iterator[Step]:
        """Steps without end."""
        chance = self._random
        while True:
            client = chance.randrange(self._clients)
            if not self._known.is_open[client]:
                yield from self._open(client)
                continue
            roll = chance.random()
            if roll < 0.006:
                yield from self._leave(client)
            elif roll < 0.03:
                yield Batch(client, [self._introduce()])
            elif roll < 0.036:
                yield Batch(client, [self._fatal()])
            else:
                count = chance.choice((1, 1, 2, 5, 12, 30)) if self._is_pipelined else 1
                yield Batch(client, self._several(client, count))

    def request(self) -> Request:
        """One request, of whatever kind."""
        return self._random.choices(self._makers, self._weights)[0]()

    # -- connections -----------------------------------------------------------------------------

    def _open(self, client: int) -> Iterator[Step]:
        chance = self._random
        roll = chance.random()
        if roll < 0.3:
            if chance.random() < 0.1:
                yield Connect(client, "wrong")
            yield Connect(client, "again", flag=chance.choice((False, True, None)))
        elif roll < 0.35:
            yield Connect(client, "again", is_ahead=True)
        if not self._known.is_open[client]:
            yield Connect(client, "new", flag=chance.choice((False, True, None)))
        if client == SUPER_CLIENT:
            yield Batch(client, [Request(Op.AUTH, wire.auth("digest", SUPER), is_alone=True)])
        if chance.random() < 0.7:
            yield Batch(client, [self._set_watches()])

    def connected(self, client: int) -> None:
        """Take in that a connection has a session."""
        self._known.is_open[client] = True

    def _leave(self, client: int) -> Iterator[Step]:
        chance = self._random
        way = chance.choice(("drop", "drop", "again", "wrong", "close", "close", "expire"))
        # So that every event that was on its way has been read.
        yield Batch(client, [Request(Op.PING, b"", -2)])
        if way == "drop":
            yield Drop(client)
        elif way == "again":
            yield Connect(client, "again", chance.choice((600_000, 500_000)))
        elif way == "wrong":
            yield Connect(client, "wrong")
            # Whether the connection that the session has lives on is a difference on purpose.
            yield Drop(client)
        elif way == "close":
            yield Batch(client, [Request(Op.CLOSE_SESSION, b"", is_alone=True)])
        else:
            yield Connect(client, "again", 400)
            yield Expire(client)

    def _introduce(self) -> Request:
        chance = self._random
        roll = chance.random()
        if roll < 0.80:
            body = wire.auth("digest", chance.choice(USERS))
        elif roll < 0.9:
            body = wire.auth("ip", chance.choice((b"", None, b"1.2.3.4")))
        else:
            scheme = chance.choice(("world", "auth", "x509", "sasl", "none", "", None, "super"))
            body = wire.auth(scheme, chance.choice(USERS))
        return Request(Op.AUTH, body, chance.choice((-4, None)), is_alone=True)

    def _fatal(self) -> Request:
        """What no client may send."""
        chance = self._random
        op = chance.choice((0, 10, 13, 23, 99, 108, 1000, -1, -2, -12, 2**31 - 1))
        path = self._path()
        body = chance.choice((b"", wire.with_version(path, -1), wire.text(path), bytes(40)))
        return Request(op, body, is_alone=True)

    # -- requests --------------------------------------------------------------------------------

    def _several(self, client: int, count: int) -> list[Request]:
        chance = self._random
        found: list[Request] = []
        while len(found) < count:
            request = self.request()
            if client == SUPER_CLIENT and chance.random() < 0.3 and self._known.names:
                # Somebody has to take away what others have locked and left.
                path = self._known.names.popleft()
                request = Request(Op.DELETE, wire.with_version(path, -1))
            found.append(request)
            if request.op == Op.SET_ACL:
                # What is sent behind it is checked against the old list as long as Apache has
                # not written the new one to disk.
                break
        return found

    def _path(self) -> str:
        chance = self._random
        roll = chance.random()
        if roll < 0.06:
            return chance.choice(_ODD_PATHS)
        if roll < 0.16 and self._known.names:
            return chance.choice(self._known.names)
        path = chance.choice(_ROOTS)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
            path += "/" + chance.choice(_NAMES)
        return path

    def _some_path(self) -> str | None:
        return self._path() if self._random.random() > 0.01 else None

    def _path_to_change(self) -> str | None:
        """Not the root: while a change below it is under way, Apache logs a wrong digest."""
        path = self._some_path()
        return "/a" if path == "/" else path

    def _data(self) -> bytes | None:
        chance = self._random
        roll = chance.random()
        if roll < 0.1:
            return None
        if roll < 0.2:
            return b""
        return chance.randbytes(_BIG if roll > 0.97 else chance.randrange(1, 30))

    def _version(self) -> int:
        return self._random.choice((-1, -1, -1, 0, 0, 1, 2, -2, 7))

    def _entries(self) -> Sequence[Entry] | None:
        chance = self._random
        roll = chance.random()
        if roll < 0.75:
            return OPEN
        if roll < 0.80:
            return ((chance.randrange(32), "world", "anyone"),)
        if roll < 0.93:
            return chance.choice(_SOUND_ACLS)
        return chance.choice(_ODD_ACLS)

    def _create(self) -> Request:
        flags = self._random.choice((0, 0, 0, 1, 2, 3, 1, 3, 7, -1))
        op = self._random.choice((Op.CREATE, Op.CREATE2))
        return Request(op, wire.create(self._some_path(), self._data(), self._entries(), flags))

    def _create_other(self) -> Request:
        chance = self._random
        path, data, entries = self._some_path(), self._data(), self._entries()
        if chance.random() < 0.5:
            return Request(Op.CREATE_CONTAINER, wire.create(path, data, entries, 4))
        ttl = chance.choice((10**9, 10**9, 2**40 - 1, 0, -1, 2**40, 10**8))
        flags = chance.choice((5, 6))
        return Request(Op.CREATE_TTL, wire.create_ttl(path, data, entries, flags, ttl))

    def _delete(self) -> Request:
        return Request(Op.DELETE, wire.with_version(self._some_path(), self._version()))

    def _set_data(self) -> Request:
        path, data = self._path_to_change(), self._data()
        return Request(Op.SET_DATA, wire.set_data(path, data, self._version()))

    def _get_data(self) -> Request:
        return Request(Op.GET_DATA, wire.with_flag(self._some_path(), self._flag()))

    def _exists(self) -> Request:
        return Request(Op.EXISTS, wire.with_flag(self._some_path(), self._flag()))

    def _flag(self) -> bool:
        return self._random.random() < 0.5

    def _children(self) -> Request:
        op = self._random.choice((Op.GET_CHILDREN, Op.GET_CHILDREN2))
        return Request(op, wire.with_flag(self._some_path(), self._flag()))

    def _get_acl(self) -> Request:
        return Request(Op.GET_ACL, wire.text(self._some_path()))

    def _set_acl(self) -> Request:
        chance = self._random
        entries = OPEN if chance.random() < 0.3 else self._entries()
        return Request(Op.SET_ACL, wire.set_acl(self._path_to_change(), entries, self._version()))

    def _multi(self) -> Request:
        chance = self._random
        operations: list[tuple[int, bytes]] = []
        for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
            roll = chance.random()
            if roll < 0.45:
                made = self._create()
            elif roll < 0.55:
                made = self._create_other()
            elif roll < 0.7:
                made = self._delete()
            elif roll < 0.85:
                made = self._set_data()
            elif roll < 0.97:
                body = wire.with_version(self._some_path(), self._version())
                made = Request(Op.CHECK, body)
            else:
                made = chance.choice((self._set_acl, self._get_data, self._children, self._bad))()
            if _NULL_ACL not in made.body:
                operations.append((made.op, made.body))
        return Request(Op.MULTI, wire.multi(operations, has_end=chance.random() > 0.02))

    def _multi_read(self) -> Request:
        chance = self._random
        operations: list[tuple[int, bytes]] = []
        for _ in range(chance.choice((0, 1, 2, 3, 5))):
            op = chance.choice((Op.GET_DATA, Op.GET_CHILDREN))
            operations.append((op, wire.with_flag(self._some_path(), self._flag())))
        if chance.random() < 0.05:
            made = chance.choice((self._set_data, self._exists, self._get_acl))()
            operations.append((made.op, made.body))
        return Request(Op.MULTI_READ, wire.multi(operations))

    def _add_watch(self) -> Request:
        mode = self._random.choice((0, 0, 1, 1, 1, 2, -1))
        return Request(Op.ADD_WATCH, wire.with_version(self._path(), mode))

    def _remove_watches(self) -> Request:
        op = self._random.choice((Op.CHECK_WATCHES, Op.REMOVE_WATCHES, Op.REMOVE_WATCHES))
        kind = self._random.choice((1, 2, 3, 3, 4, 5, 0, 6, -1))
        return Request(op, wire.with_version(self._path(), kind))

    def _set_watches(self) -> Request:
        chance = self._random
        op = chance.choice((Op.SET_WATCHES, Op.SET_WATCHES2))
        lists: list[Sequence[str] | None] = []
        for _ in range(3 if op == Op.SET_WATCHES else 5):
            count = chance.choice((0, 1, 2, 4))
            # Once each: a path that is there twice is told of twice, and Apache forgets its order.
            lists.append(sorted({self._path() for _ in range(count)}))
        since = max(0, self._known.zxid - chance.choice((0, 5, 40, 300)))
        return Request(op, wire.set_watches(since, *lists), chance.choice((-8, None)))

    def _small(self) -> Request:
        chance = self._random
        op = chance.choice((Op.GET_ALL_CHILDREN_NUMBER, Op.GET_EPHEMERALS, Op.SYNC))
        if op == Op.GET_EPHEMERALS:
            return Request(op, wire.text(chance.choice((None, "", " ", "/", "/a", "/b/", "/zz"))))
        return Request(op, wire.text(self._some_path()))

    def _empty(self) -> Request:
        chance = self._random
        op = chance.choice((Op.PING, Op.WHO_AM_I, Op.PING))
        return Request(op, chance.choice((b"", b"", b"more")), chance.choice((-2, None, 0)))

    def _quota(self) -> Request:
        """Limits and statistics of a quota, as tools make them, and their removal."""
        chance = self._random
        base = chance.choice(("/a", "/b", "/c/a", "/q"))
        place = "/zookeeper/quota" + base
        roll = chance.random()
        if roll < 0.3:
            parts = place.split("/")
            path = "/".join(parts[: chance.randrange(4, len(parts) + 1)])
            return Request(Op.CREATE, wire.create(path, b"", OPEN, 0))
        limits, stats = f"{place}/zookeeper_limits", f"{place}/zookeeper_stats"
        if roll < 0.5:
            return Request(Op.CREATE, wire.create(limits, chance.choice(_LIMITS), OPEN, 0))
        if roll < 0.65:
            return Request(Op.CREATE, wire.create(stats, b"count=0,bytes=0", OPEN, 0))
        if roll < 0.75:
            return Request(Op.SET_DATA, wire.set_data(limits, chance.choice(_LIMITS), -1))
        if roll < 0.9:
            return Request(Op.GET_DATA, wire.with_flag(stats, self._flag()))
        return Request(Op.DELETE, wire.with_version(chance.choice((limits, stats, place)), -1))

    def _bad(self) -> Request:
        """A body that is cut off, has more behind it, or has a length that cannot be."""
        chance = self._random
        makers = (self._create, self._delete, self._set_data, self._get_data, self._set_acl)
        more = (self._exists, self._children, self._get_acl, self._multi, self._set_watches)
        made = chance.choice((*makers, *more, self._add_watch, self._multi_read))()
        body = bytearray(made.body)
        roll = chance.random()
        if roll < 0.4:
            body = body[: chance.randrange(max(len(body), 1))]
        elif roll < 0.6:
            body += chance.randbytes(chance.randrange(1, 9))
        elif roll < 0.8:
            body[0:4] = struct.pack(">i", chance.choice((-2, 2**31 - 1, len(body) * 2, -(2**31))))
        elif len(body) > 8 and struct.unpack_from(">i", body)[0] >= 4:
            body[4:8] = b"/\xff\xc3\x28"
        return Request(made.op, bytes(body))


_LIMITS = (
    b"count=5,bytes=-1",
    b"count=-1,bytes=100",
    b"count=3,bytes=20",
    b"count=-1,bytes=-1=;byteHardLimit=60;countHardLimit=6",
    b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4",
)
_SOUND_ACLS: Sequence[Sequence[Entry]] = (
    ((ALL, "auth", ""),),
    ((ALL, "auth", "x"), (1, "world", "anyone")),
    ((ALL, "digest", ANN),),
    ((1, "world", "anyone"), (ALL, "digest", ANN)),
    ((ALL, "ip", "127.0.0.1"),),
    ((ALL, "ip", "127.0.0.0/8"), (ALL, "ip", "127.0.0.0/8")),
    ((ALL, "ip", "10.0.0.0/8"), (1, "world", "anyone")),
    ((ALL, "ip", "::1"), (5, "world", "anyone")),
    ((16, "world", "anyone"), (ALL, "digest", "x:y")),
    ((ALL + 32, "world", "anyone"), (64, "ip", "127.0.0.1")),
)
_ODD_ACLS: Sequence[Sequence[Entry] | None] = (
    None,
    (),
    ((ALL, "world", "someone"),),
    ((ALL, "none", "x"),),
    ((ALL, "", ""),),
    ((ALL, None, None),),
    ((ALL, "digest", "x"),),
    ((ALL, "digest", "x:y:z"),),
    ((ALL, "ip", "300.0.0.1"),),
    ((ALL, "ip", "127.0.0.1/33"),),
    ((ALL, "ip", "127.0.0.1/255.0.0.0"),),
    ((ALL, "ip", "localhost"),),
    ((ALL, "x509", "CN=x"),),
    ((ALL, "sasl", "x"),),
    ((ALL, "super", "x"),),
    (*OPEN, (ALL, "none", "x")),
)
