"""A whole ensemble with its clients in one process, under one seed.

Everything that happens is an appointment of one agenda, and every choice comes from one random
number generator: the same seed gives the same run, step by step.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

from keepfast.quorum import QuorumOptions
from keepfast.replica import ReplicaOptions
from keepfast.sim.agenda import MS, Agenda
from keepfast.sim.checkers import Checkers
from keepfast.sim.client import Client
from keepfast.sim.election_links import ElectionLinks
from keepfast.sim.host import Host
from keepfast.sim.members import initial_membership
from keepfast.sim.network import Endpoint, Network, Stream
from keepfast.sim.operations import Operation, SessionView
from keepfast.sim.options import SimOptions
from keepfast.sim.peers import MemberProcess, PeerEnd
from keepfast.sim.process import Process
from keepfast.sim.trace import Trace
from keepfast.sim.traps import draw_traps, spring
from keepfast.storage import Recovery, Store, recover
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    OpCode,
    ServerId,
    Zxid,
    format_zxid,
)


class World:
    """See the module."""

    def __init__(self, seed: int, options: SimOptions) -> None:
        self.seed = seed
        self.options = options
        # A generator of its own for each part is drawn from this one, in a fixed order.
        self.rng = random.Random(seed)
        self.agenda = Agenda()
        self.trace = Trace(self.agenda)
        self.network = Network(
            self.agenda, random.Random(self.rng.getrandbits(64)), options.network
        )
        self.membership = initial_membership(options)
        self.checkers = Checkers(self.membership)
        self.tick_us = options.replica.tick_ms * MS
        self.hosts: dict[ServerId, Host] = {}
        for number in range(1, options.servers + options.observers + 1):
            server_id = ServerId(number)
            self.hosts[server_id] = Host(self, server_id)
        self.election_links = ElectionLinks(self)
        self.quorum_options = QuorumOptions(
            tick_ms=options.replica.tick_ms,
            init_limit=options.init_limit,
            sync_limit=options.sync_limit,
            is_reconfig_enabled=options.is_reconfig_enabled,
            election=options.election,
        )
        self.clients = [Client(self, n + 1) for n in range(options.workload.clients)]
        # The greatest zxid of a write that was answered.
        self.floor_zxid = 0
        self.answers = 0
        # Nothing fails or takes unusually long any more.
        self.is_calm = False
        self.notes: dict[str, int] = {}
        self.traps_sprung = 0
        self.trap_rng = random.Random(self.rng.getrandbits(64))
        self.traps = draw_traps(self.trap_rng, options.faults.traps)
        # The last write of each client.
        self._proofs: dict[int, Operation] = {}

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
        process = self.member_process(server)
        return None if process is None else process.accept_peer(stream)

    def member_process(self, server: ServerId) -> MemberProcess | None:
        """The process of a server that is up."""
        process = self.hosts[server].process
        return process if isinstance(process, MemberProcess) and not process.is_over else None

    def make_process(self, host: Host, store: Store, recovery: Recovery) -> Process:
        """The program that runs on a host which has read its disk."""
        kind = Process if self.options.servers == 1 else MemberProcess
        return kind(host, self, store, recovery)

    def laggard(self) -> ServerId | None:
        """The server that is furthest behind and serves; None if nobody does."""
        serving = {
            host.server_id: host.process.seen
            for host in self.hosts.values()
            if host.process is not None and host.process.is_serving
        }
        return min(serving, key=lambda server: (serving[server], server), default=None)

    def replica_options(self, server_id: ServerId) -> ReplicaOptions:
        """The options of one server's replica."""
        return replace(self.options.replica, server_id=server_id)

    def vouched(self, process: Process, zxid: Zxid) -> None:
        """A server is about to say, to others or itself, that it holds all up to `zxid`."""
        self.checkers.vouched(process.server_id, zxid)
        if self.trap_rng.random() < self.options.crash_check_chance:
            # What if the power were lost right now? The server itself goes on.
            disk = process.host.disk.clone().crash(self.trap_rng)
            self.checkers.would_recover(process.server_id, recover(disk, process.host.directory))

    def reached(self, step: str, process: Process, end: PeerEnd | None) -> None:
        """A server is at a named step of the protocol; a trap may wait for it there."""
        for trap in self.traps:
            if trap.step == step:
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
            process = self.member_process(host.server_id)
            if process is not None and process.member.replica.proposer is not None:
                return host
        return None

    def process_ended(self, process: Process) -> None:
        """A server is gone."""
        if isinstance(process, MemberProcess):
            self.election_links.process_ended(process)

    # -- the course of a run ---------------------------------------------------------------------

    def start_servers(self) -> None:
        """Start all servers, not quite at once."""
        skew_ms = self.options.skew_ms
        for host in self.hosts.values():
            host.skew_ms = self.rng.randint(-skew_ms, skew_ms)
            self.agenda.after(self.rng.randint(0, self.tick_us), host.start)

    def calm_down(self) -> None:
        """From now on nothing takes unusually long."""
        self.is_calm = True
        self.network.calm_down()
        for host in self.hosts.values():
            if host.process is not None:
                host.process.disk.may_stall = False

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
        return live == set(self.checkers.ledger.tree.sessions)

    def ails(self) -> str:
        """What is not well, in one line."""
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

    def _write_proof(self, client: Client) -> None:
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
        if operation.type in _WRITES and not operation.error:
            self.floor_zxid = max(self.floor_zxid, operation.zxid)


_WRITES = frozenset((OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE, OpCode.MULTI))
