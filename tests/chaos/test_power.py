"""A power cut takes back what was written and not synced, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.power import make_power

# Syncs what it is told to, dies in the midst of its work.
_WRITER = """
import os, signal
kept = os.open("data/kept", os.O_RDWR | os.O_CREAT)
os.pwrite(kept, b"0123456789", 0)
os.fdatasync(kept)
os.pwrite(kept, b"ab", 2)
os.pwrite(kept, b"cd", 3)
os.pwrite(kept, b"longer", 8)
other = os.open("data/other", os.O_RDWR | os.O_CREAT)
os.pwrite(other, b"synced", 0)
os.fsync(other)
os.rename("data/kept", "data/renamed")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_power_cut__takes_back_what_was_not_synced(tmp_path: Path) -> None:
    power = make_power(tmp_path, [1])
    if not power:
        pytest.skip("no C compiler")
    (tmp_path / "data").mkdir()
    subprocess.run(
        [sys.executable, "-c", _WRITER],
        cwd=tmp_path,
        env=power[1].add_to(dict(os.environ)),
        check=False,
        timeout=60,
    )
    renamed, other = tmp_path / "data" / "renamed", tmp_path / "data" / "other"
    assert renamed.read_bytes() == b"01acd567longer"
    assert power[1].cut(tmp_path / "data") == 3
    # Its size was longer by then: the bytes are lost, their places are there.
    assert renamed.read_bytes() == b"0123456789\0\0\0\0"
    assert other.read_bytes() == b"synced"
