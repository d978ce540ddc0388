"""The command line: what users type, and how answers are printed.

What may live here: parsing of arguments, choice of what to show, text and JSON. What may not: any
decision about data, protocols or files that a caller in Python could want too; those are in the
packages below. Heavy modules are imported by the commands that need them: `--help` is quick.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; never raises and never prints a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"]:
        # The parser of all commands would be a fifth of the memory of a server at rest.
        from keepfast.cli.quick_serve import run_quickly

        code = run_quickly(words[1:])
        if code is not None:
            return code
    from keepfast.cli.app import run

    return run(words)


__all__ = ["main"]
