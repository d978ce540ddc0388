"""How an operation fails on the client's side of the connection."""

# ruff: noqa: N818 - these names say what is wrong, as those in wire do

from __future__ import annotations

from typing import Final

from keepfast.wire import ErrorCode, KeeperError

# Not refusals: nobody answered, or nobody will any more.
_CONNECTION_CODES: Final = frozenset(
    {
        ErrorCode.CONNECTION_LOSS,
        ErrorCode.OPERATION_TIMEOUT,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.SESSION_EXPIRED,
        ErrorCode.SESSION_MOVED,
    }
)


class OperationFailed(KeeperError):
    """An operation did not happen, or (after a lost connection) perhaps did.

    `path` is the path as the caller gave it, without the chroot; None where there is none.
    """

    def __init__(self, code: ErrorCode, path: str | None = None, detail: str = "") -> None:
        super().__init__(code, detail)
        self.args = (code, path, detail)
        self.path = path

    @property
    def is_connection_failure(self) -> bool:
        """Whether it is about the connection or the session and not about the operation."""
        return self.code in _CONNECTION_CODES


class InvalidPath(OperationFailed):
    """A path that no znode can have; nothing was sent. `detail` says what is wrong with it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(ErrorCode.BAD_ARGUMENTS, path, reason)
        self.args = (path, reason)


def error_code(number: int) -> ErrorCode:
    """The code of a reply. One that only a newer server knows becomes SYSTEM_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.SYSTEM_ERROR
