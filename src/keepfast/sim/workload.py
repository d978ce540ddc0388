"""What clients ask for: a few znodes that all of them change, read and watch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from keepfast.sim.agenda import MS
from keepfast.wire import (
    OPEN_ACL,
    CheckVersionRequest,
    CreateMode,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    MultiOp,
    OpCode,
    SetDataRequest,
    SyncRequest,
)

if TYPE_CHECKING:
    from keepfast.sim.client import Client
    from keepfast.sim.world import World

_MODES = (
    CreateMode.PERSISTENT,
    CreateMode.PERSISTENT,
    CreateMode.EPHEMERAL,
    CreateMode.PERSISTENT_SEQUENTIAL,
    CreateMode.EPHEMERAL_SEQUENTIAL,
)


class Workload:
    """Drives the clients of a world until it is stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._options = world.options.workload
        self._rng = random.Random(world.rng.getrandbits(64))
        self._kinds = [kind for kind, _ in self._options.weights]
        self._weights = [weight for _, weight in self._options.weights]
        self._count = 0
        self.is_stopped = False
        self._actions: dict[str, Callable[[Client], None]] = {
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
            "multi": self._multi,
            "read": self._read,
            "sync": self._sync,
            "roam": self._roam,
            "end": self._end,
        }

    def start(self) -> None:
        """Let every client begin."""
        for client in self._world.clients:
            client.connect()
            self._later(client)

    def stop(self) -> None:
        """Ask for nothing more."""
        self.is_stopped = True

    def _later(self, client: Client) -> None:
        delay_us = int(self._rng.expovariate(1 / (self._options.think_ms * MS)))
        self._world.agenda.after(delay_us, lambda: self._act(client))

    def _act(self, client: Client) -> None:
        if self.is_stopped:
            return
        self._later(client)
        if client.is_open and len(client.outstanding) < self._options.pipeline:
            kind = self._rng.choices(self._kinds, self._weights)[0]
            self._actions[kind](client)

    def _key(self) -> str:
        return f"/k{self._rng.randrange(self._options.keys)}"

    def _value(self) -> bytes:
        self._count += 1
        return b"v%d" % self._count

    def _version(self) -> int:
        return -1 if self._rng.random() < 0.7 else self._rng.randrange(4)

    def _create(self, client: Client) -> None:
        mode = self._rng.choice(_MODES)
        path = self._key()
        if mode is not CreateMode.PERSISTENT:
            path += f"/{'e' if mode.is_ephemeral else 's'}{self._rng.randrange(3)}"
        request = CreateRequest(path, self._value(), OPEN_ACL, mode)
        client.ask(self._rng.choice((OpCode.CREATE, OpCode.CREATE2)), path, request)

    def _set(self, client: Client) -> None:
        path = self._key()
        client.ask(OpCode.SET_DATA, path, SetDataRequest(path, self._value(), self._version()))

    def _delete(self, client: Client) -> None:
        path = self._key()
        if self._rng.random() < 0.5:
            path += f"/e{self._rng.randrange(3)}"
        client.ask(OpCode.DELETE, path, DeleteRequest(path, self._version()))

    def _multi(self, client: Client) -> None:
        first, second = self._key(), self._key()
        ops = [
            MultiOp(OpCode.SET_DATA, SetDataRequest(first, self._value(), self._version())),
            MultiOp(OpCode.SET_DATA, SetDataRequest(second, self._value(), -1)),
        ]
        chance = self._rng.random()
        if chance < 0.3:
            mode = CreateMode.EPHEMERAL
            create = CreateRequest(f"{first}/e0", self._value(), OPEN_ACL, mode)
            ops.insert(1, MultiOp(OpCode.CREATE, create))
        elif chance < 0.6:
            ops.append(MultiOp(OpCode.CHECK, CheckVersionRequest(second, self._version())))
        elif chance < 0.8:
            ops.insert(1, MultiOp(OpCode.DELETE, DeleteRequest(f"{first}/e0", -1)))
        client.ask(OpCode.MULTI, first, tuple(ops))

    def _read(self, client: Client) -> None:
        path = self._key()
        watch = self._rng.random() < self._options.watch_chance
        kind = self._rng.randrange(4)
        if kind == 0:
            if self._rng.random() < 0.5:
                path += f"/e{self._rng.randrange(3)}"
            client.ask(OpCode.EXISTS, path, ExistsRequest(path, watch))
        elif kind == 1:
            client.ask(OpCode.GET_DATA, path, GetDataRequest(path, watch))
        elif kind == 2:
            client.ask(OpCode.GET_CHILDREN, path, GetChildrenRequest(path, watch))
        else:
            client.ask(OpCode.GET_CHILDREN2, path, GetChildren2Request(path, watch))

    def _sync(self, client: Client) -> None:
        client.ask(OpCode.SYNC, "/", SyncRequest("/"))

    def _roam(self, client: Client) -> None:
        laggard = self._world.laggard()
        if laggard is not None:
            client.roam(laggard)

    def _end(self, client: Client) -> None:
        client.ask(OpCode.CLOSE_SESSION, "", None)
