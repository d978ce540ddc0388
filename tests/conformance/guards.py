"""The same protection between servers, for Apache's configuration and for us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from keepfast.apache.config_security import QuorumAuthConfig, TlsConfig
from keepfast.server.election_links import LinkSecurity
from keepfast.server.logs import EventLog
from keepfast.server.peer_sasl import load_peer_sasl
from keepfast.server.peer_tls import PeerTls
from tests.server.authority import Authority

LOG = EventLog(dict, "keepfast.server")
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class Guard(NamedTuple):
    """Properties and lines of zoo.cfg, and what our parts take."""

    properties: Mapping[str, str]
    configuration: Mapping[str, str]
    security: LinkSecurity


def by_sasl(folder: Path) -> Guard:
    jaas = folder / "jaas.conf"
    jaas.write_text(
        f'QuorumServer {{ {MODULE} required user_zk="päss \\"word"; }};\n'
        f'QuorumLearner {{ {MODULE} required username="zk" password="päss \\"word"; }};\n'
    )
    on = QuorumAuthConfig(
        enable_sasl=True, learner_require_sasl=True, server_require_sasl=True, fips_mode=False
    )
    return Guard(
        {"java.security.auth.login.config": str(jaas), "zookeeper.fips-mode": "false"},
        {
            "quorum.auth.enableSasl": "true",
            "quorum.auth.learnerRequireSasl": "true",
            "quorum.auth.serverRequireSasl": "true",
        },
        LinkSecurity(sasl=load_peer_sasl(on, str(jaas), LOG)),
    )


def by_tls(folder: Path, *, is_unified: bool = False, is_dialling: bool = True) -> Guard:
    authority = Authority(folder / "authority")
    keys, trust = authority.pkcs8_pem(), authority.pem
    config = TlsConfig(
        key_store_location=str(keys),
        trust_store_location=str(trust),
        client_hostname_verification=True,
        allow_reverse_dns_lookup=True,
    )
    return Guard(
        {},
        {
            "sslQuorum": "true",
            "portUnification": str(is_unified).lower(),
            "ssl.quorum.keyStore.location": str(keys),
            "ssl.quorum.trustStore.location": str(trust),
        },
        LinkSecurity(PeerTls(config, LOG, is_dialling=is_dialling, takes_plain=is_unified)),
    )


def by_both(folder: Path) -> Guard:
    sasl, tls = by_sasl(folder), by_tls(folder)
    return Guard(
        sasl.properties,
        {**sasl.configuration, **tls.configuration},
        LinkSecurity(tls.security.tls, sasl.security.sasl),
    )


def by_tls_while_we_change_over(folder: Path) -> Guard:
    """They speak TLS; we still dial in the clear, and both take either."""
    return by_tls(folder, is_unified=True, is_dialling=False)


GUARDS: list[Callable[[Path], Guard]] = [by_sasl, by_tls, by_both, by_tls_while_we_change_over]
