"""One connection of the learner protocol: bytes in and out, and what is streamed from the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from keepfast.quorum import Link, RecordStream, TreeStream
from keepfast.wire import StorageError

if TYPE_CHECKING:
    from keepfast.server.member_driver import MemberDriver

# What waits in memory for one peer while a stream is sent. Low: more waiting; high: memory.
_HIGH_WATER_BYTES: Final = 4 << 20


class PeerLink(asyncio.Protocol):
    """See the module. Streams and bytes leave in the order in which they were given."""

    def __init__(self, driver: MemberDriver, link: Link, begin: Callable[[Link], None]) -> None:
        """`begin` tells the member of the link, once it is there."""
        self.link = link
        self._begin = begin
        self._driver = driver
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[bytes | RecordStream | TreeStream] = deque()
        self._streaming: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._driver.linked(self, self._begin)

    def data_received(self, data: bytes) -> None:
        self._driver.received(self.link, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_streaming()
        self._driver.lost(self.link)

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def send(self, items: list[bytes | RecordStream | TreeStream]) -> None:
        """Send what a link has for its peer."""
        self._waiting.extend(items)
        if self._streaming is None:
            self._pump()

    def close(self) -> None:
        """End the connection; what waits is not sent."""
        self._waiting.clear()
        self._stop_streaming()
        if self._transport is not None:
            self._transport.close()

    def _stop_streaming(self) -> None:
        if self._streaming is not None:
            self._streaming.cancel()
            self._streaming = None

    def _pump(self) -> None:
        """Write up to the next stream."""
        ready: list[bytes] = []
        while self._waiting:
            item = self._waiting.popleft()
            if not isinstance(item, bytes):
                self._write(b"".join(ready))
                self._streaming = asyncio.get_running_loop().create_task(self._stream(item))
                return
            ready.append(item)
        self._write(ready[0] if len(ready) == 1 else b"".join(ready))

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    async def _stream(self, item: RecordStream | TreeStream) -> None:
        loop = asyncio.get_running_loop()
        try:
            pieces: Iterator[bytes] = await self._driver.pieces_of(item)
            while True:
                piece = await loop.run_in_executor(None, next, pieces, None)
                if piece is None:
                    break
                self._write(piece)
                await self._drained.wait()
        except StorageError as error:
            # What the peer has got so far is sound; it comes back and is served anew.
            self._driver.stream_failed(self.link, error)
            return
        self._streaming = None
        self._pump()
