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
from keepfast.replica import (
    AppendTxns,
    CadenceOptions,
    Connection,
    ContinueRequests,
    ContinueWork,
    Replica,
    ReplicaOptions,
    SendToClients,
    ServerCore,
    SnapshotCadence,
    TurnEffect,
)
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    ConnectRequest,
    CreateRequest,
    CreateTxn,
    DeleteRequest,
    FrameParser,
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
_REPLY = Struct(">iqi")
# The xid of what is sent without a request.
_EVENT = -1
_NOW_MS = 1_790_000_000_000


def resident_bytes() -> int:
    """Memory of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def tree_of(count: int) -> Tree:
    """A tree of this many znodes, `FAN_OUT` below each parent."""
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
    """A server's core with clients that speak to it directly, and a disk that takes no time."""

    def __init__(self, tree: Tree) -> None:
        options = ReplicaOptions(max_connections_per_address=0)
        replica = Replica(tree, options, _NOW_MS, _NOW_MS)
        cadence = SnapshotCadence(CadenceOptions(every=0), lambda _: 0)
        self._core = ServerCore(replica, None, cadence, _NOW_MS / 1000)
        self._received: list[bytes] = []
        self._xid = 0
        self.client = self.connect()

    def connect(self) -> Connection:
        """One more session."""
        connection = self._core.replica.connect("127.0.0.1", 1)
        assert connection is not None
        hello = encode(ConnectRequest(0, Zxid(0), 30_000, SessionId(0), bytes(16), False))
        self._ask(connection, _INT.pack(len(hello)) + hello)
        assert self._received, "no answer to the greeting"
        self._received.clear()
        return connection

    def _ask(self, connection: Connection, data: bytes) -> None:
        """Send bytes and take part in turns until nothing is left to do."""
        core = self._core
        core.receive(connection, data)
        while True:
            batch = core.end_turn()
            for effect in batch:
                self._perform(effect)
            if batch:
                continue
            if not core.replica.service.appends:
                return
            core.set_clock(core.deadline, _NOW_MS)  # the group waits for more

    def _perform(self, effect: TurnEffect) -> None:
        core = self._core
        if isinstance(effect, AppendTxns):
            core.log_durable(effect.records[-1].zxid, effect.group, 0.0)
        elif isinstance(effect, SendToClients):
            for connection in effect.connections:
                self._received += connection.out
                connection.out.clear()
        elif isinstance(effect, ContinueRequests):
            for connection in effect.connections:
                core.client_drained(connection)
        elif isinstance(effect, ContinueWork):
            core.continue_work()

    def frames(self, op: OpCode, bodies: list[bytes]) -> bytes:
        """Requests as a client sends them."""
        parts = []
        for body in bodies:
            self._xid += 1
            payload = _HEADER.pack(self._xid, op.value) + body
            parts.append(_INT.pack(len(payload)) + payload)
        return b"".join(parts)

    def cost(self, op: OpCode, bodies: list[bytes]) -> float:
        """µs of CPU for one of these requests, sent 100 at a time; all have to succeed."""
        pieces = [self.frames(op, bodies[at : at + 100]) for at in range(0, len(bodies), 100)]
        start = time.process_time_ns()
        for piece in pieces:
            self._ask(self.client, piece)
        spent = time.process_time_ns() - start
        self._check(op, len(bodies))
        return spent / 1000 / len(bodies)

    def _check(self, op: OpCode, count: int) -> None:
        """Each of the last `count` requests has its reply, and none of them is an error."""
        frames = FrameParser(1 << 30).feed(b"".join(self._received))
        self._received.clear()
        heads = [_REPLY.unpack_from(frame) for frame in frames]
        replies = [(xid, error) for xid, _, error in heads if xid != _EVENT]
        expected = [(xid, 0) for xid in range(self._xid - count + 1, self._xid + 1)]
        assert replies == expected, f"{op.name}: not every request was answered without an error"


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
    """The row of a tree of this many znodes."""
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
    """The row of this many sessions, each with a connection."""
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
