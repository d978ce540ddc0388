"""The shell on a terminal: a prompt, a history that outlives the session, the Tab key.

With prompt-toolkit (the extra `shell`) if it is installed, else with Python's own `input`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keepfast.client import OperationFailed
from keepfast.shell.completion import children_from, complete
from keepfast.shell.lines import split_line
from keepfast.shell.messages import failure_message
from keepfast.shell.shell import Quit, Shell

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document as TypedText
    from prompt_toolkit.history import FileHistory

# Lines that hold a password stay out of the file.
_SECRET_COMMANDS: Final = ("addauth",)

ReadLine = Callable[[], str]


def run_interactively(shell: Shell) -> None:
    """Read and run lines until `quit` or the end of input."""
    shell.output.say(f"Connecting to {shell.server}")
    shell.output.say("Welcome to Keepfast! `help` lists the commands, `quit` ends the session.")
    shell.output.flush()
    try:
        shell.open()
        shell.wait()
    except OperationFailed as error:
        # The session keeps trying, and the prompt shows how it stands.
        shell.output.note(failure_message(error))
    read_line = _fancy_reader(shell) if find_spec("prompt_toolkit") else _plain_reader(shell)
    while True:
        try:
            line = read_line()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            shell.execute_line(line)
        except Quit:
            return
        except KeyboardInterrupt:
            shell.output.note("Interrupted: whether the server did it is not known here")


def history_file() -> Path:
    """Where lines are kept from one session to the next."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return folder / "keepfast" / "shell_history"


def _plain_reader(shell: Shell) -> ReadLine:
    try:
        # Imported for its effect: it gives `input` line editing. Not on every platform.
        import readline  # noqa: F401
    except ImportError:
        pass

    def read_line() -> str:
        try:
            return input(shell.prompt)
        except KeyboardInterrupt:
            print("^C", flush=True)
            raise

    return read_line


def _fancy_reader(shell: Shell) -> ReadLine:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import ThreadedCompleter

    session: PromptSession[str] = PromptSession(
        message=lambda: shell.prompt,
        history=_history(),
        # In a thread: the prompt stays alive while the server is asked.
        completer=ThreadedCompleter(_completer(shell)),
        complete_while_typing=False,
    )

    def read_line() -> str:
        with _events_above_the_prompt(shell):
            return session.prompt()

    return read_line


@contextmanager
def _events_above_the_prompt(shell: Shell) -> Iterator[None]:
    """While the prompt is up, print above it and not into it.

    The exchange of sys.stdout happens under the output's lock, so that no event is written to a
    stream that has just been taken away.
    """
    from prompt_toolkit.patch_stdout import patch_stdout

    patch = patch_stdout(raw=True)
    with shell.output.lock:
        patch.__enter__()
    try:
        yield
    finally:
        with shell.output.lock:
            patch.__exit__(None, None, None)


def _history() -> FileHistory | None:
    from prompt_toolkit.history import FileHistory

    class DiscreetHistory(FileHistory):
        """Keeps lines in a file, but not those with a password in them."""

        def store_string(self, string: str) -> None:
            words = split_line(string)
            if words and words[0] not in _SECRET_COMMANDS:
                super().store_string(string)

    file = history_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        # No home, or a read-only one: this session's history is in memory only.
        return None
    return DiscreetHistory(file)


def _completer(shell: Shell) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class ShellCompleter(Completer):
        def get_completions(
            self, document: TypedText, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            token, words = complete(document.text_before_cursor, children_from(shell))
            for word in words:
                yield Completion(word, start_position=-len(token))

    return ShellCompleter()
