"""The server's loop with observers: what it does is shown to the trace and to the checkers.

Being observed changes nothing, except that a trap may end the process (traps.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.driver import ServerLoop, ServerStatistics
from keepfast.quorum import (
    DiskOrder,
    InitialiseStore,
    InstallTree,
    StoreEpochs,
    StoreMembership,
    StoreSecret,
    TruncateLog,
)
from keepfast.replica import Group, ServerCore
from keepfast.storage import Standing, recover
from keepfast.tree import Tree
from keepfast.wire import StorageError, Zxid, format_zxid, make_zxid

if TYPE_CHECKING:
    from keepfast.sim.process import Process


class WatchedLoop(ServerLoop):
    """The loop of a simulated server, which shows the checkers what it does."""

    def __init__(
        self, core: ServerCore, process: Process, statistics: ServerStatistics, retain: int
    ) -> None:
        super().__init__(core, process.store, process, statistics, retain)
        self._process = process
        self._tree: Tree | None = None
        self._role = process.role

    def _tick(self) -> None:
        super()._tick()
        self._process.ticked_us = self._process.world.agenda.now_us

    def end_turn(self) -> None:
        """See ServerLoop; first the onlookers see what this turn has applied."""
        process = self._process
        if process.role != self._role:
            self._role = process.role
            process.world.trace.add(process.who, "is %s", self._role)
        if process.is_serving:
            self._show_tree()
        super().end_turn()

    def note_leader(self) -> bool:
        """Note whether an Apache server leads this one, and return it."""
        process, member = self._process, self.core.member
        under_apache = process.world.checkers.ledger.under_apache
        apache = process.world.options.apache
        follows = member is not None and member.following is not None
        if follows and member is not None and member.state.leader_id == apache:
            under_apache.add(process.server_id)
        else:
            under_apache.discard(process.server_id)
        return process.server_id in under_apache

    def _show_tree(self) -> None:
        process, tree = self._process, self.core.replica.tree
        if tree is self._tree and tree.last_zxid == process.seen:
            return
        self._tree, process.seen = tree, tree.last_zxid
        self.note_leader()
        process.world.trace.add(process.who, "is at %#x", tree.last_zxid)
        process.world.checkers.applied(process.server_id, tree)

    # -- the disk --------------------------------------------------------------------------------

    def log_durable(self, zxid: Zxid, group: Group, fsync_seconds: float) -> None:
        """See ServerLoop."""
        process, member = self._process, self.core.member
        process.world.trace.add(process.who, "has %s durable", format_zxid(zxid))
        process.world.checkers.ledger.shadow_of(process.server_id).durable = zxid
        if member is None or member.leader is not None:
            # Alone or leading, what is durable counts at once.
            process.world.vouched(process, zxid)
        super().log_durable(zxid, group, fsync_seconds)

    def order(self, order: DiskOrder) -> None:
        """See ServerLoop."""
        process = self._process
        process.world.trace.add(process.who, "orders %s", _words(order))
        if isinstance(order, StoreEpochs):
            shadow = process.world.checkers.ledger.shadow_of(process.server_id)
            shadow.agreeing = shadow.head
        super().order(order)

    def carry_out(self, order: DiskOrder) -> Tree | None:
        """See ServerLoop."""
        process = self._process
        process.world.reached(f"disk {type(order).__name__}", process, None)
        checkers, server = process.world.checkers, process.server_id
        shadow = checkers.ledger.shadow_of(server)
        if process.is_over:
            raise StorageError("the process is gone")
        target: Zxid | None = None
        if isinstance(order, TruncateLog):
            target = order.zxid
        elif isinstance(order, InstallTree):
            target = order.tree.last_zxid
        if target is not None:
            # From here on a crash may leave either history: the old one is no longer vouched for.
            shadow.vouched = min(shadow.vouched, target)
        shadow.is_installing = isinstance(order, InstallTree)
        tree = super().carry_out(order)
        shadow.is_installing = False
        if isinstance(order, TruncateLog):
            shadow.cut(order.zxid)
            shadow.durable = order.zxid
        elif isinstance(order, InstallTree):
            checkers.given_tree(server, order.tree.last_zxid, order.lacks)
        elif isinstance(order, StoreEpochs):
            checkers.caught_up(server)
        elif isinstance(order, InitialiseStore):
            checkers.begun(server)
        return tree

    def order_ended(self, order: DiskOrder, result: Tree | StorageError | None) -> None:
        """See ServerLoop."""
        process, member = self._process, self.core.member
        if isinstance(result, StorageError):
            process.world.trace.add(process.who, "cannot: %s", result)
        elif isinstance(order, StoreEpochs):
            leader = None if member is None else member.leader
            if leader is not None and order.current == leader.epoch:
                process.world.vouched(process, make_zxid(order.current, 0))
        super().order_ended(order, result)

    def ask_for_purge(self, retain: int) -> None:
        """Have the disk delete what no kept recovery path needs, at any moment."""
        self.disk.chore(lambda: self.purge_to(retain), lambda _result: None)

    def purge_to(self, retain: int) -> tuple[str, ...]:
        """See ServerLoop."""
        process, member = self._process, self.core.member
        standing = Standing.WHOLE if member is None else member.state.standing
        removed = super().purge_to(retain)
        if removed:
            found = recover(process.host.disk.clone(), process.host.directory)
            process.world.checkers.purged(process.server_id, standing, found)
        return removed


def _words(order: DiskOrder) -> str:
    if isinstance(order, StoreEpochs):
        return f"epochs {order.accepted}, {order.current}"
    if isinstance(order, StoreMembership):
        return "the members"
    if isinstance(order, StoreSecret):
        return "the session secret"
    if isinstance(order, TruncateLog):
        return f"a cut after {order.zxid:#x}"
    if isinstance(order, InstallTree):
        return f"the tree of {order.tree.last_zxid:#x}"
    return "a new history"
