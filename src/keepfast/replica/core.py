"""One whole server without I/O, alone or a member of an ensemble: events in, effects out.

Theory of operation.  The driver sets the clock, passes in one or more events, and ends the turn:
`end_turn` gives one batch of effects, which is performed in its order. Every decision of a server
is made here or below: which role it has, when a group of writes is complete, when a snapshot is
due, whose requests are not read for now, when it wants to be woken. A world (sockets, disk, clock,
timers; real or simulated) only performs.

The order of a batch, and why it is safe (R7):

    1  votes, links, memberships, notes      They state what is durable already.
    2  packets to peers                      A proposal may reach others before it is on this disk:
                                             this server's own vote for it is counted only when
                                             `log_durable` comes back. Others fsync while it does.
    3  records to store                      After the packets: peers need not wait for this
                                             disk.
    4  orders for the disk                   After the records, as an epoch vouches for all that
                                             was logged before it (R8).
    5  bytes to clients, cut-offs, closes    A reply to a write was made when the write was
                                             committed, in an earlier turn than its append.
    6  reads paused and resumed, work that takes several turns, logins to check, snapshots,
       audit lines
"""

from __future__ import annotations

from typing import Final

from keepfast.quorum import DiskOrder, Standing
from keepfast.replica.authentication import Proof
from keepfast.replica.cadence import SnapshotCadence
from keepfast.replica.connection import Connection, Phase
from keepfast.replica.effects import (
    AbortClients,
    AppendTxns,
    CheckProofs,
    CloseClients,
    ContinueRequests,
    ContinueWork,
    PauseReads,
    ResumeReads,
    SendToClients,
    SendToPeers,
    TakeSnapshot,
    TurnEffect,
    WriteAudit,
)
from keepfast.replica.gathering import Group
from keepfast.replica.member import Member
from keepfast.replica.replica import Replica
from keepfast.replica.write_groups import WriteGroups
from keepfast.tree import Tree
from keepfast.wire import Zxid

_MS: Final = 1000
_CONNECTING: Final = Phase.CONNECTING


class ServerCore:
    """One server without I/O: events in, effects out. `member` is None on a standalone server."""

    def __init__(
        self,
        replica: Replica,
        member: Member | None,
        cadence: SnapshotCadence,
        now: float,
    ) -> None:
        """`now` is monotonic time in seconds, as all times here are."""
        self.replica = replica
        self._service = replica.service
        self._outstanding_limit = replica.options.outstanding_limit
        self.member = member
        self.now = now
        self.cadence = cadence
        self._groups = WriteGroups()
        if member is None:
            tick_ms = replica.options.tick_ms // 2
        else:
            tick_ms = member.state.options.tick_ms // 4
        self._tick_seconds = max(tick_ms, 1) / _MS
        self._next_tick = now
        self._paused: dict[Connection, None] = {}
        self._pausing: list[Connection] = []
        # Whether `continue_work` will be called.
        self._is_working = False
        # A client has taken what waited for it since the last turn.
        self._is_relieved = False

    # -- events ----------------------------------------------------------------------------------

    def set_clock(self, now: float, wall_ms: int) -> None:
        """Monotonic time for deadlines, wall clock time for txns; set it before each event."""
        self.now = now
        self.replica.set_clock(int(now * _MS), wall_ms)

    def receive(self, connection: Connection, data: bytes) -> None:
        """Bytes of a client."""
        self.replica.receive(connection, data)
        has_more = connection.queue or connection.is_stalled or connection.held
        if has_more and self._must_wait(connection):
            self._pause(connection)

    def client_full(self, connection: Connection) -> None:
        """A client reads replies more slowly than it sends requests: stop reading from it."""
        connection.is_full = True
        self._pause(connection)

    def client_unsent(self, connection: Connection, waiting_bytes: int, largest_reply: int) -> None:
        """This much is waiting for a slow client; cut it off before it costs more memory.

        A reply was requested, however large it is, and reading it takes time.
        """
        connection.largest_unsent = max(connection.largest_unsent, largest_reply)
        if waiting_bytes > self.replica.options.max_unsent_bytes + connection.largest_unsent:
            self.replica.service.cut_off(connection, waiting_bytes)

    def client_drained(self, connection: Connection) -> None:
        """A client has taken what was sent to it: handle the requests that waited for that."""
        connection.is_full = False
        connection.largest_unsent = 0
        self._is_relieved = True
        if connection.is_stalled:
            self.replica.resume(connection)

    def client_lost(self, connection: Connection) -> None:
        """A client's connection is gone."""
        self._paused.pop(connection, None)
        self.replica.lost(connection)

    def proved(self, proof: Proof) -> None:
        """A step of a client's login was taken."""
        self.replica.proved(proof)

    def log_durable(self, zxid: Zxid, group: Group, fsync_seconds: float) -> None:
        """Records up to `zxid` are on disk; the last group took so long."""
        self._groups.fsynced(group, self.now, fsync_seconds)
        if self.member is None:
            self.replica.log_durable(zxid)
        else:
            self.member.log_durable(zxid)

    def continue_work(self) -> None:
        """Others had their turn: do the next piece of what takes many."""
        self._is_working = False
        self._service.has_more_work = False
        self.replica.continue_work()
        if self.member is not None:
            self.member.continue_work()

    def start(self) -> None:
        """Begin: alone it serves already, a member looks for a leader."""
        if self.member is not None:
            self.member.start()

    @property
    def is_tick_due(self) -> bool:
        """Whether `tick` is wanted now."""
        if self.now >= self._next_tick:
            return True
        deadline_ms = None if self.member is None else self.member.deadline_ms
        return deadline_ms is not None and self.replica.now_ms >= deadline_ms

    def tick(self) -> None:
        """Do what is due by time."""
        self._next_tick = self.now + self._tick_seconds
        if self.member is None:
            self.replica.tick()
        else:
            self.member.tick()

    # -- effects ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When to be woken at the latest."""
        deadline, of_group = self._next_tick, self._groups.deadline
        if of_group is not None and of_group < deadline:
            deadline = of_group
        if self.member is not None:
            member_ms = self.member.deadline_ms
            if member_ms is not None and member_ms / _MS < deadline:
                deadline = member_ms / _MS
        return deadline

    def end_turn(self) -> list[TurnEffect]:
        """All effects of the events since the last call, in the order in which to perform them."""
        replica, service, member = self.replica, self.replica.service, self.member
        service.spent = service.made = 0
        batch: list[TurnEffect] = []
        orders: list[DiskOrder] = []
        appends = service.appends
        # A learner's records are a leader's group already, and a successor waits for the last ones.
        may_gather = member is None or (member.leading is not None and not member.is_handing_over)
        if appends and may_gather:
            is_held = self._groups.is_held(appends, self.now)
        else:
            is_held = False
        if member is not None:
            if appends and not is_held:
                member.propose_new()
            for effect in member.take_effects() if member.state.effects else ():
                if isinstance(effect, DiskOrder):
                    orders.append(effect)
                else:
                    batch.append(effect)
            if member.state.dirty_links:
                batch.append(SendToPeers(member.take_dirty_links()))
        if appends and not is_held:
            records = service.take_appends() if member is None else member.take_appends()
            batch.append(AppendTxns(records, self._groups.take()))
            self.cadence.count(records)
        batch.extend(orders)
        if service.dirty:
            batch.append(SendToClients(service.take_dirty()))
        if service.stuck:
            batch.append(AbortClients(service.take_stuck()))
        if service.closing:
            batch.append(CloseClients(service.take_closing()))
        if self._pausing or self._paused:
            self._change_reads(batch)
        if service.unfinished:
            batch.append(ContinueRequests(service.take_unfinished()))
        if service.has_more_work and not self._is_working:
            self._is_working = True
            batch.append(ContinueWork())
        if replica.proofs:
            batch.append(CheckProofs(replica.take_proofs()))
        # Before it serves, a member's tree is being made: it may not be the state of any zxid.
        if self.cadence.is_due(service.tree.node_count) and replica.is_serving:
            self.cadence.restart()
            batch.append(TakeSnapshot(service.tree))
        if service.audits:
            batch.append(WriteAudit(service.take_audits()))
        return batch

    # -- whose requests are read -----------------------------------------------------------------

    def _must_wait(self, connection: Connection) -> bool:
        """Whether nothing is read from a client for now."""
        if connection.is_full or connection.is_stalled:
            return True  # what it asked for waits for it, or for the turn of other clients
        if (
            # One that has no session yet may not fill the memory while the disk is slow.
            connection.phase is _CONNECTING
            or connection.is_throttled
            or self._service.outstanding > self._outstanding_limit
        ):
            return bool(connection.queue or connection.held)
        # Not at once: its pings keep its session alive.
        return connection.waits_for_reads and len(connection.held) > self._outstanding_limit

    def _pause(self, connection: Connection) -> None:
        if connection not in self._paused:
            self._paused[connection] = None
            self._pausing.append(connection)

    def _change_reads(self, batch: list[TurnEffect]) -> None:
        pausing, self._pausing = self._pausing, []
        if pausing:
            batch.append(PauseReads(pausing))
        if self._is_relieved or self.replica.outstanding <= self._outstanding_limit:
            self._is_relieved = False
            free = [c for c in self._paused if not self._must_wait(c)]
            for connection in free:
                del self._paused[connection]
            if free:
                batch.append(ResumeReads(free))

    # -- snapshots -------------------------------------------------------------------------------

    @property
    def may_purge(self) -> bool:
        """Whether files may be deleted: one that is fenced keeps all that it has (R10, R11)."""
        return self.member is None or self.member.state.standing is Standing.WHOLE

    @property
    def tree(self) -> Tree | None:
        """The state that this server has; None: it has none that may be used."""
        # Not the replica's before it serves: that is the tree of an earlier role, or none.
        member = self.member
        return self.replica.tree if member is None or self.replica.is_serving else member.state.tree
