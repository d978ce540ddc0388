"""A whole ensemble with its clients in one process, under one seed.

Everything that happens is an appointment of one agenda, and every choice comes from one random
number generator: the same seed gives the same run, step by step.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from keepfast.quorum import LeaderPhase, Note, QuorumOptions
from keepfast.replica import ReplicaOptions
from keepfast.sim.agenda import MS, SECOND, Agenda
from keepfast.sim.apache import ApacheProcess
from keepfast.sim.apache_files import ApacheFiles
from keepfast.sim.checkers import Checkers
from keepfast.sim.features import WAITING
from keepfast.sim.host import Host
from keepfast.sim.ledger import Violation
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.network import Endpoint, Place, SimulatedNetwork, Stream
from keepfast.sim.operations import Operation, SessionView
from keepfast.sim.options import SimOptions
from keepfast.sim.peers import PeerEnd
from keepfast.sim.process import Process
from keepfast.sim.simulated_client import SimulatedClient
from keepfast.sim.simulated_election_links import SimulatedElectionLinks
from keepfast.sim.simulated_members import initial_membership
from keepfast.sim.trace import Trace
from keepfast.sim.traps import draw_traps, first_term, spring
from keepfast.storage import Recovery, Store, recover
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    DiskFull,
    OpCode,
    ServerId,
    StorageError,
    Zxid,
    format_zxid,
)

# More terms than this that end on one server in a second are one and the same failure.
_MAX_TERMS = 30
# Writes on their way when the last fault ends.
_MAX_MOVED = 2
# A server's timer runs twice per tick; the rest is slack for slow disks.
_MAX_SILENT_TICKS = 10


class World:
    """Servers, clients, network and disks of one seed, and the agenda that drives them."""

    def __init__(self, seed: int, options: SimOptions) -> None:
        self.seed = seed
        self.options = options
        # A generator of its own for each part is drawn from this one, in a fixed order.
        self.rng = random.Random(seed)
        self.agenda = Agenda()
        self.trace = Trace(self.agenda)
        self.network = SimulatedNetwork(
            self.agenda, random.Random(self.rng.getrandbits(64)), options.network
        )
        self.membership = initial_membership(options)
        self.checkers = Checkers(self.membership)
        self.checkers.expired_sessions.is_on = "expired" not in WAITING
        self._set_limits()
        self.tick_us = options.replica.tick_ms * MS
        self.hosts: dict[ServerId, Host] = {}
        for number in range(1, options.servers + options.observers + 1):
            server_id = ServerId(number)
            self.hosts[server_id] = Host(self, server_id)
        for server_id in self.hosts:
            limit = self.replica_options(server_id).prepare.max_txn_bytes
            self.checkers.sizes[server_id] = limit
        self.election_links = SimulatedElectionLinks(self)
        self.quorum_options = QuorumOptions(
            tick_ms=options.replica.tick_ms,
            init_limit=options.init_limit,
            sync_limit=options.sync_limit,
            is_reconfig_enabled=options.is_reconfig_enabled,
            is_read_only_enabled=options.is_read_only_enabled,
            is_secret_shared=options.is_secret_shared,
            learner_turn_bytes=options.learner_turn_bytes,
            max_snapshot_catch_ups=options.max_catch_ups,
            max_diff_catch_ups=options.max_catch_ups,
            election=options.election,
        )
        habits = options.workload.habits
        self.clients = [
            SimulatedClient(self, n + 1, habits[n % len(habits)])
            for n in range(options.workload.clients)
        ]
        # The greatest zxid of a write that was answered.
        self.floor_zxid = 0
        self.answers = 0
        # When the last answer to a write came that was logged.
        self.last_write_us = 0
        # Nothing fails or takes unusually long any more.
        self.is_calm = False
        self.notes: dict[str, int] = {}
        # The second in which a server last left a role, and how often it did so in that.
        self._terms: dict[ServerId, tuple[int, int]] = {}
        # Client -> how often it was turned away, since nothing fails, as one that is elsewhere.
        self._moved: dict[Place, int] = {}
        self.traps_sprung = 0
        self.trap_rng = random.Random(self.rng.getrandbits(64))
        self.traps = draw_traps(self.trap_rng, options.faults.traps)
        if options.faults.has_first_term:
            self.traps.insert(0, first_term())
        # The last write of each client.
        self._proofs: dict[int, Operation] = {}

    def _set_limits(self) -> None:
        """Let checkers know what is refused."""
        checkers, replica, workload = self.checkers, self.options.replica, self.options.workload
        checkers.quota.is_enforced = replica.prepare.is_quota_enforced
        # What a client asked for on the connection that it has left may come as well.
        checkers.quota.under_way = 2 * workload.clients * workload.pipeline
        checkers.reads.max_multi_reads = replica.max_multi_reads
        checkers.watch_limit.max_bytes = replica.max_watch_bytes
        checkers.ephemeral_limit.max_count = replica.prepare.max_ephemerals
        checkers.ephemeral_limit.is_only_limit = not (
            replica.prepare.is_quota_enforced or "small-txns" in self.options.features
        )

    # -- what the parts ask ----------------------------------------------------------------------

    def is_quorum(self, servers: Collection[ServerId]) -> bool:
        """Whether these servers may decide."""
        return self.checkers.ledger.membership.is_quorum(servers)

    def members(self) -> list[Host]:
        """The hosts of the servers that belong to the ensemble now."""
        found = self.checkers.ledger.membership.find
        return [host for host in self.hosts.values() if found(host.server_id) is not None]

    def client_servers(self) -> tuple[ServerId, ...]:
        """The servers that clients know."""
        return tuple(self.hosts)

    def accept_client(self, server: ServerId, stream: Stream) -> Endpoint | None:
        """A client has dialled a server's client port."""
        process = self.hosts[server].process
        return None if process is None else process.accept_client(stream)

    def accept_peer(self, server: ServerId, stream: Stream) -> Endpoint | None:
        """A learner has dialled a server's quorum port."""
        process = self.running(server)
        return None if process is None else process.links.accept(stream)

    def running(self, server: ServerId) -> Process | None:
        """The process of a server that is up."""
        process = self.hosts[server].process
        return None if process is None or process.is_over else process

    def make_process(self, host: Host, store: Store, recovery: Recovery) -> Process:
        """The program that runs on a host which has read its disk."""
        kind = ApacheProcess if host.is_apache else Process
        return kind(host, self, store, recovery)

    @property
    def apache(self) -> Host | None:
        """The server that is one of Apache's, if there is one."""
        number = self.options.apache
        return None if number is None else self.hosts[ServerId(number)]

    def noted(self, process: Process, note: Note) -> None:
        """A server has said something about itself, or about a peer."""
        if note.name == "role-ended":
            self._count_term(process)
        member, apache = process.member, self.apache
        if apache is None or member is None:
            return
        leader = member.leader
        if note.name == "catch-up" and leader is not None and not process.host.is_apache:
            if dict(note.fields)["server"] == apache.server_id:
                apache.apache.is_needed = leader.phase is not LeaderPhase.BROADCAST
        elif note.name == "peer-broke-protocol" and process.links.has_dialled(
            dict(note.fields)["link"], apache.server_id
        ):
            self.empty(apache, "what it sends does not fit")

    def _count_term(self, process: Process) -> None:
        """Terms of a server that end in one second: a failed one is not tried again at once."""
        second, count = self._terms.get(process.server_id, (-1, 0))
        now = self.agenda.now_us // SECOND
        count = count + 1 if now == second else 1
        self._terms[process.server_id] = now, count
        if count > _MAX_TERMS:
            raise Violation(
                "livelock", f"{process.who} has left its role {count} times in second {now}"
            )

    def refused_as_moved(self, client: Place) -> None:
        """A client's write is refused because its session is said to be at another server.

        What it sent through an earlier server may come late. But once nothing fails, it is where
        it says that it is.
        """
        if self.is_calm:
            self._moved[client] = count = self._moved.get(client, 0) + 1
            if count > _MAX_MOVED:
                raise Violation(
                    "session moved", f"client {client} is sent away {count} times from where it is"
                )

    def empty(self, host: Host, why: str) -> None:
        """An operator empties an Apache server, if the others have all that it has."""
        shadow_of = self.checkers.ledger.shadow_of
        sound = {
            each.server_id
            for each in self.hosts.values()
            if each is not host
            and not each.is_impaired
            and shadow_of(each.server_id).vouched_epoch > 0
        }
        if not self.is_quorum(sound):
            return

        def act() -> None:
            self.trace.add("ops", "%s is emptied: %s", host.who, why)
            host.kill()
            host.disk = MemoryDisk(self.options.disk.capacity)
            host.apache = ApacheFiles()
            host.is_impaired = True
            self.checkers.damaged(host.server_id)
            self.agenda.after(self.tick_us, host.start)

        self.agenda.after(0, act)

    def laggard(self) -> ServerId | None:
        """The serving server that lags furthest behind; None if nobody does."""
        serving = {
            host.server_id: host.process.seen
            for host in self.hosts.values()
            if host.process is not None and host.process.is_serving
        }
        return min(serving, key=lambda server: (serving[server], server), default=None)

    def replica_options(self, server_id: ServerId) -> ReplicaOptions:
        """The options of one server's replica."""
        options = replace(self.options.replica, server_id=server_id)
        extra = self.options.uneven_txn_bytes
        if not extra or server_id % 2 == 0:
            return options
        prepare = options.prepare
        larger = replace_struct(prepare, max_txn_bytes=prepare.max_txn_bytes + extra)
        return replace(options, prepare=larger)

    def vouched(self, process: Process, zxid: Zxid) -> None:
        """A server is about to say, to others or itself, that it holds all up to `zxid`."""
        self.checkers.vouched(process.server_id, zxid)
        if self.trap_rng.random() < self.options.crash_check_chance:
            # What if the power were lost right now? The server itself continues.
            disk = process.host.disk.clone().crash(self.trap_rng)
            self.checkers.would_recover(process.server_id, recover(disk, process.host.directory))

    def reached(self, step: str, process: Process, end: PeerEnd | None) -> None:
        """A server is at a named step of the protocol; a trap may wait for it there."""
        for trap in self.traps:
            if trap.step == step and trap.server in (None, process.server_id):
                if trap.skip:
                    trap.skip -= 1
                    continue
                self.traps.remove(trap)
                self.traps_sprung += 1
                spring(self, trap, process, end)
                return

    def leading_host(self) -> Host | None:
        """The host of a server that leads and serves."""
        for host in self.hosts.values():
            process = self.running(host.server_id)
            if process is not None and process.replica.proposer is not None:
                return host
        return None

    def start_failed(self, host: Host, error: StorageError) -> None:
        """A server could not start; that its disk is full is no reason."""
        has_data = self.checkers.ledger.shadow_of(host.server_id).vouched >= 0
        if isinstance(error, DiskFull) and has_data and "full-start" not in WAITING:
            raise Violation("full disk", f"{host.who} has data and does not start: {error}")

    def process_ended(self, process: Process) -> None:
        """A server is gone."""
        self.election_links.process_ended(process)

    # -- the course of a run ---------------------------------------------------------------------

    def start_servers(self) -> None:
        """Start all servers, not quite at once."""
        skew_ms = self.options.skew_ms
        for host in self.hosts.values():
            host.skew_ms = self.rng.randint(-skew_ms, skew_ms)
            self.agenda.after(self.rng.randint(0, self.tick_us), host.start)

    def watch_clocks(self) -> None:
        """Check that every running server does its periodic work: nothing may end silently."""
        for host in self.hosts.values():
            process = host.process
            if process is None or process.is_held_up:
                continue
            late_us = self.agenda.now_us - process.ticked_us
            if late_us > _MAX_SILENT_TICKS * self.tick_us:
                raise Violation(
                    "crash-only", f"{host.who} runs, and its timer is {late_us // MS} ms late"
                )
        self.agenda.after(self.tick_us, self.watch_clocks)

    def calm_down(self) -> None:
        """From now on nothing takes unusually long."""
        self.is_calm = True
        self.network.calm_down()

    def is_serving(self, host: Host) -> bool:
        """Whether a server is up, whole and part of the service."""
        return host.is_whole and host.process is not None and host.process.is_serving

    def is_settled(self, *, with_sessions: bool = True) -> bool:
        """Whether every server serves the whole agreed history, and only live sessions are left."""
        last = self.checkers.ledger.last
        for host in self.members():
            if not self.is_serving(host):
                return False
            process = host.process
            if process is None or self.checkers.ledger.position(process.seen) != last:
                return False
        return not with_sessions or self._has_only_live_sessions()

    def _has_only_live_sessions(self) -> bool:
        live = {c.session.session_id for c in self.clients if c.session is not None and c.is_open}
        if self.options.replica.has_local_sessions:
            # Some are known to one server alone.
            return live >= set(self.checkers.ledger.tree.sessions)
        return live == set(self.checkers.ledger.tree.sessions)

    def ails(self) -> str:
        """What is wrong, in one line."""
        parts = []
        for host in self.hosts.values():
            process = host.process
            if process is None:
                parts.append(f"{host.who} is down")
            elif not self.is_serving(host):
                parts.append(f"{host.who} does not serve ({process.store.standing.value})")
            else:
                parts.append(f"{host.who} is at {format_zxid(process.seen)}")
        live = sum(client.is_open for client in self.clients)
        parts.append(f"{live} of {len(self.clients)} clients are connected")
        parts.append(f"{len(self.checkers.ledger.tree.sessions)} sessions")
        return ", ".join(parts)

    def prove_progress(self) -> None:
        """Have each client write once more, as soon as it can."""
        for client in self.clients:
            self._write_proof(client)

    def _write_proof(self, client: SimulatedClient) -> None:
        proof = self._proofs.get(client.number)
        if proof is not None and proof.is_answered:
            return
        if proof is None or proof not in client.outstanding:
            path = f"/proof{client.number}"
            request = CreateRequest(path, b"", OPEN_ACL, CreateMode.PERSISTENT)
            proof = client.ask(OpCode.CREATE, path, request)
            if proof is not None:
                self._proofs[client.number] = proof
        self.agenda.after(self.tick_us, lambda: self._write_proof(client))

    def has_progressed(self) -> bool:
        """Whether these writes were answered."""
        proofs = self._proofs.values()
        return len(proofs) == len(self.clients) and all(proof.is_answered for proof in proofs)

    # -- what clients saw ------------------------------------------------------------------------

    def answered(self, session: SessionView, operation: Operation) -> None:
        """A client got a reply."""
        self.answers += 1
        self.checkers.expiry.now_us = self.agenda.now_us
        self.checkers.answered(session, operation)
        # Also one that was refused is a txn, and what comes later comes after it.
        if operation.type in _WRITES and operation.zxid in self.checkers.ledger.digests:
            self.last_write_us = self.agenda.now_us
            self.floor_zxid = max(self.floor_zxid, operation.zxid)


_WRITES = frozenset(
    (
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_TTL,
        OpCode.CREATE_CONTAINER,
        OpCode.SET_DATA,
        OpCode.DELETE,
        OpCode.MULTI,
    )
)
