"""The command line: what users type, and how answers are printed.

What may live here: parsing of arguments, choice of what to show, text and JSON. What may not: any
decision about data, protocols or files that a caller in Python could want too; those are in the
packages below. Heavy modules are imported by the commands that need them: `--help` is quick.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; never raises and never prints a traceback."""
    from keepfast.cli.app import run

    return run(list(sys.argv[1:] if arguments is None else arguments))


__all__ = ["main"]
