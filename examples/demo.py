"""A tour in a minute: an ensemble, its leader killed, the audit; then a failure from the field.

Everything here is real: processes, sockets, files, Spark, and Apache's own servers. Nothing but a
temporary directory is touched.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from rich.console import Console
from rich.rule import Rule

from keepfast.cli.ensemble_console import ConsoleProcess
from keepfast.harness import find_release
from keepfast.lab import Lab, LabSetup

KEEPFAST = [sys.executable, "-m", "keepfast"]
WRITES_BEFORE, WRITES_AFTER = 200, 200

console = Console(highlight=False)


def chapter(title: str, text: str) -> None:
    """Say what happens next."""
    console.print()
    console.print(Rule(f"[bold]{title}", align="left"))
    console.print(f"[dim]{text}[/dim]")


def run(place: Path, *arguments: str) -> int:
    """Run a keepfast command in `place` and show what a person would see, as it comes."""
    console.print(f"[bold cyan]$ keepfast {' '.join(arguments)}")
    return subprocess.run([*KEEPFAST, *arguments], cwd=place, check=False).returncode


class Writer(threading.Thread):
    """A stock client that writes all the time and remembers what was acknowledged."""

    def __init__(self, hosts: str) -> None:
        super().__init__(name="writer")
        self.acknowledged: list[str] = []
        self.longest_pause = 0.0
        self.is_over = False
        self._client = KazooClient(hosts, timeout=10)
        self._client.start(timeout=30)

    def run(self) -> None:
        """Create one znode after the other, on whatever server answers."""
        number, last = 0, time.monotonic()
        while not self.is_over:
            try:
                path = self._client.create("/order-", b"paid", sequence=True)
            except (KazooException, KazooTimeoutError):
                time.sleep(0.02)
                continue
            now = time.monotonic()
            self.longest_pause, last = max(self.longest_pause, now - last), now
            self.acknowledged.append(path)
            number += 1
        self._client.stop()
        self._client.close()

    def wait_for(self, count: int) -> None:
        """Wait until this many writes are acknowledged."""
        while len(self.acknowledged) < count:
            time.sleep(0.02)


class _Quiet:
    """The ensemble's acts are reported by the demo itself."""

    def step(self, text: str) -> None:
        """Say nothing."""

    def state(self, answers: object) -> None:
        """Say nothing."""


def ensemble_tour(place: Path) -> bool:
    """Three servers, a client, the leader killed; gives whether no acknowledged write is lost."""
    browser: ConsoleProcess | None = None
    lab = Lab(place / "ensemble", find_release("keepfast"), LabSetup(size=3), _Quiet())
    try:
        leader = lab.start()
        hosts = ",".join(str(server.address) for server in lab.servers.values())
        console.print(f"  three servers: {hosts}; server {leader} leads")
        browser = ConsoleProcess(
            place / "ensemble", hosts, [server.data_dir for server in lab.servers.values()]
        )
        browser.start()
        while browser.is_running and not browser.address:
            time.sleep(0.05)
        console.print(f"  look at it while the demo runs: [bold]{browser.address}[/bold]")
        writer = Writer(hosts)
        writer.start()
        writer.wait_for(WRITES_BEFORE)
        console.print(f"  kazoo has written {len(writer.acknowledged)} znodes")
        lab.kill(leader)
        console.print(f"  [red]kill -9[/red] of the leader, server {leader}")
        writer.wait_for(len(writer.acknowledged) + WRITES_AFTER)
        console.print(
            f"  server {lab.leader()} leads now; writes paused for {writer.longest_pause:.2f} s"
        )
        lab.start(leader)
        writer.is_over = True
        writer.join()
        lab.wait_caught_up()
        with lab.client(leader) as client:
            client.sync("/")
            found = {f"/{name}" for name in client.get_children("/")}
        missing = [path for path in writer.acknowledged if path not in found]
        console.print(
            f"  server {leader} is back: of {len(writer.acknowledged)} acknowledged writes "
            f"it has {len(writer.acknowledged) - len(missing)}"
        )
        return not missing
    finally:
        lab.close()
        if browser is not None:
            browser.stop()


def tour(place: Path) -> bool:
    """Show it all; gives whether everything was as it should be."""
    chapter(
        "1. An ensemble, and its leader killed",
        "Three Keepfast servers and kazoo, a stock ZooKeeper client, unchanged.",
    )
    is_well = ensemble_tour(place)
    chapter(
        "2. The proof",
        "Spark, embedded, reads the logs and snapshots of all three: do they agree?",
    )
    is_well &= run(place, "audit", "ensemble/data", "--out", "audit", "--no-tables") == 0
    chapter(
        "3. A failure from the field, on Apache ZooKeeper and on Keepfast",
        "The same steps on both. Apache's servers end with different values and look healthy; "
        "the audit names the server, the zxid and the znode.",
    )
    arguments = ("lab", "trunc-misses-record", "--server", "apache,keepfast", "--keep", "lab")
    is_well &= run(place, *arguments) == 1  # 1: replicas differ, on Apache
    return is_well


def main() -> int:
    """Run the tour in a temporary directory, which stays: the reports are in it."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    place = Path(tempfile.mkdtemp(prefix="keepfast-demo-"))
    is_well = False
    try:
        is_well = tour(place)
    finally:
        if not is_well:
            shutil.rmtree(place, ignore_errors=True)
    if not is_well:
        console.print("\n[bold red]The demo did not go as it should.")
        return 1
    console.print()
    console.print(Rule("[bold green]All of this is yours to repeat", align="left"))
    console.print(f"  report of the ensemble:  {place / 'audit' / 'report.html'}", soft_wrap=True)
    broken = place / "lab" / "trunc-misses-record" / "apache" / "report.html"
    console.print(f"  report of the failure:   {broken}", soft_wrap=True)
    console.print("  more failures:           keepfast lab")
    return 0


if __name__ == "__main__":
    sys.exit(main())
