"""Raw connections that do what no client should, and what the server looks like from outside."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.servers import KeepfastServer

IS_FULL = os.environ.get("KEEPFAST_HOSTILE") == "full"
TIMEOUT = 60.0
NO_PASSWORD = bytes(16)


class Offender:
    """A socket, with a session if it is `greeted`."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(TIMEOUT)
        if receive_buffer is not None:
            # A small window: what is not read piles up in the server, not in the kernel.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def greet(self, timeout_ms: int = 60_000) -> Self:
        self.send(wire.connect(0, timeout_ms, 0, NO_PASSWORD))
        if self.frame() is None:
            self.close()
            raise ConnectionError("the server closed instead of giving a session")
        return self

    def send(self, *payloads: bytes) -> None:
        self.raw(b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, *requests: tuple[int, bytes]) -> None:
        """Requests (type and body), all at once."""
        self.send(
            *(struct.pack(">ii", xid, op) + body for xid, (op, body) in enumerate(requests, 1))
        )

    def frame(self) -> bytes | None:
        """The next frame; None at the end."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def is_cut_off(self) -> bool:
        """Read to the end, which comes by the server; what is read is thrown away."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

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
            except ConnectionError:
                return None
            if not more:
                return None
            self._held += more
        found, self._held = self._held[:size], self._held[size:]
        return found


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
