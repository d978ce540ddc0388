"""The replies to writes, built right after their txn was applied."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final

from keepfast.tree import LIGHT, OpResult, Outcome, Tree, wire_stat
from keepfast.wire import OpCode, TxnBody, encode_buffer, encode_string

_INT: Final = Struct(">i")
_MULTI_HEADER: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)

_CREATE: Final = OpCode.CREATE.value
_CREATE2: Final = OpCode.CREATE2.value
_DELETE: Final = OpCode.DELETE.value
_ERROR: Final = OpCode.ERROR.value
_MULTI: Final = OpCode.MULTI.value
_WITH_PATH_AND_STAT: Final = frozenset(
    (OpCode.CREATE2.value, OpCode.CREATE_CONTAINER.value, OpCode.CREATE_TTL.value)
)
_WITH_PATH: Final = _WITH_PATH_AND_STAT | {_CREATE}
# What stands before the result of an operation that succeeded.
_MULTI_HEADERS: Final = {
    type_: _MULTI_HEADER.pack(_CREATE2 if type_ in _WITH_PATH_AND_STAT else type_, False, 0)
    for type_ in sorted(_WITH_PATH | {_DELETE, OpCode.SET_DATA.value, OpCode.CHECK.value})
}
_WITH_STAT: Final = frozenset((OpCode.SET_DATA.value, OpCode.SET_ACL.value))


def reply_body(tree: Tree, op: int, body: TxnBody | None, outcome: Outcome) -> bytes:
    """The body of the reply to a write that succeeded. `op` is the request's type."""
    if op == _CREATE:
        return encode_string(body.path)  # type: ignore[union-attr]  # of such a txn
    if op == _DELETE:
        return b""
    if op in _WITH_STAT:
        return _stat(tree, _path(body))
    if op in _WITH_PATH_AND_STAT:
        path = _path(body)
        return encode_string(path) + _stat(tree, path)
    if op == _MULTI:
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


def reply_in_slices(results: Sequence[OpResult], size: int) -> Generator[None, None, bytes]:
    """The body of the reply to a multi of very many operations, a slice in each step."""
    parts = []
    for start in range(0, len(results), LIGHT * size):
        parts += _results(results[start : start + LIGHT * size])
        yield
    parts.append(_MULTI_END)
    return b"".join(parts)


def _multi(results: Sequence[OpResult]) -> bytes:
    return b"".join((*_results(results), _MULTI_END))


def _results(results: Sequence[OpResult]) -> list[bytes]:
    parts = []
    for result in results:
        type_, error, path, stat = result
        if type_ == _ERROR:
            parts.append(_MULTI_HEADER.pack(-1, False, error))
            parts.append(_INT.pack(error))
            continue
        parts.append(_MULTI_HEADERS[type_])
        if path is not None and type_ in _WITH_PATH:
            parts.append(encode_string(path))
        if stat is not None and type_ != _CREATE:
            parts.append(stat)
    return parts
