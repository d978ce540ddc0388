"""The process of tasks: a worker of PySpark, which does one task after another."""

from __future__ import annotations

import gc
from functools import cache


@cache
def exempt_imports() -> None:
    """Leave what is imported out of all collections of garbage; once in a process.

    PySpark's worker collects after every task, in full. Nearly all that it goes through then are
    the objects of imported modules, which took a seventh of the CPU of the workers.
    """
    gc.freeze()
