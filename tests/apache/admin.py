"""Apache's admin commands, without its web server.

The jars have the commands and their JSON, but no Jetty to serve them. So a JVM runs a standalone
server, and py4j, which comes with PySpark, calls the commands in it.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.apache.java import java_command

_STOP_TIMEOUT = 30
_TICK_MS = 2000


class ApacheCommands:
    """A standalone server in a JVM of its own, for a `with` block."""

    def __init__(self, data_dir: Path) -> None:
        command = java_command(
            "py4j.GatewayServer",
            # Ends when its standard input is closed: with this process, whatever happens.
            ["--die-on-broken-pipe", "0"],
            jars=("py4j-", "javax.servlet-api-"),
        )
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        py4j = importlib.import_module("py4j.java_gateway")
        port = int(self._process.stdout.readline())
        # The JVM is small and short-lived: nothing in it has to be given back.
        parameters = py4j.GatewayParameters(port=port, enable_memory_management=False)
        self._gateway: Any = py4j.JavaGateway(gateway_parameters=parameters)
        self._java = self._gateway.jvm
        self._zookeeper = self._java.org.apache.zookeeper.server
        place = self._java.java.io.File(str(data_dir))
        self._server = self._zookeeper.ZooKeeperServer(place, place, _TICK_MS)
        address = self._java.java.net.InetSocketAddress("127.0.0.1", 0)
        factory = self._zookeeper.ServerCnxnFactory.createFactory(address, 0)
        factory.startup(self._server)
        self.port: int = self._server.getClientPort()

    def names(self) -> list[str]:
        """The first names of all commands, in order."""
        return sorted(self._zookeeper.admin.Commands.getPrimaryNames())

    def run(self, name: str, arguments: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a command answers, through Apache's own printer."""
        given = self._java.java.util.HashMap()
        for key, value in (arguments or {}).items():
            given.put(key, value)
        response = self._zookeeper.admin.Commands.runGetCommand(
            name, self._server, given, None, None
        )
        text = self._java.java.io.StringWriter()
        writer = self._java.java.io.PrintWriter(text)
        self._zookeeper.admin.JsonOutputter("127.0.0.1").output(response, writer)
        writer.flush()
        answer: dict[str, Any] = json.loads(text.toString())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._gateway.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait(_STOP_TIMEOUT)
