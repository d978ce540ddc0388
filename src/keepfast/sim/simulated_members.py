"""Who belongs to a simulated ensemble."""

from __future__ import annotations

from keepfast.quorum import Address, MemberRole, Membership, MemberSpec
from keepfast.sim.options import SimOptions
from keepfast.wire import ServerId


def spec_of(server_id: ServerId, role: MemberRole) -> MemberSpec:
    """A server as a member."""
    host = f"10.0.0.{server_id}"
    client = Address("0.0.0.0", 2181)
    return MemberSpec(server_id, (Address(host, 2888),), (Address(host, 3888),), role, client)


def initial_membership(options: SimOptions) -> Membership:
    """All servers; those after the voters only observe."""
    ids = range(1, options.servers + options.observers + 1)
    return Membership(
        tuple(
            spec_of(
                ServerId(number),
                MemberRole.PARTICIPANT if number <= options.servers else MemberRole.OBSERVER,
            )
            for number in ids
        )
    )
