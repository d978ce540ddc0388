"""The end of a connection: what was written is sent first, but only to one who reads it."""

from __future__ import annotations

import asyncio
from typing import Final

# How long the other side may take nothing of what waits for it. Low: a slow network loses the last
# replies. High: who does not read holds a connection, and the memory of what waits in it.
_PATIENCE_SECONDS: Final = 10.0


class Farewell:
    """Closes the connection of one protocol, which calls `is_over` when it is lost."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Close after what was written."""
        # Once: closed again, the TLS layer of Python 3.11 lets go of what it needs, and an abort
        # fails, or a look at what waits in it.
        if not transport.is_closing():
            transport.close()
            # A layer of TLS has a limit of its own.
            if transport.get_extra_info("ssl_object") is None:
                self._wait(transport)

    def is_over(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, transport: asyncio.Transport) -> None:
        unsent = transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_PATIENCE_SECONDS, self._look, transport, unsent)

    def _look(self, transport: asyncio.Transport, unsent: int) -> None:
        if transport.get_write_buffer_size() < unsent:
            self._wait(transport)
        else:
            transport.abort()
