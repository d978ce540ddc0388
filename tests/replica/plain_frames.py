"""Frames of the client protocol, as a client without any cleverness makes and reads them."""

from __future__ import annotations

from typing import Any

from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    ReplyHeader,
    SessionId,
    WatcherEvent,
    Xid,
    Zxid,
    codec_of,
    encode,
    encode_int,
)


def greeting_of(
    session: ConnectResponse | None, timeout_ms: int, *, read_only: bool, last_zxid: int = 0
) -> bytes:
    """What a connection begins with, for a new session or for one that was given out."""
    return encode(
        ConnectRequest(
            0,
            Zxid(last_zxid),
            timeout_ms,
            SessionId(session.session_id if session else 0),
            session.password if session else bytes(16),
            read_only,
        )
    )


def request_of(xid: int, op: int, request: Any = None) -> bytes:
    """A request."""
    body = b"" if request is None else encode(request)
    return encode_int(xid) + encode_int(int(op)) + body


def replies_in(payloads: list[bytes]) -> list[tuple[int, int]]:
    """xid and error of each reply, and (-1, type) of each event, in order."""
    seen = []
    for payload in payloads:
        header = codec_of(ReplyHeader).decode(payload)
        if header.xid == Xid.EVENT:
            event = codec_of(WatcherEvent).decode(payload, 16)
            seen.append((int(Xid.EVENT), event.type))
        else:
            seen.append((header.xid, header.err))
    return seen
