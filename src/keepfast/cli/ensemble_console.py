"""The console that `keepfast ensemble` runs beside its servers, where its extra is installed."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from typing import Final

from keepfast.harness import LocalProcess

_MARK: Final = "console: "
MISSING: Final = "pip install 'keepfast[console]' shows it in a browser"


class ConsoleProcess(LocalProcess):
    """`keepfast console` over some servers and their directories, on a free port."""

    def __init__(self, root: Path, connect: str, directories: list[Path]) -> None:
        """What it prints goes to console.log in `root`."""
        super().__init__(root / "console.log", signal.SIGTERM)
        self._connect = connect
        self._directories = directories
        self._root = root

    @property
    def is_possible(self) -> bool:
        """Whether its extra is installed."""
        return all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn"))

    def start(self) -> None:
        """Start it, and do not wait."""
        # What an earlier one printed is not the address of this one.
        self.log_path.unlink(missing_ok=True)
        data = [word for one in self._directories for word in ("--data", str(one))]
        command = [sys.executable, "-m", "keepfast", "console", self._connect, *data]
        audits = ("--audits", str(self._root / "audits"))
        self.launch([*command, "--listen", "127.0.0.1:0", *audits])

    @property
    def address(self) -> str:
        """Where the page is; "" until it is there."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        found = (line.removeprefix(_MARK) for line in lines if line.startswith(_MARK))
        return next(found, "")

    def sentence(self) -> str:
        """Where it is, in words; "" if that is not known yet."""
        if not self.is_possible:
            return MISSING
        return f"in a browser: {self.address}" if self.address else ""
