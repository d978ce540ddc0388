"""What pages are sent as it happens: server-sent events, with a limit for those who read slowly."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

MAX_SUBSCRIBERS: Final = 200
# Events that wait for a slow page. At the limit the oldest go, and the page is sent how many.
_MAX_WAITING: Final = 1000
# A line now and then shows both ends that the other is there.
_SILENCE_SECONDS: Final = 15.0

Document = dict[str, Any]
# What a page is sent of an event; None: nothing.
Shape = Callable[[str, Document], Document | None]


def json_text(value: object) -> str:
    """JSON in ASCII: nothing that a znode holds can end a line or break an encoding."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


class Subscriber:
    """One page. `shape` decides what it is sent."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._waiting: deque[tuple[str, Document]] = deque()
        self._dropped = 0
        self._has_news = asyncio.Event()

    def put(self, kind: str, document: Document) -> None:
        """Called on the loop. What is only interesting while it is new replaces what waits."""
        if kind != "feed":
            self._waiting = deque(one for one in self._waiting if one[0] != kind)
        elif len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((kind, document))
        self._has_news.set()

    def close(self) -> None:
        """Wake the stream for the last time."""
        self.put("bye", {})

    async def stream(self) -> AsyncIterator[bytes]:
        """The bytes of an event stream, until the console stops."""
        yield b"retry: 1000\n\n"
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await self._has_news.wait()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            self._has_news.clear()
            waiting, self._waiting = self._waiting, deque()
            dropped, self._dropped = self._dropped, 0
            if dropped:
                waiting.appendleft(("dropped", {"count": dropped}))
            for kind, document in waiting:
                yield f"event: {kind}\ndata: {json_text(document)}\n\n".encode()
                if kind == "bye":
                    return


class Hub:
    """Hands events to all pages; `publish` may be called on any thread."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # The newest of each kind but the feed: what a new page is shown at once.
        self.latest: dict[str, Document] = {}
        self._is_closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to deliver, on this loop."""
        self._loop = loop

    def publish(self, kind: str, document: Document) -> None:
        if kind != "feed":
            self.latest[kind] = document
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, kind, document)

    def subscribe(self, shape: Shape) -> Subscriber | None:
        """A new page; None if there are too many."""
        if len(self._subscribers) >= MAX_SUBSCRIBERS or self._is_closed:
            return None
        subscriber = Subscriber(shape)
        self._subscribers.add(subscriber)
        for kind, document in self.latest.items():
            self._offer(subscriber, kind, document)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def close(self) -> None:
        """End all streams: a server that stops waits for none."""
        self._is_closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    def _deliver(self, kind: str, document: Document) -> None:
        for subscriber in self._subscribers:
            self._offer(subscriber, kind, document)

    @staticmethod
    def _offer(subscriber: Subscriber, kind: str, document: Document) -> None:
        shown = subscriber.shape(kind, document)
        if shown is not None:
            subscriber.put(kind, shown)
