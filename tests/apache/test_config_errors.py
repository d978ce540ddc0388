"""What a configuration that cannot work says: where, what, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.apache.config import ConfigError, load_config

BASE = "dataDir=/data\nclientPort=2181\n"
TLS = "ssl.keyStore.location=k.pem\nssl.trustStore.location=t.pem\n"

# Lines after the two of BASE, and what is wrong with the first of them.
GOLDEN = [
    ("tickTime=abc", "must be a whole number of ms from 1 to 2147483647"),
    ("tickTime=0", "must be a whole number of ms from 1 to 2147483647"),
    ("tickTime=", "must be a whole number of ms from 1 to 2147483647"),
    ("tickTime=0x10", "must be a whole number of ms from 1 to 2147483647"),
    ("tickTime=2000 # ms", "must be a whole number of ms from 1 to 2147483647"),
    ("snapCount=1e3", "must be a whole number of txns from 0 to 2147483647"),
    ("maxClientCnxns=-2", "must be a whole number of connections from -1 to 2147483647"),
    ("clientPort=70000", "must be a whole number from 0 to 65535"),
    ("clientPortAddress=a b", "must be a host name or an IP address"),
    ("electionAlg=1", "not supported: there is one algorithm of election"),
    ("extendedTypesEnabled=1", "must be true or false"),
    ("leaderServes=false", "must be yes or no"),
    ("peerType=voter", "must be one of participant, observer"),
    ("snapshot.compression.method=zip", "must be one of nothing, gz, snappy"),
    ("snapshotSizeFactor=2", "must be a number from -1 to 1"),
    (
        "autopurge.purgeInterval=1w",
        "must be a whole number of hours up to 2147483647, or one with a unit (ms, s, m, h, d)",
    ),
    (
        "autopurge.purgeInterval=3000000000",
        "must be a whole number of hours up to 2147483647, or one with a unit (ms, s, m, h, d)",
    ),
    ("admin.commandURL=commands", "must be a path that begins with / and does not end with it"),
    (
        "metricsProvider.className=com.acme.Metrics",
        (
            "must be one of org.apache.zookeeper.metrics.impl.DefaultMetricsProvider, "
            "org.apache.zookeeper.metrics.impl.NullMetricsProvider, "
            "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
        ),
    ),
    (
        "skipACL=yes",
        (
            "refused: every client could read, change and delete everything. If that is meant, "
            "acknowledge it with keepfast.acceptUnsafe=skipACL"
        ),
    ),
    (
        "keepfast.acceptUnsafe=fsync",
        ("must be some of db.autocreate, skipACL"),
    ),
    ("oraclePath=/oracle", "not supported: an ensemble of two that a file decides for may diverge"),
    ("ssl.protocol=SSLv3", "must be one of TLS, TLSv1.2, TLSv1.3"),
    ("ssl.enabledProtocols=TLSv1.1", "must be TLS versions: any of TLSv1.2, TLSv1.3"),
    ("ssl.keyStore.type=BCFKS", "must be one of nothing, JKS, PEM, PKCS12"),
    ("ssl.clientAuth=maybe", "must be one of none, want, need"),
    (
        "ssl.keyStore.location=/etc/zk/store",
        "must end with .jks, .pem or .p12 unless ssl.keyStore.type is set",
    ),
    ("secureClientPort=2281\nssl.clientAuth=none", "needs ssl.keyStore.location"),
    (
        "secureClientPort=2281\nssl.keyStore.location=k.pem",
        (
            "needs ssl.trustStore.location: without it no certificate of the other side can be "
            "checked, and ssl.clientAuth is need"
        ),
    ),
    ("secureClientPort=2181\n" + TLS, "port 2181 is taken by clientPort"),
    ("admin.serverPort=2181", "port 2181 is taken by clientPort"),
    ("secureClientPort=8080\n" + TLS, "port 8080 is taken by admin.serverPort"),
    ("secureClientPortAddress=zk1", "needs secureClientPort"),
    (
        "minSessionTimeout=70000",
        "the shortest session timeout, 70000 ms, must not be above the longest, 60000 ms",
    ),
    (
        "maxSessionTimeout=5000",
        "the shortest session timeout, 6000 ms, must not be above the longest, 5000 ms",
    ),
    ("tickTime=200000000", "must not be above 107374182 ms unless maxSessionTimeout is set"),
    ("initLimit=1000000", "must not be above 715827 ticks"),
    (
        "fastleader.minNotificationInterval=70000",
        "the shortest interval, 70000 ms, must not be above the longest, 60000 ms",
    ),
    (
        "authProvider.7=com.acme.Auth",
        (
            "must be one of org.apache.zookeeper.server.auth.SASLAuthenticationProvider, "
            "org.apache.zookeeper.server.auth.X509AuthenticationProvider, "
            "org.apache.zookeeper.server.auth.DigestAuthenticationProvider, "
            "org.apache.zookeeper.server.auth.IPAuthenticationProvider: other Java classes "
            "cannot be loaded"
        ),
    ),
    (
        "enforce.auth.schemes=sasl,digest\nenforce.auth.enabled=true",
        "sasl: no such scheme is switched on, there are digest, ip; nobody could connect",
    ),
    (
        "sessionRequireClientSASLAuth=true",
        "sasl: no such scheme is switched on, there are digest, ip; nobody could connect",
    ),
    (
        "server.1=zk1",
        (
            "must be "
            "host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort], "
            "several addresses joined by |"
        ),
    ),
]


@pytest.mark.parametrize(("lines", "reason"), GOLDEN)
def test_error__names_file_line_key_value_and_what_is_allowed(
    lines: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"{BASE}{lines}\n")

    with pytest.raises(ConfigError) as caught:
        load_config(file)

    error = caught.value
    first = lines.partition("\n")[0]
    assert str(error) == f"{file}:3: {first}: {reason}"
    assert (error.file, error.line) == (str(file), 3)
    key, _, value = first.partition("=")
    assert (error.key, error.value) == (key, value)
    assert error.others == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clientPort=2181\n", "zoo.cfg: dataDir: must be set"),
        ("dataDir=/data\n", "zoo.cfg: clientPort: must be set: nobody could connect"),
        (
            "dataDir=/data\nclientPortAddress=zk1\n",
            "zoo.cfg:2: clientPortAddress=zk1: needs clientPort",
        ),
        (
            f"{BASE}enforce.auth.enabled=true\n",
            "zoo.cfg: enforce.auth.schemes: must be set if enforce.auth.enabled is true",
        ),
        ("dataDir=/data\nclientPort=\\u12\n", "zoo.cfg:2: \\u needs four hexadecimal digits"),
    ],
)
def test_error__about_what_is_missing_names_the_file(
    text: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_config(file)

    assert str(caught.value).splitlines()[0] == f"{tmp_path}/{expected}"


def test_errors__are_told_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text("tickTime=x\nclientPort=y\nskipACL=yes\nleaderServes=maybe\n")

    with pytest.raises(ConfigError) as caught:
        load_config(file, environment={"KEEPFAST_SNAP_COUNT": "z"}, port=-1)

    assert str(caught.value).replace(f"{file}", "zoo.cfg").splitlines() == [
        "--port=-1: must be a whole number from 0 to 65535",
        "zoo.cfg:1: tickTime=x: must be a whole number of ms from 1 to 2147483647",
        "KEEPFAST_SNAP_COUNT=z: must be a whole number of txns from 0 to 2147483647",
        (
            "zoo.cfg:3: skipACL=yes: refused: every client could read, change and delete "
            "everything. If that is meant, acknowledge it with keepfast.acceptUnsafe=skipACL"
        ),
        "zoo.cfg:4: leaderServes=maybe: must be yes or no",
        "zoo.cfg: dataDir: must be set",
    ]
    assert len(caught.value.others) == 5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"overrides": {"jute.maxbuffer": "4m"}},
            "-Djute.maxbuffer=4m: must be a whole number of bytes from 1024 to 2147483647",
        ),
        (
            {"environment": {"KEEPFAST_ADMIN_SERVER_PORT": "http"}},
            "KEEPFAST_ADMIN_SERVER_PORT=http: must be a whole number from 0 to 65535",
        ),
        (
            {"environment": {"JVMFLAGS": "-Dzookeeper.skipACL=yes"}},
            (
                "JVMFLAGS: -Dzookeeper.skipACL=yes: refused: every client could read, change and "
                "delete everything. If that is meant, acknowledge it with "
                "keepfast.acceptUnsafe=skipACL"
            ),
        ),
        (
            {"environment": {"ZOO_TICK_TIME": "fast"}},
            "ZOO_TICK_TIME=fast: must be a whole number of ms from 1 to 2147483647",
        ),
        (
            {"environment": {"ZOO_CFG_EXTRA": "leaderServes=1"}},
            "ZOO_CFG_EXTRA: leaderServes=1: must be yes or no",
        ),
        (
            {"environment": {"ZOO_SERVERS": "server.1=zk1:2888:x"}},
            'ZOO_SERVERS: server.1=zk1:2888:x: "x" must be a port from 1 to 65535',
        ),
        ({"data_dir": ""}, "--data-dir=: must be a path"),
    ],
)
def test_error__outside_of_a_file_names_the_source(
    arguments: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, **arguments)  # type: ignore[arg-type]

    assert str(caught.value) == expected
    assert caught.value.file is None
