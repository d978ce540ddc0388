"""A client that writes all the time, whatever happens to the servers."""

from __future__ import annotations

import itertools
import threading
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from tests.apache import words

_PATIENCE_SECONDS = 150.0
# Longer than any election: a session that is lost is a finding.
_SESSION_SECONDS = 90
# kazoo would wait forever for the answer of a server that is gone.
_ANSWER_SECONDS = 30.0


class Load:
    """Creates one znode after the other, and remembers those that were acknowledged."""

    def __init__(self, hosts: str) -> None:
        self.acknowledged: list[str] = []
        self.lost_sessions = 0
        self._client = KazooClient(hosts, timeout=_SESSION_SECONDS, randomize_hosts=True)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def wait_for_writes(self, count: int) -> None:
        """Wait until this many more writes were acknowledged."""
        goal = len(self.acknowledged) + count
        words.wait_until(
            lambda: len(self.acknowledged) >= goal, "writes continue", timeout=_PATIENCE_SECONDS
        )

    def __enter__(self) -> Self:
        self._client.add_listener(self._on_state)
        try:
            self._client.start(timeout=_PATIENCE_SECONDS)
            self._client.create_async("/load", b"").get(timeout=_PATIENCE_SECONDS)
        except BaseException:
            self._client.stop()
            self._client.close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_SECONDS)
        self._client.stop()
        self._client.close()

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST and not self._is_over.is_set():
            self.lost_sessions += 1

    def _run(self) -> None:
        for number in itertools.count():
            if self._is_over.is_set():
                return
            path = f"/load/{number}"
            while not self._is_over.is_set():
                try:
                    self._client.create_async(path, b"acknowledged").get(timeout=_ANSWER_SECONDS)
                except NodeExistsError:
                    break  # an attempt before this one got through, its answer did not
                except (KazooException, KazooTimeoutError):
                    self._is_over.wait(0.05)
                else:
                    self.acknowledged.append(path)
                    break
