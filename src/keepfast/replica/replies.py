"""The replies to writes, built right after their txn was applied."""

from __future__ import annotations

from struct import Struct
from typing import Final

from keepfast.tree import OpResult, Outcome, Tree, wire_stat
from keepfast.wire import OpCode, TxnBody, encode_buffer, encode_string

_INT: Final = Struct(">i")
_MULTI_HEADER: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)

_WITH_PATH: Final = frozenset((OpCode.CREATE.value,))
_WITH_PATH_AND_STAT: Final = frozenset(
    (OpCode.CREATE2.value, OpCode.CREATE_CONTAINER.value, OpCode.CREATE_TTL.value)
)
_WITH_STAT: Final = frozenset((OpCode.SET_DATA.value, OpCode.SET_ACL.value))


def reply_body(tree: Tree, op: int, body: TxnBody | None, outcome: Outcome) -> bytes:
    """The body of the reply to a write that succeeded. `op` is the request's type."""
    if op in _WITH_STAT:
        return _stat(tree, _path(body))
    if op in _WITH_PATH:
        return encode_string(_path(body))
    if op in _WITH_PATH_AND_STAT:
        path = _path(body)
        return encode_string(path) + _stat(tree, path)
    if op == OpCode.MULTI:
        return _multi(outcome.results)
    if op == OpCode.RECONFIG:
        node = tree.find(_path(body))
        return b"" if node is None else encode_buffer(node.data) + wire_stat(node)
    return b""


def _path(body: TxnBody | None) -> str:
    path: str = getattr(body, "path", "")
    return path


def _stat(tree: Tree, path: str) -> bytes:
    node = tree.find(path)
    return b"" if node is None else wire_stat(node)


def _multi(results: tuple[OpResult, ...]) -> bytes:
    parts = []
    for result in results:
        if result.type == OpCode.ERROR:
            parts.append(_MULTI_HEADER.pack(-1, False, result.error))
            parts.append(_INT.pack(result.error))
            continue
        type_ = OpCode.CREATE2.value if result.type in _WITH_PATH_AND_STAT else result.type
        parts.append(_MULTI_HEADER.pack(type_, False, 0))
        if result.path is not None and type_ in (OpCode.CREATE, OpCode.CREATE2):
            parts.append(encode_string(result.path))
        if result.stat is not None and type_ != OpCode.CREATE:
            parts.append(result.stat)
    parts.append(_MULTI_END)
    return b"".join(parts)
