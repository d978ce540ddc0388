"""Polls every server, and keeps what the page shows.

One thread polls; each round queries all servers at once. While no page is open, rounds are rarer,
so that a console left running costs the servers almost nothing and its sparklines still have a
history.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from keepfast.client import (
    EnsembleStatus,
    OperationFailed,
    ServerAddress,
    ServerStatus,
    judge,
    probe,
)
from keepfast.console.ensemble_members import ConfiguredMember, members_in
from keepfast.console.ensemble_session import EnsembleSession
from keepfast.console.measurements import (
    Series,
    ask,
    directory_sizes,
    monitor_values,
    setting_values,
)

_ASK_SECONDS: Final = 1.5
# Multiplies the interval while no page is open.
_IDLE_FACTOR: Final = 5
# Rounds between two questions for what changes slowly.
_SLOW_ROUNDS: Final = 5
# Digests that are kept of each server, to compare those of one zxid though servers are never asked
# at one moment.
_MAX_DIGESTS: Final = 256
_MAX_SERVERS: Final = 64


@dataclass(slots=True)
class WatchedServer:
    """What is known of one server, now and from earlier rounds."""

    address: ServerAddress
    is_given: bool
    status: ServerStatus
    values: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    # The members, as it reports them: /zookeeper/config is empty where nothing was ever changed.
    membership: str = ""
    sizes: tuple[int, int] | None = None
    series: Series = field(default_factory=Series)
    # When it was last seen to answer, in seconds since 1970; None: never.
    seen_s: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """All servers after one round."""

    time_ms: int
    servers: tuple[WatchedServer, ...]
    verdict: EnsembleStatus
    members: tuple[ConfiguredMember, ...]
    # Rounds in a row in which trees could not be compared: one is nothing, many are a finding.
    uncompared_rounds: int


class EnsembleWatch:
    """The thread that asks. `on_round` gets a Picture after each round, on that thread."""

    def __init__(
        self,
        addresses: Sequence[ServerAddress],
        session: EnsembleSession,
        on_round: Callable[[Picture], None],
        interval_s: float,
    ) -> None:
        self._session = session
        self._on_round = on_round
        self._interval_s = interval_s
        self._servers = {one: WatchedServer(one, True, ServerStatus(one)) for one in addresses}
        self._members: tuple[ConfiguredMember, ...] = ()
        self._uncompared = 0
        self._rounds = 0
        self._is_over = False
        self._lookers = 0
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait."""
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def look(self, change: int) -> None:
        """A page was opened (+1) or closed (-1)."""
        self._lookers += change
        if change > 0:
            self._wake.set()

    @property
    def addresses(self) -> tuple[ServerAddress, ...]:
        """Those that are asked."""
        return tuple(self._servers)

    def _run(self) -> None:
        with ThreadPoolExecutor(_MAX_SERVERS, "console-ask") as pool:
            while not self._is_over:
                self._round(pool)
                factor = 1 if self._lookers else _IDLE_FACTOR
                self._wake.wait(self._interval_s * factor)
                self._wake.clear()

    def _round(self, pool: ThreadPoolExecutor) -> None:
        is_slow_round = self._rounds % _SLOW_ROUNDS == 0
        self._rounds += 1
        list(pool.map(lambda one: self._ask(one, is_slow_round), self._servers.values()))
        if is_slow_round:
            found = self._find_members()
            list(pool.map(lambda one: self._ask(one, is_slow_round), found))
        verdict = judge([one.status for one in self._servers.values()])
        is_compared = all(finding.kind != "digest-unknown" for finding in verdict.findings)
        self._uncompared = 0 if is_compared else self._uncompared + 1
        self._on_round(
            Picture(
                round(time.time() * 1000),
                tuple(self._servers.values()),
                verdict,
                self._members,
                self._uncompared,
            )
        )

    def _ask(self, server: WatchedServer, is_slow_round: bool) -> None:
        status = probe(server.address, _ASK_SECONDS)
        if status.is_serving and server.status.is_serving:
            merged = server.status.digests | status.digests
            status.digests = {zxid: merged[zxid] for zxid in sorted(merged)[-_MAX_DIGESTS:]}
        if not status.is_reached:
            # Who it was, it stays.
            status.server_id = server.status.server_id
            status.version = server.status.version
        server.status = status
        if not status.is_reached:
            server.series.miss()
            server.values = {}
            return
        server.seen_s = time.time()
        # A server that goes away between two questions is seen in the next round.
        with contextlib.suppress(OSError):
            server.values = monitor_values(ask(server.address, "mntr", _ASK_SECONDS))
            server.series.take(time.monotonic(), server.values, status.zxid)
            if is_slow_round or not server.settings:
                answer = ask(server.address, "conf", _ASK_SECONDS)
                if (
                    answer
                ):  # one that does not serve does not report them; what it reported stays true
                    server.settings = setting_values(answer)
                    server.membership = answer.partition("membership:")[2]
                server.sizes = directory_sizes(ask(server.address, "dirs", _ASK_SECONDS))

    def _find_members(self) -> list[WatchedServer]:
        """Ask the ensemble who belongs to it, and watch those too; returns the new ones."""
        found: list[WatchedServer] = []
        if not any(one.status.is_serving for one in self._servers.values()):
            return found
        try:
            config = self._session.client().get_config()
        except OperationFailed:
            return found  # servers that serve are there; the next slow round asks again
        text = (config.data or b"").decode("utf-8", "replace")
        texts = (text, *(one.membership for one in self._servers.values() if one.status.is_serving))
        self._members = tuple(members_in(next((text for text in texts if text.strip()), "")))
        self._drop_removed()
        known = {one.status.server_id for one in self._servers.values()}
        for member in self._members:
            is_new = member.client is not None and member.client not in self._servers
            # The same server under another name would be shown twice.
            if is_new and member.server_id not in known and len(self._servers) < _MAX_SERVERS:
                address = member.client
                if address is not None:
                    found.append(WatchedServer(address, False, ServerStatus(address)))
        self._servers |= {one.address: one for one in found}
        self._session.use_addresses(tuple(self._servers))
        return found

    def _drop_removed(self) -> None:
        """Forget servers that a reconfiguration took out, unless they were given by name."""
        wanted = {member.client for member in self._members}
        for address, server in list(self._servers.items()):
            if not server.is_given and self._members and address not in wanted:
                del self._servers[address]
