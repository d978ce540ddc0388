"""What a scenario does to an ensemble; each act is told as it happens."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from keepfast.client import Client, ClientOptions, OperationFailed
from keepfast.lab import damage
from keepfast.lab.process import LabError, LabServer, wait_until
from keepfast.lab.raw import SESSION_MS, RawSession
from keepfast.lab.releases import Release
from keepfast.lab.scenario import Scenario
from keepfast.lab.small_disk import SmallDisk
from keepfast.wire import OPEN_ACL, CreateMode, CreateRequest, ErrorCode, MultiOp, OpCode

__all__ = ["Lab", "LabError", "Teller"]

_START_SECONDS: Final = 60.0
# How long servers that may refuse to serve are given to serve.
_REFUSAL_SECONDS: Final = 20.0
# How long a server that is elected, and not heard, is given to take a snapshot.
_UNHEARD_SECONDS: Final = 12.0
_COUNTER: Final = 0xFFFFFFFF
# Znodes in one multi.
_AT_ONCE: Final = 100
_PROPERTIES: Final = {
    "zookeeper.admin.enableServer": "false",
    "zookeeper.4lw.commands.whitelist": "*",
    "zookeeper.preAllocSize": "64",
}
_CONFIGURATION: Final = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "10",
    "maxClientCnxns": "0",
    "maxSessionTimeout": str(SESSION_MS),
}


class Teller(Protocol):
    """Who is told what happens."""

    def step(self, text: str) -> None:
        """Something was done."""

    def state(self, answers: Mapping[int, str]) -> None:
        """What each server answers now."""


class Lab:
    """Servers 1..n on directories of their own below `folder`."""

    def __init__(self, folder: Path, release: Release, scenario: Scenario, teller: Teller) -> None:
        self.folder = folder
        self._session = RawSession()
        self._disks: dict[int, SmallDisk] = {}
        self.release = release
        self._teller = teller
        self._properties = {**_PROPERTIES, **scenario.properties}
        ports = iter(_free_ports(3 * scenario.size))
        ids = range(1, scenario.size + 1)
        members = [f"server.{id}=127.0.0.1:{next(ports)}:{next(ports)}" for id in ids]
        settings = {**_CONFIGURATION, **scenario.configuration}
        self._lines = [f"{key}={value}" for key, value in settings.items()] + members
        self.servers = {id: LabServer(id, folder, next(ports), release) for id in ids}
        for server in self.servers.values():
            server.configure(self._lines)

    # -- processes -------------------------------------------------------------------------------

    def start(self, *ids: int) -> int:
        """Start servers, all by default; wait until one leads and all that run serve.

        Gives the leader. Raises LabError if they do not come up.
        """
        started = [id for id in ids or self.servers if not self.servers[id].is_running]
        for id in started:
            self.servers[id].launch(self._properties)
        wait_until(self._all_serve, f"servers {_list(started)} serve", _START_SECONDS)
        leader = self.leader()
        self.tell(f"started {_list(started)}; server {leader} leads")
        return leader

    def try_start(self, *ids: int) -> bool:
        """Start servers that may rightly refuse; gives whether they serve."""
        for id in ids:
            self.servers[id].launch(self._properties)
        servers = [self.servers[id] for id in ids]
        try:
            wait_until(
                lambda: all(s.role() for s in servers) or not all(s.is_running for s in servers),
                "they serve",
                _REFUSAL_SECONDS,
            )
        except LabError:
            pass
        if all(server.role() for server in servers):
            self.tell(f"started {_list(ids)}")
            return True
        self.tell(f"{_list(ids)}: started, and {'do' if len(ids) > 1 else 'does'} not serve")
        return False

    def start_unheard(self, candidate: int, voter: int) -> None:
        """Have a server elected by one that is down and never hears from it afterwards.

        Votes pass between the two, and nothing else does: the voter is told a port of the
        candidate that nobody listens on. Waits until the candidate has taken a snapshot of what it
        has, or for a while.
        """
        newest = damage.snapshots(self.servers[candidate].version_dir)[-1:]
        own = f"server.{candidate}=127.0.0.1:"
        told = [
            f"{own}{_free_ports(1)[0]}:{line.rpartition(':')[2]}" if line.startswith(own) else line
            for line in self._lines
        ]
        self.servers[voter].configure(told)
        for id in (candidate, voter):
            self.servers[id].launch(self._properties)
        try:
            wait_until(
                lambda: damage.snapshots(self.servers[candidate].version_dir)[-1:] != newest,
                f"server {candidate} has taken a snapshot",
                _UNHEARD_SECONDS,
            )
        except LabError:
            pass
        self.tell(f"started servers {candidate} and {voter}; all that {voter} hears are votes")
        self.servers[voter].configure(self._lines)

    def kill(self, *ids: int) -> None:
        """Kill servers, all by default."""
        chosen = ids or tuple(self.servers)
        for id in chosen:
            self.servers[id].kill()
        self.tell(f"killed {_list(chosen)}")

    def close(self) -> None:
        """End everything."""
        for server in self.servers.values():
            server.resume()
            server.kill()
        for disk in self._disks.values():
            disk.close()
        self._disks.clear()

    def _all_serve(self) -> bool:
        running = [server for server in self.servers.values() if server.is_running]
        roles = [server.role() for server in running]
        return bool(roles) and "" not in roles and roles.count("leader") == 1

    def leader(self) -> int:
        """Who leads, once all that run serve. Raises LabError if nobody does in time."""
        wait_until(self._all_serve, "one server leads and the others follow", _START_SECONDS)
        for id, server in self.servers.items():
            if server.is_running and server.role() == "leader":
                return id
        raise LabError("no server leads")

    def settle(self) -> None:
        """Wait until all that run have applied the same last txn."""
        running = [server for server in self.servers.values() if server.is_running]
        # Right after an election a server may show the start of the epoch, which is no txn.
        wait_until(
            lambda: len({s.zxid() for s in running if s.zxid() & _COUNTER}) <= 1,
            "all servers have the same last zxid",
            _START_SECONDS,
        )

    # -- clients ---------------------------------------------------------------------------------

    def client(self, id: int) -> Client:
        """A client of one server, for a `with` block."""
        options = ClientOptions(session_timeout_ms=SESSION_MS, operation_timeout_s=30)
        return Client(str(self.servers[id].address), options)

    def write(self, values: Mapping[str, str]) -> None:
        """Write values that the whole ensemble agrees on, through its leader."""
        with self.client(self.leader()) as client:
            for path, value in values.items():
                put(client, path, value)
        shown = ", ".join(f"{path}={value}" for path, value in values.items())
        self.tell(f"wrote {shown if len(values) <= 3 else f'{len(values)} znodes'}")

    def fill(self, parent: str, count: int, size: int, *, is_random: bool = False) -> None:
        """Create so many znodes of that many bytes; random ones do not compress."""
        with self.client(self.leader()) as client:
            put(client, parent, "")
            for first in range(0, count, _AT_ONCE):
                last = min(first + _AT_ONCE, count)
                client.multi(
                    [
                        MultiOp(
                            OpCode.CREATE,
                            _create(
                                f"{parent}/n{number:06d}",
                                secrets.token_bytes(size) if is_random else b"x" * size,
                            ),
                        )
                        for number in range(first, last)
                    ]
                )
        self.tell(f"created {count} znodes of {size} bytes below {parent}")

    def overwrite(self, path: str, times: int, size: int) -> None:
        """Write one znode again and again: much log, and no larger tree."""
        with self.client(self.leader()) as client:
            for number in range(times):
                client.set_data(path, f"{number:08d}".encode() + b"x" * size)
        self.tell(f"wrote {path} {times} times")

    def write_alone(self, path: str, value: str) -> int:
        """Have the leader alone log a write that no quorum sees, and kill everybody.

        Nothing else is logged: the session is the one that `keep_session` opened.
        """
        leader = self.leader()
        others = [s for s in self.servers.values() if s.is_running and s.server_id != leader]
        server = self.servers[leader]
        self.settle()
        for other in others:
            other.pause()
        self._session.connect(server.address)
        self._session.set_data(path, value.encode())
        wait_until(lambda: server.log_holds(value.encode()), "the leader has logged it", 20)
        # They never run again, so what was sent to them is never read.
        for other in others:
            other.kill()
        server.kill()
        self._session.drop()
        self.tell(f"server {leader} alone logged {path}={value}; then all were killed")
        return leader

    def keep_session(self) -> None:
        """Open the session that later takes part without opening one."""
        self._session.connect(self.servers[self.leader()].address)
        self._session.drop()
        self.settle()

    def values(self, paths: Iterable[str]) -> dict[str, dict[int, str | None]]:
        """What each server that serves answers for each znode."""
        found: dict[str, dict[int, str | None]] = {path: {} for path in paths}
        for id, server in self.servers.items():
            if server.is_running and server.role():
                for path, answer in self._answers(id, tuple(found)).items():
                    found[path][id] = answer
        return found

    def _answers(self, id: int, paths: tuple[str, ...]) -> dict[str, str | None]:
        """What one server answers; nothing if it takes no session for a while."""
        answers: dict[str, str | None] = {}

        def has_asked() -> bool:
            try:
                with self.client(id) as client:
                    client.sync("/")
                    answers.update({path: _get(client, path) for path in paths})
            except OperationFailed:
                return False
            return True

        try:
            wait_until(has_asked, f"server {id} answers", _REFUSAL_SECONDS)
        except LabError as error:
            self.tell(str(error))
            return {}
        return answers

    # -- files -----------------------------------------------------------------------------------

    def lose_newest_snapshot(self, id: int) -> None:
        """Remove the newest snapshot of a server that is down, as a power cut may."""
        name = damage.lose_newest_snapshot(self.servers[id].version_dir)
        self.tell(f"server {id} lost {name}")

    def lose_log(self, id: int, text: str) -> None:
        """Remove the log that holds a text, and the snapshots that make up for it."""
        names = damage.lose_log(self.servers[id].version_dir, text)
        self.tell(f"server {id} lost {', '.join(names)}")

    def change_in_snapshot(self, id: int, old: str, new: str) -> None:
        """Change a value in the newest snapshot; every checksum in it is right afterwards."""
        name = damage.change_in_snapshot(self.servers[id].version_dir, old, new)
        self.tell(f"server {id}: {old} in {name} reads {new}")

    def put_on_small_disk(self, id: int, size_bytes: int) -> None:
        """Give a server that is down a small file system. Raises LabError without the right to."""
        self._disks[id] = SmallDisk(self.servers[id].data_dir, size_bytes)
        self.tell(f"server {id} has a disk of {size_bytes >> 10} KiB")

    def fill_disk(self, id: int, leave_bytes: int) -> None:
        """Fill a small disk."""
        self._disks[id].fill(leave_bytes)
        self.tell(f"the disk of server {id} has {leave_bytes >> 10} KiB left")

    def free_disk(self, id: int) -> None:
        """Make space on a small disk."""
        self._disks[id].free()
        self.tell(f"the disk of server {id} has space again")

    def purge(self, id: int, keep: int) -> None:
        """Run the purge of a server that is down, as a cron job does; ours purges by itself."""
        folder = self.servers[id].data_dir
        command = self.release.purge_command(folder, keep)
        if command:
            before = _names(folder)
            subprocess.run(command, capture_output=True, check=False)
            gone = sorted(before - _names(folder))
            self.tell(f"purge on server {id} removed {', '.join(gone) or 'nothing'}")

    def zero_record(self, id: int, text: str) -> None:
        """Have the record that holds a text read as zeros, on a server that is down."""
        name = damage.zero_record(self.servers[id].version_dir, text)
        self.tell(f"server {id}: the record of {text} in {name} reads as zeros")

    def wipe(self, *ids: int) -> None:
        """Remove everything that servers have on disk."""
        for id in ids:
            shutil.rmtree(self.servers[id].version_dir)
        self.tell(f"wiped {_list(ids)}")

    # -- telling ---------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Say what was done, and what each server answers now."""
        self._teller.step(text)
        answers = {}
        for id, server in self.servers.items():
            role = server.role() if server.is_running else ""
            zxid = server.zxid() if role else -1
            answers[id] = f"{role} {zxid:#x}" if role else "down"
        self._teller.state(answers)


def put(client: Client, path: str, value: str) -> None:
    """Create or set a znode."""
    if client.exists(path) is None:
        client.create(path, value.encode(), OPEN_ACL, CreateMode.PERSISTENT)
    else:
        client.set_data(path, value.encode())


def _create(path: str, value: bytes) -> CreateRequest:
    return CreateRequest(path, value, OPEN_ACL, CreateMode.PERSISTENT.value)


def _get(client: Client, path: str) -> str | None:
    try:
        data = client.get_data(path).data or b""
    except OperationFailed as error:
        if getattr(error, "code", None) == ErrorCode.NO_NODE:
            return None
        raise
    return data.decode(errors="replace")


def _names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "version-2").iterdir()}


def _list(ids: Iterable[int]) -> str:
    chosen = list(ids)
    return f"server{'s' if len(chosen) != 1 else ''} " + ", ".join(map(str, chosen))


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on at this moment."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]
