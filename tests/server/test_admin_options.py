"""From the configuration to the admin server that it describes."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from keepfast.apache import ConfigError, ServerConfig, load_config
from keepfast.server import options_of
from keepfast.server.admin_options import AdminOptions, admin_options
from tests.server.live import ADMIN, TIMEOUT, live


def configured(tmp_path: Path, **properties: str) -> ServerConfig:
    names = {f"zookeeper.{key.replace('__', '.')}": value for key, value in properties.items()}
    return load_config(None, overrides=names, data_dir=tmp_path)


def test_default__loopback_and_not_required(tmp_path: Path) -> None:
    options = admin_options(configured(tmp_path))
    assert options is not None
    assert (options.host, options.port, options.is_required) == ("127.0.0.1", 8080, False)
    assert options.metrics_address is None
    assert options.tls is None


def with_prometheus(tmp_path: Path, line: str) -> AdminOptions:
    """The options of a configuration with Apache's provider of metrics, and one line more."""
    name = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
    file = tmp_path / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path}\nclientPort=0\nmetricsProvider.className={name}\n"
        f"metricsProvider.httpPort=7001\n{line}\n"
    )
    options = admin_options(load_config(file))
    assert options is not None
    return options


def test_switched_off(tmp_path: Path) -> None:
    assert admin_options(configured(tmp_path, admin__enableServer="false")) is None


def test_switched_off__the_metrics_stay_where_apaches_provider_has_them(tmp_path: Path) -> None:
    options = with_prometheus(tmp_path, "admin.enableServer=false")
    assert not options.is_on
    assert options.metrics_address == ("0.0.0.0", 7001)


def test_port_that_was_asked_for_has_to_be_free(tmp_path: Path) -> None:
    config = configured(tmp_path, admin__serverPort="8081", admin__commandURL="/zk")
    options = admin_options(config)
    assert options is not None
    assert (options.port, options.is_required, options.command_url) == (8081, True, "/zk")


def test_prometheus_provider__a_second_listener(tmp_path: Path) -> None:
    options = with_prometheus(tmp_path, "metricsProvider.httpHost=127.0.0.1")
    assert options.metrics_address == ("127.0.0.1", 7001)
    assert options.initial_configuration.startswith("dataDir=")


def test_secrets_are_not_among_the_properties(tmp_path: Path) -> None:
    config = configured(tmp_path, ssl__keyStore__password="hush-hush")
    options = admin_options(config)
    assert options is not None
    assert "hush-hush" not in str(options)


def test_both_kinds_on_one_port__refused(tmp_path: Path) -> None:
    config = configured(tmp_path)
    config = replace(config, admin=replace(config.admin, admin_port_unification=True))
    with pytest.raises(ConfigError, match=r"admin\.forceHttps"):
        admin_options(config)


def test_audit_and_slow_fsync_reach_the_server(tmp_path: Path) -> None:
    config = configured(tmp_path, audit__enable="true", fsync__warningthresholdms="250")
    options = options_of(config)
    assert options.replica.is_audited
    assert options.slow_fsync_ms == 250
    assert options.admin is not None


def test_https_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    identity = authority.issue_cert("127.0.0.1", "localhost")
    pem.write_bytes(identity.private_key_and_cert_chain_pem.bytes())
    config = configured(
        tmp_path,
        admin__forceHttps="true",
        ssl__quorum__keyStore__location=str(pem),
        ssl__quorum__keyStore__type="PEM",
    )
    options = admin_options(config)
    assert options is not None
    assert options.tls is not None
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with live(tmp_path / "data", admin=replace(ADMIN, tls=options.tls)) as server:
        url = server.server.admin_url
        assert url is not None
        assert url.startswith("https://127.0.0.1:")
        with urllib.request.urlopen(f"{url}/ruok", timeout=TIMEOUT, context=trusting) as answer:
            assert b'"command" : "ruok"' in answer.read()
