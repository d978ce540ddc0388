"""What grows with the number of znodes and sessions: CPU of one operation, and memory.

The core of a server (no sockets, no disk) is filled with znodes, or with sessions, and then does
the same requests: µs of CPU for each, the least of three rounds. Nothing may grow worse than log n.
Memory is that of the process, before and after. `--quick` leaves the largest sizes out.
"""

import argparse
import gc
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from struct import Struct

from benchmarks.common import print_table
from keepfast.replica import Connection, Replica, ReplicaOptions
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    ConnectRequest,
    CreateRequest,
    CreateTxn,
    DeleteRequest,
    GetChildren2Request,
    GetDataRequest,
    MultiOp,
    OpCode,
    SessionId,
    SetDataRequest,
    TxnHeader,
    Zxid,
    encode,
    encode_multi_request,
    make_zxid,
)

ZNODES = (1_000, 100_000, 5_000_000)
SESSIONS = (10, 1_000, 10_000)
FAN_OUT = 1_000
ROUNDS = 3
OPERATIONS = 2_000
WATCHES = 100_000
DATA = b"d" * 100
_INT = Struct(">i")
_HEADER = Struct(">ii")
_NOW_MS = 1_790_000_000_000


def resident_bytes() -> int:
    """Memory of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def tree_of(count: int) -> Tree:
    """A tree of so many znodes, `FAN_OUT` below each parent."""
    tree = Tree()
    number = 0

    def create(path: str, data: bytes, cversion: int) -> None:
        nonlocal number
        number += 1
        header = TxnHeader(SessionId(1), 0, make_zxid(0, number), _NOW_MS, OpCode.CREATE.value)
        tree.apply(header, CreateTxn(path, data, OPEN_ACL, False, cversion))

    for parent in range(max(count // FAN_OUT, 1)):
        create(f"/p{parent}", b"", parent + 1)
        for child in range(FAN_OUT):
            create(f"/p{parent}/c{child}", DATA, child + 1)
    return tree


class Core:
    """A server's core with clients that speak to it directly."""

    def __init__(self, tree: Tree) -> None:
        options = ReplicaOptions(max_connections_per_address=0)
        self.replica = Replica(tree, options, 1000, _NOW_MS)
        self._xid = 0
        self.client = self.connect()

    def connect(self) -> Connection:
        """One more session."""
        connection = self.replica.connect("127.0.0.1", 1)
        assert connection is not None
        hello = encode(ConnectRequest(0, Zxid(0), 30_000, SessionId(0), bytes(16), False))
        self.replica.receive(connection, _INT.pack(len(hello)) + hello)
        self.settle()
        return connection

    def settle(self) -> None:
        """All that is to be stored is durable, and all that was sent is taken."""
        appends = self.replica.service.take_appends()
        if appends:
            self.replica.log_durable(appends[-1].zxid)
        for connection in self.replica.service.take_dirty():
            connection.out.clear()

    def frames(self, op: OpCode, bodies: list[bytes]) -> bytes:
        """Requests as a client sends them."""
        parts = []
        for body in bodies:
            self._xid += 1
            payload = _HEADER.pack(self._xid, op.value) + body
            parts.append(_INT.pack(len(payload)) + payload)
        return b"".join(parts)

    def cost(self, op: OpCode, bodies: list[bytes]) -> float:
        """µs of CPU for one of these requests, sent 100 at a time."""
        pieces = [self.frames(op, bodies[at : at + 100]) for at in range(0, len(bodies), 100)]
        start = time.process_time_ns()
        for piece in pieces:
            self.replica.receive(self.client, piece)
            self.settle()
        return (time.process_time_ns() - start) / 1000 / len(bodies)


def costs(core: Core) -> list[float]:
    """Create, delete, multi, children, setData, and setting a watch: µs each."""

    def least(measure: Callable[[int], list[float]]) -> list[float]:
        rounds = [measure(number) for number in range(ROUNDS)]
        return [min(column) for column in zip(*rounds, strict=True)]

    def measure(number: int) -> list[float]:
        paths = [f"/p0/n{number}-{i}" for i in range(OPERATIONS)]
        known = [f"/p0/c{i % FAN_OUT}" for i in range(OPERATIONS)]
        multis = [
            encode_multi_request(
                (
                    MultiOp(OpCode.SET_DATA.value, SetDataRequest(key, DATA, -1)),
                    MultiOp(OpCode.CREATE.value, CreateRequest(f"{path}-m", DATA, OPEN_ACL, 0)),
                    MultiOp(OpCode.DELETE.value, DeleteRequest(f"{path}-m", -1)),
                )
            )
            for key, path in zip(known, paths, strict=True)
        ]
        created = [encode(CreateRequest(path, DATA, OPEN_ACL, 0)) for path in paths]
        deleted = [encode(DeleteRequest(path, -1)) for path in paths]
        listed = [encode(GetChildren2Request("/p0", False))] * OPERATIONS
        changed = [encode(SetDataRequest(key, DATA, -1)) for key in known]
        watched = [encode(GetDataRequest(key, True)) for key in known]
        return [
            core.cost(OpCode.CREATE, created),
            core.cost(OpCode.DELETE, deleted),
            core.cost(OpCode.MULTI, multis),
            core.cost(OpCode.GET_CHILDREN2, listed),
            core.cost(OpCode.GET_DATA, watched),
            core.cost(OpCode.SET_DATA, changed),
        ]

    return least(measure)


def watch_bytes(core: Core, count: int) -> float:
    """Memory of one watch, each on a znode of its own."""
    paths = [f"/p{i // FAN_OUT}/c{i % FAN_OUT}" for i in range(count)]
    before = resident_bytes()
    core.cost(OpCode.EXISTS, [encode(GetDataRequest(path, True)) for path in paths])
    return (resident_bytes() - before) / count


def with_znodes(count: int) -> list[str]:
    """The row of a tree of so many znodes."""
    before = resident_bytes()
    tree = tree_of(count)
    memory = f"{(resident_bytes() - before) / count:,.0f} bytes per znode"
    gc.freeze()
    core = Core(tree)
    found = [f"{cost:.1f}" for cost in costs(core)]
    if count >= WATCHES:
        memory += f", {watch_bytes(core, WATCHES):,.0f} a watch"
    return [f"{count:,} znodes", *found, memory]


def with_sessions(count: int) -> list[str]:
    """The row of so many sessions, each with a connection."""
    core = Core(tree_of(FAN_OUT))
    before = resident_bytes()
    kept = [core.connect() for _ in range(count)]
    each = (resident_bytes() - before) / len(kept)
    gc.freeze()
    found = [f"{cost:.1f}" for cost in costs(core)]
    memory = f"{each:,.0f} bytes per session" if count >= FAN_OUT else ""
    return [f"{count:,} sessions", *found, memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest sizes")
    options = parser.parse_args()
    last = -1 if options.quick else None
    # A process for each: what one gave back, another would not have to ask for.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        rows = [*pool.map(with_znodes, ZNODES[:last]), *pool.map(with_sessions, SESSIONS[:last])]
    print_table(
        "µs of CPU for one operation in the core of a server",
        ["with", "create", "delete", "multi of 3", "children", "watch", "setData", "memory"],
        rows,
    )


if __name__ == "__main__":
    main()
