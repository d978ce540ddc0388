"""What goes wrong in a tree."""

from __future__ import annotations

from keepfast.wire import KeepfastError, format_zxid


class TreeError(KeepfastError):
    """Znodes, sessions or ACLs that do not form a tree; the source they were read from is bad."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return self.reason if self.path is None else f"{self.path}: {self.reason}"


class ReplayConflict(KeepfastError):  # noqa: N818 - a fact about a history, as wire.errors has them
    """A committed txn that does not fit the tree: they belong to different histories (rule R12).

    Nothing was changed. Either txns before this one are missing or foreign, or the tree is not the
    one that the leader had.
    """

    def __init__(self, zxid: int, path: str | None, reason: str) -> None:
        super().__init__(zxid, path, reason)
        self.zxid = zxid
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        where = "" if self.path is None else f" on {self.path}"
        return f"txn {format_zxid(self.zxid)}{where}: {self.reason}"
