"""Clients of kazoo's make under faults: each answer is that of the operation that was sent.

kazoo counts its requests from 1 on every connection, and comes back at once when one is lost: a
server that knew requests by their numbers would give it the answer to another one. So each worker
writes to a znode of its own, several requests at a time, and compares every answer with what it
asked for, and with what it reads back.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoNodeError,
    SessionExpiredError,
    SystemZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError

_UNKNOWN: Final = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
_PATIENCE_SECONDS: Final = 10.0
_AT_ONCE: Final = 3
_PAUSE_SECONDS: Final = 0.01


class KazooWorker(threading.Thread):
    """One kazoo client that works until it is told to stop."""

    def __init__(
        self, root: str, number: int, hosts: Sequence[str], is_over: threading.Event
    ) -> None:
        super().__init__(name=f"kazoo-{number}", daemon=True)
        self._path = f"{root}/kazoo-{number}"
        self._hosts = hosts
        self._is_over = is_over
        self._rng = random.Random(number)
        self._count = 0
        # How many sets were answered, and of how many nobody knows.
        self.done = 0
        self.unknown = 0
        self.complaints: list[str] = []
        self.bug: BaseException | None = None

    def run(self) -> None:
        logger = logging.getLogger(f"tests.chaos.{self.name}")
        logger.setLevel(logging.CRITICAL)
        client = KazooClient(
            hosts=",".join(self._hosts), timeout=4.0, logger=logger, randomize_hosts=True
        )
        try:
            client.start(timeout=60)
            self._make(client)
            while not self._is_over.is_set():
                self._step(client)
                self._is_over.wait(_PAUSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - shown by the campaign, which fails with it
            self.bug = error
        finally:
            client.stop()
            client.close()

    def _make(self, client: KazooClient) -> None:
        while not self._is_over.is_set():
            try:
                client.ensure_path(self._path)
                return
            except (*_UNKNOWN, SystemZookeeperError):
                self._is_over.wait(_PAUSE_SECONDS)

    def _value(self) -> bytes:
        self._count += 1
        return b"%s %d" % (self.name.encode(), self._count)

    def _step(self, client: KazooClient) -> None:
        values = [self._value() for _ in range(_AT_ONCE)]
        asked = [(value, client.set_async(self._path, value)) for value in values]
        children = client.create_async(f"{self._path}/s-", values[0], sequence=True)
        told: dict[int, bytes] = {}
        for value, answer in asked:
            try:
                stat = answer.get(timeout=_PATIENCE_SECONDS)
            except _UNKNOWN:
                self.unknown += 1
                continue
            except SystemZookeeperError:
                continue  # a full disk: refused, and not done
            except KazooException as error:
                self._complain(f"set {value!r} is answered by {error!r}")
                continue
            self.done += 1
            if told.setdefault(stat.version, value) != value:
                self._complain(f"{told[stat.version]!r} and {value!r} got version {stat.version}")
            if stat.dataLength != len(value):
                self._complain(f"set {value!r} is answered by {stat}")
        self._read_back(client, told)
        try:
            path = children.get(timeout=_PATIENCE_SECONDS)
            self._check_child(client, path, values[0])
        except (*_UNKNOWN, SystemZookeeperError):
            pass

    def _read_back(self, client: KazooClient, told: dict[int, bytes]) -> None:
        try:
            data, stat = client.get(self._path)
        except _UNKNOWN:
            return
        if told and stat.version < max(told):
            self._complain(f"version {stat.version} is read behind the answer {max(told)}")
        expected = told.get(stat.version)
        if expected is not None and expected != data:
            self._complain(f"version {stat.version} was {expected!r} and is read as {data!r}")

    def _check_child(self, client: KazooClient, path: str, value: bytes) -> None:
        if not path.startswith(f"{self._path}/s-"):
            self._complain(f"create is answered by {path}")
            return
        try:
            data, _stat = client.get(path)
            client.delete(path)
        except NoNodeError:
            self._complain(f"{path} was created and is not there")
            return
        if data != value:
            self._complain(f"{path} was created with {value!r} and is {data!r}")

    def check(self, client: KazooClient) -> None:
        """At the end: every set that was answered counts once, the others at most once."""
        client.sync(self._path)
        version = client.exists(self._path).version
        if not self.done <= version <= self.done + self.unknown:
            self._complain(
                f"version {version} after {self.done} sets and {self.unknown} unknown ones"
            )

    def _complain(self, text: str) -> None:
        self.complaints.append(f"{self.name}: {text}")
