"""Environments that hold the built wheel and what its metadata asks for, and nothing else.

What it asks for is linked from the environment that runs the tests: nothing is downloaded, and a
package that is used without being asked for is missed as it would be after `pip install`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """The wheel of this project, as `python -m build` makes it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(PROJECT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("keepfast-*.whl")
    return wheel


def needed(requirements: Iterable[str], extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """The distributions that requirements lead to, by name."""
    found: dict[str, Distribution] = {}
    pending = [(text, tuple(extras)) for text in requirements]
    while pending:
        text, asked = pending.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in (*asked, "")
        ):
            continue
        name = requirement.name.lower()
        if name in found and not requirement.extras:
            continue
        found[name] = distribution(name)
        more = tuple(requirement.extras)
        pending += [(one, more) for one in found[name].requires or ()]
    return found


class Installation:
    """An environment with the wheel."""

    def __init__(self, folder: Path, wheel: Path, extra: str | None) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        (self._site,) = folder.glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._site)
        self.python = folder / "bin" / "python"
        (metadata,) = self._site.glob("keepfast-*.dist-info")
        asked = Distribution.at(metadata).requires or []
        for one in needed(asked, () if extra is None else (extra,)).values():
            self._link(one)

    def _link(self, found: Distribution) -> None:
        tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
        # Where `wheel` is missing, pip leaves a source distribution's metadata in an egg-info that
        # does not list itself; without it nobody can ask for the version.
        site = Path(str(found.locate_file("")))
        tops |= {one.name for one in site.glob(f"{found.name}-*.egg-info")}
        for top in tops:
            source, target = Path(str(found.locate_file(top))), self._site / top
            if source.exists() and not target.exists():
                target.symlink_to(source)

    def run(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """`keepfast` with these arguments, to its end."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), "-m", "keepfast", *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            cwd=self._site.parent,
        )
