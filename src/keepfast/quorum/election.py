"""Fast leader election, as Apache servers hold it, without I/O.

A server that is looking for a leader votes for itself, and for a better candidate as soon as it
hears of one; it notifies all voters of each change, and again when too little is heard. Better is:
newer epoch, then longer history (zxid), then greater id. Rounds are numbered (`election_epoch`):
votes of different rounds are not counted together, and a server that hears of a later round joins
it. When a quorum votes as we do, we wait a moment for a better vote (not if all voters have spoken)
and have a result. A settled server answers servers that are looking; these join a leader that
claims to lead and that a quorum claims to follow.

    ELIGIBLE  whole: votes and may lead
    EMPTY     has no history: says so by zxid -1, which every server leaves out of its count
    BARRED    damaged, unproven, or not a voter: proposes nobody, only asks who leads

The last two never count votes of servers that look: what they elect might need them. They only
listen to settled servers, and learn as observers do (rule R8).

Fresh ensembles. An empty server cannot distinguish a new ensemble from one whose data it lost; a
majority cannot either. `may_initialise` is true only when every other voter has said, in this
period, that it is looking and has no history. That is safe if what is heard was said after this
server's process began: if some voter kept part of a history that this server acknowledged before it
lost its disk, that voter cannot say so any more. The first notification on a new connection may be
older (servers repeat their last one, however old), so it proves nothing; the second does. The
driver has to report new connections (`peer_linked`).

Prior art: FastLeaderElection of Apache ZooKeeper 3.9; ZOOKEEPER-1732, -1805, -2845.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from keepfast.quorum.membership import Membership, parse_membership
from keepfast.quorum.notes import Note, note
from keepfast.quorum.plausibility import is_plausible_round
from keepfast.quorum.quorums import Quorums
from keepfast.quorum.votes import NO_VOTE, NO_ZXID, Ballot, Vote, is_better, supporters
from keepfast.wire import (
    MAX_EPOCH,
    NOTIFICATION_VERSION,
    MalformedRecord,
    Notification,
    PeerState,
    ServerId,
    Zxid,
    format_zxid,
    invariant,
)


class Candidacy(Enum):
    """What this server's data allows it to do in an election."""

    ELIGIBLE = "eligible"
    EMPTY = "empty"
    BARRED = "barred"


class ElectionOptions(msgspec.Struct, frozen=True):
    """How patient an election is; all in ms."""

    # The first wait before votes are sent again. Low: needless packets; high: lost ones cost time.
    min_interval_ms: int = 200
    # How far that wait doubles. Low: packets all the time; high: late after a long outage.
    max_interval_ms: int = 60_000
    # The same for a server that only asks: nobody notifies it when there is a leader.
    max_asking_interval_ms: int = 2_000
    # How long to wait for a better vote. Low: a server with a shorter history may be elected, and
    # steps down; high: every election that lacks a voter takes that much longer.
    finalize_wait_ms: int = 200
    # Whether a newer membership that a peer sends is believed. Only where it may change at all.
    learns_members: bool = True


class Elected(msgspec.Struct, frozen=True):
    """The result: whom to follow and as what, and the vote that won."""

    leader: ServerId
    state: PeerState
    zxid: Zxid
    peer_epoch: int
    election_epoch: int


# Every note of this machine; long simulations must reach them all.
ELECTION_NOTES: Final = (
    "vote-of-unknown-state",
    "vote-of-my-own-id",
    "vote-before-first-look",
    "vote-with-malformed-config",
    "vote-for-no-voter",
    "vote-of-implausible-round",
    "vote-of-implausible-epoch",
    "vote-without-history",
    "vote-of-old-round",
    "round-joined",
    "config-learned",
    "finalizing-interrupted",
    "told-to-lead-while-barred",
)


class Election:
    """One server's part in elections, as described above.

    The caller takes what is to be sent from `outbox` and clears it, and reads `result`, which is
    None until this period's election is decided. Times are of one clock that never goes back.
    """

    def __init__(
        self, my_id: ServerId, membership: Membership, options: ElectionOptions | None = None
    ) -> None:
        self.my_id = my_id
        self.options = options or ElectionOptions()
        self.outbox: list[tuple[ServerId, Notification]] = []
        self.notes: list[Note] = []
        self.result: Elected | None = None
        # A newer membership that a peer sent; for the caller to adopt by `reconfigure`. Each
        # version is reported once.
        self.learned_config: Membership | None = None
        self.state = PeerState.LOOKING
        # The round; 0 before the first look.
        self.election_epoch = 0
        self.candidacy = Candidacy.BARRED
        self._quorums = Quorums(membership)
        self._config_text = membership.text()
        self._newest_config = membership.version
        # What the last `look` was called with, whatever the membership says.
        self._wish = (Candidacy.BARRED, NO_VOTE)
        # The vote that we send; initially our own, later the best heard or the settled one.
        self._vote = NO_VOTE
        self._round: dict[ServerId, Ballot] = {}
        self._settled: dict[ServerId, Ballot] = {}
        # What each voter said last while this server looks; for reports.
        self.told: dict[ServerId, Ballot] = {}
        # Who was heard since its connection was made; and which of these certainly have no history.
        self._heard: set[ServerId] = set()
        self._fresh: set[ServerId] = set()
        # See `leave`; and servers that began to look before this one did: what they said, and when.
        self._has_left = False
        self._early: dict[ServerId, tuple[int, Notification]] = {}
        self._now_ms = 0
        self._interval_ms = self.options.min_interval_ms
        self._resend_at_ms = 0
        self._finalize_at_ms: int | None = None

    @property
    def vote(self) -> Vote:
        """What this server says now: its proposal while it looks, the settled vote later."""
        return self._vote

    @property
    def deadline_ms(self) -> int | None:
        """The latest time for the next `tick`; None: not before something else happens."""
        if self.state is not PeerState.LOOKING or self.election_epoch == 0:
            return None
        if self._finalize_at_ms is None:
            return self._resend_at_ms
        return min(self._resend_at_ms, self._finalize_at_ms)

    @property
    def waiting_for(self) -> frozenset[ServerId]:
        """The voters that an empty server has to hear before it may take the ensemble for new."""
        if self.candidacy is not Candidacy.EMPTY or self.state is not PeerState.LOOKING:
            return frozenset()
        return self._quorums.voters - self._fresh - {self.my_id}

    @property
    def may_initialise(self) -> bool:
        """Whether this ensemble is new: every voter looks and none has a history."""
        return (
            self.candidacy is Candidacy.EMPTY
            and self.state is PeerState.LOOKING
            and self._wish[1].peer_epoch <= 0
            and not self.waiting_for
        )

    def look(
        self,
        candidacy: Candidacy,
        zxid: Zxid,
        current_epoch: int,
        now_ms: int,
        successor: ServerId | None = None,
    ) -> None:
        """Start looking for a leader. `zxid` is the last that is durable here, -1 if EMPTY.

        With `successor`, vote for that server, which has everything that this one has.
        """
        invariant(
            candidacy is not Candidacy.ELIGIBLE or zxid >= 0, "an eligible server has a history"
        )
        if candidacy is Candidacy.EMPTY:
            zxid = NO_ZXID
        self._now_ms = now_ms
        self.state = PeerState.LOOKING
        self.learned_config = None
        self._fresh.clear()
        self._settled.clear()
        self.told.clear()
        proposed = self.my_id if successor is None else successor
        self._wish = (candidacy, Vote(proposed, zxid, current_epoch))
        self._has_left = False
        self._begin_round()
        early, self._early = self._early, {}
        for sender, (since_ms, notification) in early.items():
            # Nobody repeats a vote soon, and without it a decision would wait. An old one is
            # worthless.
            if now_ms - since_ms < self.options.finalize_wait_ms:
                self.receive(sender, notification, now_ms)

    def leave(self) -> None:
        """The role has ended, and `look` follows later: the old role is no longer announced.

        A leader that still claimed to lead while its disk finishes would be followed again.
        """
        self._has_left = True

    def settle(self, state: PeerState, leader: ServerId, peer_epoch: int) -> None:
        """The role is established, or its epoch has changed: announce this from now on."""
        invariant(state is not PeerState.LOOKING, "a server that looks has not settled")
        self.state = state
        self._vote = Vote(leader, self._vote.zxid, peer_epoch)
        self._finalize_at_ms = None

    def reconfigure(self, membership: Membership, pending: Membership | None = None) -> None:
        """Use another membership; `pending` is one that is proposed and not decided.

        While this server looks, a change of the voters begins a new round.
        """
        before = self._quorums
        self._quorums = Quorums(membership, pending)
        self._config_text = membership.text()
        self._newest_config = max(self._newest_config, membership.version)
        if self.learned_config is not None and self.learned_config.version <= membership.version:
            self.learned_config = None
        if self.state is not PeerState.LOOKING or self.election_epoch == 0:
            return
        if not _same_electorate(before, self._quorums):
            self._begin_round()

    def peer_linked(self, peer: ServerId) -> None:
        """There is a new connection to that server: send it our current vote."""
        self._heard.discard(peer)
        self._fresh.discard(peer)
        if self.election_epoch and not self._has_left:
            self._tell(peer)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._now_ms = now_ms
        deadline = self.deadline_ms
        if deadline is None or now_ms < deadline:
            return
        if self._finalize_at_ms is not None and now_ms >= self._finalize_at_ms:
            self._finalize_at_ms = None
            if self._has_quorum():
                self._finish(self._vote, self.election_epoch)
                return
        if now_ms >= self._resend_at_ms:
            is_voting = self.candidacy is Candidacy.ELIGIBLE
            longest = self.options.max_interval_ms
            if not is_voting:
                longest = min(longest, self.options.max_asking_interval_ms)
            self._interval_ms = min(2 * self._interval_ms, longest)
            self._resend_at_ms = now_ms + self._interval_ms
            self._tell_all()

    def receive(self, sender: ServerId, notification: Notification, now_ms: int) -> None:
        """Handle a notification from another server; never raises."""
        self._now_ms = now_ms
        if notification.state not in PeerState.__members__.values():
            self._note("vote-of-unknown-state", sender, notification)
            return
        if sender == self.my_id:
            self._note("vote-of-my-own-id", sender, notification)
            return
        if self.election_epoch == 0:
            self._note("vote-before-first-look", sender, notification)
            return
        if not is_plausible_round(notification.election_epoch, self.election_epoch):
            self._note("vote-of-implausible-round", sender, notification)
            return
        if notification.leader_epoch > MAX_EPOCH:
            self._note("vote-of-implausible-epoch", sender, notification)
            return
        is_first = sender not in self._heard
        self._heard.add(sender)
        if self._learns_members(sender, notification):
            # Not counted: by the newer membership it may be worth something else. The sender is
            # heard again in the round that the caller's `reconfigure` begins.
            return
        ballot = Ballot.of(notification)
        is_voter = sender in self._quorums.voters
        if self._is_helped(ballot, is_voter=is_voter, is_first=is_first):
            self._tell(sender)
        if not is_voter:
            return
        if self.state is not PeerState.LOOKING:
            if ballot.state is PeerState.LOOKING:
                self._early[sender] = (now_ms, notification)
            return
        self.told[sender] = ballot
        self._weigh_freshness(sender, ballot, is_first)
        if ballot.vote.leader not in self._quorums.voters:
            self._note("vote-for-no-voter", sender, notification)
        elif ballot.state is PeerState.LOOKING:
            self._count_looking(sender, ballot)
        elif ballot.state is not PeerState.OBSERVING:
            self._count_settled(sender, ballot)

    def _is_helped(self, ballot: Ballot, *, is_voter: bool, is_first: bool) -> bool:
        """Whether to send our vote to the sender immediately.

        Answers are not answered forever: a settled server is sent nothing, and of two that are
        looking only the one in the lower round is (or, of the same round, one that only asks by one
        that votes). Beside that, the first word of a connection is answered where one of the two is
        empty: the second word shows whether the ensemble is new.
        """
        if ballot.state is not PeerState.LOOKING or self._has_left:
            return False
        if self.state is not PeerState.LOOKING:
            return True
        if self.candidacy is Candidacy.BARRED:
            return False
        is_empty = self.candidacy is Candidacy.EMPTY or ballot.vote.zxid == NO_ZXID
        if is_voter and is_first and is_empty:
            return True
        is_asking = not is_voter and ballot.vote == NO_VOTE
        return ballot.election_epoch < self.election_epoch + is_asking

    def _begin_round(self) -> None:
        candidacy, vote = self._wish
        if self.my_id not in self._quorums.current.voters:
            candidacy = Candidacy.BARRED
        self.candidacy = candidacy
        self.result = None
        self.election_epoch += 1
        self._round.clear()
        self._finalize_at_ms = None
        self._interval_ms = self.options.min_interval_ms
        self._resend_at_ms = self._now_ms + self._interval_ms
        self._propose(NO_VOTE if candidacy is Candidacy.BARRED else vote)
        self._decide()

    def _propose(self, vote: Vote) -> None:
        """Vote for this from now on, and notify all voters."""
        self._vote = vote
        if self._finalize_at_ms is not None:
            self.notes.append(note("finalizing-interrupted", leader=vote.leader))
            self._finalize_at_ms = None
        if self.candidacy is Candidacy.ELIGIBLE:
            self._round[self.my_id] = self._my_ballot()
        self._tell_all()

    def _count_looking(self, sender: ServerId, ballot: Ballot) -> None:
        if ballot.vote.zxid == NO_ZXID:
            self.notes.append(note("vote-without-history", sender=sender))
            return
        if self.candidacy is not Candidacy.ELIGIBLE:
            return
        if ballot.election_epoch < self.election_epoch:
            self.notes.append(
                note("vote-of-old-round", sender=sender, election_epoch=ballot.election_epoch)
            )
            return
        if ballot.election_epoch > self.election_epoch:
            self.notes.append(note("round-joined", election_epoch=ballot.election_epoch))
            self.election_epoch = ballot.election_epoch
            self._round.clear()
            mine = self._wish[1]
            self._propose(ballot.vote if is_better(ballot.vote, mine, self._quorums) else mine)
        elif is_better(ballot.vote, self._vote, self._quorums):
            self._propose(ballot.vote)
        self._round[sender] = ballot
        self._decide()

    def _decide(self) -> None:
        """Decide if every voter agrees; wait for the others if a quorum does."""
        if not self._has_quorum():
            return
        if self._quorums.voters <= set(supporters(self._round, self._my_ballot())):
            # Nobody is left who could cast a better vote.
            self._finish(self._vote, self.election_epoch)
        elif self._finalize_at_ms is None:
            self._finalize_at_ms = self._now_ms + self.options.finalize_wait_ms

    def _count_settled(self, sender: ServerId, ballot: Ballot) -> None:
        leader = ballot.vote.leader
        if self.candidacy is not Candidacy.ELIGIBLE and leader == self.my_id:
            self.notes.append(note("told-to-lead-while-barred", sender=sender))
            return
        if self.candidacy is Candidacy.ELIGIBLE and ballot.election_epoch == self.election_epoch:
            # Of one round: here our own vote counts too.
            self._round[sender] = ballot
            if self._is_led(self._round, ballot):
                self._finish(ballot.vote, ballot.election_epoch)
                return
        self._settled[sender] = ballot
        if self._is_led(self._settled, ballot):
            self.election_epoch = ballot.election_epoch
            self._finish(ballot.vote, ballot.election_epoch)

    def _is_led(self, ballots: Mapping[ServerId, Ballot], wanted: Ballot) -> bool:
        """Whether a quorum follows this leader, and the leader itself claims to lead."""
        if not self._quorums.may_follow(supporters(ballots, wanted)):
            return False
        leader = wanted.vote.leader
        if leader == self.my_id:
            return wanted.election_epoch == self.election_epoch
        word = ballots.get(leader)
        return word is not None and word.state is PeerState.LEADING

    def _has_quorum(self) -> bool:
        # By the membership that is committed. Who only votes by a change that is not may not even
        # know of it; the leader needs them as well, and they come to it as what they were.
        return self.candidacy is Candidacy.ELIGIBLE and self._quorums.current.is_quorum(
            supporters(self._round, self._my_ballot())
        )

    def _my_ballot(self) -> Ballot:
        return Ballot(self._vote, self.election_epoch, PeerState.LOOKING, NOTIFICATION_VERSION)

    def _finish(self, vote: Vote, election_epoch: int) -> None:
        if self.candidacy is not Candidacy.ELIGIBLE:
            self.state = PeerState.OBSERVING
        elif vote.leader == self.my_id:
            self.state = PeerState.LEADING
        else:
            self.state = PeerState.FOLLOWING
        self._vote = vote
        self._finalize_at_ms = None
        self.result = Elected(vote.leader, self.state, vote.zxid, vote.peer_epoch, election_epoch)

    def _weigh_freshness(self, sender: ServerId, ballot: Ballot, is_first: bool) -> None:
        """Remember whether the sender is looking and has no history, as described above.

        A vote of a server that looks is at least as good as that server itself: a vote for one
        without history comes from one without history.
        """
        zxid, epoch = ballot.vote.zxid, ballot.vote.peer_epoch
        is_fresh = (
            ballot.state is PeerState.LOOKING
            and ballot.vote.leader in self._quorums.voters
            and zxid in (NO_ZXID, 0)
            and epoch in (-1, 0)
        )
        if not is_fresh:
            self._fresh.discard(sender)
        elif not is_first:
            self._fresh.add(sender)

    def _learns_members(self, sender: ServerId, notification: Notification) -> bool:
        """Note a newer membership; whether it has other members than ours, told the first time."""
        text = notification.config
        if not text or text == self._config_text or self.state is not PeerState.LOOKING:
            return False
        if not self.options.learns_members:
            return False
        try:
            config = parse_membership(text)
        except MalformedRecord as error:
            self.notes.append(note("vote-with-malformed-config", sender=sender, reason=error))
            return False
        if config.version <= self._newest_config:
            return False
        self._newest_config = config.version
        self.learned_config = config
        version = format_zxid(config.version)
        self.notes.append(note("config-learned", sender=sender, version=version))
        return not config.has_same_members(self._quorums.current)

    def _tell_all(self) -> None:
        for peer in sorted(self._quorums.voters - {self.my_id}):
            self._tell(peer)

    def _tell(self, peer: ServerId) -> None:
        vote = self._vote
        notification = Notification(
            self.state,
            vote.leader,
            vote.zxid,
            self.election_epoch,
            vote.peer_epoch,
            NOTIFICATION_VERSION,
            self._config_text,
        )
        self.outbox.append((peer, notification))

    def _note(self, name: str, sender: ServerId, notification: Notification) -> None:
        fields = {"state": notification.state, "leader": notification.leader}
        self.notes.append(note(name, sender=sender, **fields))


def _same_electorate(before: Quorums, after: Quorums) -> bool:
    """Whether the same servers vote with the same weight; addresses and versions do not matter."""
    pairs = [(before.current, after.current), (before.next, after.next)]
    return all(
        (old is None) == (new is None)
        and (
            old is None
            or new is None
            or (old.voters, old.groups, old.weights) == (new.voters, new.groups, new.weights)
        )
        for old, new in pairs
    )
