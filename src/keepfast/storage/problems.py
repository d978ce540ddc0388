"""What recovery and verification report about a data directory, for people and for machines."""

from enum import Enum

import msgspec

from keepfast.quorum import Standing
from keepfast.wire import Zxid, format_zxid

__all__ = ["Problem", "Severity", "Standing"]


class Severity(Enum):
    """How much a problem matters."""

    NOTE = "note"  # normal, worth knowing
    WARNING = "warning"  # the state is right, but something is unproven or less safe than it looks
    DAMAGE = "damage"  # bytes or files are wrong or missing


class Problem(msgspec.Struct, frozen=True):
    """One thing worth reporting, with its location and the next safe step."""

    code: str
    severity: Severity
    reason: str
    file: str | None = None
    offset: int | None = None
    zxid: Zxid | None = None
    advice: str = ""

    def __str__(self) -> str:
        place = self.file or "directory"
        if self.offset is not None:
            place += f" at {self.offset}"
        if self.zxid is not None:
            place += f" (zxid {format_zxid(self.zxid)})"
        return f"{self.severity.value}: {place}: {self.reason}"
