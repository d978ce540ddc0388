"""The metrics of a server under Apache's names: for mntr, /commands/monitor and Prometheus.

`collect` takes the current values; nothing is kept between two calls, and nothing runs between
them: counters are updated where the work is done.

An Apache metric without a counterpart here is reported as 0, so that dashboards and alerts that use
it keep working.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from keepfast.quorum import Step
from keepfast.replica import Distribution, Summary
from keepfast.server.ensemble_report import standing_of
from keepfast.server.metric_help import HELP
from keepfast.server.reports import file_descriptors, node_count
from keepfast.server.running_server import RunningServer
from keepfast.storage import Standing
from keepfast.tree import quota_uses
from keepfast.wire import EventType

_DECIMALS: Final = 4
_SMALL_DECIMALS: Final = 7
_TOTAL: Final = "_total"
_QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
_SHOWN_QUANTILES: Final = (0.5, 0.9, 0.99)

_COUNTERS: Final = (
    *(
        "add_dead_watcher_stall_time",
        "bytes_received_count",
        "cnxn_closed_without_zk_server_running",
    ),
    *("commit_count", "connection_drop_count", "connection_rejected", "connection_request_count"),
    *("connection_revalidate_count", "dead_watchers_cleared", "dead_watchers_queued", "diff_count"),
    *("digest_mismatches_count", "ensemble_auth_fail", "ensemble_auth_skip"),
    *("ensemble_auth_success", "insecure_admin_count", "large_requests_rejected"),
    *("learner_commit_received_count", "learner_proposal_received_count", "looking_count"),
    *("outstanding_changes_queued", "outstanding_changes_removed", "prep_processor_request_queued"),
    *("proposal_count", "quit_leading_due_to_disloyal_voter", "request_commit_queued"),
    *("request_throttle_wait_count", "requests_not_forwarded_to_commit_processor"),
    *("response_bytes", "response_packet_cache_hits", "response_packet_cache_misses"),
    *("response_packet_get_children_cache_hits", "response_packet_get_children_cache_misses"),
    *("restore_error_count", "restore_rate_limited_count", "revalidate_count"),
    *("sessionless_connections_expired", "skip_learner_request_to_next_processor_count"),
    *("snap_count", "snapshot_error_count", "snapshot_rate_limited_count", "stale_replies"),
    *("stale_requests", "stale_requests_dropped", "stale_sessions_expired"),
    *("sync_processor_request_queued", "throttled_ops", "tls_handshake_exceeded"),
    *("unrecoverable_error_count", "unsuccessful_handshake", "watch_bytes"),
)
_SUMMARIES: Final = (
    *("commit_commit_proc_req_queued", "commit_process_time"),
    *("concurrent_request_processing_in_commit_processor", "connection_token_deficit"),
    *("dbinittime", "election_time", "follower_sync_time", "fsynctime", "inflight_diff_count"),
    *("inflight_snap_count", "leader_unavailable_time", "learner_request_processor_queue_size"),
    *("netty_queued_buffer_capacity", "node_changed_watch_count", "node_children_watch_count"),
    *("node_created_watch_count", "node_deleted_watch_count", "observer_sync_time"),
    *("pending_session_queue_size", "prep_process_time", "prep_processor_queue_size"),
    *("proposal_process_time", "read_commit_proc_issued", "read_commit_proc_req_queued"),
    *("reads_after_write_in_session_queue", "reads_issued_from_session_queue"),
    *("requests_in_session_queue", "restore_time", "session_queues_drained", "snapshottime"),
    *("socket_closing_time", "startup_snap_load_time", "startup_txns_load_time"),
    *("startup_txns_loaded", "sync_process_time", "sync_processor_batch_size"),
    *("sync_processor_queue_size", "time_waiting_empty_pool_in_commit_processor_read_ms"),
    *("unavailable_time", "write_batch_time_in_commit_processor", "write_commit_proc_issued"),
    *("write_commit_proc_req_queued",),
)
_DISTRIBUTIONS: Final = (
    *("close_session_prep_time", "commit_propagation_latency", "dead_watchers_cleaner_latency"),
    *("jvm_pause_time_ms", "local_write_committed_time_ms", "om_commit_process_time_ms"),
    *("om_proposal_process_time_ms", "prep_processor_queue_time_ms", "propagation_latency"),
    *("proposal_ack_creation_latency", "proposal_latency", "quorum_ack_latency"),
    *("read_commitproc_time_ms", "read_final_proc_time_ms", "readlatency"),
    *("request_throttle_queue_time_ms", "server_write_committed_time_ms"),
    *("sync_processor_queue_and_flush_time_ms", "sync_processor_queue_flush_time_ms"),
    *("sync_processor_queue_time_ms", "updatelatency", "write_commitproc_time_ms"),
    *("write_final_proc_time_ms",),
)


class MetricKind(Enum):
    """What a metric is."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


class Metric(NamedTuple):
    """One value; `key` is set for one of a set, such as a namespace."""

    name: str
    kind: MetricKind
    value: float | Summary
    key: str = ""


def collect(server: RunningServer) -> list[Metric]:
    """All metrics, in a fixed order: gauges, counters, summaries, distributions, our own."""
    counters = dict.fromkeys(_COUNTERS, 0) | _counters(server)
    unused: dict[str, Summary] = dict.fromkeys(_SUMMARIES, Summary())
    unused |= dict.fromkeys(_DISTRIBUTIONS, Distribution())
    return [
        *_metrics(MetricKind.GAUGE, _gauges(server)),
        *_metrics(MetricKind.GAUGE, _ensemble_gauges(server)),
        *_quota_gauges(server),
        *_metrics(MetricKind.COUNTER, counters),
        *_metrics(MetricKind.SUMMARY, unused | _summaries(server)),
        *_metrics(MetricKind.GAUGE, _own_gauges(server)),
        *_metrics(MetricKind.COUNTER, _own_counters(server)),
    ]


def _metrics(kind: MetricKind, values: Mapping[str, float | Summary]) -> Iterator[Metric]:
    return (Metric(name, kind, value) for name, value in values.items())


def _gauges(server: RunningServer) -> dict[str, float]:
    replica = server.replica
    tree, statistics = replica.tree, replica.statistics
    latency, sizes = statistics.latency(), statistics.responses
    descriptors, max_descriptors = file_descriptors()
    return {
        "avg_latency": float(round(latency.mean, _DECIMALS)),
        "min_latency": int(latency.least),
        "max_latency": int(latency.greatest),
        "packets_received": statistics.received,
        "packets_sent": statistics.sent,
        "num_alive_connections": server.connection_count,
        "outstanding_requests": replica.outstanding,
        "uptime": server.uptime_ms,
        "znode_count": node_count(server),
        "watch_count": replica.service.watches.reported_count(),
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "approximate_data_size": tree.data_size,
        "global_sessions": len(replica.service.sessions),
        "local_sessions": len(replica.handshake.local),
        "open_file_descriptor_count": descriptors,
        "max_file_descriptor_count": max_descriptors,
        "connection_drop_probability": round(replica.throttle.connections.drop, _DECIMALS),
        "last_client_response_size": sizes.last,
        "min_client_response_size": sizes.least,
        "max_client_response_size": sizes.greatest,
        "outstanding_tls_handshake": 0,
        "auth_failed_count": statistics.auth_failures,
        "non_mtls_remote_conn_count": 0,
        "non_mtls_local_conn_count": 0,
    }


def _ensemble_gauges(server: RunningServer) -> dict[str, float]:
    """Those that only members of an ensemble have, by Apache's names."""
    member = server.member
    if member is None:
        return {}
    gauges: dict[str, float] = {"quorum_size": len(member.state.quorums.voters)}
    leader = member.leader
    if leader is not None:
        current = [one for one in leader.learners.values() if one.step is Step.CURRENT]
        voting = [one for one in current if one.server_id in member.state.quorums.voters]
        followers = [one for one in voting if one.is_follower]
        proposals = server.replica.statistics.proposals
        gauges |= {
            "learners": len(leader.learners),
            "synced_followers": len(followers),
            "synced_non_voting_followers": sum(one.is_follower for one in current) - len(followers),
            "synced_observers": sum(not one.is_follower for one in current),
            "pending_syncs": 0,
            "leader_uptime": member.state.now_ms - leader.started_ms,
            "last_proposal_size": proposals.last,
            "min_proposal_size": proposals.least,
            "max_proposal_size": proposals.greatest,
        }
    return gauges


def _quota_gauges(server: RunningServer) -> Iterator[Metric]:
    """Quotas, added up by the first part of their paths."""
    sums: dict[str, list[int]] = {}
    for path, *numbers in quota_uses(server.replica.tree):
        namespace = path.split("/")[1]
        known = sums.get(namespace, [0] * len(numbers))
        sums[namespace] = [a + b for a, b in zip(known, numbers, strict=True)]
    for position, what in enumerate(("count_limit", "bytes_limit", "count_usage", "bytes_usage")):
        for namespace, totals in sorted(sums.items()):
            name = f"quota_{what}_per_namespace"
            yield Metric(name, MetricKind.GAUGE, totals[position], namespace)


def _counters(server: RunningServer) -> dict[str, int]:
    replica, own = server.replica.statistics, server.statistics
    return {
        "bytes_received_count": replica.bytes_received,
        "response_bytes": max(replica.bytes_sent - replica.watch_bytes, 0),
        "watch_bytes": replica.watch_bytes,
        "connection_request_count": replica.connects,
        "connection_revalidate_count": replica.revalidations,
        "connection_drop_count": replica.drops,
        "connection_rejected": own.connections_refused + replica.throttle_refusals,
        "sessionless_connections_expired": replica.sessionless_expired,
        "large_requests_rejected": replica.large_refusals,
        "request_throttle_wait_count": replica.throttled,
        "throttled_ops": replica.throttled_out,
        "stale_sessions_expired": replica.expired_sessions,
        "proposal_count": replica.proposed,
        "sync_processor_request_queued": own.records_stored,
        "snapshot_error_count": own.snapshots_failed,
        "snapshot_rate_limited_count": own.snapshots_refused,
        "unrecoverable_error_count": own.disk_failures,
    }


def _summaries(server: RunningServer) -> dict[str, Summary]:
    replica, own = server.replica.statistics, server.statistics
    notified = replica.watchers_told
    return {
        "fsynctime": own.fsync,
        "snapshottime": own.snapshot,
        "dbinittime": own.recovery,
        "startup_txns_loaded": own.records_replayed,
        "sync_processor_batch_size": own.group_size,
        "sync_processor_queue_flush_time_ms": own.group_time,
        "readlatency": replica.read_latency(),
        "updatelatency": replica.updates,
        # On a standalone server the two are the same.
        "propagation_latency": replica.updates,
        "connection_token_deficit": replica.token_deficit,
        "node_created_watch_count": notified[EventType.NODE_CREATED],
        "node_deleted_watch_count": notified[EventType.NODE_DELETED],
        "node_changed_watch_count": notified[EventType.NODE_DATA_CHANGED],
        "node_children_watch_count": notified[EventType.NODE_CHILDREN_CHANGED],
    }


def _own_gauges(server: RunningServer) -> dict[str, float]:
    """What Apache has no name for."""
    store, standing, turns = server.store, standing_of(server), server.statistics.turns
    gauges: dict[str, float] = {
        "keepfast_data_whole": int(standing is Standing.WHOLE and not store.degraded),
        "keepfast_serving": int(server.is_serving),
        "keepfast_writable": int(server.replica.service.is_writable),
        "keepfast_disk_free_bytes": server.free_bytes(),
        "keepfast_last_zxid": server.replica.tree.last_zxid,
        "keepfast_loop_held_worst_seconds": round(turns.worst_ms / 1000, _SMALL_DECIMALS),
        "keepfast_loop_held_p99_seconds": round(turns.quantile_ms(0.99) / 1000, _SMALL_DECIMALS),
    }
    member = server.member
    if member is not None:
        leader = member.state.server_id if member.leader is not None else member.state.leader_id
        gauges |= {
            "keepfast_accepted_epoch": member.state.accepted_epoch,
            "keepfast_current_epoch": member.state.current_epoch,
            "keepfast_leader_id": -1 if leader is None else leader,
        }
    return gauges


def _own_counters(server: RunningServer) -> dict[str, int]:
    statistics = server.statistics
    return {
        "keepfast_slow_fsyncs_total": statistics.fsyncs_over_limit,
        "keepfast_slow_turns_total": statistics.turns.over_limit,
    }


def flat_values(metrics: Sequence[Metric]) -> Iterator[tuple[str, float]]:
    """Names and numbers as mntr prints them, without the prefix zk_."""
    for name, _, value, key in metrics:
        full = f"{key}_{name}" if key else name
        if not isinstance(value, Summary):
            yield full, value
            continue
        yield f"avg_{full}", float(round(value.mean, _DECIMALS))
        yield f"min_{full}", int(value.least)
        yield f"max_{full}", int(value.greatest)
        yield f"cnt_{full}", value.count
        yield f"sum_{full}", int(value.total)
        if isinstance(value, Distribution):
            for prefix, fraction in _QUANTILES:
                yield f"{prefix}_{full}", value.quantile(fraction)


def exposition(metrics: Sequence[Metric]) -> bytes:
    """The text format of Prometheus. Takes some ms: not for the event loop."""
    # A tenth of a second to load, which a server that nobody scrapes need not spend.
    from prometheus_client import generate_latest
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

    families: dict[str, Family] = {}
    for name, kind, value, key in metrics:
        # Apache's counters do not end in _total, and the library adds that to every counter.
        is_untyped = kind is MetricKind.COUNTER and not name.endswith(_TOTAL)
        shown_kind = "unknown" if is_untyped else kind.value
        shown_name = name.removesuffix(_TOTAL)
        family = families.setdefault(name, Family(shown_name, _help(name), shown_kind))
        labels = {"key": key} if key else {}
        if not isinstance(value, Summary):
            family.add_sample(name, labels, value)
            continue
        if isinstance(value, Distribution):
            for fraction in _SHOWN_QUANTILES:
                quantile = {**labels, "quantile": str(fraction)}
                family.add_sample(name, quantile, value.quantile(fraction))
        family.add_sample(f"{name}_count", labels, value.count)
        family.add_sample(f"{name}_sum", labels, value.total)

    class Values(Collector):
        def collect(self) -> Iterator[Family]:
            yield from families.values()

    return generate_latest(Values())


def _help(name: str) -> str:
    return HELP.get(name, "Always 0: Keepfast has nothing that corresponds to this Apache metric.")
