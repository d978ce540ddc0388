"""Stands in for `java ... QuorumPeerMain zoo.cfg`: runs a Keepfast server with the same arguments.

kazoo's test harness starts whatever program is called `java` first on the PATH. The -D definitions
count as Java system properties; the class path and the name of the class are ignored.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from keepfast.apache import ConfigError, load_config, split_definitions
from keepfast.server import run_server

# Where the harness looks for the server's log, beside its configuration.
_LOG_NAME = "zookeeper.log"


def main(arguments: list[str]) -> int:
    """Serve until told to stop."""
    *options, file = arguments
    _log_to(Path(file).with_name(_LOG_NAME))
    definitions = [option for option in options if option.startswith("-D")]
    try:
        config = load_config(file, overrides=split_definitions(definitions))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return run_server(config, lambda _: None, sys.stderr)


def _log_to(path: Path) -> None:
    """Send everything that the server prints to a file."""
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
