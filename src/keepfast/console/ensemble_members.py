"""Who belongs to an ensemble, by the text of /zookeeper/config."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.client import ServerAddress

_ANY_HOSTS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0", "*", "")


class ConfiguredMember(NamedTuple):
    """A line of the configuration; without a client address the console cannot find it."""

    server_id: int
    is_observer: bool
    client: ServerAddress | None


def members_in(config: str) -> list[ConfiguredMember]:
    """The members in a configuration's text, by id; what is not a member's line is passed over."""
    found = []
    for line in config.splitlines():
        key, _, value = line.strip().partition("=")
        name, _, number = key.partition(".")
        if name != "server" or not number.isdecimal():
            continue
        peers, _, client = value.partition(";")
        host = _host_of(peers.split("|")[0])
        found.append(ConfiguredMember(int(number), ":observer" in peers, _client(client, host)))
    return sorted(found)


def _host_of(peer: str) -> str:
    """The host in `host:quorum:election[:role]`."""
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    return peer.partition(":")[0]


def _client(text: str, peer_host: str) -> ServerAddress | None:
    """`host:port` or `port`; where clients reach any address, the peers' one is as good."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]").partition("/")[0]
    if not port.isdecimal():
        return None
    return ServerAddress(peer_host if host in _ANY_HOSTS else host, int(port))
