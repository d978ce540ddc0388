"""Tasks whose exceptions are never lost: what one raises ends the server (R14)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a background task; what it raises reaches the loop's handler immediately."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    # On its own, asyncio reports it when the task is collected, which may be never.
    error = None if task.cancelled() else task.exception()
    if error is not None:
        context = {"message": "a task failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
