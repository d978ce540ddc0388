"""Seeded random histories against a live server, at full pipelined speed.

    with History(server.hosts, seed=7) as history:
        summary = history.run(20_000)
        server.kill()        # the sessions stay open on disk; stop() after the block closes them

Several sessions write at the same time: all create modes, data and ACL changes, deletions, multis,
quotas, null and large values, non-ASCII paths, and in between what must fail. The seed fixes what
each session asks for; how the sessions interleave is the server's choice, so two runs of one seed
are alike, not equal. Within a batch nothing waits; between batches the answers are read, so that
later operations know the names of sequential znodes and what is gone.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.security import ACL, Id, make_digest_acl

from tests.apache.reader import read_tree
from tests.apache.requests import (
    CheckVersion,
    Create,
    Create2,
    CreateContainer,
    CreateTTL,
    Delete,
    Multi,
    SetACL,
    SetData,
    submit,
)
from tests.apache.words import NotReadyError

ROOT = "/history"

_ALL = 31
_READ = 1
_OPEN = (ACL(_ALL, Id("world", "anyone")),)
_ACLS: Sequence[Sequence[Any]] = (
    _OPEN,
    (ACL(_ALL, Id("world", "anyone")), make_digest_acl("reader", "secret", read=True)),
    (ACL(_ALL & ~2, Id("world", "anyone")), ACL(_ALL, Id("ip", "127.0.0.1"))),
    (ACL(_ALL, Id("ip", "127.0.0.0/8")), ACL(_READ, Id("world", "anyone"))),
    # Becomes one entry for each identity that the session has proven; fails if there is none.
    (ACL(_ALL, Id("auth", "")), ACL(_ALL & ~8, Id("world", "anyone"))),
)
_NAMES = ("n", "lock-", "état-", "漢字", "a b", "x.y", "Ω", "ﬁ", "member_")
_TTLS_MS = (1, 40, 60_000, (1 << 40) - 1)
_EPHEMERAL, _SEQUENTIAL = 1, 2
_ANY_VERSION = -1
_LARGE_BYTES = 30_000
_MAX_WAIT_S = 120
_WAIT_STEP_S = 0.1


class _AbandonedError(Exception):
    """The server is gone and `abandon` was called."""


@dataclass(slots=True)
class Summary:
    """What one run did. `outcomes` counts "ok", "multi failed", and kazoo's exception names."""

    operations: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    sessions_opened: int = 0
    sessions_closed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request under way."""

    kind: str
    request: Any
    session: int
    result: Any


class History:
    """A writer of random histories; see the module. `sessions` clients work at the same time.

    `with_create2_containers` adds create2 requests with the container flag, for which Apache logs
    a digest that its own tree does not have: off unless that is what a test is about.
    """

    def __init__(
        self,
        hosts: str,
        *,
        seed: int,
        sessions: int = 4,
        session_timeout_s: float = 120,
        largest_tree: int = 3_000,
        with_create2_containers: bool = False,
    ) -> None:
        self._hosts = hosts
        self._random = random.Random(seed)
        self._session_timeout_s = session_timeout_s
        self._largest_tree = largest_tree
        self._clients: list[Any] = [None] * sessions
        self._paths = PathPool()
        # Not the names of another seed's history on the same server.
        self._names_given = seed * 1_000_000
        self._summary = Summary()
        self._abandoned = threading.Event()
        makers = dict(_MAKERS)
        if with_create2_containers:
            makers["create2 container"] = (1, History._create2_container)
        self._kinds = list(makers)
        self._weights = [weight for weight, _ in makers.values()]
        self._makers = {kind: maker for kind, (_, maker) in makers.items()}

    @property
    def session_ids(self) -> list[int]:
        """The ids of the sessions that are open now."""
        return [client.client_id[0] for client in self._clients if client is not None]

    def run(self, operations: int = 20_000, *, batch: int = 500) -> Summary:
        """Do at least `operations` operations and wait for their answers. May be called again."""
        self._summary = Summary()
        started = time.monotonic()
        with contextlib.suppress(_AbandonedError):
            self._run(operations, batch)
        self._summary.seconds = time.monotonic() - started
        return self._summary

    def abandon(self) -> None:
        """Make a `run` in another thread return soon: its server is gone for good."""
        self._abandoned.set()

    def _run(self, operations: int, batch: int) -> None:
        self._open_missing_sessions()
        if ROOT not in self._paths:
            self._settle([self._ask("create", 0, Create(ROOT, b"", _OPEN, 0))])
            self._adopt_tree()
        while self._summary.operations < operations and not self._abandoned.is_set():
            self._wait_until_connected()
            asked: list[Asked] = []
            while len(asked) < min(batch, operations - self._summary.operations):
                asked.extend(self._next())
            self._settle(asked)
            if self._random.random() < 0.4:
                self._replace_session(self._random.randrange(len(self._clients)))

    def close(self) -> None:
        """End every session. On a server that is gone nothing ends: its files keep them."""
        for index, client in enumerate(self._clients):
            if client is not None:
                client.stop()
                client.close()
                self._clients[index] = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- sessions

    def _open_missing_sessions(self) -> None:
        for index, client in enumerate(self._clients):
            if client is None:
                self._clients[index] = self._connect(index)

    def _connect(self, index: int) -> Any:
        client = KazooClient(hosts=self._hosts, timeout=self._session_timeout_s)
        try:
            self._wait_for(client.start_async(), "a session")
            # Every other one proves who it is: the same request then succeeds or fails by session.
            if index % 2 == 0:
                self._wait_for(client.add_auth_async("digest", f"user{index}:secret"), "a user")
        except BaseException:
            client.stop()
            client.close()
            raise
        self._summary.sessions_opened += 1
        return client

    def _replace_session(self, index: int) -> None:
        client = self._clients[index]
        client.stop()
        client.close()
        self._paths.forget_session(index)
        self._summary.sessions_closed += 1
        self._clients[index] = self._connect(index)

    def _adopt_tree(self) -> None:
        """Go on with the znodes that an earlier history left on the server."""
        for path, znode in read_tree(self._clients[0], ROOT).items():
            if not znode.stat.ephemeral_owner:
                self._paths.add(path, None)

    # --- one operation after the other

    def _next(self) -> list[Asked]:
        kind = self._random.choices(self._kinds, self._weights)[0]
        if len(self._paths) < 2:
            kind = "create"  # nothing else there: the root of all this must not be deleted
        if len(self._paths) > self._largest_tree and kind.startswith("create"):
            kind = "delete"
        session = self._random.randrange(len(self._clients))
        return [self._ask(kind, session, one) for one in self._makers[kind](self)]

    def _ask(self, kind: str, session: int, request: Any) -> Asked:
        return Asked(kind, request, session, submit(self._clients[session], request))

    def _settle(self, asked: Sequence[Asked]) -> None:
        """Wait for the answers and learn from them which znodes there are."""
        for one in asked:
            self._wait_for(one.result, one.request)
            outcome = "ok" if one.result.successful() else type(one.result.exception).__name__
            if outcome == "ok":
                outcome = self._learn(one)
            self._summary.operations += 1
            self._summary.kinds[one.kind] += 1
            self._summary.outcomes[outcome] += 1

    def _wait_for(self, event: Any, what: object) -> None:
        """Wait for anything that has a `wait` with a timeout and tells whether it came."""
        self._wait_until(lambda: event.wait(_WAIT_STEP_S), what)

    def _wait_until(self, has_come: Callable[[], bool], what: object) -> None:
        """Wait for something that takes a step's time to say that it is not there yet."""
        deadline = time.monotonic() + _MAX_WAIT_S
        while not has_come():
            if self._abandoned.is_set():
                raise _AbandonedError
            if time.monotonic() > deadline:
                raise NotReadyError(f"not in {_MAX_WAIT_S} s: {what}")

    def _wait_until_connected(self) -> None:
        """Ask nothing of a client without a connection.

        kazoo wakes its thread by a byte per request, and nobody reads them meanwhile: some 280 of
        them, and everyone who asks waits without end, also to stop the client.
        """

        def are_connected() -> bool:
            if all(client.connected for client in self._clients):
                return True
            self._abandoned.wait(_WAIT_STEP_S)
            return False

        self._wait_until(are_connected, "the connections again")

    def _learn(self, one: Asked) -> str:
        request, answer = one.request, one.result.value
        if isinstance(request, Multi):
            if any(isinstance(result, int) for result in answer):
                return "multi failed"
            for path in answer:
                self._paths.add(path, None)
            for operation in request.operations:
                if isinstance(operation, Delete):
                    self._paths.remove(operation.path)
        elif isinstance(request, Delete):
            self._paths.remove(request.path)
        elif isinstance(request, Create | Create2 | CreateContainer | CreateTTL):
            path = answer[0] if isinstance(request, Create2) else answer
            is_ephemeral = bool(getattr(request, "flags", 0) & _EPHEMERAL)
            self._paths.add(path, one.session if is_ephemeral else None)
        return "ok"

    # --- what the requests are about

    def _path(self) -> str:
        return self._paths.choose(self._random)

    def _new_path(self) -> str:
        self._names_given += 1
        # Few parents near the top, many below: wide and deep places both arise.
        parent = self._path() if self._random.random() < 0.5 else ROOT
        return f"{parent}/{self._random.choice(_NAMES)}{self._names_given}"

    def _data(self) -> bytes | None:
        draw = self._random.random()
        if draw < 0.04:
            return None
        if draw < 0.08:
            return b""
        if draw < 0.085:
            return self._random.randbytes(_LARGE_BYTES)
        return self._random.randbytes(self._random.randrange(1, 160))

    def _acl(self) -> Sequence[Any]:
        return _OPEN if self._random.random() < 0.8 else self._random.choice(_ACLS)

    # --- makers: each gives the requests of one operation

    def _create(self) -> list[Any]:
        record = self._random.choice((Create, Create2))
        flags = self._random.choice((0, 0, _EPHEMERAL, _SEQUENTIAL, _EPHEMERAL | _SEQUENTIAL))
        return [record(self._new_path(), self._data(), self._acl(), flags)]

    def _create_container(self) -> list[Any]:
        return [CreateContainer(self._new_path(), self._data(), self._acl())]

    def _create_ttl(self) -> list[Any]:
        is_sequential = self._random.random() < 0.5
        ttl_ms = self._random.choice(_TTLS_MS)
        return [CreateTTL(self._new_path(), self._data(), self._acl(), is_sequential, ttl_ms)]

    def _create2_container(self) -> list[Any]:
        return [Create2(self._new_path(), self._data(), self._acl(), 4)]

    def _set_data(self) -> list[Any]:
        return [SetData(self._path(), self._data(), _ANY_VERSION)]

    def _delete(self) -> list[Any]:
        return [Delete(self._path(), _ANY_VERSION)]

    def _set_acl(self) -> list[Any]:
        return [SetACL(self._path(), self._random.choice(_ACLS), _ANY_VERSION)]

    def _multi(self) -> list[Any]:
        """Operations that build on each other, so that the later ones see the earlier."""
        first, second = self._new_path(), self._new_path()
        operations: list[Any] = [
            Create(first, self._data(), _OPEN, 0),
            SetData(first, self._data(), 0),
            CheckVersion(first, 1),
            Create2(f"{first}/below", self._data(), self._acl(), self._random.choice((0, 2))),
            CreateContainer(second, self._data(), _OPEN),
            CreateTTL(f"{second}/ttl", self._data(), _OPEN, False, 60_000),
            SetData(self._path(), self._data(), _ANY_VERSION),
            Delete(second + "/ttl", 0),
        ]
        return [Multi(operations[: self._random.randrange(len(operations) + 1)])]

    def _multi_that_fails(self) -> list[Any]:
        (good,) = self._multi()
        bad = self._random.choice(
            (
                CheckVersion(self._path(), 1_000_000),
                Delete(ROOT + "/none", _ANY_VERSION),
                Create(ROOT, b"", _OPEN, 0),
            )
        )
        return [Multi([*good.operations, bad, SetData(ROOT, b"never", _ANY_VERSION)])]

    def _failure(self) -> list[Any]:
        choose = self._random.choice
        return [
            choose(
                (
                    Delete(ROOT + "/none", _ANY_VERSION),
                    Delete(self._path(), 1_000_000),
                    Delete(ROOT, _ANY_VERSION),
                    Delete("/zookeeper", _ANY_VERSION),
                    SetData(self._path(), b"never", 1_000_000),
                    SetData(ROOT + "/none", b"never", _ANY_VERSION),
                    SetACL(self._path(), _OPEN, 1_000_000),
                    SetACL(ROOT, (), _ANY_VERSION),
                    Create(self._path(), b"", _OPEN, 0),
                    Create2(ROOT + "/none/below", b"", _OPEN, 0),
                    Create(ROOT + "/.", b"", _OPEN, 0),
                    Create(ROOT + "/\U0001f600", b"", _OPEN, 0),
                    CreateContainer(self._new_path(), b"", ()),
                    CreateTTL(self._new_path(), b"", _OPEN, False, 0),
                )
            )
        ]

    def _quota(self) -> list[Any]:
        """Put a quota on a znode, as the command line tool does: parents, limits, statistics."""
        path = self._path()
        place = "/zookeeper/quota"
        requests = []
        for name in path.removeprefix("/").split("/"):
            place = f"{place}/{name}"
            requests.append(Create(place, b"", _OPEN, 0))
        limits = f"count={self._random.randrange(100)},bytes={self._random.randrange(10_000)}"
        requests.append(Create(place + "/zookeeper_limits", limits.encode(), _OPEN, 0))
        requests.append(Create(place + "/zookeeper_stats", b"count=0,bytes=0", _OPEN, 0))
        return requests

    def _end_of_quota(self) -> list[Any]:
        place = f"/zookeeper/quota{self._path()}"
        return [
            Delete(f"{place}/{name}", _ANY_VERSION)
            for name in ("zookeeper_limits", "zookeeper_stats")
        ]


_MAKERS: dict[str, tuple[float, Callable[[History], list[Any]]]] = {
    "create": (22, History._create),
    "create container": (2, History._create_container),
    "create ttl": (3, History._create_ttl),
    "set data": (34, History._set_data),
    "delete": (15, History._delete),
    "set acl": (6, History._set_acl),
    "multi": (7, History._multi),
    "failing multi": (3, History._multi_that_fails),
    "failure": (6, History._failure),
    "quota": (0.2, History._quota),
    "end of quota": (1, History._end_of_quota),
}


class PathPool:
    """The znodes that are thought to exist: choose, add and remove in constant time."""

    def __init__(self) -> None:
        self._list: list[str] = []
        self._index: dict[str, int] = {}
        self._owned: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._list)

    def __contains__(self, path: str) -> bool:
        return path in self._index

    def choose(self, source: random.Random) -> str:
        return source.choice(self._list)

    def add(self, path: str, session: int | None) -> None:
        if path.startswith("/zookeeper") or path in self._index:
            return
        self._index[path] = len(self._list)
        self._list.append(path)
        if session is not None:
            self._owned.setdefault(session, set()).add(path)

    def remove(self, path: str) -> None:
        position = self._index.pop(path, None)
        if position is None:
            return
        last = self._list.pop()
        if last != path:
            self._list[position] = last
            self._index[last] = position

    def forget_session(self, session: int) -> None:
        for path in self._owned.pop(session, ()):
            self.remove(path)
