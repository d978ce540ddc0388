"""What clients ask for: a few znodes that all of them change, read and watch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from keepfast.sim.agenda import MS
from keepfast.tree import QUOTA
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AddWatchMode,
    AddWatchRequest,
    CheckVersionRequest,
    CreateMode,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetAllChildrenNumberRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    GetEphemeralsRequest,
    Id,
    MultiOp,
    OpCode,
    Perms,
    RemoveWatchesRequest,
    SetACLRequest,
    SetDataRequest,
    SyncRequest,
    WatcherType,
)

if TYPE_CHECKING:
    from keepfast.sim.simulated_client import SimulatedClient
    from keepfast.sim.simulated_world import World

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
        self._actions: dict[str, Callable[[SimulatedClient], None]] = {
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
            "multi": self._multi,
            "read": self._read,
            "sync": self._sync,
            "roam": self._roam,
            "end": self._end,
            "hop": self._hop,
            "sync-read": self._sync_read,
            "upgrade": self._upgrade,
            "container": self._container,
            "ttl": self._ttl,
            "quota": self._quota,
            "reads-between": self._reads_between,
            "acl": self._acl,
            "large": self._large,
            "hoard": self._hoard,
            "crowd": self._crowd,
            "watch": self._watch,
            "survey": self._survey,
        }

    def start(self) -> None:
        """Let every client begin."""
        for client in self._world.clients:
            client.connect()
            self._later(client)

    def stop(self) -> None:
        """Ask for nothing more."""
        self.is_stopped = True

    def _later(self, client: SimulatedClient) -> None:
        delay_us = int(self._rng.expovariate(1 / (self._options.think_ms * MS)))
        self._world.agenda.after(delay_us, lambda: self._act(client))

    def _act(self, client: SimulatedClient) -> None:
        if self.is_stopped:
            return
        self._later(client)
        is_free = client.is_open and not client.is_held
        if is_free and len(client.outstanding) < self._options.pipeline:
            kind = self._rng.choices(self._kinds, self._weights)[0]
            self._actions[kind](client)

    def _key(self) -> str:
        return f"/k{self._rng.randrange(self._options.keys)}"

    def _value(self) -> bytes:
        self._count += 1
        return b"v%d" % self._count

    def _version(self) -> int:
        return -1 if self._rng.random() < 0.7 else self._rng.randrange(4)

    def _create(self, client: SimulatedClient) -> None:
        mode = self._rng.choice(_MODES)
        path = self._key()
        if mode is not CreateMode.PERSISTENT:
            path += f"/{'e' if mode.is_ephemeral else 's'}{self._rng.randrange(3)}"
        request = self._request(path, mode)
        client.ask(self._rng.choice((OpCode.CREATE, OpCode.CREATE2)), path, request)

    def _set(self, client: SimulatedClient) -> None:
        path = self._key()
        client.ask(OpCode.SET_DATA, path, SetDataRequest(path, self._value(), self._version()))

    def _delete(self, client: SimulatedClient) -> None:
        path = self._key()
        if self._rng.random() < 0.5:
            path += f"/e{self._rng.randrange(3)}"
        client.ask(OpCode.DELETE, path, DeleteRequest(path, self._version()))

    def _multi(self, client: SimulatedClient) -> None:
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

    def _read(self, client: SimulatedClient) -> None:
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

    def _sync(self, client: SimulatedClient) -> None:
        client.ask(OpCode.SYNC, "/", SyncRequest("/"))

    def _roam(self, client: SimulatedClient) -> None:
        laggard = self._world.laggard()
        if laggard is not None and client.only is None:
            client.roam(laggard)

    def _hop(self, client: SimulatedClient) -> None:
        """Leave in the middle of a write, come back at once, and ask for something else."""
        first, second = self._key(), self._key()
        path = f"{first}/e{self._rng.randrange(3)}"
        write = self._rng.choice(
            (
                (OpCode.SET_DATA, first, SetDataRequest(first, self._value(), -1)),
                (OpCode.DELETE, path, DeleteRequest(path, -1)),
                (OpCode.CREATE, path, self._request(path, CreateMode.EPHEMERAL)),
            )
        )
        client.ask(*write)
        next_write = (OpCode.SET_DATA, second, SetDataRequest(second, self._value(), -1))
        server = client.server
        if client.only is None and self._rng.random() < 0.4:
            server = self._rng.choice(self._world.client_servers())
        # Time enough for the write to reach the server, and not to be done.
        delay_us = self._rng.choice((1, 2, 4)) * self._world.options.network.max_delay_us

        def move() -> None:
            if server is not None and client.is_open:
                client.move(server, next_write)

        self._world.agenda.after(delay_us, move)

    def _upgrade(self, client: SimulatedClient) -> None:
        """Begin a session again, make an ephemeral, and come back before that is done."""
        server = client.server
        if server is None:
            return
        path = f"{self._key()}/e{self._rng.randrange(3)}"
        client.ask(OpCode.CLOSE_SESSION, "", None)
        delay_us = self._rng.choice((1, 2, 4)) * self._world.options.network.max_delay_us

        def begin() -> None:
            if not self.is_stopped and client.is_open:
                client.ask(OpCode.CREATE, path, self._request(path, CreateMode.EPHEMERAL))
                self._world.agenda.after(delay_us, come_back)

        def come_back() -> None:
            if not self.is_stopped and client.is_open and client.server is not None:
                client.roam(client.server)

        self._world.agenda.after(self._world.tick_us, begin)

    def _sync_read(self, client: SimulatedClient) -> None:
        path = self._key()
        client.ask(OpCode.SYNC, path, SyncRequest(path))
        client.ask(OpCode.GET_DATA, path, GetDataRequest(path, False))

    def _reads_between(self, client: SimulatedClient) -> None:
        """Write, read it some times, and write again, without waiting for any of it."""
        path = self._key()
        client.ask(OpCode.SET_DATA, path, SetDataRequest(path, self._value(), -1))
        for _ in range(self._rng.randrange(2, 8)):
            client.ask(OpCode.GET_DATA, path, GetDataRequest(path, False))
        client.ask(OpCode.SET_DATA, path, SetDataRequest(path, self._value(), -1))

    def _request(self, path: str, mode: CreateMode) -> CreateRequest:
        return CreateRequest(path, self._value(), OPEN_ACL, mode)

    def _container(self, client: SimulatedClient) -> None:
        """Make a container, use it, or empty it."""
        box = f"/box{self._rng.randrange(2)}"
        item = f"{box}/x"
        kind = self._rng.randrange(3)
        if kind == 0:
            client.ask(OpCode.CREATE_CONTAINER, box, self._request(box, CreateMode.CONTAINER))
        elif kind == 1:
            client.ask(OpCode.CREATE, item, self._request(item, CreateMode.PERSISTENT))
        else:
            client.ask(OpCode.DELETE, item, DeleteRequest(item, -1))

    def _ttl(self, client: SimulatedClient) -> None:
        path = f"{self._key()}/t{self._rng.randrange(3)}"
        ttl_ms = self._rng.choice((1, 5, 50)) * self._world.options.replica.tick_ms
        mode = CreateMode.PERSISTENT_WITH_TTL
        request = CreateTTLRequest(path, self._value(), OPEN_ACL, mode, ttl_ms)
        client.ask(OpCode.CREATE_TTL, path, request)

    def _quota(self, client: SimulatedClient) -> None:
        """Set or drop a hard limit on the znodes below a key."""
        folder = f"{QUOTA}{self._key()}"
        limits = f"{folder}/zookeeper_limits"
        limit = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=%d" % self._rng.randrange(2, 9)
        if self._rng.random() < 0.3:
            client.ask(OpCode.DELETE, limits, DeleteRequest(limits, -1))
            return
        for path, data in ((folder, b""), (limits, limit), (f"{folder}/zookeeper_stats", b"")):
            request = CreateRequest(path, data, OPEN_ACL, CreateMode.PERSISTENT)
            client.ask(OpCode.CREATE, path, request)

    def _acl(self, client: SimulatedClient) -> None:
        """Give a znode one of a few ACLs, all of which let everybody do everything."""
        path = self._key()
        acl = (*OPEN_ACL, *(ACL(Perms.READ, Id("ip", f"10.0.0.{n}")) for n in self._few()))
        client.ask(OpCode.SET_ACL, path, SetACLRequest(path, acl, -1))

    def _few(self) -> range:
        return range(1, self._rng.randrange(1, 4))

    def _large(self, client: SimulatedClient) -> None:
        """Write what may be too large for a txn, alone or together."""
        path, second = self._key(), self._key()
        values = [self._large_value(), self._large_value()]
        kind = self._rng.randrange(3)
        if kind == 0:
            client.ask(OpCode.SET_DATA, path, SetDataRequest(path, values[0], -1))
        elif kind == 1:
            path = f"{path}/s{self._rng.randrange(3)}"
            request = CreateRequest(path, values[0], OPEN_ACL, CreateMode.PERSISTENT_SEQUENTIAL)
            client.ask(OpCode.CREATE, path, request)
        else:
            item = f"{path}/e{self._rng.randrange(3)}"
            create = CreateRequest(item, values[0], OPEN_ACL, CreateMode.EPHEMERAL)
            change = SetDataRequest(second, values[1][: len(values[1]) // 2], -1)
            ops = (MultiOp(OpCode.CREATE, create), MultiOp(OpCode.SET_DATA, change))
            client.ask(OpCode.MULTI, item, ops)

    def _large_value(self) -> bytes:
        return self._value().ljust(self._rng.randrange(self._options.large_bytes), b".")

    def _hoard(self, client: SimulatedClient) -> None:
        """One more ephemeral with a long name: too many for the txn that ends the session."""
        path = f"{self._key()}/{'h' * self._rng.choice((10, 40))}"
        request = self._request(path, CreateMode.EPHEMERAL_SEQUENTIAL)
        client.ask(OpCode.CREATE, path, request)

    def _crowd(self, client: SimulatedClient) -> None:
        """Some ephemerals at once, which may be more than a session may have."""
        for number in range(self._rng.randrange(2, 5)):
            path = f"{self._key()}/e{number}"
            client.ask(OpCode.CREATE, path, self._request(path, CreateMode.EPHEMERAL))

    def _watch(self, client: SimulatedClient) -> None:
        """Set a watch that lasts, or remove watches."""
        path = self._rng.choice((self._key(), f"{self._key()}/e0", "/"))
        if self._rng.random() < 0.7:
            mode = self._rng.choice(list(AddWatchMode))
            client.ask(OpCode.ADD_WATCH, path, AddWatchRequest(path, mode))
        else:
            kind = self._rng.choice(list(WatcherType))
            client.ask(OpCode.REMOVE_WATCHES, path, RemoveWatchesRequest(path, kind))

    def _survey(self, client: SimulatedClient) -> None:
        """Read many znodes at once, or ask for what there is."""
        path = self._rng.choice((self._key(), "/"))
        kind = self._rng.randrange(3)
        if kind == 0:
            reads = tuple(self._one_read() for _ in range(self._rng.randrange(6)))
            client.ask(OpCode.MULTI_READ, path, reads)
        elif kind == 1:
            client.ask(OpCode.GET_EPHEMERALS, path, GetEphemeralsRequest(path))
        else:
            client.ask(OpCode.GET_ALL_CHILDREN_NUMBER, path, GetAllChildrenNumberRequest(path))

    def _one_read(self) -> MultiOp:
        path = self._rng.choice((self._key(), f"{self._key()}/e0"))
        if self._rng.random() < 0.5:
            return MultiOp(OpCode.GET_DATA, GetDataRequest(path, False))
        return MultiOp(OpCode.GET_CHILDREN, GetChildrenRequest(path, False))

    def _end(self, client: SimulatedClient) -> None:
        client.ask(OpCode.CLOSE_SESSION, "", None)
