"""Zab's guarantees: one order, one primary per epoch, nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Shadow, Violation, tree_digest
from keepfast.storage import Recovery, RescueKind, RescuePlan, Severity, Standing
from keepfast.tree import Tree
from keepfast.wire import (
    MultiTxn,
    OpCode,
    ServerId,
    Zxid,
    counter_of,
    decode_entry,
    epoch_of,
    format_zxid,
    has_failed,
)

_SESSION_TXNS: Final = frozenset((OpCode.CREATE_SESSION.value, OpCode.CLOSE_SESSION.value))


class StateChecker(Checker):
    """Prefix consistency: at each zxid every server has the tree that the agreed txns make."""

    name = "state"

    def on_applied(self, server: ServerId, tree: Tree) -> None:
        expected = self.ledger.digest_at(tree.last_zxid)
        shadow = self.ledger.shadow_of(server)
        shadow.misled_at = None
        if tree_digest(tree) == expected:
            # What is wrong later on has another cause than the holes up to here.
            shadow.across = {each for each in shadow.across if each > tree.last_zxid}
            return
        if server in self.ledger.under_apache and (
            self._is_untold(tree.last_zxid)
            or (tree.digest == expected[0] and self._lacks_sessions(shadow, tree))
        ):
            shadow.misled_at = tree.last_zxid
            return
        what = "sessions" if tree.digest == expected[0] else "znodes"
        raise Violation(
            self.name,
            f"s{server} has other {what} at {format_zxid(tree.last_zxid)} than the agreed "
            "txns make",
        )

    def _is_untold(self, zxid: Zxid) -> bool:
        """Whether nothing that a server was sent could have shown that its tree is wrong.

        An Apache leader led it across a hole, and since then every txn was a refusal, which has no
        digest: docs/replacing-apache.md says so. The first digest has to show it.
        """
        ledger = self.ledger
        epoch, order = epoch_of(zxid), reversed(ledger.order)
        behind = [each for each in order if each <= zxid and epoch_of(each) == epoch]
        return bool(behind) and all(ledger.decoded[each].digest is None for each in behind)

    def _lacks_sessions(self, shadow: Shadow, tree: Tree) -> bool:
        """Whether a server's sessions are those of the txns that it has, and some it was not sent.

        An Apache leader led it across a hole, and nothing but sessions is lost in it. Apache's
        digest does not cover them, so that none shows it (docs/replacing-apache.md).
        """
        logged = set(shadow.records)
        had: set[int] = set()
        lacks = False
        for zxid in self.ledger.order:
            if zxid > tree.last_zxid:
                break
            if zxid not in self.ledger.decoded:
                return False  # a backup, which may have any sessions
            header = self.ledger.decoded[zxid].header
            if shadow.base < zxid and zxid not in logged:
                lacks = lacks or header.type in _SESSION_TXNS
            elif header.type == OpCode.CREATE_SESSION:
                had.add(header.session_id)
            elif header.type == OpCode.CLOSE_SESSION:
                had.discard(header.session_id)
        return lacks and had == set(tree.sessions)


def _shows_hole(ledger: Ledger, shadow: Shadow, recovery: Recovery) -> bool:
    """Whether all that a server finds wrong is a hole of an Apache leader, at the first chance.

    The first record with a digest after the hole is in its log, and tells at a start what it told,
    or would have told, when it was applied. The server may have been fenced by it, and not have
    been given a tree yet; or `StateChecker` excused it up to there.
    """
    damage = [each for each in recovery.problems if each.severity is Severity.DAMAGE]
    return bool(damage) and all(
        each.code == "history-broken"
        and each.offset is not None  # a record, not a file
        and each.zxid is not None
        and (_is_excused(shadow, each.zxid) or _is_first_sign(ledger, shadow, each.zxid))
        for each in damage
    )


def _is_excused(shadow: Shadow, zxid: Zxid) -> bool:
    """Whether a record comes after what `StateChecker` excused."""
    return shadow.misled_at is not None and zxid > shadow.misled_at


def _is_first_sign(ledger: Ledger, shadow: Shadow, zxid: Zxid) -> bool:
    """Whether a record is the first after a hole that could tell: those between have no digest."""
    hole = max((each for each in shadow.across if each <= zxid), default=None)
    return hole is not None and all(
        decode_entry(ledger.entries[each]).digest is None
        for each in shadow.records
        if hole <= each < zxid
    )


class PrimaryOrderChecker(Checker):
    """In an epoch one server proposes, in order and without a hole.

    Zab's primary order: no epoch has two primaries, so no proposal of an earlier one comes late.
    """

    name = "primary order"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._primaries: dict[int, ServerId] = {}

    def on_proposed(self, server: ServerId, zxid: Zxid) -> None:
        primary = self._primaries.setdefault(epoch_of(zxid), server)
        if primary != server:
            raise Violation(
                self.name, f"s{server} proposes {format_zxid(zxid)} in the epoch of s{primary}"
            )
        if counter_of(zxid) > 1 and zxid - 1 not in self.ledger.entries:
            raise Violation(self.name, f"s{server} leaves a hole before {format_zxid(zxid)}")


class SizeChecker(Checker):
    """No txn is larger than what its leader may make: others could not read it back (R13)."""

    name = "size"

    def __init__(self, ledger: Ledger, limits: Mapping[ServerId, int]) -> None:
        super().__init__(ledger)
        self._limits = limits

    def on_proposed(self, server: ServerId, zxid: Zxid) -> None:
        size, limit = len(self.ledger.entries[zxid]), self._limits.get(server)
        if limit is not None and size > limit:
            raise Violation(
                self.name,
                f"s{server} makes {format_zxid(zxid)} of {size} bytes, where {limit} is most",
            )


class CommitChecker(Checker):
    """A txn is applied only once a quorum of voters holds it, none of which has lost its history.

    A server that was wiped or damaged counts again when it was given all that a leader has, or has
    followed one that a quorum without it had agreed to (R8). What it said before is worth nothing
    from then on: what was committed beyond the tree must do without it.
    """

    name = "commit quorum"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._vouched: dict[ServerId, int] = {}

    def on_vouched(self, server: ServerId, zxid: Zxid) -> None:
        shadow = self.ledger.shadow_of(server)
        # A standalone server serves what it has read: DurabilityChecker checks that nothing is
        # missing.
        if shadow.is_damaged and not self.ledger.is_alone:
            others = {s for s, known in self._vouched.items() if known >= zxid and s != server}
            if counter_of(zxid) == 0 and self.ledger.is_quorum(others, zxid):
                shadow.is_damaged = False
            return
        known = self._vouched.get(server, -1)
        # Who agrees to an epoch also stands for what it had already, which is not sent again.
        had = zxid if counter_of(zxid) else shadow.agreeing
        self._vouched[server] = max(known, zxid, had)

    def on_healed(self, server: ServerId, zxid: Zxid) -> None:
        self._vouched[server] = zxid
        for later in self.ledger.order_after(zxid):
            if not self.is_held(later):
                raise Violation(
                    self.name,
                    f"{format_zxid(later)} rests on s{server}, which lost it and was given "
                    f"the tree of {format_zxid(zxid)}",
                )

    def is_held(self, zxid: Zxid) -> bool:
        """Whether a quorum could vouch for a txn."""
        holders = {s for s, known in self._vouched.items() if known >= zxid}
        return self.ledger.is_quorum(holders, zxid)

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        # An acknowledgement is for all before it.
        holders = {s for s, known in self._vouched.items() if known >= zxid}
        if not self.ledger.is_quorum(holders, zxid):
            names = ", ".join(f"s{s}" for s in sorted(holders)) or "nobody"
            raise Violation(
                self.name,
                f"s{server} applies {format_zxid(zxid)}, which only {names} could vouch for",
            )


class DurabilityChecker(Checker):
    """Disk before memory and answer: what a server applied or vouched for survives every crash."""

    name = "durability"

    def on_vouched(self, server: ServerId, zxid: Zxid) -> None:
        shadow = self.ledger.shadow_of(server)
        needed = zxid if counter_of(zxid) else shadow.agreeing
        if shadow.durable < needed:
            raise Violation(
                self.name,
                f"s{server} vouches for {format_zxid(needed)}, and only "
                f"{format_zxid(shadow.durable)} is durable",
            )

    def on_applied(self, server: ServerId, tree: Tree) -> None:
        durable = self.ledger.shadow_of(server).durable
        if durable < self.ledger.position(tree.last_zxid):
            raise Violation(
                self.name,
                f"s{server} applies {format_zxid(tree.last_zxid)}, and only "
                f"{format_zxid(durable)} is durable there",
            )

    def on_opened(self, server: ServerId, recovery: Recovery) -> None:
        shadow = self.ledger.shadow_of(server)
        why = "damage went unnoticed" if shadow.is_damaged else "a crash alone did this"
        if recovery.standing is not Standing.WHOLE:
            is_served = recovery.tree is not None and recovery.standing is not Standing.DAMAGED
            if self.ledger.is_alone and is_served and recovery.head < shadow.vouched:
                head = format_zxid(recovery.head)
                self._complain(server, f"it serves what is left, up to {head}", why)
            if shadow.vouched < 0 or shadow.is_damaged or shadow.is_catching_up:
                return
            if _shows_hole(self.ledger, shadow, recovery):
                return
            if shadow.is_installing and recovery.standing is Standing.CATCHING_UP:
                return
            reasons = "; ".join(str(problem) for problem in recovery.problems)
            self._complain(server, f"its data is {recovery.standing.value}: {reasons}", why)
        # What was damaged was not needed, or is proven in another way.
        shadow.is_damaged = False
        if recovery.head < shadow.vouched:
            head = format_zxid(recovery.head)
            self._complain(server, f"only {head} of {format_zxid(shadow.vouched)} is there", why)
        if (recovery.epochs.current or 0) < shadow.vouched_epoch:
            epoch = recovery.epochs.current
            self._complain(server, f"only epoch {epoch} of {shadow.vouched_epoch} is there", why)
        # One with a history that was given up may have it, as long as it does not serve it.
        is_judged = recovery.head in self.ledger.digests and not shadow.is_stale
        if recovery.tree is not None and is_judged:
            StateChecker(self.ledger).on_applied(server, recovery.tree)

    def _complain(self, server: ServerId, what: str, why: str) -> None:
        raise Violation(self.name, f"s{server} lost what it vouched for: {what} ({why})")


class MultiChecker(Checker):
    """All of a multi, or nothing: one that failed changes nothing."""

    name = "multi"

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        ledger = self.ledger
        body = ledger.decoded[zxid].body
        if isinstance(body, MultiTxn) and has_failed(body):
            before = ledger.digests[ledger.position(zxid - 1)]
            if ledger.digests[zxid] != before:
                raise Violation(self.name, f"{format_zxid(zxid)} failed, and did a part of it")


class PurgeChecker(Checker):
    """A purge leaves a proven way to recover; a server that is fenced deletes nothing."""

    name = "purge"

    def on_purged(self, server: ServerId, standing: Standing, recovery: Recovery) -> None:
        if standing is not Standing.WHOLE:
            raise Violation(self.name, f"s{server} purges, and its data is {standing.value} to it")
        # One that was misled has nothing that could be left, and is fenced soon.
        if recovery.standing is not Standing.WHOLE and not _shows_hole(
            self.ledger, self.ledger.shadow_of(server), recovery
        ):
            reasons = "; ".join(str(problem) for problem in recovery.problems)
            raise Violation(
                self.name,
                f"what s{server} has left is {recovery.standing.value}: {reasons}",
            )


class ToolChecker(Checker):
    """No tool restores the vote of a history that is known to be short (R14)."""

    name = "tools"

    def on_repaired(self, server: ServerId, recovery: Recovery) -> None:
        shadow = self.ledger.shadow_of(server)
        if recovery.standing is Standing.WHOLE and recovery.head < shadow.vouched:
            raise Violation(
                self.name,
                f"s{server} vouched for {format_zxid(shadow.vouched)}; repaired, it ends at "
                f"{format_zxid(recovery.head)} and would vote",
            )

    def on_rescued(self, server: ServerId, plan: RescuePlan, recovery: Recovery) -> None:
        head, name = format_zxid(recovery.head), f"a rescue of s{server}"
        if recovery.standing is not Standing.WHOLE or recovery.head != plan.head:
            planned = format_zxid(plan.head)
            raise Violation(
                self.name, f"{name} leaves {recovery.standing.value} data to {head}, not {planned}"
            )
        if recovery.head in self.ledger.digests and recovery.tree is not None:
            StateChecker(self.ledger).on_applied(server, recovery.tree)
        # A server that claims a later epoch than its records wins elections over those that have
        # them.
        claimed = recovery.epochs.current or 0
        if plan.kind is not RescueKind.UNPROVEN and claimed > max(epoch_of(recovery.head), 0):
            raise Violation(self.name, f"{name} ends at {head} and claims epoch {claimed}")
