"""Sessions that reconnect after their leader died: three servers of ours and three of Apache's.

Clients are connected to all three servers. The leader is killed; every client reconnects with its
session to one of the other two, as fast as it can, until it is accepted. Reported is how long after
the kill all of them were, and how long half of them waited. `--sessions`: how many there are.
"""

import argparse
import asyncio
import time
from pathlib import Path
from struct import Struct

from benchmarks.common import print_table, scratch
from benchmarks.ensembles import APACHE, KEEPFAST, BenchEnsemble
from keepfast.wire import ConnectRequest, SessionId, Zxid, encode

_INT = Struct(">i")
_CONNECTED = Struct(">iiq")
_PASSWORD_AT = 20
_PASSWORD_BYTES = 16
_TIMEOUT_MS = 40_000
_AT_ONCE = 500
_PAUSE_SECONDS = 0.05

Known = tuple[SessionId, bytes]
NEW: Known = (SessionId(0), bytes(_PASSWORD_BYTES))


class Returning:
    """One client: a session, and the connection that it has now."""

    def __init__(self) -> None:
        self.known = NEW
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, ports: list[int], turn: int) -> None:
        """Try the servers in turn until one takes the session."""
        while True:
            port = ports[turn % len(ports)]
            turn += 1
            try:
                if await self._greet(port):
                    return
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                pass
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _greet(self, port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        session_id, password = self.known
        hello = encode(ConnectRequest(0, Zxid(0), _TIMEOUT_MS, session_id, password, False))
        writer.write(_INT.pack(len(hello)) + hello)
        async with asyncio.timeout(10):
            size = _INT.unpack(await reader.readexactly(_INT.size))[0]
            welcome = await reader.readexactly(size)
        _, timeout, found = _CONNECTED.unpack_from(welcome)
        if not timeout:
            raise SystemExit("a server says that a session has ended which lives")
        self.known = (found, welcome[_PASSWORD_AT : _PASSWORD_AT + _PASSWORD_BYTES])
        self._writer = writer
        return True

    def drop(self) -> None:
        """Drop the connection; the session stays."""
        if self._writer is not None:
            self._writer.transport.abort()


async def opened(ports: list[int], count: int) -> list[Returning]:
    """Open this many sessions, spread over the servers."""
    clients = [Returning() for _ in range(count)]
    for start in range(0, count, _AT_ONCE):
        some = clients[start : start + _AT_ONCE]
        await asyncio.gather(*(client.connect(ports, n) for n, client in enumerate(some)))
    return clients


async def come_back(clients: list[Returning], ports: list[int]) -> list[float]:
    """Seconds until each is accepted again."""
    began = time.perf_counter()
    for client in clients:
        client.drop()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(turn: int, client: Returning) -> float:
        async with gate:
            await client.connect(ports, turn)
        return time.perf_counter() - began

    return sorted(await asyncio.gather(*(one(turn, client) for turn, client in enumerate(clients))))


def measured(kind: str, place: Path, count: int) -> list[str]:
    """One ensemble: open sessions, kill its leader, reconnect."""
    with BenchEnsemble(kind, place) as ensemble:

        async def whole() -> list[float]:
            clients = await opened(list(ensemble.ports.values()), count)
            leader = ensemble.leader()
            left = [port for id, port in ensemble.ports.items() if id != leader]
            ensemble.kill(leader)
            if ensemble.mode(leader) is not None:
                raise SystemExit("the leader was killed and still answers")
            spent = await come_back(clients, left)
            for client in clients:
                client.drop()
            return spent

        spent = asyncio.run(whole())
    return [kind, f"{spent[0]:.2f}", f"{spent[len(spent) // 2]:.2f}", f"{spent[-1]:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=5_000)
    options = parser.parse_args()
    with scratch() as place:
        rows = [measured(kind, place / kind, options.sessions) for kind in (APACHE, KEEPFAST)]
    print_table(
        f"{options.sessions:,} sessions come back after their leader was killed; seconds",
        ["servers", "first", "half of them", "all"],
        rows,
    )


if __name__ == "__main__":
    main()
