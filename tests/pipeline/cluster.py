"""A real Spark standalone cluster on loopback: a master and two workers, each a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pyspark

from keepfast.harness import HeldPorts
from keepfast.pipeline.engine.java import find_java, make_launcher
from keepfast.pipeline.engine.session import cache_directory

_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 240.0
_STOP_SECONDS = 60.0


class Cluster:
    """Addresses of a running cluster."""

    def __init__(self, port: int, page: int) -> None:
        self.master = f"spark://127.0.0.1:{port}"
        self._page = f"http://127.0.0.1:{page}/json/"

    def state(self) -> dict[str, Any]:
        """What the master says about its workers and applications; empty if it does not answer."""
        try:
            with urllib.request.urlopen(self._page, timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, HTTPException, ValueError):
            return {}


def loopback_names(directory: Path) -> dict[str, str]:
    """Variables for Java where the name of this machine cannot be resolved, as in a bare root.

    Spark looks that name up in every process, and whatever address it is told to use, as soon as
    there are keys of an object store.
    """
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    return {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}


@contextmanager
def running_cluster(
    directory: Path, workers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster of this many workers with one core each; all of it is gone at the end."""
    variables = environment or {}
    with ExitStack() as stack:
        # Held: Spark would take the next port in silence, and nobody would find it there.
        port, page, *others = stack.enter_context(HeldPorts(2 + 2 * workers)).numbers
        cluster = Cluster(port, page)
        _start(
            stack,
            variables,
            directory / "master.log",
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", str(port), "--webui-port", str(page)),
        )
        _wait(lambda: bool(cluster.state()), "the master")
        for number in range(workers):
            _start(
                stack,
                variables,
                directory / f"worker{number}.log",
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1"),
                *("-m", "700m", "-d", str(directory / f"work{number}")),
                *("--port", str(others[2 * number]), "--webui-port", str(others[2 * number + 1])),
                cluster.master,
            )
        _wait(lambda: cluster.state().get("aliveworkers") == workers, "the workers")
        yield cluster


def _start(stack: ExitStack, variables: Mapping[str, str], log: Path, *arguments: str) -> None:
    # Through the launcher: a Java from a wheel lacks a module that Spark asks for.
    jars = str(_HOME / "jars")
    launcher = make_launcher(find_java(), cache_directory(), pyspark.__version__, jars)
    environment = {
        **os.environ,
        **loopback_names(log.parent),
        **variables,
        "SPARK_HOME": str(_HOME),
        "JAVA_HOME": launcher.home,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [str(_HOME / "bin" / "spark-class"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    stack.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(condition: Any, what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start")
        time.sleep(0.2)
