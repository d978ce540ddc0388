"""This package as executors get it: a zip file with the very files that run here."""

from __future__ import annotations

import zipfile
from pathlib import Path


def package_zip(directory: Path) -> str:
    """A zip file of this package, for ``--py-files``; written into `directory`."""
    import keepfast

    root = Path(keepfast.__file__).parent
    path = directory / "keepfast.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                package.write(file, Path("keepfast", file.relative_to(root)))
    return str(path)
