"""What a member of an ensemble knows about its own data when it starts."""

from __future__ import annotations

from keepfast.replica import StoreFacts
from keepfast.storage import Recovery, Store


def store_facts(store: Store, recovery: Recovery) -> StoreFacts:
    """The facts of a store that was just opened."""
    return StoreFacts(
        recovery.standing,
        recovery.tree,
        recovery.head,
        recovery.epochs.accepted,
        recovery.epochs.current,
        store.manifest.ensemble,
        store.manifest.ensemble_since,
        store.manifest.membership,
        lambda: store.history,
    )
