"""How a command of the shell ends when it does not succeed."""

# ruff: noqa: N818 - they end a command, they are not faults in one

from __future__ import annotations

from enum import IntEnum


class ShellExitCode(IntEnum):
    """What the process returns after a single command, or after commands from a file."""

    OK = 0
    FAILED = 1  # the server, or a check here, refused the operation
    USAGE = 2  # not a command, not its arguments, not a path
    UNREACHABLE = 4  # no connection, or it was lost, or the session ended
    INTERRUPTED = 130  # Ctrl-C
    BROKEN_PIPE = 141  # who read the output has gone


class ShellFailure(Exception):
    """The command was understood and did not succeed; the text is for standard error."""

    code = ShellExitCode.FAILED


class UsageError(ShellFailure):
    """The command was not understood; the text says what would have been."""

    code = ShellExitCode.USAGE


class NotConnected(ShellFailure):
    """There is no session to run the command in."""

    code = ShellExitCode.UNREACHABLE
