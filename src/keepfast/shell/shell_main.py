"""The shell from outside: one command, commands from a file, or a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from typing import Final

from keepfast.client import OperationFailed
from keepfast.shell.formats import error_name
from keepfast.shell.messages import exit_code, failure_message
from keepfast.shell.shell import ALL_COMMANDS, OWN_COMMANDS, Quit, Shell
from keepfast.shell.shell_failures import ShellExitCode, ShellFailure
from keepfast.shell.shell_options import ShellOptions, parse_arguments, usage
from keepfast.shell.shell_output import Output

# These are about the shell and not about a server; `close` and `connect` are about both.
_NEED_NO_SERVER: Final = frozenset(OWN_COMMANDS) - {"close", "connect"}


def run_shell(arguments: Sequence[str]) -> int:
    """`keepfast shell` with these arguments; returns the exit code and prints no traceback."""
    _accept_any_text()
    output = Output(is_json="--json" in arguments)
    try:
        options = parse_arguments(list(arguments), ALL_COMMANDS)
        output.is_json = options.is_json
        if options.wants_help:
            print(usage())
            return ShellExitCode.OK
        return _run(options, output)
    except ShellFailure as error:
        output.document({"ok": False, "error": {"message": str(error)}})
        output.note(str(error))
        return error.code
    except KeyboardInterrupt:
        return ShellExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ShellExitCode.BROKEN_PIPE


def _run(options: ShellOptions, output: Output) -> ShellExitCode:
    is_interactive = not options.command and sys.stdin.isatty()
    shell = Shell(options, output, shows_session_events=is_interactive)
    try:
        if is_interactive:
            from keepfast.shell.interactive import run_interactively

            run_interactively(shell)
            return ShellExitCode.OK
        if not options.command or options.command[0] not in _NEED_NO_SERVER:
            code = _connect(shell)
            if code is not ShellExitCode.OK:
                return code
        if options.command:
            return shell.execute(list(options.command))
        return _run_lines(shell, sys.stdin)
    except Quit:
        return ShellExitCode.OK
    finally:
        shell.end()


def _connect(shell: Shell) -> ShellExitCode:
    """Connect, or say why not."""
    try:
        shell.open()
        shell.wait()
    except OperationFailed as error:
        message = failure_message(error)
        if error.is_connection_failure:
            message = f"no connection to {shell.server}: {error.detail or message}"
        details = {"code": int(error.code), "name": error_name(error.code), "message": message}
        shell.output.document({"ok": False, "error": details})
        shell.output.note(message)
        return exit_code(error)
    return ShellExitCode.OK


def _run_lines(shell: Shell, lines: Iterable[str]) -> ShellExitCode:
    """Run commands from a file, one per line. The code is that of the first that failed.

    Later lines still run, as in ZooKeeper's shell, unless the connection was lost: they
    would meet a tree, or a session, other than they were written for.
    """
    result = ShellExitCode.OK
    try:
        for line in lines:
            if line.lstrip().startswith("#"):
                continue
            code = shell.execute_line(line.rstrip("\n"))
            result = result or code
            if code is ShellExitCode.UNREACHABLE and shell.client is not None:
                break
    except Quit:
        pass
    return result


def _accept_any_text() -> None:
    """Print what the terminal's encoding lacks as escapes, and read any bytes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
