"""Which modules of the Keepfast under test are compiled (`make test-compiled`)."""

from __future__ import annotations

import importlib


def is_compiled(module: str) -> bool:
    """Whether a module is an extension: nothing in it can be replaced by a test."""
    file = importlib.import_module(module).__file__
    return file is not None and not file.endswith(".py")
