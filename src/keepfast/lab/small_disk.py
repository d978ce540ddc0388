"""A small file system of its own for one server's data, so that it can be full."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from keepfast.lab.lab_server import LabError

_FILLER: Final = "filler"
_BLOCK: Final = 4096


class SmallDisk:
    """A tmpfs of a few megabytes on a directory. Needs the right to mount."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """Put it there; what the directory holds is moved onto it. Raises LabError."""
        self._directory = directory
        held = directory.with_name(directory.name + ".held")
        directory.rename(held)
        directory.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "keepfast-lab", str(directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            directory.rmdir()
            held.rename(directory)
            reason = mounted.stderr.strip() or "mount failed"
            raise LabError(f"a small disk needs the right to mount one; run it as root ({reason})")
        shutil.copytree(held, directory, dirs_exist_ok=True)
        shutil.rmtree(held)

    def fill(self, leave_bytes: int) -> None:
        """Leave only so much space."""
        facts = os.statvfs(self._directory)
        free = facts.f_bavail * facts.f_frsize
        with (self._directory / _FILLER).open("ab") as filler:
            filler.write(bytes(max(free - leave_bytes, 0) // _BLOCK * _BLOCK))

    def free(self) -> None:
        """Give the space back."""
        (self._directory / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        """Take the file system away; what it holds stays in the directory."""
        self.free()
        kept = self._directory.with_name(self._directory.name + ".kept")
        shutil.copytree(self._directory, kept)
        subprocess.run(["umount", str(self._directory)], capture_output=True, check=False)
        self._directory.rmdir()
        kept.rename(self._directory)
