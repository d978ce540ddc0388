"""The command line: parsing arguments and printing results.

What may live here: argument parsing, the choice of what to show, text and JSON. What may not: any
decision about data, protocols or files that a Python caller could need too; those are in the
packages below. Heavy modules are imported by the commands that need them, so that `--help` is fast.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

# The output contains data protected by ACLs: only its owner may read it.
_PRIVATE_UMASK: Final = 0o077
_UMASK_VARIABLE: Final = "KEEPFAST_UMASK"
_UNUSABLE: Final = 2
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises and never prints a traceback.

    Files and directories that it creates are private (0600, 0700), unless KEEPFAST_UMASK widens
    that.
    """
    _open_closed_streams()
    text = os.environ.get(_UMASK_VARIABLE, f"{_PRIVATE_UMASK:03o}")
    if len(text) != len("077") or any(digit not in "01234567" for digit in text):
        sentence = f"{_UMASK_VARIABLE} must be three octal digits, such as 027, not {text!r}"
        print(f"keepfast: {sentence}", file=sys.stderr)
        return _UNUSABLE
    before = os.umask(int(text, 8))
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED  # while modules were loaded: no command had begun
    finally:
        os.umask(before)


def _open_closed_streams() -> None:
    """Have standard streams that were closed (`2>&-`) lead nowhere.

    Otherwise the next file that is opened, perhaps a transaction log, gets the number of one, and
    whatever is written to standard error ends up in it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _run(words: list[str]) -> int:
    if words[:1] == ["serve"]:
        # The parser of all commands would be a fifth of the memory of a server at rest.
        from keepfast.cli.fast_serve import run_without_parser

        code = run_without_parser(words[1:])
        if code is not None:
            return code
    from keepfast.cli.app import run

    return run(words)


__all__ = ["main"]
