"""How the servers of an ensemble agree on one secret for session passwords.

A client may reconnect to any server, so a password derived from a secret must not be issued before
every member has that secret: an Apache server, or one that is down now, may be the next one that
the client connects to.

    made     a leader whose members are all there, and all of our kind, makes it and says it to them
    held     each has it on disk and says so. It is not in use
    in use   all members have said so to one leader: it sets the time from which on it counts, which
             is `sync_ms` away, and says it to all. Who does not hear it by then is no longer
             followed by clients, as it has lost its leader

So whoever leads later holds it: a secret that is in use is never lost to an election, and one that
a leader does not hold was never in use. A leader that holds it and does not know that it is in use
learns so from the receipts. A server that joins later receives it before it serves. Ids that were
given out before that time keep their passwords (session_passwords.py).

A server with a secret of its operator's takes no part, and neither does one that is to have
passwords as Apache's: with it, no secret comes into use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from keepfast.quorum import (
    Effect,
    Leader,
    QuorumOptions,
    Receipt,
    SharedSecret,
    StoreSecret,
    decode_offer,
    encode_offer,
    encode_receipt,
    note,
)
from keepfast.replica.service import Service
from keepfast.replica.session_passwords import SessionPasswords
from keepfast.wire import ServerId

_APACHES: Final = SessionPasswords()
# How far the clock of a learner may be ahead of the leader's.
_MAX_SKEW_MS: Final = 24 * 3_600_000


class SecretExchange:
    """The secret that one member holds, whatever its role."""

    def __init__(
        self,
        service: Service,
        options: QuorumOptions,
        held: SharedSecret | None,
        new_secret: Callable[[], bytes],
        effects: list[Effect],
        order: Callable[[StoreSecret], None],
    ) -> None:
        self._service = service
        self._is_on = options.is_secret_shared
        self._margin_ms = options.sync_ms
        self._new_secret = new_secret
        self._effects = effects
        self._order = order
        self._held = self._stored = held
        # What learners have said in this term.
        self._receipts: dict[ServerId, Receipt] = {}
        if held is not None and self._is_on:
            self._use(held)

    @property
    def offer(self) -> bytes | None:
        """What our own learners are sent."""
        return None if self._held is None or not self._is_on else encode_offer(self._held)

    # -- leading ---------------------------------------------------------------------------------

    def begin_term(self, leader: Leader) -> None:
        """This server leads."""
        self._receipts.clear()
        leader.said_to_ours = self.offer

    def lead(self, leader: Leader) -> None:
        """Do what can be done; call it at each tick of a leader."""
        if not self._is_on or not self._service.is_writable:
            return
        held = self._held
        current = [one for link, one in leader.learners.items() if leader.is_current(link)]
        present = {one.server_id for one in current if one.is_keepfast}
        # Whoever was removed from the members, and still follows, serves its clients.
        members = {spec.server_id for spec in leader.quorums.members} - {self._service.server_id}
        members.update(one.server_id for one in current)
        if held is None:
            if members <= present:
                self._hold(SharedSecret(self._new_secret()))
        elif not held.since_ms and self._stored == held and members <= self._having(held, present):
            walls = [self._receipts[server_id].wall_ms for server_id in members]
            since_ms = max([self._service.wall_ms, *walls]) + self._margin_ms
            self._hold(held._replace(since_ms=since_ms))
            self._effects.append(note("session-secret", since=since_ms))
        leader.said_to_ours, held = self.offer, self._held
        if held is not None:
            for learner in leader.learners.values():
                receipt = self._receipts.get(learner.server_id)
                known = None if receipt is None else receipt[:2]
                learner.is_told = known == (held.fingerprint, held.since_ms)

    def _having(self, held: SharedSecret, present: set[ServerId]) -> set[ServerId]:
        return {
            server_id
            for server_id, receipt in self._receipts.items()
            if server_id in present and receipt.fingerprint == held.fingerprint
        }

    def on_receipt(self, server_id: ServerId, receipt: Receipt) -> None:
        """A learner has a secret on disk. What it says counts only of the secret that we hold."""
        held, latest_ms = self._held, self._service.wall_ms + _MAX_SKEW_MS
        if max(receipt.wall_ms, receipt.since_ms) > latest_ms:
            # A secret that counts from some far day on would never be used.
            return
        self._receipts[server_id] = receipt
        if held is None or receipt.fingerprint != held.fingerprint:
            return
        if receipt.since_ms and not held.since_ms:
            # An earlier leader had all receipts, and this server did not hear of it.
            self._hold(held._replace(since_ms=receipt.since_ms))

    # -- learning --------------------------------------------------------------------------------

    def on_said(self, data: bytes | None) -> bytes | None:
        """What the leader said with a packet; returns the answer, once it is on disk."""
        offer = decode_offer(data) if self._is_on else None
        if offer is None:
            return None
        held = self._held
        is_other = held is None or held.secret != offer.secret
        if is_other or (held is not None and offer.since_ms not in (0, held.since_ms)):
            # In use at once, if it is: clients may come with passwords by it.
            self._hold(offer)
        held = self._held
        if held is None or self._stored != held:
            return None
        return encode_receipt(Receipt(held.fingerprint, held.since_ms, self._service.wall_ms))

    # -- both ------------------------------------------------------------------------------------

    def _hold(self, secret: SharedSecret) -> None:
        self._held = secret
        self._use(secret)
        self._order(StoreSecret(secret))

    def _use(self, held: SharedSecret) -> None:
        secret, since_ms = held
        self._service.passwords = SessionPasswords(secret, since_ms) if since_ms else _APACHES

    def stored(self, secret: SharedSecret) -> None:
        """It is on disk."""
        self._stored = secret

    def not_stored(self) -> None:
        """The disk could not store it: this is retried when it is sent again."""
        self._held = self._stored
