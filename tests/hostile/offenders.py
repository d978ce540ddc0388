"""Raw connections that do what no client should, and what the server looks like from outside."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from keepfast.storage import RealDisk, Standing, data_directory, recover
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.keepfast_server import KeepfastServer

IS_FULL = os.environ.get("KEEPFAST_HOSTILE") == "full"
TIMEOUT = 60.0
NO_PASSWORD = bytes(16)
# How the end of a connection shows that the other side has cut off, inside TLS and without.
HUNG_UP = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_PIECE = 1 << 16


class Offender:
    """A socket, with a session if it is `greeted`."""

    def __init__(
        self,
        port: int,
        *,
        receive_buffer: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self.tls = tls
        self.socket = socket.socket()
        self.socket.settimeout(TIMEOUT)
        if receive_buffer is not None:
            # A small window: what is not read piles up in the server, not in the kernel.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._held = b""

    def greet(self, timeout_ms: int = 60_000) -> Self:
        self.send(wire.connect(0, timeout_ms, 0, NO_PASSWORD))
        if self.frame() is None:
            self.close()
            raise ConnectionError("the server closed instead of giving a session")
        return self

    def send(self, *payloads: bytes) -> None:
        self.raw(_frames(payloads))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, *requests: tuple[int, bytes]) -> None:
        """Requests (type and body), all at once."""
        self.send(*_numbered(requests))

    def ask_and_read(self, *requests: tuple[int, bytes]) -> Iterator[bytes | None]:
        """Requests, all at once, and the next frames, read while the requests are on their way.

        In one thread: inside TLS a thread that reads and one that writes disturb each other, and
        may then both wait for bytes that nobody sends.
        """
        unsent = memoryview(_frames(_numbered(requests)))
        self.socket.setblocking(False)
        try:
            for _ in requests:
                while unsent and not self._has_frame():
                    unsent = unsent[self._exchange(unsent[:_PIECE]) :]
                if not unsent:
                    self.socket.settimeout(TIMEOUT)
                yield self.frame()
        finally:
            self.socket.settimeout(TIMEOUT)

    def _exchange(self, data: memoryview) -> int:
        """Send and read what can be without waiting, or wait for either; gives what was sent."""
        sent = read = 0
        with contextlib.suppress(*_NOT_NOW):
            sent = self.socket.send(data)
        with contextlib.suppress(*_NOT_NOW):
            more = self.socket.recv(1 << 18)
            if not more:
                raise ConnectionError("the server closed in the middle of the requests")
            self._held += more
            read = len(more)
        if not sent and not read:
            ready = select.select([self.socket], [self.socket], [], TIMEOUT)
            if not any(ready):
                raise TimeoutError("the server takes nothing and says nothing")
        return sent

    def _has_frame(self) -> bool:
        if len(self._held) < 4:
            return False
        (size,) = struct.unpack_from(">i", self._held)
        return len(self._held) - 4 >= int(size)

    def frame(self) -> bytes | None:
        """The next frame; None at the end."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def is_cut_off(self) -> bool:
        """Read to the end, which comes by the server; what is read is thrown away."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except HUNG_UP:
            return True
        except TimeoutError:
            return False
        return True

    def is_cut_off_by(self, *payloads: bytes) -> bool:
        """Send until the server hangs up, which may be before all is sent."""
        with contextlib.suppress(*HUNG_UP):
            for payload in payloads:
                self.send(payload)
        return self.is_cut_off()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, size: int) -> bytes | None:
        while len(self._held) < size:
            try:
                more = self.socket.recv(1 << 18)
            except HUNG_UP:
                return None
            if not more:
                return None
            self._held += more
        found, self._held = self._held[:size], self._held[size:]
        return found


def _numbered(requests: Iterable[tuple[int, bytes]]) -> list[bytes]:
    return [struct.pack(">ii", xid, op) + body for xid, (op, body) in enumerate(requests, 1)]


def _frames(payloads: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def resident_bytes(server: KeepfastServer) -> int:
    """The memory of the server's process."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert match is not None
    return int(match[1]) << 10


def reasons(server: KeepfastServer) -> Iterable[str]:
    """Why the server has closed connections, by its log."""
    return re.findall(r'(?:closed|refused) .*reason="?([^"\n]*)', server.output())


def get_data(path: str, *, watch: bool = False) -> tuple[int, bytes]:
    return Op.GET_DATA, wire.with_flag(path, watch)


def is_whole(data_dir: Path | str) -> bool:
    """Whether a data directory, of a server that is down, has all that it should."""
    disk = RealDisk()
    return recover(disk, data_directory(disk, str(data_dir)), full=True).standing is Standing.WHOLE
