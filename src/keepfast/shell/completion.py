"""What the Tab key offers: commands, their flags, and paths as the server has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from keepfast.client import Client, OperationFailed
from keepfast.shell.shell import ALL_COMMANDS, COMMANDS, Shell
from keepfast.shell.watch_commands import MODES

# The Tab key must respond or give up quickly.
TIMEOUT_S: Final = 1.0
# More than anyone reads; a znode can have a million children.
_MAX_OFFERED: Final = 1000

_WORDS_OF_COMMAND: Final = {"printwatches": ("off", "on"), "addWatch": MODES}

ChildrenOf = Callable[[str], Sequence[str]]


def complete(text: str, children_of: ChildrenOf) -> tuple[str, list[str]]:
    """The unfinished word at the end of `text`, and the words that it may become, sorted."""
    *before, token = text.split(" ")
    before = [word for word in before if word]
    if not before:
        offered = ALL_COMMANDS
    elif token.startswith("/"):
        offered = _paths(token, children_of)
    elif before[0] == "help":
        offered = ALL_COMMANDS
    elif token.startswith("-") and before[0] in COMMANDS:
        offered = sorted(f"-{flag.name}" for flag in COMMANDS[before[0]].syntax.flags)
    else:
        offered = list(_WORDS_OF_COMMAND.get(before[0], ()))
    return token, [word for word in offered if word.startswith(token)][:_MAX_OFFERED]


def _paths(token: str, children_of: ChildrenOf) -> list[str]:
    parent = token[: token.rindex("/")]
    return sorted(f"{parent}/{name}" for name in children_of(parent or "/"))


def children_from(shell: Shell) -> ChildrenOf:
    """Asks the shell's server, briefly; an error means no children, as no command was run."""

    def children_of(path: str) -> Sequence[str]:
        client: Client | None = shell.client
        if client is None or not client.state.is_connected:
            return ()
        try:
            return client.get_children(path, timeout_s=TIMEOUT_S)
        except OperationFailed:
            return ()

    return children_of
