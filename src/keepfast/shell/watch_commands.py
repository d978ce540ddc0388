"""Commands about watches."""

from __future__ import annotations

from typing import Final

from keepfast.shell.command import Context, ShellCommand, flag, value_flag
from keepfast.shell.flags import Given, Syntax
from keepfast.shell.formats import Document
from keepfast.shell.shell_failures import UsageError
from keepfast.wire import AddWatchMode, WatcherType

MODES: Final = tuple(mode.name for mode in AddWatchMode)
_TYPE_OF_FLAG: Final = {
    "c": WatcherType.CHILDREN,
    "d": WatcherType.DATA,
    "p": WatcherType.PERSISTENT,
    "r": WatcherType.PERSISTENT_RECURSIVE,
    "a": WatcherType.ANY,
}


def _add_watch(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    name = given.flags.get("m", AddWatchMode.PERSISTENT_RECURSIVE.name).upper()
    if name not in MODES:
        raise UsageError(ADD_WATCH.usage)
    context.client.add_watch(path, AddWatchMode[name])
    return {"path": path, "mode": name}


def _remove_watches(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    chosen = [type for name, type in _TYPE_OF_FLAG.items() if given.has(name)]
    type = chosen[0] if chosen else WatcherType.ANY
    context.client.remove_watches(path, type, is_local=given.has("l"))
    return {"path": path, "type": type.name}


ADD_WATCH: Final = ShellCommand(
    "addWatch",
    f"[-m mode] path # optional mode is one of [{', '.join(MODES)}] - "
    f"default is {AddWatchMode.PERSISTENT_RECURSIVE.name}",
    _add_watch,
    Syntax((value_flag("m"),)),
    min_arguments=1,
    max_arguments=1,
)

WATCHING: Final = (
    ADD_WATCH,
    ShellCommand(
        "removewatches",
        "path [-c|-d|-a] [-l]",
        _remove_watches,
        Syntax(
            (
                flag("c", "child watcher type"),
                flag("d", "data watcher type"),
                flag("p", "persistent watcher type"),
                flag("r", "persistent recursive watcher type"),
                flag("a", "any watcher type"),
                flag("l", "remove locally when there is no server connection"),
            )
        ),
        min_arguments=1,
    ),
)
