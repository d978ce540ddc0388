"""Metrics under Apache's names: mntr, the admin command, Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from keepfast.client import Client, ClientOptions
from keepfast.server.metrics import MetricKind, collect, exposition, flat_values
from keepfast.wire import AddWatchMode, CreateMode
from tests.apache import ApacheServer
from tests.server.live import ADMIN, Live, live

# Sets that have a member for every top-level znode; reads and writes are not told apart here.
UNTOLD = ("_read_per_namespace", "_write_per_namespace")


@pytest.fixture(autouse=True)
def _no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets are counted, and a client that is slow pings in between."""
    monkeypatch.setattr("keepfast.client.client_session._MAX_PING_INTERVAL_S", 3600.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data", admin=ADMIN) as found:
        yield found


def monitor(server: Live) -> dict[str, str]:
    return dict(line.split("\t") for line in server.ask("mntr").splitlines())


def work(client: Client) -> None:
    """Four txns with the session's, three reads."""
    client.create("/a", b"12345", mode=CreateMode.EPHEMERAL)
    client.get_data("/a", True)
    client.set_data("/a", b"x")
    client.exists("/b", True)
    client.create("/b")
    client.get_children("/")


def test_longest_turn_of_the_loop_is_shown(server: Live) -> None:
    with server.client() as client:
        work(client)
    found = monitor(server)
    worst = float(found["zk_keepfast_loop_held_worst_seconds"])
    assert 0 < float(found["zk_keepfast_loop_held_p99_seconds"]) <= worst
    assert (worst > 0.005) == (found["zk_keepfast_slow_turns_total"] != "0")


def test_requests_are_counted(server: Live) -> None:
    with server.client() as client:
        work(client)
        found = monitor(server)
    assert found["zk_cnt_updatelatency"] == "4"
    assert found["zk_cnt_readlatency"] == "3"
    assert found["zk_packets_received"] == "8"  # the connect request and the word, too
    assert found["zk_packets_sent"] == "9"  # two events, and not yet the word's answer
    assert found["zk_connection_request_count"] == "1"
    assert found["zk_cnt_node_changed_watch_count"] == "1"
    assert found["zk_sum_node_created_watch_count"] == "1"
    assert found["zk_ephemerals_count"] == "1"
    assert found["zk_znode_count"] == "7"
    assert found["zk_global_sessions"] == "1"
    assert int(found["zk_watch_bytes"]) > 0
    assert int(found["zk_bytes_received_count"]) > int(found["zk_packets_received"]) * 4
    assert int(found["zk_response_bytes"]) > 0
    # Headers alone are the shortest replies; the longest is that with the znode's data and Stat.
    assert int(found["zk_min_client_response_size"]) >= 16
    assert int(found["zk_max_client_response_size"]) >= 16 + 4 + 5 + 68


def test_disk_is_measured(server: Live) -> None:
    with server.client() as client:
        work(client)
        found = monitor(server)
    assert int(found["zk_cnt_fsynctime"]) > 0
    assert int(found["zk_sum_sync_processor_batch_size"]) == 4
    assert found["zk_sync_processor_request_queued"] == "4"
    assert found["zk_cnt_dbinittime"] == "1"
    assert int(found["zk_keepfast_disk_free_bytes"]) > 0
    assert found["zk_keepfast_writable"] == "1"


def test_reset_clears_counters_and_leaves_gauges(server: Live) -> None:
    with server.client() as client:
        work(client)
        server.ask("srst")
        found = monitor(server)
    assert found["zk_cnt_updatelatency"] == "0"
    assert found["zk_packets_received"] == "1"
    assert found["zk_znode_count"] == "7"
    assert found["zk_cnt_dbinittime"] == "1"


def test_quotas_are_gauges_by_namespace(server: Live) -> None:
    with server.client() as client:
        for path in ("/app", "/app/x", "/zookeeper/quota/app"):
            client.create(path, b"1234")
        client.create("/zookeeper/quota/app/zookeeper_limits", b"count=5,bytes=100")
        client.create("/zookeeper/quota/app/zookeeper_stats", b"count=0,bytes=0")
        found = monitor(server)
    assert found["zk_app_quota_count_limit_per_namespace"] == "5"
    assert found["zk_app_quota_bytes_limit_per_namespace"] == "100"
    assert found["zk_app_quota_count_usage_per_namespace"] == "2"
    assert found["zk_app_quota_bytes_usage_per_namespace"] == "8"


def test_admin_command_and_mntr_agree_on_names(server: Live) -> None:
    command = server.http("/commands/monitor").document
    names = {name.removeprefix("zk_") for name in monitor(server)}
    assert set(command) - {"command", "error"} == names


def test_prometheus_text__is_read_by_its_parser_and_has_every_metric(server: Live) -> None:
    with server.client() as client:
        work(client)
        answer = server.http("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    metrics = server.call(lambda found: collect(found.running))
    assert {metric.name.removesuffix("_total") for metric in metrics} == set(families)
    assert families["keepfast_slow_fsyncs"].type == "counter"
    samples = {sample.name: sample.value for sample in families["updatelatency"].samples}
    assert samples["updatelatency_count"] == 4
    quantiles = [
        sample.labels["quantile"]
        for sample in families["readlatency"].samples
        if "quantile" in sample.labels
    ]
    assert quantiles == ["0.5", "0.9", "0.99"]
    (sample,) = families["bytes_received_count"].samples
    assert sample.value > 0
    assert all(family.documentation for family in families.values())


def test_prometheus_text_of_a_set__has_the_key_as_label(server: Live) -> None:
    with server.client() as client:
        client.create("/zookeeper/quota/app")
        client.create("/zookeeper/quota/app/zookeeper_limits", b"count=5,bytes=-1")
    text = exposition(server.call(lambda found: collect(found.running))).decode()
    assert 'quota_count_limit_per_namespace{key="app"} 5.0' in text


@pytest.mark.parametrize("is_on", [True, False], ids=["with an admin server", "without"])
def test_metrics_and_probes_have_a_listener_where_apaches_provider_would(
    is_on: bool, tmp_path: Path
) -> None:
    admin = replace(ADMIN, is_on=is_on, metrics_address=("127.0.0.1", 0))
    with live(tmp_path / "data", admin=admin) as server:
        assert server.server.admin is not None
        port = server.server.admin.metrics_port
        assert server.http("/metrics", port=port).status == 200
        assert server.http("/livez", port=port).status == 200
        assert server.http("/readyz", port=port).text == "ok\n"
        assert server.http("/commands/ruok", port=port).status == 404
        assert bool(server.server.admin.port) == is_on
        assert (server.server.admin_url is not None) == is_on


def test_counters_summaries_and_gauges_keep_their_kind(server: Live) -> None:
    kinds = {
        metric.name: metric.kind for metric in server.call(lambda found: collect(found.running))
    }
    assert kinds["znode_count"] is MetricKind.GAUGE
    assert kinds["proposal_count"] is MetricKind.COUNTER
    assert kinds["fsynctime"] is MetricKind.SUMMARY


def test_numbers_of_a_summary_are_whole_but_the_mean(server: Live) -> None:
    values = dict(flat_values(server.call(lambda found: collect(found.running))))
    for prefix in ("min", "max", "cnt", "sum"):
        assert isinstance(values[f"{prefix}_fsynctime"], int)
    assert isinstance(values["avg_fsynctime"], float)
    assert {"p50_updatelatency", "p95_updatelatency", "p999_updatelatency"} <= set(values)


@pytest.mark.conformance
def test_mntr_has_every_name_of_apaches_mntr__and_the_same_counts(
    server: Live, tmp_path: Path
) -> None:
    server.ask("srst")
    with server.client() as client:
        work(client)
        client.add_watch("/a", AddWatchMode.PERSISTENT)
        client.get_children("/a", True)
        found = monitor(server)
    with ApacheServer(tmp_path / "apache") as apache:
        apache.ask("srst")
        with Client(apache.hosts, ClientOptions(session_timeout_ms=600_000)) as client:
            work(client)
            client.add_watch("/a", AddWatchMode.PERSISTENT)
            client.get_children("/a", True)
            expected = {f"zk_{name}": value for name, value in apache.monitor().items()}
    wanted = {name for name in expected if not name.endswith(UNTOLD)}
    assert wanted - set(found) == set()
    assert {name for name in found if not name.startswith("zk_keepfast_")} - wanted == set()
    # Not packets_sent: Apache counts a packet behind its sending, when the client may have it.
    same = (
        *("server_state", "packets_received", "znode_count", "watch_count"),
        *("ephemerals_count", "approximate_data_size", "global_sessions", "outstanding_requests"),
        *("num_alive_connections", "bytes_received_count", "connection_request_count"),
        *("cnt_updatelatency", "cnt_readlatency", "cnt_node_created_watch_count"),
        *("cnt_node_changed_watch_count", "watch_bytes", "last_client_response_size"),
    )
    assert {name: found[f"zk_{name}"] for name in same} == {
        name: expected[f"zk_{name}"] for name in same
    }
