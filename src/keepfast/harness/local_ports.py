"""Ports for servers on this machine that others start: ensembles of tests and of the lab."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from typing import Final

from keepfast.storage import ClosedOnExit

LOCAL_HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment, all different.

    For what listens at once, and tries another one if it is late. Servers that stop and start
    again need `HeldPorts`.
    """
    with HeldPorts(count) as ports:
        return ports.numbers


class HeldPorts(ClosedOnExit):
    """Ports that nobody else is given, also while the servers that they are for are down.

    The numbers come from the range that the system gives to outgoing connections: without a hold,
    any connection may take the port of a server that is about to start again. A hold is a socket
    that is bound and does not listen; Linux lets a server listen on the same port beside it. Other
    systems do not, so there the ports are just free at this moment.
    """

    def __init__(self, count: int) -> None:
        self._sockets = ExitStack()
        self.numbers: list[int] = []
        for _ in range(count):
            one = self._sockets.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((LOCAL_HOST, 0))
            self.numbers.append(one.getsockname()[1])
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Let them go."""
        self._sockets.close()
