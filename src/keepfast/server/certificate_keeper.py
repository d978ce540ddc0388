"""The TLS context that new connections get, renewed when its files change."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Final

from keepfast.apache import ConfigError, TlsConfig
from keepfast.server.logs import EventLog
from keepfast.server.tls_context import ServerContext, server_context

_INTERVAL_SECONDS: Final = 2.0

# What changes when a file is written or replaced: time, size and inode; None for no file.
_Trace = tuple[int, int, int] | None


class CertificateKeeper:
    """Holds the context. Connections that exist keep the one they began with."""

    def __init__(
        self,
        config: TlsConfig,
        log: EventLog,
        load: Callable[[TlsConfig], ServerContext] = server_context,
    ) -> None:
        """Read the stores. Raises ConfigError."""
        self._config = config
        self._log = log
        self._load = load
        # Before reading: a change meanwhile must be seen as one.
        self._loaded = self._traces()
        self._refused: list[_Trace] = []
        self.context = self._take(load(config))

    async def watch(self, interval_seconds: float = _INTERVAL_SECONDS) -> None:
        """Poll until cancelled. A store that cannot be read changes nothing."""
        while True:
            await asyncio.sleep(interval_seconds)
            traces = self._traces()
            if traces == self._loaded:
                continue
            try:
                # Not on the loop: opening a store takes thousands of hashes, on purpose.
                loaded = await asyncio.to_thread(self._load, self._config)
            except ConfigError as error:
                # Retried at every poll, but logged once: it may be half-written.
                if traces != self._refused:
                    self._log.warning("certificates-refused", reason=error, kept="the old ones")
                self._refused = traces
                continue
            self._loaded = traces
            self.context = self._take(loaded)
            self._log.info("certificates-renewed")

    def _take(self, loaded: ServerContext) -> ssl.SSLContext:
        for warning in loaded.warnings:
            self._log.warning("certificates", problem=warning)
        return loaded.context

    def _traces(self) -> list[_Trace]:
        config = self._config
        return [
            _trace(path)
            for path in (
                config.key_store_location,
                config.key_store_password_path,
                config.trust_store_location,
                config.trust_store_password_path,
            )
        ]


def _trace(path: str) -> _Trace:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
