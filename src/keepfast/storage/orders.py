"""Carries out what a member of an ensemble asks of its disk."""

from __future__ import annotations

from keepfast.quorum import (
    DiskOrder,
    InitialiseStore,
    InstallTree,
    StoreEpochs,
    StoreMembership,
    TruncateLog,
)
from keepfast.storage.epochs import Epochs
from keepfast.storage.store import Store
from keepfast.tree import Tree
from keepfast.wire import BrokenHistory, invariant


def carry_out(store: Store, order: DiskOrder) -> Tree | None:
    """Carry it out durably; returns the new tree if the order replaced it.

    Raises BrokenHistory or DiskFull with nothing changed; DiskFailed is final.
    """
    if isinstance(order, StoreEpochs):
        store.set_epochs(Epochs(order.accepted, order.current), order.ensemble)
        return None
    if isinstance(order, StoreMembership):
        store.set_membership(order.text)
        return None
    if isinstance(order, TruncateLog):
        recovery = store.truncate(order.zxid)
        if recovery.tree is None or not recovery.may_vote:
            raise BrokenHistory(f"what is left of the history is {recovery.standing.value}")
        return recovery.tree
    if isinstance(order, InstallTree):
        tree: Tree = order.tree
        store.install_snapshot(
            tree, is_exact=order.is_exact, promised=order.promised, lacks=order.lacks
        )
        return tree
    invariant(isinstance(order, InitialiseStore), f"an unknown order: {order}")
    return store.initialise()
