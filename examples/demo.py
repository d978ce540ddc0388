"""A tour in half a minute: a server, a stock client, a kill, a proof, and what damage looks like.

Everything here is real: processes, sockets, files. Nothing but a temporary directory is touched.
"""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from rich.console import Console
from rich.rule import Rule

ROOT = Path(__file__).resolve().parent.parent
FIELD_REPORT = ROOT / "tests" / "data" / "cases" / "unsynced-snapshot-leader-3.9.5-delete" / "2"
KEEPFAST = [sys.executable, "-m", "keepfast"]

console = Console(highlight=False)


def step(title: str, text: str) -> None:
    """Say what happens next."""
    console.print()
    console.print(Rule(f"[bold]{title}", align="left"))
    console.print(f"[dim]{text}[/dim]")


def run(place: Path, *arguments: str) -> int:
    """Run a keepfast command in `place` and show what a person would see."""
    console.print(f"[bold cyan]$ keepfast {' '.join(arguments)}")
    result = subprocess.run(
        [*KEEPFAST, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    console.print((result.stdout + result.stderr).rstrip(), markup=False, soft_wrap=True)
    console.print(f"[dim](exit code {result.returncode})")
    return result.returncode


class ServerProcess:
    """`keepfast serve` as a process of its own."""

    def __init__(self, place: Path) -> None:
        command = [*KEEPFAST, "serve", "--data-dir", "data", "--port", "0"]
        self._process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
        self.line = ""
        while "serving" not in self.line:
            self.line = self._process.stderr.readline() if self._process.stderr else ""
            if not self.line:
                raise SystemExit("the server did not start")
        self.hosts = self.line.split("serving ")[1].split(",")[0]

    def client(self) -> Any:
        """A started kazoo client."""
        client = KazooClient(hosts=self.hosts, connection_retry={"max_tries": 2})
        client.start(timeout=20)
        return client

    def end(self, sign: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(sign)
        self._process.wait()


def write_until_killed(server: ServerProcess) -> int:
    """Write one znode after the other and kill the server meanwhile; how many it acknowledged."""
    client = server.client()
    client.ensure_path("/demo")
    killer = Timer(1.0, server.end, (signal.SIGKILL,))
    killer.start()
    acknowledged = 0
    try:
        while True:
            client.create(f"/demo/{acknowledged:06d}", b"kept")
            acknowledged += 1
    except KazooException:
        killer.join()
    client.stop()
    client.close()
    return acknowledged


def flip_a_byte(data_dir: Path) -> Path:
    """Damage the largest log in its middle, as a bad sector would."""
    log = max((data_dir / "version-2").glob("log.*"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    return log


def main() -> None:
    # kazoo tells of each attempt to reach the server that we killed.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL + 1)
    place = Path(tempfile.mkdtemp(prefix="keepfast-demo-"))
    data_dir = place / "data"
    try:
        step(
            "1. A server and a stock client",
            "kazoo writes; the server is killed (kill -9) half-way.",
        )
        server = ServerProcess(place)
        console.print(server.line.rstrip(), markup=False, soft_wrap=True)
        acknowledged = write_until_killed(server)
        console.print(f"{acknowledged} writes were acknowledged before the kill.")

        step("2. It starts again", "Every acknowledged write must be there.")
        server = ServerProcess(place)
        client = server.client()
        found = set(client.get_children("/demo"))
        lost = [n for n in range(acknowledged) if f"{n:06d}" not in found]
        client.stop()
        client.close()
        server.end(signal.SIGTERM)
        console.print(f"{len(found)} znodes are there, {len(lost)} acknowledged ones are lost.")

        step(
            "3. Proof", "One contiguous history, from a snapshot that was read in full to its head."
        )
        run(place, "verify", "data")

        step("4. Damage", "One byte in the middle of the log changes, as on a failing disk.")
        log = flip_a_byte(data_dir)
        console.print(f"flipped one byte of {log.name}")
        run(place, "verify", "data")
        run(place, "serve", "--data-dir", "data", "--port", "0")
        run(place, "repair", "data")

        step(
            "5. A field report",
            "Files of a real Apache ZooKeeper 3.9.5 server that lost a snapshot in a power cut.\n"
            "Apache starts on them and serves less than the rest of its ensemble, in silence.",
        )
        report = place / "apache-server-2"
        shutil.copytree(FIELD_REPORT, report)
        run(place, "verify", report.name)
        console.print()
        if lost:
            raise SystemExit(f"{len(lost)} acknowledged writes were lost")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
