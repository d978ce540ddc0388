"""Reports a server's state to systemd: the datagrams of sd_notify(3).

    READY=1       once, when clients are let in for the first time
    STATUS=...    why they are not, or in which role the server serves
    STOPPING=1    when it begins to stop
    WATCHDOG=1    while the event loop runs, if the unit has WatchdogSec=

Nothing happens where NOTIFY_SOCKET is not set. A notification that cannot be sent is logged once
and changes nothing: a server must not end because of its monitoring.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

from keepfast.server.ensemble_report import reason_of
from keepfast.server.running_server import RunningServer

log = logging.getLogger("keepfast.server")

_LOOK_SECONDS: Final = 0.5
# systemd's advice is to report twice per interval; a third leaves room for a busy machine.
_REPORTS_PER_WATCHDOG: Final = 3


class SystemdNotifier:
    """Sends notifications to the service manager that started this process, if one did."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" stands for the zero byte of an abstract socket.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_seconds = _watchdog_seconds(environment)
        self._is_failure_logged = False

    async def follow(self, server: RunningServer) -> None:
        """Report a server's state, until cancelled."""
        if not self._address:
            return
        is_ready, last_status = False, ""
        interval = _LOOK_SECONDS
        if self._watchdog_seconds is not None:
            interval = min(interval, self._watchdog_seconds / _REPORTS_PER_WATCHDOG)
        while True:
            news = []
            if server.is_serving and not is_ready:
                is_ready = True
                news.append("READY=1")
            status = _status(server)
            if status != last_status:
                last_status = status
                news.append(f"STATUS={status}")
            if self._watchdog_seconds is not None and server.failure is None:
                news.append("WATCHDOG=1")
            self._send(news)
            await asyncio.sleep(interval)

    def stopping(self) -> None:
        """Report that the server begins to stop."""
        self._send(["STOPPING=1", "STATUS=stopping"])

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                # A manager that does not read must not hold up the event loop.
                connection.setblocking(False)
                connection.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._is_failure_logged:
                self._is_failure_logged = True
                log.warning("no-notification reason=%s", error)


def _status(server: RunningServer) -> str:
    if not server.is_loaded:
        return server.loading
    if server.is_serving:
        return f"serving as {server.mode}"
    return " ".join((reason_of(server) or "not serving").split())


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """The interval of the watchdog; None if there is none, or it is meant for another process."""
    text = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(text) / 1e6 if text.isdecimal() and int(text) > 0 else None
