"""The shell itself: one session at a time, the commands typed so far, and the table of commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Final

from keepfast import __version__
from keepfast.client import Client, ClientEvent, ClientState, OperationFailed
from keepfast.shell.command import Context, ShellCommand
from keepfast.shell.flags import Given
from keepfast.shell.formats import Document, error_name
from keepfast.shell.lines import split_line
from keepfast.shell.messages import exit_code, failure_message
from keepfast.shell.quotas import QUOTAS
from keepfast.shell.reading import READING
from keepfast.shell.shell_failures import NotConnected, ShellExitCode, ShellFailure, UsageError
from keepfast.shell.shell_options import ShellOptions, to_target
from keepfast.shell.shell_output import Output
from keepfast.shell.watch_commands import WATCHING
from keepfast.shell.writing import WRITING
from keepfast.wire import ErrorCode, EventType

# How many lines `history` looks back, and how many are kept for `redo`.
_SHOWN_HISTORY: Final = 10
_KEPT_HISTORY: Final = 10_000

COMMANDS: Final[dict[str, ShellCommand]] = {
    command.name: command for command in (*READING, *WRITING, *QUOTAS, *WATCHING)
}
# Commands about the shell, with their arguments. All but `close` work without a connection.
OWN_COMMANDS: Final = {
    "close": "",
    "connect": "host:port",
    "help": "[command]",
    "history": "",
    "printwatches": "on|off",
    "quit": "",
    "redo": "cmdno",
    "version": "",
}
ALL_COMMANDS: Final = sorted([*COMMANDS, *OWN_COMMANDS])


def usage_lines() -> list[str]:
    """Every command, one per line."""
    lines = ["keepfast shell [options] [HOST:PORT] [command [arguments]]"]
    for name in ALL_COMMANDS:
        arguments = COMMANDS[name].arguments if name in COMMANDS else OWN_COMMANDS[name]
        lines.append(f"\t{name} {arguments}")
    return lines


class Quit(Exception):  # noqa: N818 - the user's wish, not a fault
    """The command `quit`."""


class Shell:
    """Runs commands. Prints through `output`; every command returns an exit code."""

    def __init__(
        self, options: ShellOptions, output: Output, *, shows_session_events: bool
    ) -> None:
        """`shows_session_events`: print changes of the session's state, as an interactive shell
        does; events of watches are printed in any case."""
        self.options = options
        self.output = output
        self.server = options.server
        self.client: Client | None = None
        self.command_count = 0
        self._shows_session_events = shows_session_events
        self._prints_watches = True
        self._history: dict[int, str] = {}
        self._own: dict[str, Callable[[Given], Document]] = {
            "close": self._close,
            "connect": self._connect,
            "help": self._help,
            "history": self._show_history,
            "printwatches": self._printwatches,
            "quit": self._quit,
            "redo": self._redo,
            "version": self._version,
        }

    @property
    def prompt(self) -> str:
        state = self.client.state if self.client else ClientState.CLOSED
        return f"[zk: {self.server}({state.value}) {self.command_count}] "

    def open(self, server: str | None = None) -> None:
        """Begin a session, instead of the one there is; does not wait for it."""
        server = server or self.server
        # Before the old session ends: a typo must not cost it.
        client = Client(to_target(server), self.options.client_options(), self._on_event)
        self.end()
        self.server = server
        self.client = client.start()

    def wait(self) -> None:
        """Wait for the connection; OperationFailed if there is none."""
        if self.client is not None:
            self.client.wait_connected(is_patient=self.options.is_patient)

    def end(self) -> None:
        """End the session, if there is one."""
        if self.client is not None:
            self.client.close()
            self.client = None

    def execute_line(self, line: str) -> ShellExitCode:
        """Run one line and keep it in the history; a blank line does nothing."""
        words = split_line(line)
        if not words:
            return ShellExitCode.OK
        self._history[self.command_count] = line
        self._history.pop(self.command_count - _KEPT_HISTORY, None)
        try:
            return self.execute(words)
        finally:
            self.command_count += 1

    def execute(self, words: list[str]) -> ShellExitCode:
        """Run one command. Failures are printed; only Quit comes out."""
        name = words[0]
        try:
            document = self._dispatch(name, words[1:])
            self.output.document({"command": name, "ok": True, **document})
            return ShellExitCode.OK
        except OperationFailed as error:
            message, code = failure_message(error), exit_code(error)
            details: Document = {
                "code": int(error.code),
                "name": error_name(error.code),
                "path": error.path,
            }
        except ShellFailure as error:
            message, code, details = str(error), error.code, {}
        finally:
            self.output.flush()
        self.output.document(
            {"command": name, "ok": False, "error": {**details, "message": message}}
        )
        self.output.note(message)
        return code

    def _dispatch(self, name: str, words: list[str]) -> Document:
        if name in self._own:
            return self._own[name](Given(arguments=words))
        command = COMMANDS.get(name)
        if command is None:
            raise UsageError(_unknown(name))
        given = command.parse(words)
        return command.run(Context(self._live_client(), self.output), given)

    def _live_client(self) -> Client:
        if self.client is not None and self.client.state is ClientState.AUTH_FAILED:
            raise OperationFailed(ErrorCode.AUTH_FAILED)
        if self.client is None or not self.client.state.is_alive:
            raise NotConnected("Not connected")
        return self.client

    def _on_event(self, event: ClientEvent) -> None:
        is_wanted = event.type is not EventType.NONE or self._shows_session_events
        if self._prints_watches and is_wanted:
            # Whoever read the output may be gone; the session's thread must not die of it.
            with suppress(OSError, ValueError):
                self.output.event(event)

    # Commands about the shell.

    def _close(self, given: Given) -> Document:
        self._live_client()
        self.end()
        return {}

    def _connect(self, given: Given) -> Document:
        self.open(given.argument(0))
        self.wait()
        return {"server": self.server}

    def _help(self, given: Given) -> Document:
        name = given.argument(0)
        if name is None:
            lines = usage_lines()
        elif name in COMMANDS:
            lines = [COMMANDS[name].usage.rstrip("\n")]
        elif name in OWN_COMMANDS:
            lines = [f"{name} {OWN_COMMANDS[name]}".rstrip()]
        else:
            raise UsageError(_unknown(name))
        for line in lines:
            self.output.say(line)
        return {"usage": lines}

    def _show_history(self, given: Given) -> Document:
        first = max(self.command_count - _SHOWN_HISTORY, 0)
        shown = {
            number: self._history[number]
            for number in range(first, self.command_count + 1)
            if number in self._history
        }
        for number, line in shown.items():
            self.output.say(f"{number} - {line}")
        return {"lines": [{"number": number, "line": line} for number, line in shown.items()]}

    def _printwatches(self, given: Given) -> Document:
        wish = given.argument(0)
        if wish is not None:
            self._prints_watches = wish == "on"
        else:
            self.output.say(f"printwatches is {'on' if self._prints_watches else 'off'}")
        return {"is_on": self._prints_watches}

    def _redo(self, given: Given) -> Document:
        text = given.argument(0)
        if text is None:
            raise UsageError("redo cmdno")
        try:
            number = int(text, 0)
        except ValueError as error:
            raise UsageError("redo cmdno") from error
        line = self._history.get(number)
        if line is None or number >= self.command_count:
            raise UsageError("Command index out of range")
        words = split_line(line)
        if words[0] == "redo":
            raise UsageError("No redoing redos")
        self._history[self.command_count] = line
        return self._dispatch(words[0], words[1:])

    def _version(self, given: Given) -> Document:
        if given.arguments:
            raise UsageError("version ")
        self.output.say(f"Keepfast shell version: {__version__}")
        return {"version": __version__}

    def _quit(self, given: Given) -> Document:
        raise Quit


# Words of zkCli up to 3.4, and what they are called since.
_OF_3_4 = {"rmr": "deleteall", "ls2": "ls -s"}


def _unknown(name: str) -> str:
    """One sentence about a word that is no command, with the nearest that is."""
    near = _OF_3_4.get(name) or next(
        iter(get_close_matches(name, [*COMMANDS, *OWN_COMMANDS], 1)), None
    )
    advice = f"did you mean {near}?" if near else "help lists them all"
    return f"Command not found: {name}; {advice}"
