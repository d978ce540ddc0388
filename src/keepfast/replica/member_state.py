"""What a member of an ensemble knows about itself and its peers in every role.

Roles come and go (member.py), and what is here outlives them. The parts of a role work on it; they
do not end the role themselves, but report to the member that it ended.
"""

from __future__ import annotations

from collections.abc import Callable

from keepfast.quorum import (
    DiskOrder,
    Effect,
    Election,
    Hangup,
    Link,
    Membership,
    QuorumOptions,
    Quorums,
    RecordStream,
    Standing,
    TreeStream,
    note,
)
from keepfast.replica.members import Members, last_agreed
from keepfast.replica.proposals import Append
from keepfast.replica.replica import Replica
from keepfast.replica.roles import CatchUpReport, Role, StoreFacts
from keepfast.replica.secret_exchange import SecretExchange
from keepfast.tree import Tree
from keepfast.wire import QuorumPacket, ServerId, Zxid, codec_of, epoch_of, format_zxid


class MemberState:
    """What a member knows of itself and its peers in every role.

    `role` is assigned by the member alone.
    """

    def __init__(
        self,
        replica: Replica,
        membership: Membership,
        options: QuorumOptions,
        facts: StoreFacts,
        new_secret: Callable[[], bytes],
    ) -> None:
        self.replica = replica
        self.server_id = ServerId(replica.options.server_id)
        self.options = options
        self.role = Role.SETTLING
        self.leader_id: ServerId | None = None
        self.standing = facts.standing
        self.tree = facts.tree
        # The epochs on disk. Who was alone stored none: what its history says is what it agreed to.
        started = max(epoch_of(facts.head), 0)
        self.accepted_epoch = started if facts.accepted_epoch is None else facts.accepted_epoch
        self.current_epoch = started if facts.current_epoch is None else facts.current_epoch
        self.has_epochs = facts.current_epoch is not None
        self.ensemble, self.ensemble_since = facts.ensemble, facts.ensemble_since
        self.effects: list[Effect] = []
        self.dirty_links: dict[Link, None] = {}
        is_dynamic = options.is_reconfig_enabled
        agreed, stored = last_agreed(membership, facts.membership if is_dynamic else None)
        self.election = Election(self.server_id, agreed, options.election)
        self.members = Members(agreed, stored, self.election, self.effects, is_dynamic=is_dynamic)
        self.members.hold(facts.tree)
        self.history = facts.history
        self.secrets = SecretExchange(
            replica.service, options, facts.secret, new_secret, self.effects, self.order
        )
        # The last record that the disk was given, and the last that it has; its open orders.
        self.appended, self.durable, self.orders = facts.head, facts.head, 0
        self.fenced_epoch = -1  # of the last leader under which this server had to start over
        # How it last caught up with a leader, and why its data is no longer trusted; for reports.
        self.catch_up: CatchUpReport | None = None
        self.fence_reason = ""

    @property
    def now_ms(self) -> int:
        """The time, as all parts know it."""
        return self.replica.service.now_ms

    @property
    def quorums(self) -> Quorums:
        """Who decides, as far as this server knows."""
        return self.members.quorums

    # -- the disk --------------------------------------------------------------------------------

    def append(self, zxid: Zxid, entry: bytes) -> None:
        """Have a record stored."""
        self.appended = zxid
        self.replica.service.appends.append(Append(zxid, entry, None))

    def order(self, order: DiskOrder) -> None:
        """Have the disk carry out an order."""
        self.orders += 1
        self.effects.append(order)

    def hold(self, tree: Tree | None) -> None:
        """The tree was cut back or replaced."""
        self.tree, self.replica.is_agreed_on = tree, False
        if tree is not None:
            self.appended = self.durable = tree.last_zxid
            self.members.hold(tree)
            if self.role is Role.SETTLING:
                self.standing = Standing.WHOLE

    def digests(self) -> tuple[int, int]:
        """Of the tree that is served: what a learner of our kind compares its own with."""
        tree = self.replica.tree
        return tree.digest, tree.shared_digest

    # -- the members -----------------------------------------------------------------------------

    def note_serving(self, tree: Tree, epoch: int) -> None:
        """Clients are let in from here on, to this state."""
        zxid = format_zxid(tree.last_zxid)
        self.effects.append(note("serving", role=self.role.mode, epoch=epoch, zxid=zxid))

    def adopt_members(self, membership: Membership) -> None:
        """A membership is committed."""
        self.members.adopt(membership)
        self.remember_members()

    def remember_members(self) -> None:
        """Store the committed membership, if there is a history that it belongs to."""
        if self.standing is Standing.WHOLE and self.tree is not None:
            order = self.members.take_unstored()
            if order is not None:
                self.order(order)

    # -- links -----------------------------------------------------------------------------------

    def send(self, link: Link, item: bytes | RecordStream | TreeStream) -> None:
        """Have something sent on a link, after all that was sent before; not on a closed one."""
        if link.is_open:
            link.out.append(item)
            self.dirty_links[link] = None

    def send_packet(self, link: Link, packet: QuorumPacket) -> None:
        """Have a packet sent."""
        self.send(link, codec_of(QuorumPacket).encode(packet))

    def hang_up(self, link: Link, reason: str) -> None:
        """Close a link."""
        if link.is_open:
            link.is_open = False
            self.dirty_links.pop(link, None)
            self.effects.append(Hangup(link, reason))
