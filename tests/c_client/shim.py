"""Stands in for `java` in the scripts of the C client's tests: `shim KIND -cp PATH CLASS ...`.

They run three classes: the two mains of a server, and the shell, to see whether the server answers.
A server is Keepfast's or Apache's, as KIND says; whether it answers is asked here, in a moment,
where a shell of Java would take seconds.
"""

from __future__ import annotations

import os
import socket
import sys

from tests.apache.java import java_command
from tests.kazoo_suite import shim as keepfast_server

APACHE = "apache"
_SHELL = "org.apache.zookeeper.ZooKeeperMain"
_SECONDS = 5.0


def main(kind: str, arguments: list[str]) -> int:
    """Do what the command line asks for; gives the exit code."""
    definitions = [one for one in arguments if one.startswith("-D")]
    rest = [one for one in arguments if not one.startswith("-D")]
    if rest[0] == "-cp":
        rest = rest[2:]
    main_class, *operands = rest
    if main_class == _SHELL:
        return 0 if _serves(operands[operands.index("-server") + 1]) else 1
    if kind == APACHE:
        pairs = (one.removeprefix("-D").partition("=") for one in definitions)
        properties = [(name, value) for name, _, value in pairs]
        command = java_command(main_class, operands, properties=properties)
        os.execv(command[0], command)
    return keepfast_server.main([*definitions, *operands])


def _serves(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _SECONDS) as line:
            line.sendall(b"srvr")
            return b"Mode: " in b"".join(iter(lambda: line.recv(4096), b""))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
