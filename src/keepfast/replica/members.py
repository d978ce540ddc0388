"""The memberships that one server knows: the committed one, and one that may be.

A membership changehip is a txn. Until a quorum of both memberships has it, it may be undone, so a
server that has it in its log needs quorums of both, and announces only the old one. That a change
was committed is known when it is committed under an established leader, when such a leader says so,
when an election's notification does, or when a later change follows it.

What is known to be committed is stored beside the history: the log does not show it, and a server
that assumed that the end of its log is committed would make others accept too small a quorum.
"""

from __future__ import annotations

from keepfast.quorum import (
    Effect,
    Election,
    Membership,
    Quorums,
    StoreMembership,
    UseMembership,
    parse_membership,
)
from keepfast.tree import CONFIG, Tree
from keepfast.wire import LogEntry, MalformedRecord, OpCode


def proposed_membership(entry: LogEntry) -> Membership | None:
    """The membership that a txn makes; None if it is another kind of txn."""
    if entry.header.type != OpCode.RECONFIG:
        return None
    return parse_membership(getattr(entry.body, "data", None) or b"")


def last_agreed(configured: Membership, stored: bytes | None) -> tuple[Membership, int]:
    """The last membership that is known to be committed, and the version of what is stored.

    A file that a membership change left behind must not bring the old one back.
    """
    known = _parsed(stored)
    if known is None:
        return configured, -1
    return (known if known.version > configured.version else configured), known.version


class Members:
    """The membership that counts now, and the one that a txn under way may bring."""

    def __init__(
        self,
        agreed: Membership,
        stored_version: int,
        election: Election,
        effects: list[Effect],
        *,
        is_dynamic: bool,
    ) -> None:
        """`is_dynamic`: whether the membership may be changed at all."""
        self._is_dynamic = is_dynamic
        self._stored = stored_version
        self._election = election
        self._effects = effects
        self.quorums = Quorums(agreed)

    def hold(self, tree: Tree | None) -> None:
        """The server has another tree: the end of its log may or may not be committed."""
        if not self._is_dynamic or tree is None:
            return
        node = tree.find(CONFIG)
        newest = None if node is None else _parsed(node.data)
        agreed, before = self.quorums.current, _parsed(tree.config_before)
        if newest and before and min(newest.version, before.version) > agreed.version:
            # Nobody proposes a change before the last one is committed.
            agreed = before
        self._use(Quorums(agreed, newest))

    def adopt(self, membership: Membership) -> None:
        """It is committed."""
        self._use(Quorums(membership))

    def consider(self, membership: Membership) -> None:
        """It is in our log and may be committed: from now on both have to agree."""
        self._use(Quorums(self.quorums.next or self.quorums.current, membership))

    def take_unstored(self) -> StoreMembership | None:
        """The order to store what is committed, if that is news; None: it is stored."""
        agreed = self.quorums.current
        if not self._is_dynamic or agreed.version <= self._stored:
            return None
        self._stored = agreed.version
        return StoreMembership(agreed.text())

    def not_stored(self) -> None:
        """The disk could not: the next `take_unstored` gives it again."""
        self._stored = -1

    def show(self, tree: Tree) -> None:
        """Write the membership in force to /zookeeper/config; as in Apache, this is not a txn."""
        agreed = self.quorums.current
        tree.put_config(agreed.text(), agreed.version)

    def _use(self, quorums: Quorums) -> None:
        self.quorums = quorums
        self._election.reconfigure(quorums.current, quorums.next)
        self._effects.append(UseMembership(quorums))


def _parsed(text: bytes | None) -> Membership | None:
    if not text:
        return None
    try:
        return parse_membership(text)
    except MalformedRecord:
        return None  # what a server of another kind wrote there
