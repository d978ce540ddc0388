"""What a scenario does to an ensemble; each act is reported as it happens."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from keepfast.client import Client, ClientOptions, OperationFailed
from keepfast.harness import LOCAL_HOST, HeldPorts, Network, Release
from keepfast.lab import file_damage
from keepfast.lab.lab_server import LabError, LabServer, ServerRefused, wait_until
from keepfast.lab.lab_setup import LabSetup
from keepfast.lab.raw import SESSION_MS, RawSession
from keepfast.lab.small_disk import SmallDisk
from keepfast.wire import OPEN_ACL, CreateMode, CreateRequest, ErrorCode, MultiOp, OpCode

__all__ = ["Lab", "LabError", "Reporter"]

_START_SECONDS: Final = 180.0
# How long servers that may refuse are given to serve, and how long a server must report that it
# does not: many elections.
_REFUSAL_SECONDS: Final = 20.0
_STEADY_SECONDS: Final = 4.0
# How long a server that serves is given to answer a client.
_ANSWER_SECONDS: Final = 60.0
# How long a server that is elected, and not heard, is given to take a snapshot.
_UNHEARD_SECONDS: Final = 60.0
# As long as Apache's servers try to reach a leader that refuses their connections.
_DIAL_SECONDS: Final = 5.0
# No log file grows beyond this while its writes are to fail; new ones are grown further at once,
# where a scenario sets preAllocSize to more.
_FAILING_BYTES: Final = 1 << 20
_COUNTER: Final = 0xFFFFFFFF
# Names of files in a line, and characters of a value.
_NAMES: Final = 4
_SHOWN: Final = 24
# Znodes in one multi.
_AT_ONCE: Final = 100
_PROPERTIES: Final = {
    "zookeeper.admin.enableServer": "false",
    "zookeeper.4lw.commands.whitelist": "*",
    "zookeeper.preAllocSize": "64",
    # A server that was cut off looks for the others again as soon as it is not.
    "zookeeper.fastleader.maxNotificationInterval": "2000",
}
_CONFIGURATION: Final = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "10",
    "maxClientCnxns": "0",
    "maxSessionTimeout": str(SESSION_MS),
}


class Reporter(Protocol):
    """Receives reports of what happens."""

    def step(self, text: str) -> None:
        """Something was done."""

    def state(self, answers: Mapping[int, str]) -> None:
        """What each server answers now."""


class Lab:
    """Servers 1..n on directories of their own below `folder`."""

    def __init__(self, folder: Path, release: Release, setup: LabSetup, reporter: Reporter) -> None:
        self.folder = folder
        self._session = RawSession()
        self._disks: dict[int, SmallDisk] = {}
        self.release = release
        self._reporter = reporter
        self._properties = {**_PROPERTIES, **setup.properties}
        self._settings = {**_CONFIGURATION, **setup.configuration}
        ids = range(1, setup.size + 1)
        self._held = HeldPorts(3 * setup.size + 1)
        ports = iter(self._held.numbers)
        self._peer_ports = {id: (next(ports), next(ports)) for id in ids}
        self.servers = {id: LabServer(id, folder, next(ports), release) for id in ids}
        self._port_of_nobody = next(ports)
        self._network = Network(_DIAL_SECONDS) if setup.has_wires else None
        self._cut_off: set[int] = set()
        self._routes = {(me, other): self._route(me, other) for me in ids for other in ids}
        for id in ids:
            self._configure(id)

    def _route(self, me: int, other: int) -> tuple[int, int]:
        """The ports at which a server reaches another one: quorum and election."""
        quorum, election = self._peer_ports[other]
        if self._network is None or me == other:
            return quorum, election
        return self._network.route(me, other, quorum), self._network.route(me, other, election)

    def _configure(self, id: int, unheard: int | None = None) -> None:
        """Write a server's configuration; what `unheard` sends, but for its votes, is lost."""
        lines = [f"{key}={value}" for key, value in self._settings.items()]
        for other in self.servers:
            quorum, election = self._routes[id, other]
            quorum = self._port_of_nobody if other == unheard else quorum
            lines.append(f"server.{other}={LOCAL_HOST}:{quorum}:{election}")
        self.servers[id].configure(lines)

    # -- processes -------------------------------------------------------------------------------

    def start(self, *ids: int) -> int:
        """Start servers, all by default; wait until one leads and all that run serve.

        Gives the leader. Raises LabError if they do not come up, ServerRefused if one ended.
        """
        started = [id for id in ids or self.servers if not self.servers[id].is_running]
        for id in started:
            self.servers[id].start(self._properties)
        servers = [self.servers[id] for id in started]
        wait_until(
            # One that ends serves nobody, and would not be missed below.
            lambda: not all(s.is_running for s in servers) or self._find_leader() is not None,
            f"{_list(started)} serve",
            _START_SECONDS,
        )
        for server in servers:
            if not server.is_running:
                words = server.last_words()
                raise ServerRefused(f"server {server.server_id} ended instead of serving: {words}")
        leader = self.leader()
        self.report(f"started {_list(started)}; server {leader} leads")
        return leader

    def try_start(self, *ids: int) -> bool:
        """Start servers that may rightly refuse; returns whether they serve.

        They are not waited for any longer once one of them has ended, or all say why they do not
        serve, and say so for a while.
        """
        servers = [self.servers[id] for id in ids]
        for server in servers:
            server.start(self._properties)
        self._wait_unless_refused(
            servers,
            lambda: all(s.role() for s in servers) or not all(s.is_running for s in servers),
            _REFUSAL_SECONDS,
        )
        if all(server.role() for server in servers):
            self.report(f"started {_list(ids)}")
            return True
        self.report(f"{_list(ids)}: started, and {'do' if len(ids) > 1 else 'does'} not serve")
        for server in servers:
            if reason := server.reason():
                self._reporter.step(f"server {server.server_id} says: {reason}")
        return False

    def _wait_unless_refused(
        self, servers: list[LabServer], condition: Callable[[], bool], seconds: float
    ) -> None:
        """Wait for a condition, and no longer once all servers say for a while why not."""
        since = time.monotonic()

        def is_decided() -> bool:
            nonlocal since
            if condition():
                return True
            if not all(server.reason() for server in servers):
                since = time.monotonic()
            return time.monotonic() - since > _STEADY_SECONDS

        try:
            wait_until(is_decided, "they do it", seconds)
        except LabError:
            pass

    def start_unheard(self, candidate: int, voter: int) -> None:
        """Have a server elected by one that is down and never hears from it afterwards.

        Votes pass between the two, and nothing else does: the voter is given a port of the
        candidate that nobody listens on. Waits until the candidate has taken a snapshot of what it
        has, or for a while.
        """
        newest = file_damage.newest_whole(self.servers[candidate].version_dir)
        self._configure(voter, unheard=candidate)
        for id in (candidate, voter):
            self.servers[id].start(self._properties)
        self._wait_unless_refused(
            [self.servers[candidate]],
            lambda: file_damage.newest_whole(self.servers[candidate].version_dir) != newest,
            _UNHEARD_SECONDS,
        )
        self.report(f"started servers {candidate} and {voter}; all that {voter} hears are votes")
        self._configure(voter)

    def kill(self, *ids: int) -> None:
        """Kill servers, all by default."""
        chosen = ids or tuple(self.servers)
        for id in chosen:
            self.servers[id].kill()
        self.report(f"killed {_list(chosen)}")

    def cut_off(self, *ids: int) -> None:
        """Cut servers off from all others; they run on, and clients reach them.

        The scenario has to ask for wires.
        """
        if self._network is None:
            raise LabError("this scenario has no wires that could be cut")
        for id in ids:
            self._network.partition([id], [other for other in self.servers if other != id])
        self._cut_off.update(ids)
        self.report(f"cut {_list(sorted(ids))} off from all others")

    def reconnect(self, *ids: int) -> None:
        """End that for some of them; wait until one leads and all that are connected serve."""
        if self._network is not None:
            self._cut_off.difference_update(ids)
            self._network.heal(*(self.servers.keys() - self._cut_off))
        self.report(f"{_list(ids)} reached again; server {self.leader()} leads")

    def elect(self) -> int:
        """Wait until those that are left have a leader."""
        leader = self.leader()
        self.report(f"server {leader} leads")
        return leader

    def close(self) -> None:
        """End everything."""
        for server in self.servers.values():
            server.kill()
        if self._network is not None:
            self._network.close()
            self._network = None
        self._held.close()
        for disk in self._disks.values():
            disk.close()
        self._disks.clear()

    def _present(self) -> list[LabServer]:
        """Who runs and is not cut off."""
        return [s for id, s in self.servers.items() if s.is_running and id not in self._cut_off]

    def _find_leader(self) -> int | None:
        """Who leads, if all that run serve."""
        roles = {server.server_id: server.role() for server in self._present()}
        leaders = [id for id, role in roles.items() if role == "leader"]
        return leaders[0] if len(leaders) == 1 and all(roles.values()) else None

    def leader(self) -> int:
        """Who leads, once all that run serve. Raises LabError if nobody does in time."""
        found: list[int] = []

        def is_found() -> bool:
            leader = self._find_leader()
            if leader is not None:
                found.append(leader)
            return leader is not None

        wait_until(is_found, "one server leads and the others follow", _START_SECONDS)
        return found[0]

    def wait_caught_up(self) -> None:
        """Wait until all that run have applied the same last txn."""
        wait_until(self._is_caught_up, "all servers have the same last zxid", _START_SECONDS)

    def _is_caught_up(self) -> bool:
        zxids = {server.zxid() for server in self._present()}
        # Right after an election a server may show the start of the epoch, which is not a txn.
        return min(zxids, default=0) >= 0 and len({z for z in zxids if z & _COUNTER}) <= 1

    def await_snapshot(self, id: int, text: str) -> None:
        """Wait until the newest whole snapshot of a server holds a text."""
        version_dir = self.servers[id].version_dir
        wait_until(
            lambda: file_damage.is_in_newest(version_dir, text),
            f"the newest snapshot of server {id} holds {text}",
            _START_SECONDS,
        )

    # -- clients ---------------------------------------------------------------------------------

    def client(self, id: int) -> Client:
        """A client of one server, for a `with` block."""
        options = ClientOptions(session_timeout_ms=SESSION_MS, operation_timeout_s=30)
        return Client(str(self.servers[id].address), options)

    def write(self, values: Mapping[str, str]) -> None:
        """Write values that the whole ensemble commits, through its leader."""
        with self.client(self.leader()) as client:
            for path, value in values.items():
                put(client, path, value)
        shown = ", ".join(f"{path}={value}" for path, value in values.items())
        self.report(f"wrote {shown if len(values) <= 3 else f'{len(values)} znodes'}")

    def fill(self, parent: str, count: int, size: int, *, is_random: bool = False) -> None:
        """Create this many znodes of this size; random data does not compress."""
        with self.client(self.leader()) as client:
            put(client, parent, "")
            for first in range(0, count, _AT_ONCE):
                last = min(first + _AT_ONCE, count)
                values = (
                    secrets.token_bytes(size) if is_random else b"x" * size
                    for _ in range(first, last)
                )
                names = (f"{parent}/n{number:06d}" for number in range(first, last))
                client.multi(list(map(_creation, names, values)))
        self.report(f"created {count} znodes of {size} bytes below {parent}")

    def overwrite(self, path: str, times: int, size: int) -> None:
        """Write one znode again and again: much log, and no larger tree."""
        session = RawSession()
        session.connect(self.servers[self.leader()].address)
        session.set_all(path, [f"{number:08d}".encode() + b"x" * size for number in range(times)])
        session.drop()
        self.report(f"wrote {path} {times} times")

    def write_alone(self, path: str, value: str) -> int:
        """Have the leader alone log a write that no quorum sees, and kill everybody.

        Nothing else is logged: the session is the one that `keep_session` opened.
        """
        leader = self.leader()
        others = [server for server in self._present() if server.server_id != leader]
        server = self.servers[leader]
        self.wait_caught_up()
        for other in others:
            other.pause()
        self._send_to(server, path, value)
        # They never run again, so what was sent to them is never read.
        for other in others:
            other.kill()
        server.kill()
        self.report(f"server {leader} alone logged {path}={value}; then all were killed")
        return leader

    def write_one(self, path: str, value: str) -> None:
        """Write one value by one txn and no other, in the session that `keep_session` opened."""
        leader = self.servers[self.leader()]
        self.wait_caught_up()
        self._send_to(leader, path, value)
        self.wait_caught_up()
        self.report(f"wrote {path}={value[:_SHOWN]}")

    def write_failing(self, id: int, path: str, value: str) -> None:
        """The same while one server cannot write a new log file; then it can again.

        If that ended the server it is started again, as a supervisor does. Waits until all serve.
        """
        server = self.servers[id]
        before = server.errors_logged()
        leader = self.servers[self.leader()]
        self.wait_caught_up()
        server.limit_files(_FAILING_BYTES)
        # Held up until the others have committed the write: it finds proposal and commit together,
        # and does not give up between them.
        server.pause()
        known = leader.zxid()
        self._send_to(leader, path, value)
        wait_until(lambda: leader.zxid() > known, "the others commit it", _START_SECONDS)
        server.resume()
        wait_until(
            lambda: not server.is_running or server.errors_logged() > before,
            f"server {id} has met an error",
            _START_SECONDS,
        )
        server.limit_files(None)
        has_ended = False

        def is_back() -> bool:
            # It may say what it met, and answer for a while, before it ends. But whoever lacks
            # the write on disk, and knows it, does not show its zxid.
            nonlocal has_ended
            if not server.is_running:
                has_ended = True
                server.start(self._properties)
            is_like_others = self._find_leader() is not None and self._is_caught_up()
            return is_like_others and server.is_running

        wait_until(is_back, f"server {id} has that write like the others", _START_SECONDS)
        end = "it ended, and was started again" if has_ended else "it ran on"
        self.report(f"wrote {path}={value[:_SHOWN]}; the log of server {id} did not take it; {end}")

    def _send_to(self, server: LabServer, path: str, value: str) -> None:
        """Send a write to the leader, and wait until the leader has logged it."""
        self._session.connect(server.address)
        self._session.set_data(path, value.encode())
        wait_until(
            lambda: server.log_holds(value.encode()), "the leader has logged it", _START_SECONDS
        )
        self._session.drop()

    def keep_session(self) -> None:
        """Open the session that later takes part without opening one."""
        self._session.connect(self.servers[self.leader()].address)
        self._session.drop()
        self.wait_caught_up()

    def values(self, paths: Iterable[str]) -> dict[str, dict[int, str | None]]:
        """What each server that serves answers for each znode."""
        found: dict[str, dict[int, str | None]] = {path: {} for path in paths}
        for id, server in self.servers.items():
            if self._comes_to_serve(server):
                for path, answer in self._answers(id, tuple(found)).items():
                    found[path][id] = answer
        return found

    def _comes_to_serve(self, server: LabServer) -> bool:
        """Whether a server serves, or does so soon: it may elect, or be too busy to answer."""
        has_role = False

        def is_decided() -> bool:
            nonlocal has_role
            has_role = bool(server.role())
            return has_role or not server.is_running

        if server.is_running and not server.is_paused:
            self._wait_unless_refused([server], is_decided, _REFUSAL_SECONDS)
        return has_role

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
            wait_until(has_asked, f"server {id} answers", _ANSWER_SECONDS)
        except LabError as error:
            self.report(str(error))
            return {}
        return answers

    # -- files -----------------------------------------------------------------------------------

    def lose_newest_snapshot(self, id: int) -> None:
        """Remove the newest snapshot of a server that is down, as a power cut may."""
        name = file_damage.lose_newest_snapshot(self.servers[id].version_dir)
        self.report(f"server {id} lost {name}")

    def lose_snapshots_without(self, id: int, text: str) -> None:
        """Remove all snapshots that do not hold a text, on a server that is down."""
        names = file_damage.lose_snapshots_without(self.servers[id].version_dir, text)
        self.report(f"server {id} lost {_shortened(names)}")

    def files(self, id: int) -> dict[str, bytes]:
        """The logs and snapshots of a server that is down, for `undo_trunc`."""
        return file_damage.files(self.servers[id].version_dir)

    def undo_trunc(self, id: int, before: Mapping[str, bytes]) -> None:
        """Undo a TRUNC on a server that is down, as if it had never reached the disk."""
        names = file_damage.undo_trunc(self.servers[id].version_dir, before)
        self.report(f"server {id}: {', '.join(names)} as before the TRUNC")

    def lose_log(self, id: int, text: str) -> None:
        """Remove the log that holds a text, and the snapshots that make up for it."""
        names = file_damage.lose_log(self.servers[id].version_dir, text)
        self.report(f"server {id} lost {', '.join(names)}")

    def change_in_snapshot(self, id: int, old: str, new: str) -> None:
        """Change a value in the newest snapshot; every checksum in it is right afterwards."""
        name = file_damage.change_in_snapshot(self.servers[id].version_dir, old, new)
        self.report(f"server {id}: {old} in {name} reads {new}")

    def put_on_small_disk(self, id: int, size_bytes: int) -> None:
        """Give a server that is down a small file system. Raises LabError without the right to."""
        self._disks[id] = SmallDisk(self.servers[id].data_dir, size_bytes)
        self.report(f"server {id} has a disk of {size_bytes >> 10} KiB")

    def fill_disk(self, id: int, leave_bytes: int) -> None:
        """Fill a small disk."""
        self._disks[id].fill(leave_bytes)
        self.report(f"the disk of server {id} has {leave_bytes >> 10} KiB left")

    def free_disk(self, id: int) -> None:
        """Make space on a small disk."""
        self._disks[id].free()
        self.report(f"the disk of server {id} has space again")

    def purge(self, id: int, keep: int, *, spared: str = "") -> None:
        """Run the purge of a server that is down, as a cron job does; ours purges by itself.

        `spared`: it ended before it came to the snapshot that holds this text. It removes the logs
        first, and then the snapshots, in whatever order the file system lists them.
        """
        server = self.servers[id]
        command = self.release.purge_command(server.data_dir, keep)
        if command:
            before = file_damage.files(server.version_dir)
            subprocess.run(command, capture_output=True, check=False)
            if spared:
                file_damage.put_back_snapshot(server.version_dir, before, spared)
            gone = sorted(before.keys() - file_damage.files(server.version_dir).keys())
            self.report(f"purge on server {id} removed {_shortened(gone)}")

    def zero_record(self, id: int, text: str) -> None:
        """Have the record that holds a text read as zeros, on a server that is down."""
        name = file_damage.zero_record(self.servers[id].version_dir, text)
        self.report(f"server {id}: the record of {text} in {name} reads as zeros")

    def wipe(self, *ids: int) -> None:
        """Remove everything that servers have on disk."""
        for id in ids:
            shutil.rmtree(self.servers[id].version_dir)
        self.report(f"wiped {_list(ids)}")

    # -- reporting -------------------------------------------------------------------------------

    def report(self, text: str) -> None:
        """Report what was done, and what each server answers now."""
        self._reporter.step(text)
        answers = {id: self._state_of(id, server) for id, server in self.servers.items()}
        self._reporter.state(answers)

    def _state_of(self, id: int, server: LabServer) -> str:
        if not server.is_running:
            return "down"
        if server.is_paused:
            return "stands still"
        role, zxid = server.summary()
        if role:
            return f"{role} {zxid:#x}"
        return "cut off" if id in self._cut_off else "does not serve"


def put(client: Client, path: str, value: str) -> None:
    """Create or set a znode."""
    if client.exists(path) is None:
        client.create(path, value.encode(), OPEN_ACL, CreateMode.PERSISTENT)
    else:
        client.set_data(path, value.encode())


def _creation(path: str, value: bytes) -> MultiOp:
    request = CreateRequest(path, value, OPEN_ACL, CreateMode.PERSISTENT.value)
    return MultiOp(OpCode.CREATE, request)


def _get(client: Client, path: str) -> str | None:
    try:
        data = client.get_data(path).data or b""
    except OperationFailed as error:
        if getattr(error, "code", None) == ErrorCode.NO_NODE:
            return None
        raise
    return data.decode(errors="replace")


def _shortened(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more if names else "nothing"


def _list(ids: Iterable[int]) -> str:
    chosen = list(ids)
    return f"server{'s' if len(chosen) != 1 else ''} " + ", ".join(map(str, chosen))
