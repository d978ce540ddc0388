"""A Keepfast server as a process of its own, with the interface of `tests.apache.ApacheServer`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.apache import ApacheServer


class KeepfastServer(ApacheServer):
    """`keepfast serve` on a data directory, with the same settings as an Apache server."""

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def forget_output(self) -> None:
        """Leave out of `output` what was printed so far."""
        self._output_start = self.output_file.stat().st_size

    def _command(self, configuration: Path) -> list[str]:
        properties = [f"-D{name}={value}" for name, value in self._properties.items() if value]
        # Tests look for the reason of each close, also of the tenth of its kind in a minute.
        level = ["--log-level", "debug"]
        return [sys.executable, "-m", "keepfast", "serve", str(configuration), *level, *properties]
