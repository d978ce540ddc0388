"""The audit log: one line for every change and every attempt at one, in Apache's format.

    session=0x1000010b3430000	user=alice,10.0.0.7	ip=10.0.0.7	operation=create	znode=/a
    znode_type=persistent	result=success

on one line, the fields separated by tabs. A field that does not apply is left out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from keepfast.apache import java_hex
from keepfast.replica import AuditRecord
from keepfast.server.logs import AUDIT_LOGGER, LogEvent
from keepfast.wire import safe_text

_log = logging.getLogger(AUDIT_LOGGER)


class AuditEvent(LogEvent):
    """An event whose text is Apache's line."""

    __slots__ = ()

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__("audit", fields)

    def __str__(self) -> str:
        # A path may contain any character: a tab or a line end must not forge the next field or
        # line.
        return "\t".join(f"{key}={safe_text(str(value))}" for key, value in self.fields.items())


class AuditLog:
    """Writes the audit records of one server."""

    def __init__(self) -> None:
        self._user = user_name()

    def server_started(self) -> None:
        """The server serves."""
        self._write({"operation": "serverStart"}, "success")

    def server_stops(self) -> None:
        """The server was asked to stop."""
        self._write({"operation": "serverStop"}, "invoked")

    def write(self, records: Iterable[AuditRecord]) -> None:
        """Log what was changed."""
        for record in records:
            fields: dict[str, str | None] = {
                "session": f"0x{java_hex(record.session_id)}",
                "user": record.users or self._user,
                "ip": record.address,
                "operation": record.operation,
                "znode": record.path,
                "znode_type": record.znode_type,
                "acl": record.acl,
                "result": "success" if record.is_success else "failure",
            }
            shown = {key: value for key, value in fields.items() if value is not None}
            _log.info(AuditEvent(shown))

    def _write(self, fields: Mapping[str, str], result: str) -> None:
        _log.info(AuditEvent({"user": self._user, **fields, "result": result}))


def user_name() -> str:
    """The user running this process; a number if it has no name."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
