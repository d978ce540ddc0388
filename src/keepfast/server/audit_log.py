"""The audit log: one line for every change and every attempt at one, in Apache's format.

    session=0x1000010b3430000	user=alice,10.0.0.7	ip=10.0.0.7	operation=create	znode=/a
    znode_type=persistent	result=success

on one line, the fields separated by tabs. A field that does not apply is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from keepfast.replica import AuditRecord
from keepfast.server.java_text import java_hex
from keepfast.server.logs import AUDIT_LOGGER, Event
from keepfast.server.reports import user_name

_log = logging.getLogger(AUDIT_LOGGER)

# A path may hold any character: one that ends a field or a line must not forge the next one.
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class AuditEvent(Event):
    """An event whose text is Apache's line."""

    __slots__ = ()

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__("audit", fields)

    def __str__(self) -> str:
        return "\t".join(
            f"{key}={str(value).translate(_ESCAPES)}" for key, value in self.fields.items()
        )


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
