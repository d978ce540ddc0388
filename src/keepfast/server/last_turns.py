"""Stops listening without losing connections that were accepted just before.

It takes some turns of the event loop from a connection that the kernel has accepted to its
protocol. Closing the listener meanwhile loses that connection, and nobody closes its socket.
"""

from __future__ import annotations

import asyncio
from typing import Final

# From the socket to its protocol, or from an abort to the end of the socket, takes at most three.
LAST_TURNS: Final = 10


async def close_listener(listener: asyncio.Server) -> None:
    """Accept no more connections; those accepted have reached their protocols on return."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        # asyncio forgets the socket of a connection that it sets up when the listener is closed.
        for line in listener.sockets:
            loop.remove_reader(line)
        await let_turns_pass()
    listener.close()


async def let_turns_pass() -> None:
    """Wait until aborted connections closed their sockets, and accepted ones have protocols."""
    for _ in range(LAST_TURNS):
        await asyncio.sleep(0)
