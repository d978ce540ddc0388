"""Frames: an int length, then as many bytes. Client connections and election connections use them.

0  4  length n of the payload; the 4 bytes do not count
4  n  payload
"""

from __future__ import annotations

from typing import Final

from keepfast.wire.errors import MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FRAME, INT

_int_at: Final = INT.unpack_from
_LENGTH_SIZE: Final = 4


def encode_frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return INT.pack(len(payload)) + payload


class FrameParser:
    """Cuts a stream into the payloads of its frames.

    Holds at most one incomplete frame. A length that is not allowed raises MalformedRecord as soon
    as its 4 bytes are there, before the payload arrives; the connection is then unusable.
    """

    __slots__ = ("_chunks", "_needed", "_offset", "held", "max_frame", "min_frame")

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME, min_frame: int = 0) -> None:
        self.max_frame = max_frame
        self.min_frame = min_frame
        self._chunks: list[bytes] = []
        # Size of the frame that has begun; 0: the next byte begins one.
        self.held = 0
        # Below this many bytes there is no point in looking.
        self._needed = 4
        # Stream offset of the first byte held; for errors.
        self._offset = 0

    @property
    def arriving(self) -> int:
        """Size of the frame that has begun and is not complete; 0: none."""
        return self._needed - 4 if self._needed > 4 else 0

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete now, in order."""
        buffer = data
        if not self.held and len(data) > _LENGTH_SIZE:
            (length,) = _int_at(data)
            if length == len(data) - _LENGTH_SIZE and self.min_frame <= length <= self.max_frame:
                # One whole frame: the usual case for a client that waits for each reply.
                self._offset += len(data)
                return [data[_LENGTH_SIZE:]]
        if self.held:
            self._chunks.append(data)
            self.held += len(data)
            if self.held < self._needed:
                return []
            buffer = b"".join(self._chunks)
        payloads: list[bytes] = []
        start, end = 4, len(buffer)
        needed, minimum, maximum = 4, self.min_frame, self.max_frame
        while start <= end:
            (length,) = _int_at(buffer, start - 4)
            if not minimum <= length <= maximum:
                raise MalformedRecord(
                    f"frame of {length} bytes; allowed are {minimum} to {maximum}",
                    self._offset + start - 4,
                )
            stop = start + length
            if stop > end:
                needed = 4 + length
                break
            payloads.append(buffer[start:stop])
            start = stop + 4
        pos = start - 4
        self._offset += pos
        if pos < end or self.held:
            self._chunks = [buffer[pos:]] if pos < end else []
            self.held = end - pos
            self._needed = needed
        return payloads
