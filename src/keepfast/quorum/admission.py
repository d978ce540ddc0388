"""Who may be a learner: what a leader checks when a server introduces itself.

An invalid hello closes its own link and has no other effect: PeerProtocolError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from keepfast.quorum.hello import LearnerHello
from keepfast.quorum.learner_link import LearnerLink, Step
from keepfast.quorum.plausibility import MAX_STRANGERS, comes_from
from keepfast.quorum.quorum_options import QuorumOptions
from keepfast.quorum.quorums import Quorums
from keepfast.wire import PeerProtocolError, ServerId, Zxid


def check_kinship(hello: LearnerHello, version: Zxid, ensemble: str | None) -> None:
    """Refuse a server that knows a later membership, or whose data belongs to another ensemble."""
    # One of our servers may have logged a change that was never committed; the plan undoes it.
    if hello.config_version > version and hello.ensemble is None:
        raise PeerProtocolError(
            f"its configuration {hello.config_version:#x} is newer than ours, {version:#x}"
        )
    if hello.ensemble and ensemble and hello.ensemble != ensemble:
        raise PeerProtocolError(f"its data belong to ensemble {hello.ensemble}, ours to {ensemble}")


def check_member(
    hello: LearnerHello,
    learner: LearnerLink,
    learners: Collection[LearnerLink],
    quorums: Quorums,
    options: QuorumOptions,
) -> None:
    """Refuse who is not a member, unless members may be added, and who comes from elsewhere."""
    spec = quorums.find(hello.server_id)
    if spec is None:
        strangers = [
            one for one in learners if one.hello is not None and quorums.find(one.server_id) is None
        ]
        if not options.is_reconfig_enabled or len(strangers) >= MAX_STRANGERS:
            raise PeerProtocolError(f"server {hello.server_id} is not a member of this ensemble")
        return
    hosts = (place.host for place in spec.quorum + spec.election)
    address = learner.link.address
    if options.is_address_checked and not comes_from(address, hosts):
        raise PeerProtocolError(
            f"by the membership, server {hello.server_id} does not come from {address}; "
            "keepfast.quorum.checkAddresses=false accepts it"
        )


def doubles_of(
    hello: LearnerHello,
    own_id: ServerId,
    learners: Collection[LearnerLink],
    now_ms: int,
    options: QuorumOptions,
) -> list[LearnerLink]:
    """Older links of the same server, which are obsolete.

    Not those of one that follows and was just heard: the new connection is an impostor's.
    """
    if hello.server_id == own_id:
        raise PeerProtocolError(f"it says it is server {own_id}, as we are")
    found = [one for one in learners if one.hello and one.server_id == hello.server_id]
    for one in found:
        if one.step is Step.CURRENT and now_ms - one.heard_ms <= options.tick_ms:
            raise PeerProtocolError(f"server {hello.server_id} follows already")
    return found


def latest_identity(voters: Iterable[LearnerLink]) -> str | None:
    """Of the identities that these have stored and cannot prove, the one of the latest epoch."""
    stored = [one.hello.unproven for one in voters if one.hello is not None]
    known = [each for each in stored if each is not None]
    return max(known, key=lambda each: each.since).ensemble if known else None
