"""`keepfast serve` without the parser of all commands, which would stay in a server's memory.

Only the plain form: a configuration file and definitions. Everything else, failures included, is
left to the parser, so that all messages come from one place.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import NamedTuple


class _Plain(NamedTuple):
    path: str | None
    definitions: tuple[str, ...]


def run_without_parser(words: Sequence[str]) -> int | None:
    """Serve, and return the exit code; None: nothing was done, use the parser."""
    plain = _plain(words)
    if plain is None:
        return None
    # What is imported stays: to look for garbage in it would be a tenth of the time that the start
    # takes. `run_server` switches this on again.
    gc.disable()
    try:
        from keepfast.cli.serve_command import ServeArguments, serve

        return serve(ServeArguments(plain.path, None, None, plain.definitions, False))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - handed on, not passed over
        failure = error
    finally:
        gc.enable()

    from keepfast.cli.app import finish

    def fail() -> None:
        raise failure

    return finish(fail)


def _plain(words: Sequence[str]) -> _Plain | None:
    path: str | None = None
    definitions: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-D":
            value = next(rest, None)
            if value is None:
                return None
            definitions.append(value)
        elif word.startswith("-D"):
            definitions.append(word.removeprefix("-D"))
        elif word.startswith("-") or path is not None:
            return None
        else:
            path = word
    return _Plain(path, tuple(definitions))
