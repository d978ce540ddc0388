"""An Apache server in a simulated ensemble: what it does not send, and what it does wrong.

It runs our own machines for what both kinds do identically, election and broadcast. It differs in

- what crosses its links: nothing that Keepfast adds to Apache's packets, in either direction;
- its files, which have no manifest. It takes a snapshot as soon as it is elected, before anybody
  follows. After TRUNC it loads its newest snapshot, also one beyond the cut. After SNAP it keeps
  its old log: records beyond the tree would come back at the next start, and when it leads itself
  it sends a learner what its log has, across the hole that the tree left.

Our servers must stay correct beside it, and keep it correct as far as they can
(docs/replacing-apache.md). Where they cannot, an operator empties it, as described there. That our
machines elect and store for it is a limit of the model: what Apache's do wrong in an election is
not in it, and where our store votes with nothing that it has, it stands for an emptied server.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from keepfast.driver import ServerStatistics, SnapshotTaker, StreamSource, store_facts
from keepfast.quorum import (
    Chain,
    DiskOrder,
    InstallTree,
    RecordStream,
    TreeStream,
    TruncateLog,
    chain_of,
    encode_commit,
    encode_proposal,
)
from keepfast.replica import Append, Member, Role, ServerCore
from keepfast.sim.apache_files import ApacheFiles
from keepfast.sim.ledger import Violation
from keepfast.sim.process import Process
from keepfast.sim.watched_loop import WatchedLoop
from keepfast.storage import History, Recovery, Standing
from keepfast.tree import Tree
from keepfast.wire import (
    Zxid,
    follows_in_epoch,
    format_zxid,
)


class ApacheHistory(History, frozen=True):
    """Its log as it sees it: each record is assumed to follow the one before it."""

    log: tuple[tuple[Zxid, bytes], ...] = ()
    # The last txn that it knows to be committed.
    committed: Zxid = Zxid(-1)

    def chain(self) -> Chain:
        """All of it, holes or not."""
        zxids = [zxid for zxid, _ in self.log]
        if not zxids or zxids[-1] != self.head:
            return super().chain()
        ranges: list[tuple[Zxid, Zxid]] = []
        for zxid in zxids:
            if ranges and follows_in_epoch(zxid, ranges[-1][1]):
                ranges[-1] = ranges[-1][0], zxid
            else:
                ranges.append((zxid, zxid))
        return chain_of(Zxid(ranges[0][0] - 1), ranges)

    def serves_after(self, zxid: Zxid) -> bool:
        """Whether the log goes back that far, and on to what is committed.

        Apache walks its files, and then the committed txns that it has in memory. If the files end
        before those begin, it notices that and sends a tree. A hole that lies before is not
        noticed.
        """
        logged = {each for each, _ in self.log}
        return super().serves_after(zxid) or logged.issuperset((zxid, self.committed))

    def packets(self, stream: RecordStream) -> Iterator[bytes]:
        """What it sends to a learner: all that the log has after a zxid."""
        yield b"".join(
            encode_proposal(zxid, entry) + encode_commit(zxid)
            for zxid, entry in self.log
            if stream.after < zxid <= stream.up_to
        )


class ApacheSource(StreamSource):
    """Reads what a learner is sent from such a log."""

    def __init__(self, process: ApacheProcess, snapshots: SnapshotTaker) -> None:
        super().__init__(process.store, snapshots)
        self._history = process.history

    def open(
        self,
        item: RecordStream | TreeStream,
        ready: Callable[[Iterator[bytes] | None], None],
    ) -> None:
        """See StreamSource."""
        history = self._history()
        if isinstance(item, RecordStream) and any(z == item.after for z, _ in history.log):
            ready(history.packets(item))
        else:
            super().open(item, ready)


class ApacheLoop(WatchedLoop):
    """The loop of such a server."""

    def __init__(self, core: ServerCore, process: ApacheProcess, retain: int) -> None:
        super().__init__(core, process, ServerStatistics(), retain)
        self._apache = process
        self._source = ApacheSource(process, self.snapshots)
        self._is_elected = False

    def end_turn(self) -> None:
        """See ServerLoop; a snapshot is taken when it is elected, before anybody follows."""
        member, files = self.core.member, self._apache.files
        is_elected = member is not None and member.state.role is Role.LEADING
        tree = None if member is None else member.state.tree
        if is_elected and not self._is_elected and tree is not None:
            files.snapshots[tree.last_zxid] = copy.deepcopy(tree)
            self._apache.world.trace.add(
                self._apache.who, "stores %s before anybody follows", format_zxid(tree.last_zxid)
            )
            if files.dies_when_elected:
                files.dies_when_elected = False
                self._apache.world.agenda.after(0, self._apache.host.kill)
        self._is_elected = is_elected
        super().end_turn()

    def carry_out(self, order: DiskOrder) -> Tree | None:
        """See ServerLoop."""
        process, files = self._apache, self._apache.files
        world, member = process.world, self.core.member
        is_whole = member is not None and member.state.standing is Standing.WHOLE
        if isinstance(order, InstallTree) and not is_whole:
            # Our store has no history that counts, and said so to its leader. One of Apache's says
            # that only when it is empty, so that is what this one is.
            files.log.clear()
            files.snapshots.clear()
        tree = super().carry_out(order)
        if isinstance(order, TruncateLog):
            loaded = files.cut(order.zxid)
            if loaded is not None and files.is_needed:
                world.empty(process.host, "it was cut, and has a snapshot beyond that")
            elif loaded is not None:
                world.trace.add(
                    process.who, "loads its snapshot of %s", format_zxid(loaded.last_zxid)
                )
                return loaded
        elif isinstance(order, InstallTree):
            if files.last > order.tree.last_zxid and files.is_needed:
                world.empty(process.host, "it has records beyond the tree that it was sent")
            elif files.last > order.tree.last_zxid:
                raise Violation(
                    "apache peer",
                    f"{process.who} has {format_zxid(files.last)} in its log, and was sent the "
                    f"tree of {format_zxid(order.tree.last_zxid)} by a leader that has a quorum",
                )
            files.installed(order.tree.last_zxid)
        return tree


class ApacheProcess(Process):
    """One running server of that kind."""

    @property
    def files(self) -> ApacheFiles:
        """What lies on its disk."""
        return self.host.apache

    def history(self) -> ApacheHistory:
        """What it takes its log for."""
        own = self.store.history
        log = tuple(sorted(self.files.log.items()))
        leader = None if self.member is None else self.member.leader
        committed = own.head if leader is None else leader.last_committed
        return ApacheHistory(
            own.disk,
            own.directory,
            own.manifest,
            own.head,
            own.doubts,
            own.open_end,
            log,
            committed,
        )

    def _make_member(self, recovery: Recovery) -> Member:
        # What a power loss took is not in its log either.
        log = self.files.log
        self.files.log = {zxid: log[zxid] for zxid in log if zxid <= recovery.head}
        facts = store_facts(self.store, recovery)
        return self._member_of(replace(facts, history=self.history))

    def _make_loop(self, core: ServerCore) -> WatchedLoop:
        return ApacheLoop(core, self, self.world.options.retain)

    def logging(self, records: list[Append]) -> None:
        """See World."""
        super().logging(records)
        if not self.is_over:
            self.files.log.update((record.zxid, record.entry) for record in records)
