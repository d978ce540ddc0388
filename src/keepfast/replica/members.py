"""Who decides, as one server knows it: the membership that was agreed on, and one that may be.

A change of the membership is a txn. Until a quorum of both memberships has it, it may be taken
back, so a server that has it in its log lets both decide, and tells others of the old one alone.
That a change was agreed on is known when it is committed under an established leader, when such
a leader says so, when an election's notification does, or when a later change follows it.

What is known to be agreed on is stored beside the history: the log cannot tell it, and a server
that took what its log ends with for agreed on would lead others to let too few decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.quorum import (
    Membership,
    Quorums,
    Standing,
    StoreMembership,
    UseMembership,
    parse_membership,
)
from keepfast.tree import CONFIG, Tree
from keepfast.wire import LogEntry, MalformedRecord, OpCode

if TYPE_CHECKING:
    from keepfast.replica.member import Member


def proposed_membership(entry: LogEntry) -> Membership | None:
    """The membership that a txn makes; None if it is another kind of txn."""
    if entry.header.type != OpCode.RECONFIG:
        return None
    return parse_membership(getattr(entry.body, "data", None) or b"")


class Members:
    """See the module."""

    def __init__(self, member: Member, configured: Membership, stored: bytes | None) -> None:
        self._member = member
        self._is_dynamic = member.options.is_reconfig_enabled
        # A file that a change of the membership left behind must not bring the old one back.
        known = _parsed(stored) if self._is_dynamic else None
        self._stored = -1 if known is None else known.version
        if known is not None and known.version > configured.version:
            configured = known
        self.quorums = Quorums(configured)

    def hold(self, tree: Tree | None) -> None:
        """Another tree is the server's: what its log ends with may or may not be agreed on."""
        if not self._is_dynamic or tree is None:
            return
        node = tree.find(CONFIG)
        newest = None if node is None else _parsed(node.data)
        agreed, before = self.quorums.current, _parsed(tree.config_before)
        if newest and before and min(newest.version, before.version) > agreed.version:
            # Nobody proposes a change before the last one is agreed on.
            agreed = before
        self._use(Quorums(agreed, newest))

    def adopt(self, membership: Membership) -> None:
        """It is agreed on."""
        self._use(Quorums(membership))
        self.remember()

    def consider(self, membership: Membership) -> None:
        """It is in our log and may be agreed on: from now on both have to agree."""
        self._use(Quorums(self.quorums.next or self.quorums.current, membership))

    def remember(self) -> None:
        """Have what is agreed on stored, where there is a history that it goes with."""
        member, agreed = self._member, self.quorums.current
        is_news = self._is_dynamic and agreed.version > self._stored
        if is_news and member.standing is Standing.WHOLE and member.tree is not None:
            self._stored = agreed.version
            member.order(StoreMembership(agreed.text()))

    def not_stored(self) -> None:
        """The disk could not: the next `remember` tries again."""
        self._stored = -1

    def show(self) -> None:
        """Have /zookeeper/config say what holds; as in Apache, this is no txn."""
        tree, agreed = self._member.tree, self.quorums.current
        if self._is_dynamic and tree is not None:
            tree.put_config(agreed.text(), agreed.version)

    def _use(self, quorums: Quorums) -> None:
        self.quorums = quorums
        self._member.election.reconfigure(quorums.current, quorums.next)
        self._member.effects.append(UseMembership(quorums))


def _parsed(text: bytes | None) -> Membership | None:
    if not text:
        return None
    try:
        return parse_membership(text)
    except MalformedRecord:
        return None  # what a server of another kind wrote there
