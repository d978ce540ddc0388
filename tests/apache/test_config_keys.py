"""Every key that Apache ZooKeeper's configuration knows: taken, passed over, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.apache import config_keys as keys
from keepfast.apache.config import ConfigError, ServerConfig, load_config
from keepfast.apache.config_prose import (
    MISNAMED,
    UNSUPPORTED,
    VALUES_WITHOUT_MEANING,
    WITHOUT_MEANING,
)
from keepfast.apache.config_security import ClientAuth, StoreType
from keepfast.apache.config_server import group_settings
from keepfast.apache.config_settings import HostName, Number, OneOf, Period, Switch, Whole, Words
from keepfast.quorum import Address, MemberRole

SASL = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
PROMETHEUS = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
STORES = {"ssl.keyStore.location": "k.pem", "ssl.trustStore.location": "t.pem"}
QUORUM_STORES = {key.replace("ssl.", "ssl.quorum."): value for key, value in STORES.items()}

# Key, value, further keys that it needs, the field, its value. In the order of Apache's manual.
FILE_KEYS: list[tuple[str, str, Mapping[str, str], str, Any]] = [
    ("dataLogDir", "/var/log/zk", {}, "data.data_log_dir", "/var/log/zk"),
    ("clientPort", "2182", {}, "client_address", Address("0.0.0.0", 2182)),
    ("clientPortAddress", "::1", {"clientPort": "1"}, "client_address", Address("::1", 1)),
    ("secureClientPort", "2281", STORES, "secure_client_address", Address("0.0.0.0", 2281)),
    ("secureClientPort", "2281", STORES, "auth.schemes", {"ip", "digest", "x509"}),
    (
        *("secureClientPortAddress", "zk1", {"secureClientPort": "0", **STORES}),
        *("secure_client_address", Address("zk1", 0)),
    ),
    ("clientPortListenBacklog", "100", {}, "client.backlog", 100),
    ("tickTime", "500", {}, "timing.min_session_timeout_ms", 1000),
    ("tickTime", "500", {}, "timing.max_session_timeout_ms", 10_000),
    ("minSessionTimeout", "1", {}, "timing.min_session_timeout_ms", 1),
    ("maxSessionTimeout", "100000", {}, "timing.max_session_timeout_ms", 100_000),
    ("maxClientCnxns", "0", {}, "limits.max_client_cnxns", 0),
    ("initLimit", "5", {}, "timing.init_limit_ms", 15_000),
    ("syncLimit", "2", {}, "timing.sync_limit_ms", 6000),
    ("peerType", "Observer", {}, "ensemble.peer_type", MemberRole.OBSERVER),
    ("quorumListenOnAllIPs", "True", {}, "ensemble.quorum_listen_on_all_ips", True),
    ("standaloneEnabled", "false", {}, "features.standalone_enabled", False),
    ("reconfigEnabled", "true", {}, "features.reconfig_enabled", True),
    ("localSessionsEnabled", "true", {}, "sessions.local_sessions_enabled", True),
    (
        *("localSessionsUpgradingEnabled", "true", {}),
        *("sessions.local_sessions_upgrading_enabled", True),
    ),
    ("autopurge.snapRetainCount", "10", {}, "data.autopurge_snap_retain_count", 10),
    ("autopurge.purgeInterval", "24", {}, "data.autopurge_purge_interval_ms", 86_400_000),
    ("autopurge.purgeInterval", "30m", {}, "data.autopurge_purge_interval_ms", 1_800_000),
    ("sslQuorum", "true", QUORUM_STORES, "ensemble.ssl_quorum", True),
    ("portUnification", "true", QUORUM_STORES, "ensemble.quorum_port_unification", True),
    ("sslQuorumReloadCertFiles", "true", {}, "ensemble.ssl_quorum_reload_cert_files", True),
    ("quorum.auth.enableSasl", "true", {}, "quorum_auth.enable_sasl", True),
    ("quorum.auth.serverRequireSasl", "false", {}, "quorum_auth.server_require_sasl", False),
    ("quorum.auth.learnerRequireSasl", "false", {}, "quorum_auth.learner_require_sasl", False),
    (
        *("quorum.auth.learner.saslLoginContext", "L", {}),
        *("quorum_auth.learner_login_context", "L"),
    ),
    ("quorum.auth.server.saslLoginContext", "S", {}, "quorum_auth.server_login_context", "S"),
    ("multiAddress.enabled", "true", {}, "ensemble.multi_address_enabled", True),
    ("metricsProvider.className", PROMETHEUS, {}, "metrics.has_own_listener", True),
    ("metricsProvider.httpHost", "127.0.0.1", {}, "metrics.http_host", "127.0.0.1"),
    ("metricsProvider.httpPort", "7070", {}, "metrics.http_port", 7070),
]

PROPERTY_KEYS: list[tuple[str, str, Mapping[str, str], str, Any]] = [
    ("snapCount", "0x10", {}, "data.snap_count", 16),
    ("snapSizeLimitInKb", "-1", {}, "data.snap_size_limit_kb", -1),
    ("txnLogSizeLimitInKb", "1024", {}, "data.txn_log_size_limit_kb", 1024),
    ("preAllocSize", "64", {}, "data.pre_alloc_size_kb", 64),
    ("fsync.warningthresholdms", "20", {}, "data.fsync_warning_threshold_ms", 20),
    ("snapshotSizeFactor", "0.5", {}, "data.snapshot_size_factor", 0.5),
    ("snapshot.compression.method", "gz", {}, "data.compression", ".gz"),
    ("snapshot.compression.method", "", {}, "data.compression", ""),
    ("db.autocreate", "false", {}, "data.db_autocreate", False),
    ("datadir.autocreate", "false", {}, "data.datadir_autocreate", False),
    ("globalOutstandingLimit", "5", {}, "limits.global_outstanding_limit", 5),
    ("request_throttle_max_requests", "9", {}, "request_throttle.max_requests", 9),
    ("throttled_op_wait_time", "9", {}, "request_throttle.throttled_op_wait_time_ms", 9),
    ("largeRequestThreshold", "1000", {}, "limits.large_request_threshold", 1000),
    ("largeRequestMaxBytes", "5000", {}, "limits.large_request_max_bytes", 5000),
    ("maxCnxns", "10", {}, "limits.max_cnxns", 10),
    ("nio.sessionlessCnxnTimeout", "5", {}, "client.sessionless_timeout_ms", 5),
    ("clientTcpKeepAlive", "true", {}, "client.tcp_keep_alive", True),
    ("tcpKeepAlive", "true", {}, "ensemble.quorum_tcp_keep_alive", True),
    ("4lw.commands.whitelist", "mntr, ruok", {}, "four_letter_words", {"mntr", "ruok", "srvr"}),
    ("extendedTypesEnabled", "true", {}, "features.extended_types", True),
    ("enforceQuota", "true", {}, "features.enforce_quota", True),
    ("skipACL", "no", {}, "features.skip_acl", False),
    ("DigestAuthenticationProvider.superDigest", "super:x=", {}, "auth.super_digest", "super:x="),
    ("DigestAuthenticationProvider.enabled", "false", {}, "auth.schemes", {"ip"}),
    ("DigestAuthenticationProvider.digestAlg", "SHA-256", {}, "auth.digest_algorithm", "sha256"),
    ("authProvider.1", SASL, {}, "auth.schemes", {"ip", "digest", "sasl"}),
    ("superUser", "bob", {}, "auth.super_users", {"bob"}),
    ("superUser.1", "ann", {"superUser": "bob"}, "auth.super_users", {"ann", "bob"}),
    ("X509AuthenticationProvider.superUser", "CN=a", {}, "auth.x509_super_user", "CN=a"),
    (
        *("sessionRequireClientSASLAuth", "true", {"authProvider.1": SASL}),
        *("auth.required_schemes", {"sasl"}),
    ),
    (
        *("enforce.auth.enabled", "true", {"enforce.auth.schemes": "digest, ip"}),
        *("auth.required_schemes", {"digest", "ip"}),
    ),
    ("enforce.auth.schemes", "digest", {}, "auth.required_schemes", set()),
    ("allowSaslFailedClients", "true", {}, "auth.allow_sasl_failed_clients", True),
    ("leaderServes", "no", {}, "features.leader_serves", False),
    ("cnxTimeout", "9", {}, "ensemble.cnx_timeout_ms", 9),
    ("quorumCnxnTimeoutMs", "9", {}, "ensemble.quorum_cnxn_timeout_ms", 9),
    ("electionPortBindRetry", "0", {}, "ensemble.election_port_bind_retry", 0),
    ("fastleader.minNotificationInterval", "9", {}, "ensemble.min_notification_interval_ms", 9),
    ("fastleader.maxNotificationInterval", "900", {}, "ensemble.max_notification_interval_ms", 900),
    ("connection_throttle_tokens", "9", {}, "connection_throttle.tokens", 9),
    ("connection_throttle_fill_time", "9", {}, "connection_throttle.fill_time_ms", 9),
    ("connection_throttle_fill_count", "9", {}, "connection_throttle.fill_count", 9),
    ("connection_throttle_freeze_time", "9", {}, "connection_throttle.freeze_time_ms", 9),
    ("connection_throttle_drop_increase", "0.1", {}, "connection_throttle.drop_increase", 0.1),
    ("connection_throttle_drop_decrease", "1e-3", {}, "connection_throttle.drop_decrease", 0.001),
    ("connection_throttle_decrease_ratio", "1", {}, "connection_throttle.decrease_ratio", 1.0),
    ("admin.enableServer", "false", {}, "admin.enable_server", False),
    ("admin.serverAddress", "0.0.0.0", {}, "admin.server_address", "0.0.0.0"),
    ("admin.serverPort", "0", {}, "admin.server_port", 0),
    ("admin.commandURL", "/zk", {}, "admin.command_url", "/zk"),
    ("admin.idleTimeout", "9", {}, "admin.idle_timeout_ms", 9),
    ("admin.portUnification", "true", QUORUM_STORES, "admin.admin_port_unification", True),
    ("admin.forceHttps", "true", QUORUM_STORES, "admin.force_https", True),
    ("admin.needClientAuth", "true", {}, "admin.need_client_auth", True),
    ("admin.snapshot.enabled", "false", {}, "admin.snapshot_enabled", False),
    ("admin.rateLimiterIntervalInMS", "0", {}, "admin.rate_limiter_interval_ms", 0),
    ("audit.enable", "true", {}, "audit.enable", True),
    ("fips-mode", "false", {}, "quorum_auth.fips_mode", False),
    ("ssl.keyStore.location", "a.p12", {}, "tls.key_store_type", StoreType.PKCS12),
    ("ssl.keyStore.password", "secret", {}, "tls.key_store_password", "secret"),
    ("ssl.keyStore.type", "pem", {}, "tls.key_store_type", StoreType.PEM),
    ("ssl.trustStore.location", "a.jks", {}, "tls.trust_store_type", StoreType.JKS),
    ("ssl.trustStore.type", "PKCS12", {}, "tls.trust_store_type", StoreType.PKCS12),
    ("ssl.protocol", "TLSv1.3", {}, "tls.enabled_protocols", ("TLSv1.3",)),
    ("ssl.protocol", "TLS", {}, "tls.enabled_protocols", ("TLSv1.2", "TLSv1.3")),
    (
        *("ssl.enabledProtocols", "TLSv1.2", {"ssl.protocol": "TLSv1.3"}),
        *("tls.enabled_protocols", ("TLSv1.2",)),
    ),
    ("ssl.ciphersuites", "TLS_A,TLS_B", {}, "tls.ciphersuites", ("TLS_A", "TLS_B")),
    ("ssl.clientAuth", "want", {}, "tls.client_auth", ClientAuth.WANT),
    ("ssl.hostnameVerification", "false", {}, "tls.hostname_verification", False),
    ("ssl.quorum.keyStore.location", "q.pem", {}, "quorum_tls.key_store_location", "q.pem"),
    ("ssl.quorum.keyStore.password", "secret", {}, "quorum_tls.key_store_password", "secret"),
    ("ssl.quorum.clientAuth", "none", {}, "quorum_tls.client_auth", ClientAuth.NONE),
    ("client.portUnification", "true", STORES, "client.port_unification", True),
    ("client.certReload", "true", {}, "client.cert_reload", True),
    ("jute.maxbuffer.extrasize", "2048", {}, "limits.jute_max_buffer_extra_size", 2048),
]

BARE_KEYS: list[tuple[str, str, str, Any]] = [
    ("jute.maxbuffer", "0x400000", "limits.jute_max_buffer", 0x400000),
    ("jute.maxbuffer", "4194304", "limits.jute_max_buffer_extra_size", 4_194_304),
    ("readonlymode.enabled", "true", "features.read_only_mode", True),
    ("readonlymode.enabled", "true", "four_letter_words", {"srvr", "isro"}),
    ("znode.container.checkIntervalMs", "9", "features.container_check_interval_ms", 9),
    ("znode.container.maxPerMinute", "9", "features.container_max_per_minute", 9),
    (
        *("znode.container.maxNeverUsedIntervalMs", "9"),
        *("features.container_max_never_used_interval_ms", 9),
    ),
    ("java.security.auth.login.config", "jaas.conf", "auth.jaas_file", "jaas.conf"),
]

# Keys of Apache's manual that mean nothing here; the catalogue has more.
PASSED_OVER = {
    "quorum.cnxn.threads.size",
    "jvm.pause.monitor",
    "jvm.pause.info-threshold.ms",
    "jvm.pause.warn-threshold.ms",
    "jvm.pause.sleep.time.ms",
    "serverCnxnFactory",
    "commitProcessor.numWorkerThreads",
    "commitProcessor.maxReadBatchSize",
    "commitProcessor.maxCommitBatchSize",
    "watchManagerName",
    "maxResponseCacheSize",
    "maxGetChildrenResponseCacheSize",
    "learner.asyncSending",
    "learner.closeSocketAsync",
    "leader.closeSocketAsync",
    "metricsProvider.exportJvmInfo",
    "metricsProvider.numWorkerThreads",
    "metricsProvider.maxQueueSize",
    "metricsProvider.workerShutdownTimeoutMs",
    "kerberos.canonicalizeHostNames",
}


def load(lines: Mapping[str, str], folder: Path, **properties: str) -> ServerConfig:
    """The configuration of a file with these lines; keywords are -D, with _ for the dots."""
    file = folder / "zoo.cfg"
    needed = {"dataDir": str(folder), "clientPort": "2181", **lines}
    file.write_text("".join(f"{key}={value}\n" for key, value in needed.items()))
    return load_config(file, overrides=properties)


def field_of(config: ServerConfig, path: str) -> Any:
    return reduce(getattr, path.split("."), config)


@pytest.mark.parametrize(("key", "value", "needed", "path", "expected"), FILE_KEYS + PROPERTY_KEYS)
def test_key_in_the_file__sets_its_field(
    key: str, value: str, needed: Mapping[str, str], path: str, expected: Any, tmp_path: Path
) -> None:
    config = load({**needed, key: value}, tmp_path)

    assert field_of(config, path) == expected
    assert [str(warning) for warning in config.warnings if warning.key == key] == []


@pytest.mark.parametrize(("key", "value", "needed", "path", "expected"), PROPERTY_KEYS)
def test_key_as_system_property__sets_its_field(
    key: str, value: str, needed: Mapping[str, str], path: str, expected: Any, tmp_path: Path
) -> None:
    assert field_of(load(needed, tmp_path, **{f"zookeeper.{key}": value}), path) == expected


@pytest.mark.parametrize(("key", "value", "path", "expected"), BARE_KEYS)
def test_bare_key__counts_as_system_property_and_variable_but_not_in_the_file(
    key: str, value: str, path: str, expected: Any, tmp_path: Path
) -> None:
    assert field_of(load({}, tmp_path, **{key: value}), path) == expected
    variable = {keys.variable_name(key): value}
    assert field_of(load_config(tmp_path / "zoo.cfg", environment=variable), path) == expected

    in_file = load({key: value}, tmp_path)
    prefixed = load({}, tmp_path, **{f"zookeeper.{key}": value})

    assert field_of(in_file, path) == field_of(prefixed, path) == field_of(ServerConfig(), path)
    assert [str(warning) for warning in in_file.warnings] == [
        f"{tmp_path}/zoo.cfg:3: {key}: ignored here, as by Apache: give -D{key} to the command line"
    ]
    assert [str(warning) for warning in prefixed.warnings] == [
        f"-Dzookeeper.{key}: ignored, as by Apache: its name is -D{key}"
    ]


@pytest.mark.parametrize("key", sorted(PASSED_OVER | set(WITHOUT_MEANING)))
def test_key_without_meaning__is_accepted_with_one_warning(key: str, tmp_path: Path) -> None:
    value = VALUES_WITHOUT_MEANING.get(key, ("7",))[0]
    (warning,) = load({key: value}, tmp_path).warnings

    assert warning.key == key
    assert "has no meaning here" in warning.message
    assert warning.line == 3


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_unsupported_key__is_refused_unless_it_asks_for_nothing(key: str, tmp_path: Path) -> None:
    for value in UNSUPPORTED[key].accepted:
        assert load({key: value}, tmp_path).warnings == ()
    with pytest.raises(ConfigError, match="not supported"):
        load({key: "true"}, tmp_path)


@pytest.mark.parametrize("key", keys.SETTINGS)
def test_every_setting__has_a_default_that_it_would_parse(key: str) -> None:
    declared = keys.SETTINGS[key]
    (default,) = (
        getattr(group, name)
        for group, name, full, _ in group_settings(ServerConfig())
        if full == key
    )
    if default not in (None, ""):
        assert declared.kind.parse(declared.kind.show(default)) == default


@pytest.mark.parametrize("key", keys.SETTINGS)
def test_every_setting__says_what_goes_wrong_at_either_extreme(key: str) -> None:
    declared = keys.SETTINGS[key]

    assert declared.prose.what
    is_constant = key in ("metricsProvider.className", "peerType")
    has_extremes = isinstance(declared.kind, Whole | Number | Period | Switch | HostName | Words)
    if has_extremes and not is_constant:
        assert declared.prose.low
        assert declared.prose.high


@pytest.mark.parametrize("key", keys.SETTINGS)
def test_every_setting__has_a_variable_of_its_own(key: str) -> None:
    name = keys.variable_name(key)

    assert name.isupper()
    assert keys.key_of_variable(name) == key
    assert (
        keys.key_of_variable("KEEPFAST_" + name.removeprefix("KEEPFAST_").replace("_", "")) == key
    )


def test_keys__are_of_one_kind_only() -> None:
    kinds = [set(keys.SETTINGS), set(WITHOUT_MEANING), set(UNSUPPORTED)]

    assert sum(map(len, kinds)) == len(set().union(*kinds))
    assert set(keys.ALIASES).isdisjoint(set().union(*kinds))
    assert set(MISNAMED).isdisjoint(set().union(*kinds))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KEEPFAST_TICK_TIME", "tickTime"),
        ("KEEPFAST_4LW_COMMANDS_WHITELIST", "4lw.commands.whitelist"),
        ("KEEPFAST_AUTOPURGE_PURGEINTERVAL", "autopurge.purgeInterval"),
        ("KEEPFAST_SKIP_ACL", "skipACL"),
        ("KEEPFAST_QUORUM_LISTEN_ON_ALL_IPS", "quorumListenOnAllIPs"),
        ("KEEPFAST_SSL_QUORUM_KEY_STORE_PASSWORD", "ssl.quorum.keyStore.password"),
        ("KEEPFAST_MY_ID", "keepfast.myId"),
        ("KEEPFAST_SERVER_12", "server.12"),
        ("KEEPFAST_AUTH_PROVIDER_1", "authProvider.1"),
        ("KEEPFAST_FIPS_MODE", "fips-mode"),
        ("KEEPFAST_NONSENSE", None),
    ],
)
def test_variable__names_a_key(name: str, key: str | None) -> None:
    assert keys.key_of_variable(name) == key


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ticktime", "tickTime"),
        ("tickTme", "tickTime"),
        ("clientport", "clientPort"),
        ("data_dir", "dataDir"),
        ("snapcounts", "snapCount"),
        ("zookeeper.snapCount", "snapCount"),
        ("connectionMaxTokens", "connection_throttle_tokens"),
        ("4lw.command.whitelist", "4lw.commands.whitelist"),
        ("autopurge.snapRetain", "autopurge.snapRetainCount"),
        ("completely.different", None),
    ],
)
def test_unknown_key__is_matched_with_the_nearest(written: str, meant: str | None) -> None:
    assert keys.nearest(written) == meant


@pytest.mark.parametrize("kind", [Whole(0, 9), Number(0, 1), Period(), Switch(), OneOf({"a": 1})])
@pytest.mark.parametrize(
    "text", ["", " ", "x", "1_0", "nan", "inf", "0x", "1.5.2", "٣", "-5", "1e9"]
)
def test_kinds__refuse_what_they_do_not_allow(kind: Whole, text: str) -> None:
    if isinstance(kind, Period) and text == "-5":
        return  # negative: never
    with pytest.raises(ValueError):
        kind.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("010", 8), ("0x1F", 31), ("-0x1", -1), ("#ff", 255), ("+5", 5), ("-7", -7)],
)
def test_system_property__is_decoded_as_java_does(text: str, value: int) -> None:
    assert Whole(-(2**31), 2**31 - 1).parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 3_600_000),
        ("90s", 90_000),
        ("5MS", 5),
        ("1d", 86_400_000),
        ("-1", -3_600_000),
    ],
)
def test_interval__is_in_hours_unless_it_has_a_unit(text: str, value: int) -> None:
    kind = Period()

    assert kind.parse(text) == value
    assert kind.parse(kind.show(value)) == value


_KEYS = st.sampled_from([*keys.SETTINGS, *UNSUPPORTED, "server.1", "server.2", "group.1"])
_VALUES = st.sampled_from(
    [
        *("", "true", "false", "yes", "no", "0", "1", "-1", "7", "2181", "99999999999", "0.5"),
        *("0x10", "a:1:2", "b:1:2;2181", "b:3:4:observer", "1:2", "gz", "need", "localhost"),
        *("x.pem", "*", "a\0b", "a\ud800", "é"),
    ]
) | st.text(max_size=8)


@given(
    st.dictionaries(_KEYS, _VALUES, max_size=6),
    st.dictionaries(_KEYS.map(keys.property_name) | st.text(max_size=8), _VALUES, max_size=3),
    st.dictionaries(_KEYS.map(keys.variable_name) | st.text(max_size=8), _VALUES, max_size=3),
)
def test_any_configuration__is_read_and_described_or_refused_with_a_reason(
    extra: dict[str, str], overrides: dict[str, str], environment: dict[str, str]
) -> None:
    image = {"ZOO_CFG_EXTRA": " ".join(f"{key}={value}" for key, value in extra.items())}
    try:
        config = load_config(None, overrides=overrides, environment={**environment, **image})
        described = {row.key for row in config.describe()}
    except ConfigError as error:
        described = set(keys.SETTINGS) if ": " in str(error) else set()

    assert described >= set(keys.SETTINGS)
