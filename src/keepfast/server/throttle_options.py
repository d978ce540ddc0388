"""Builds a replica's throttling options from the configuration."""

from __future__ import annotations

from keepfast.apache import ServerConfig
from keepfast.replica import ThrottleOptions


def throttle_options(config: ServerConfig) -> ThrottleOptions:
    """The limits on connections and requests."""
    connections, requests, limits = (
        config.connection_throttle,
        config.request_throttle,
        config.limits,
    )
    # With weights, the configured tokens are for new sessions.
    weight, renewal = 1, 1
    if connections.weight_enabled:
        least = connections.local_session_weight
        weight = max(connections.global_session_weight, least)
        renewal = max(connections.renew_session_weight, least)
    return ThrottleOptions(
        connection_tokens=connections.tokens * weight,
        fill_count=connections.fill_count * weight,
        fill_ms=connections.fill_time_ms,
        freeze_ms=connections.freeze_time_ms,
        drop_increase=connections.drop_increase,
        drop_decrease=connections.drop_decrease,
        decrease_ratio=connections.decrease_ratio,
        new_session_weight=weight,
        renewal_weight=renewal,
        sessionless_ms=config.client.sessionless_timeout_ms,
        max_requests=requests.max_requests,
        max_wait_ms=requests.throttled_op_wait_time_ms,
        large_request_bytes=limits.large_request_threshold,
        large_requests_max_bytes=limits.large_request_max_bytes,
    )
