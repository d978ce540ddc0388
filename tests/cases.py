"""The data directories under tests/data/cases, written by real Apache ZooKeeper servers.

Each case holds one folder a server and `truth.json`: what the live servers answered and what the
checkers have to find. tests/data/cases/README.md describes them. Tests that write work on copies.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CASES_DIR = Path(__file__).parent / "data" / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `truth` is the whole of its truth.json."""

    name: str
    truth: dict[str, Any]

    @property
    def version(self) -> str:
        """The version of the servers that wrote it, such as 3.9.5."""
        return str(self.truth["version"])

    @property
    def outcome(self) -> str:
        """`consistent`, `diverged`, or `refused`: a server would not start."""
        return str(self.truth["outcome"])

    @property
    def server_ids(self) -> tuple[str, ...]:
        return tuple(self.truth["nodes"])

    def server_dir(self, server_id: str) -> Path:
        """The data directory of one server: the folder that holds `version-2`. Do not write."""
        return CASES_DIR / self.name / server_id

    def copy_server(self, server_id: str, target: Path) -> Path:
        """Copy one server's data directory to `target`, which must not exist, and return it."""
        shutil.copytree(self.server_dir(server_id), target)
        return target

    def values(self, server_id: str) -> dict[str, str]:
        """What this server answered for each znode; /zookeeper is left out.

        Text, or `sha256:<first 16 digits>/<bytes>` where the data is not plain text.
        """
        keys: dict[str, dict[str, str]] = self.truth["keys"]
        return {path: by_server[server_id] for path, by_server in keys.items()}


@cache
def load_case(name: str) -> Case:
    return Case(name, json.loads((CASES_DIR / name / "truth.json").read_text()))


def case_names(prefix: str = "") -> list[str]:
    """The names of all cases that begin with `prefix`, sorted, for pytest's parametrize."""
    return sorted(
        path.parent.name
        for path in CASES_DIR.glob("*/truth.json")
        if path.parent.name.startswith(prefix)
    )


def as_truth_writes(data: bytes | None) -> str:
    """The data of a znode as truth.json has it; see `Case.values`."""
    text = (data or b"").decode("latin-1")
    if text.isascii() and len(text) <= 64 and (text.isprintable() or not text):
        return text
    return f"sha256:{hashlib.sha256(text.encode('latin-1')).hexdigest()[:16]}/{len(text)}"
