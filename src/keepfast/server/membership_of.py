"""The membership of the quorum protocols, from what the configuration says."""

from __future__ import annotations

from keepfast.quorum import Address, MemberRole, Membership, MemberSpec, canonical_host
from keepfast.server import config_ensemble
from keepfast.wire import Zxid


def membership_of(config: config_ensemble.Membership) -> Membership:
    """The same members, groups, weights and version."""
    groups: dict[int, list[config_ensemble.Member]] = {}
    for member in config.members:
        if member.group is not None:
            groups.setdefault(member.group, []).append(member)
    weights = [(member.id, member.weight) for member in config.voters if config.is_hierarchical]
    return Membership(
        tuple(map(_spec, config.members)),
        Zxid(config.version),
        tuple((group, tuple(one.id for one in members)) for group, members in groups.items()),
        tuple(weights),
    )


def _spec(member: config_ensemble.Member) -> MemberSpec:
    return MemberSpec(
        member.id,
        tuple(_address(host, quorum) for host, quorum, _ in member.addresses),
        tuple(_address(host, election) for host, _, election in member.addresses),
        MemberRole(member.role.value),
        None if member.client is None else _address(*member.client),
        None if member.secure_client is None else _address(*member.secure_client),
    )


def _address(host: str, port: int) -> Address:
    return Address(canonical_host(host), port)
