"""Requests that kazoo does not know, in the form in which it sends its own.

kazoo sends whatever has a `type` and `serialize()`, and hands the body of the reply to
`deserialize()`. It has no containers, no TTL znodes, and its multi cannot hold a create2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Create2,
    Delete,
    SetACL,
    SetData,
    read_string,
)

__all__ = [
    "CheckVersion",
    "Create",
    "Create2",
    "CreateContainer",
    "CreateTTL",
    "Delete",
    "Multi",
    "SetACL",
    "SetData",
    "submit",
]

_CONTAINER_FLAG = 4
_STAT_SIZE = 68
_MULTI_HEADER = struct.Struct(">i?i")
_FAILED = -1


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Operation 19: a znode that the server removes some time after its last child went."""

    path: str
    data: bytes | None
    acl: Sequence[Any]
    type: ClassVar[int] = 19

    def serialize(self) -> bytes:
        return bytes(Create(self.path, self.data, self.acl, _CONTAINER_FLAG).serialize())

    @staticmethod
    def deserialize(body: bytes, offset: int) -> str:
        return str(read_string(body, offset)[0])


@dataclass(frozen=True, slots=True)
class CreateTTL:
    """Operation 21: a znode that the server removes when it was not written for `ttl_ms`."""

    path: str
    data: bytes | None
    acl: Sequence[Any]
    is_sequential: bool
    ttl_ms: int
    type: ClassVar[int] = 21

    def serialize(self) -> bytes:
        flags = 6 if self.is_sequential else 5
        body = bytes(Create(self.path, self.data, self.acl, flags).serialize())
        return body + struct.pack(">q", self.ttl_ms)

    @staticmethod
    def deserialize(body: bytes, offset: int) -> str:
        return str(read_string(body, offset)[0])


@dataclass(frozen=True, slots=True)
class Multi:
    """Operation 14 with any sub-operation. The result lists created paths and error codes."""

    operations: Sequence[Any]
    type: ClassVar[int] = 14

    def serialize(self) -> bytes:
        parts = []
        for operation in self.operations:
            parts.append(_MULTI_HEADER.pack(operation.type, False, -1))
            parts.append(bytes(operation.serialize()))
        parts.append(_MULTI_HEADER.pack(-1, True, -1))
        return b"".join(parts)

    @staticmethod
    def deserialize(body: bytes, offset: int) -> list[str | int]:
        results: list[str | int] = []
        while True:
            kind, is_done, error = _MULTI_HEADER.unpack_from(body, offset)
            offset += _MULTI_HEADER.size
            if is_done:
                return results
            if kind == _FAILED:
                results.append(error)
                offset += 4
            elif kind in (Create.type, Create2.type):
                path, offset = read_string(body, offset)
                results.append(path)
            if kind in (SetData.type, Create2.type):
                offset += _STAT_SIZE


def submit(client: Any, request: Any) -> Any:
    """Queue a request of either kind on a kazoo client; returns kazoo's asynchronous result.

    Below the public methods on purpose: they cannot carry these requests, and their retries and
    argument checks cost more than the rest of a pipelined request.
    """
    result = client.handler.async_result()
    client._call(request, result)
    return result
