"""The members of an ensemble, and the settings of how they talk to each other.

    server.N = address [ "|" address ]... [ ";" client [ ";" secure-client ] ]
    address  = host ":" quorum-port ":" election-port [ ":" ( "participant" | "observer" ) ]
    client   = [ host ":" ] port
    group.G  = N [ ":" N ]...
    weight.N = whole number, 1 if not given

Groups make a hierarchical quorum: a majority of the weight in a majority of the groups. Names of
hosts are not resolved here: they are looked up at every attempt to connect.
"""

# ruff: noqa: RUF009 - setting() makes a field of a dataclass

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from keepfast.server.config_settings import (
    MAX_INT,
    MAX_LONG,
    MAX_PORT,
    PATH,
    TRUE_FALSE,
    Choice,
    Scope,
    Whole,
    decimal,
    parse_host,
    setting,
)
from keepfast.wire import ServerId

SERVER_PREFIX: Final = "server."
GROUP_PREFIX: Final = "group."
WEIGHT_PREFIX: Final = "weight."
MEMBER_PREFIXES: Final = (SERVER_PREFIX, GROUP_PREFIX, WEIGHT_PREFIX)
MY_ID_KEY: Final = "keepfast.myId"

_ANY: Final = "0.0.0.0"
_PARTS_OF_ADDRESS: Final = (3, 4)
_MOST_PARTS_OF_LINE: Final = 3
_SERVER_FORM: Final = (
    "must be host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort],"
    " several addresses joined by |"
)


class Role(Enum):
    """Whether a member votes."""

    PARTICIPANT = "participant"
    OBSERVER = "observer"


class Address(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


class QuorumAddress(NamedTuple):
    """One address of a member: where a leader takes learners, and where elections are held."""

    host: str
    quorum_port: int
    election_port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.quorum_port}:{self.election_port}"


@dataclass(frozen=True, slots=True)
class Member:
    """One `server.N` line, with the weight and group that other lines give it."""

    id: ServerId
    addresses: tuple[QuorumAddress, ...]
    role: Role = Role.PARTICIPANT
    # Where its clients connect; None: its own file says so.
    client: Address | None = None
    secure_client: Address | None = None
    weight: int = 1
    group: int | None = None

    def __str__(self) -> str:
        """The line as Apache writes it, behind `server.N=`."""
        addresses = "|".join(map(str, sorted(self.addresses)))
        client = "" if self.client is None else f";{self.client}"
        if self.secure_client is not None:
            client = f"{client or ';'};{self.secure_client}"
        return f"{addresses}:{self.role.value}{client}"


@dataclass(frozen=True, slots=True)
class Membership:
    """Who belongs to the ensemble, as of a version (the zxid of the change that made it)."""

    members: tuple[Member, ...] = ()
    version: int = 0

    @property
    def voters(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is Role.PARTICIPANT)

    @property
    def observers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is Role.OBSERVER)

    @property
    def is_hierarchical(self) -> bool:
        return any(member.group is not None for member in self.members)

    def find(self, server_id: int | None) -> Member | None:
        """The member of that id, if there is one."""
        return next((member for member in self.members if member.id == server_id), None)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the lines that say the same: server., group. and weight."""
        groups: dict[int, list[int]] = {}
        for member in self.members:
            yield f"{SERVER_PREFIX}{member.id}", str(member)
            if member.group is not None:
                groups.setdefault(member.group, []).append(member.id)
        for group, ids in sorted(groups.items()):
            yield f"{GROUP_PREFIX}{group}", ":".join(map(str, ids))
        if groups:
            for member in self.voters:
                yield f"{WEIGHT_PREFIX}{member.id}", str(member.weight)

    def text(self) -> str:
        """The content of /zookeeper/config: no line end behind the version."""
        lines = [f"{key}={value}\n" for key, value in self.lines()]
        return "".join(lines) + f"version={self.version:x}"


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """This server's place in the ensemble, elections, and the connections between servers."""

    my_id: int | None = setting(
        MY_ID_KEY,
        decimal(0, MAX_LONG),
        None,
        "this server's id, where the file myid in dataDir does not say it",
        low="0 works, but Apache's manual begins at 1",
        high="above 255: its sessions look like those of the id less 256",
        scope=Scope.OWN,
        default_text="the file myid in dataDir",
    )
    peer_type: Role = setting(
        "peerType",
        Choice({role.value: role for role in Role}),
        Role.PARTICIPANT,
        "whether this server votes. Its server line decides; a difference is a warning",
    )
    dynamic_config_file: str = setting(
        "dynamicConfigFile",
        PATH,
        "",
        "file of the server, group and weight lines, which then stand nowhere else",
    )
    election_alg: int = setting(
        "electionAlg",
        decimal(3, 3),
        3,
        "the election's algorithm; there is only one",
    )
    quorum_listen_on_all_ips: bool = setting(
        "quorumListenOnAllIPs",
        TRUE_FALSE,
        False,
        "both quorum ports listen on every address",
        low="off: the server's own name must resolve to an address of this machine",
        high="on: whoever reaches the machine may talk to them",
    )
    observer_master_port: int = setting(
        "observerMasterPort",
        decimal(-1, MAX_PORT),
        0,
        "port on which a follower serves observers; 0 or less: off",
        low="off: the leader serves all observers",
        high="as for clientPort",
    )
    sync_enabled: bool = setting(
        "syncEnabled",
        TRUE_FALSE,
        True,
        "an observer keeps a log and snapshots",
        low="off: it copies everything again at each start",
        high="on: it writes to its disk as voters do",
        aliases=("observer.syncEnabled",),
    )
    multi_address_enabled: bool = setting(
        "multiAddress.enabled",
        TRUE_FALSE,
        False,
        "server lines may name several addresses; 3.5 and older cannot take part",
        low="off: a line with several is an error",
        high="on: older servers drop the connection",
    )
    reachability_check_enabled: bool = setting(
        "multiAddress.reachabilityCheckEnabled",
        TRUE_FALSE,
        True,
        "of several addresses, one that answers is chosen first",
        low="off: a dead address is tried until it times out",
        high="on: a few packets for each connection",
    )
    reachability_check_timeout_ms: int = setting(
        "multiAddress.reachabilityCheckTimeoutMs",
        decimal(1, MAX_INT, "ms"),
        1000,
        "how long an answer is waited for",
        low="slow addresses count as dead",
        high="connecting takes this long when one is dead",
    )
    cnx_timeout_ms: int = setting(
        "cnxTimeout",
        Whole(1, MAX_INT, "ms"),
        5000,
        "how long connecting for an election may take",
        low="far servers are never reached",
        high="an election waits for dead ones",
    )
    quorum_cnxn_timeout_ms: int = setting(
        "quorumCnxnTimeoutMs",
        Whole(-1, MAX_INT, "ms"),
        -1,
        "how long an election connection may be silent; -1: syncLimit x tickTime while it "
        "introduces itself, then for ever",
        low="connections are made again and again",
        high="a connection that a firewall dropped is used for long",
    )
    election_port_bind_retry: int = setting(
        "electionPortBindRetry",
        Whole(0, MAX_INT, "attempts"),
        3,
        "attempts to listen on the election port; 0: for ever",
        low="a name that resolves late stops the server",
        high="a wrong address goes unnoticed",
    )
    min_notification_interval_ms: int = setting(
        "fastleader.minNotificationInterval",
        Whole(1, MAX_INT, "ms"),
        200,
        "how long a first answer is waited for in an election",
        low="votes are sent more often than needed",
        high="an election takes longer",
    )
    max_notification_interval_ms: int = setting(
        "fastleader.maxNotificationInterval",
        Whole(1, MAX_INT, "ms"),
        60_000,
        "how far that time grows while nobody answers",
        low="votes are sent all the time",
        high="an election begins late after a long outage",
    )
    max_time_to_wait_for_epoch_ms: int = setting(
        "leader.maxTimeToWaitForEpoch",
        Whole(-1, MAX_INT, "ms"),
        -1,
        "how long a new leader waits for a quorum to follow it; -1: initLimit",
        low="a leader gives up before slow servers come",
        high="a leader that nobody follows is given up late",
    )
    observer_reconnect_delay_ms: int = setting(
        "observer.reconnectDelayMs",
        Whole(0, MAX_LONG, "ms"),
        0,
        "how long an observer waits before it connects again; a random part of it",
        low="all observers come back at once",
        high="their clients wait",
    )
    observer_election_delay_ms: int = setting(
        "observer.election.DelayMs",
        Whole(0, MAX_LONG, "ms"),
        200,
        "how long an observer waits before it asks who leads",
        low="voters are asked while they elect",
        high="an observer is back late",
    )
    tcp_keep_alive: bool = setting(
        "tcpKeepAlive",
        TRUE_FALSE,
        False,
        "TCP keep-alive on election connections",
        low="off: a firewall may drop them silently",
        high="on: a little traffic",
    )
    leader_nodelay: bool = setting(
        "leader.nodelay",
        TRUE_FALSE,
        True,
        "a leader's packets are sent at once (TCP_NODELAY)",
        low="off: every write waits for the network's timers",
        high="on: more, smaller packets",
        scope=Scope.PROPERTY,
    )
    follower_nodelay: bool = setting(
        "follower.nodelay",
        TRUE_FALSE,
        True,
        "a learner's packets are sent at once (TCP_NODELAY)",
        low="off: every write waits for the network's timers",
        high="on: more, smaller packets",
        scope=Scope.PROPERTY,
    )
    max_concurrent_snap_syncs: int = setting(
        "leader.maxConcurrentSnapSyncs",
        Whole(1, MAX_INT, "learners"),
        10,
        "learners that may get a snapshot at the same time",
        low="learners wait for each other",
        high="snapshots take the leader's network and disk",
    )
    max_concurrent_diff_syncs: int = setting(
        "leader.maxConcurrentDiffSyncs",
        Whole(1, MAX_INT, "learners"),
        100,
        "learners that may get missed txns at the same time",
        low="learners wait for each other",
        high="memory of the leader",
    )
    ssl_quorum: bool = setting(
        "sslQuorum",
        TRUE_FALSE,
        False,
        "TLS between servers, by ssl.quorum.*",
        low="off: whoever can listen on the network reads all data",
        high="on: servers without it cannot talk to this one, unless portUnification is on",
    )
    port_unification: bool = setting(
        "portUnification",
        TRUE_FALSE,
        False,
        "the quorum ports take TLS and plain connections, for the time of a change to TLS",
        low="off: TLS servers and plain ones cannot form a quorum",
        high="on: plain connections are still accepted",
    )
    ssl_quorum_reload_cert_files: bool = setting(
        "sslQuorumReloadCertFiles",
        TRUE_FALSE,
        False,
        "key and trust store of the quorum ports are read again when their files change",
        low="off: a renewed certificate needs a restart",
        high="on: a half-written file is seen, and is refused with a warning",
    )
    membership: Membership = Membership()
    # What the file `zoo.cfg.dynamic.next` says: a change that was proposed and not yet agreed.
    last_seen: Membership | None = None
    # Whether the file myid is there. If not, the id came from keepfast.myId or ZOO_MY_ID.
    is_my_id_stored: bool = False

    @property
    def me(self) -> Member | None:
        """This server's own line."""
        return self.membership.find(self.my_id)


def parse_member(server_id: int, text: str, *, is_multi_address_enabled: bool = False) -> Member:
    """A member from the text behind `server.N=`; ValueError says what is wrong with it."""
    parts = text.rstrip(";").split(";")
    if len(parts) > _MOST_PARTS_OF_LINE:
        raise ValueError(_SERVER_FORM)
    addresses, roles = [], set()
    for address in parts[0].split("|"):
        fields = _split_address(address)
        if len(fields) not in _PARTS_OF_ADDRESS:
            raise ValueError(_SERVER_FORM)
        quorum_port, election_port = (_port(field, lowest=1) for field in fields[1:3])
        if quorum_port == election_port:
            raise ValueError("quorum port and election port must be different")
        addresses.append(QuorumAddress(_host(fields[0]), quorum_port, election_port))
        if len(fields) == max(_PARTS_OF_ADDRESS):
            roles.add(_role(fields[3]))
    if len(addresses) > 1 and not is_multi_address_enabled:
        raise ValueError("several addresses need multiAddress.enabled=true")
    if len(roles) > 1:
        raise ValueError("all addresses of a server must have the same role")
    client, secure = (_client(part) for part in [*parts[1:], "", ""][:2])
    role = roles.pop() if roles else Role.PARTICIPANT
    return Member(ServerId(server_id), tuple(addresses), role, client, secure)


def parse_group(text: str) -> tuple[int, ...]:
    """The ids behind `group.G=`; ValueError says what is wrong."""
    try:
        return tuple(_whole(part) for part in text.split(":"))
    except ValueError:
        raise ValueError("must be ids of servers joined by :") from None


def parse_weight(text: str) -> int:
    """The number behind `weight.N=`; ValueError says what is wrong."""
    try:
        return _whole(text)
    except ValueError:
        raise ValueError(f"must be a whole number from 0 to {MAX_LONG}") from None


def colliding_addresses(members: Iterable[Member]) -> Iterator[tuple[Member, str]]:
    """Members that listen where an earlier one does, and where that is."""
    seen: Counter[str] = Counter()
    for member in members:
        for host, quorum_port, election_port in member.addresses:
            for port in (quorum_port, election_port):
                place = str(Address(host, port))
                seen[place] += 1
                if seen[place] > 1:
                    yield member, place


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _split_address(text: str) -> list[str]:
    """Host and what follows, by colons; an IPv6 address stands in brackets."""
    text = text.strip()
    if not text.startswith("["):
        return text.split(":")
    host, bracket, rest = text.partition("]")
    if not bracket or (rest and not rest.startswith(":")):
        raise ValueError(_SERVER_FORM)
    return [host + bracket, *rest[1:].split(":")] if rest else [host + bracket]


def _client(text: str) -> Address | None:
    if not text.strip():
        return None
    fields = _split_address(text)
    if len(fields) == 1:
        return Address(_ANY, _port(fields[0], lowest=0))
    if len(fields) == len(Address._fields):
        return Address(_host(fields[0]), _port(fields[1], lowest=0))
    raise ValueError(_SERVER_FORM)


def _host(text: str) -> str:
    try:
        return parse_host(text.strip())
    except ValueError:
        raise ValueError(f'"{text}" must be a host name or an IP address') from None


def _port(text: str, *, lowest: int) -> int:
    try:
        return decimal(lowest, MAX_PORT).parse(text.strip())
    except ValueError:
        raise ValueError(f'"{text}" must be a port from {lowest} to {MAX_PORT}') from None


def _role(text: str) -> Role:
    try:
        return Role(text.strip().lower())
    except ValueError:
        raise ValueError(f'"{text}" must be participant or observer') from None


def _whole(text: str) -> int:
    return decimal(0, MAX_LONG).parse(text.strip())
