"""A Keepfast server as a process of its own, with the interface of `tests.apache.ApacheServer`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.apache import ApacheServer, free_ports

_PROJECT = Path(__file__).resolve().parents[2]


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

    def launch(self) -> None:
        """Start the process and do not wait."""
        if self.is_running:
            raise RuntimeError(f"the server on {self.hosts} already runs")
        if not self._has_fixed_port:
            (self.port,) = free_ports(1)
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "keepfast", "serve", str(self._write_configuration())]
        for name, value in self._properties.items():
            if value:
                command += ["-D", f"{name}={value}"]
        with self.output_file.open("ab") as output:
            self._output_start = output.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=_PROJECT
            )
