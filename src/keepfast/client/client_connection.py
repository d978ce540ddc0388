"""One TCP (or TLS) connection to one server: dial, handshake, then frames without blocking.

Errors are OSError (TLS errors are such too) and MalformedRecord; either way the connection is
unusable. Only one thread uses a connection: TLS in Python does not support two.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from typing import Final

from keepfast.client.client_options import ClientOptions
from keepfast.client.hosts import ServerAddress
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    ErrorCode,
    FrameParser,
    ReplyHeader,
    decode,
    encode,
    encode_frame,
)

_CHUNK: Final = 1 << 16
# Instead of a ConnectResponse: a server in read-only mode without local sessions answers by
# a bare ReplyHeader, which is shorter than any ConnectResponse.
_REPLY_HEADER_SIZE: Final = 16


class RefusedError(OSError):
    """The server answered, but did not grant a session; the text says why."""


class ServerConnection:
    """A connection that is set up; `response` is the server's answer to the handshake."""

    def __init__(
        self, address: ServerAddress, request: ConnectRequest, options: ClientOptions
    ) -> None:
        self.address = address
        self._parser = FrameParser(options.max_reply_bytes)
        self._early: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._socket = _dial(address, options)
        try:
            deadline = time.monotonic() + options.connect_timeout_s
            self._socket.sendall(encode_frame(encode(request)))
            self.response = self._read_response(deadline)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, payload: bytes) -> None:
        """Queue a frame's payload; `flush` sends it."""
        self._unsent.append(memoryview(encode_frame(payload)))

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._unsent:
            head = self._unsent[0]
            try:
                sent = self._socket.send(head)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            if sent == len(head):
                self._unsent.popleft()
            else:
                self._unsent[0] = head[sent:]

    def receive(self) -> list[bytes]:
        """The payloads that have arrived whole; ConnectionResetError once the server hung up.

        Reads until the socket is empty: TLS may hold bytes that `select` does not see.
        """
        payloads, self._early = self._early, []
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return payloads
            if not data:
                if payloads:
                    # The last words of the server; the next call meets the end again.
                    return payloads
                raise ConnectionResetError("the server closed the connection")
            payloads += self._parser.feed(data)

    def close(self) -> None:
        self._socket.close()

    def _read_response(self, deadline: float) -> ConnectResponse:
        payloads: list[bytes] = []
        while not payloads:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self._socket.recv(_CHUNK)
            if not data:
                raise RefusedError(
                    "it closed the connection without a session; it may not be serving"
                )
            payloads = self._parser.feed(data)
        first, *self._early = payloads
        if len(first) == _REPLY_HEADER_SIZE:
            err = decode(ReplyHeader, first).err
            if err == ErrorCode.NOT_READ_ONLY:
                raise RefusedError("it has no quorum and opens no sessions (local ones are off)")
            raise RefusedError(f"it refused the session with error {err}")
        return decode(ConnectResponse, first)


def _dial(address: ServerAddress, options: ClientOptions) -> socket.socket:
    try:
        plain = socket.create_connection(address, options.connect_timeout_s)
    except UnicodeError as error:
        # A name with an empty or overlong part, which fails before any lookup.
        raise OSError(f"{address.host!r} is not a host name") from error
    try:
        # Requests are small and each is waited for: without this they sit in the kernel for the
        # acknowledgement of the one before.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.ssl_context is None:
            return plain
        return options.ssl_context.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise
