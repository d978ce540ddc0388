"""The members of an ensemble, and the settings of how they talk to each other.

    server.N = as `quorum.parse_member` reads it
    group.G  = N [ ":" N ]...
    weight.N = whole number, 1 if not given

Groups make a hierarchical quorum: a majority of the weight in a majority of the groups.
"""

# ruff: noqa: RUF009 - setting() makes a field of a dataclass

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from keepfast.apache.config_settings import (
    MAX_INT,
    MAX_LONG,
    PATH,
    TRUE_FALSE,
    OneOf,
    Scope,
    Whole,
    decimal,
    parse_host,
    setting,
)
from keepfast.quorum import Address, MemberRole, Membership, MemberSpec, parse_member
from keepfast.wire import ServerId

SERVER_PREFIX: Final = "server."
GROUP_PREFIX: Final = "group."
WEIGHT_PREFIX: Final = "weight."
MEMBER_PREFIXES: Final = (SERVER_PREFIX, GROUP_PREFIX, WEIGHT_PREFIX)
MY_ID_KEY: Final = "keepfast.myId"


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """This server's place in the ensemble, elections, and the connections between servers."""

    my_id: int | None = setting(MY_ID_KEY, decimal(0, MAX_LONG), None, scope=Scope.OWN)
    peer_type: MemberRole = setting(
        "peerType", OneOf({role.value: role for role in MemberRole}), MemberRole.PARTICIPANT
    )
    dynamic_config_file: str = setting("dynamicConfigFile", PATH, "")
    quorum_listen_on_all_ips: bool = setting("quorumListenOnAllIPs", TRUE_FALSE, False)
    multi_address_enabled: bool = setting("multiAddress.enabled", TRUE_FALSE, False)
    cnx_timeout_ms: int = setting("cnxTimeout", Whole(1, MAX_INT, "ms"), 5000)
    quorum_cnxn_timeout_ms: int = setting("quorumCnxnTimeoutMs", Whole(-1, MAX_INT, "ms"), -1)
    election_port_bind_retry: int = setting(
        "electionPortBindRetry", Whole(0, MAX_INT, "attempts"), 3
    )
    max_unsent_bytes: int = setting(
        "keepfast.quorum.maxUnsentBytes", Whole(1 << 20, MAX_LONG, "bytes"), 1 << 30
    )
    check_addresses: bool = setting("keepfast.quorum.checkAddresses", TRUE_FALSE, True)
    min_notification_interval_ms: int = setting(
        "fastleader.minNotificationInterval", Whole(1, MAX_INT, "ms"), 200
    )
    max_notification_interval_ms: int = setting(
        "fastleader.maxNotificationInterval", Whole(1, MAX_INT, "ms"), 60_000
    )
    quorum_tcp_keep_alive: bool = setting("tcpKeepAlive", TRUE_FALSE, False)
    max_concurrent_snap_syncs: int = setting(
        "leader.maxConcurrentSnapSyncs", Whole(1, MAX_INT, "learners"), 10
    )
    max_concurrent_diff_syncs: int = setting(
        "leader.maxConcurrentDiffSyncs", Whole(1, MAX_INT, "learners"), 100
    )
    ssl_quorum: bool = setting("sslQuorum", TRUE_FALSE, False)
    quorum_port_unification: bool = setting("portUnification", TRUE_FALSE, False)
    ssl_quorum_reload_cert_files: bool = setting("sslQuorumReloadCertFiles", TRUE_FALSE, False)
    membership: Membership = Membership(())
    # Whether the file myid is there. If not, the id came from keepfast.myId or ZOO_MY_ID.
    is_my_id_stored: bool = False

    @property
    def me(self) -> MemberSpec | None:
        """This server's own line."""
        return None if self.my_id is None else self.membership.find(ServerId(self.my_id))


def parse_member_line(
    server_id: int, text: str, *, is_multi_address_enabled: bool = False
) -> MemberSpec:
    """A member from the text after `server.N=`; ValueError says what is wrong with it.

    Stricter than with what peers say: a line of this server's own file has to work.
    """
    member = parse_member(ServerId(server_id), text)
    if len(member.quorum) > 1 and not is_multi_address_enabled:
        raise ValueError("several addresses need multiAddress.enabled=true")
    for address in (*member.quorum, member.client, member.secure_client):
        if address is not None:
            _check_host(address.host)
    return member


def parse_group(text: str) -> tuple[int, ...]:
    """The ids after `group.G=`; ValueError says what is wrong."""
    try:
        return tuple(_whole(part) for part in text.split(":"))
    except ValueError:
        raise ValueError("must be ids of servers joined by :") from None


def parse_weight(text: str) -> int:
    """The number after `weight.N=`; ValueError says what is wrong."""
    try:
        return _whole(text)
    except ValueError:
        raise ValueError(f"must be a whole number from 0 to {MAX_LONG}") from None


def colliding_addresses(members: Iterable[MemberSpec]) -> Iterator[tuple[MemberSpec, str]]:
    """Members that listen where an earlier one does, and where that is."""
    seen: set[Address] = set()
    for member in members:
        for address in (*member.quorum, *member.election):
            if address in seen:
                yield member, str(address)
            seen.add(address)


def _check_host(text: str) -> None:
    try:
        parse_host(text)
    except ValueError:
        raise ValueError(f'"{text}" must be a host name or an IP address') from None


def _whole(text: str) -> int:
    return decimal(0, MAX_LONG).parse(text.strip())
