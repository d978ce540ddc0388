"""Running a server in the foreground: from a configuration to a clean end."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from keepfast.replica import ReplicaOptions
from keepfast.server.admin_options import admin_options
from keepfast.server.config import ConfigError, ServerConfig
from keepfast.server.security_options import (
    authentication_options,
    peer_security,
    tls_options,
)
from keepfast.server.server import NotWholeError, Server
from keepfast.server.server_options import ServerOptions
from keepfast.server.throttle_options import throttle_options
from keepfast.storage import Compression, StoreOptions
from keepfast.tree import PrepareOptions
from keepfast.wire import StorageError

if TYPE_CHECKING:
    from keepfast.server.member_driver import EnsembleOptions

log = logging.getLogger("keepfast.server")

EXIT_OK = 0
EXIT_WRONG = 1
EXIT_FAILED = 4

# What a request leaves behind is freed at once, for it is in no cycle; hundreds of writes under way
# would have the collector look at them again and again, to find nothing.
_GC_THRESHOLDS = (20_000, 20, 50)


def options_of(config: ServerConfig) -> ServerOptions:
    """What a configuration means; reads the files it names. Raises ConfigError for those."""
    address = config.client_address
    data, limits, features, timing = config.data, config.limits, config.features, config.timing
    return ServerOptions(
        data_dir=data.data_dir,
        log_dir=data.data_log_dir if data.data_log_dir != data.data_dir else None,
        host=config.client.host,
        port=None if address is None else address.port,
        tls=tls_options(config),
        backlog=config.client.backlog,
        is_keep_alive=config.client.tcp_keep_alive,
        max_connections_per_address=max(limits.max_client_cnxns, 0),
        max_connections=max(limits.max_cnxns, 0),
        snapshot_every=data.snap_count,
        retain_snapshots=data.autopurge_snap_retain_count
        if data.autopurge_purge_interval_ms > 0
        else 0,
        word_whitelist=config.four_letter_words,
        slow_fsync_ms=data.fsync_warning_threshold_ms,
        admin=admin_options(config),
        ensemble=_ensemble(config),
        security=peer_security(config),
        replica=ReplicaOptions(
            server_id=config.ensemble.my_id if config.ensemble.my_id is not None else 1,
            tick_ms=timing.tick_time_ms,
            has_local_sessions=config.is_distributed and config.sessions.local_sessions_enabled,
            has_session_upgrades=config.sessions.local_sessions_upgrading_enabled,
            min_session_timeout_ms=timing.min_session_timeout_ms,
            max_session_timeout_ms=timing.max_session_timeout_ms,
            max_frame_bytes=limits.jute_max_buffer,
            max_field_bytes=limits.jute_max_buffer + limits.jute_max_buffer_extra_size,
            outstanding_limit=limits.global_outstanding_limit,
            super_digest=config.auth.super_digest or None,
            is_audited=config.audit.enable,
            authentication=authentication_options(config.auth),
            throttle=throttle_options(config),
            container_check_ms=features.container_check_interval_ms,
            container_max_per_minute=features.container_max_per_minute,
            container_max_never_used_ms=features.container_max_never_used_interval_ms,
            prepare=PrepareOptions(
                is_ttl_enabled=features.extended_types,
                is_quota_enforced=features.enforce_quota,
                is_acl_skipped=features.skip_acl,
                schemes=config.auth.schemes,
            ),
        ),
        store=StoreOptions(
            grow_bytes=min(max(data.pre_alloc_size_kb, 64) << 10, 1 << 20),
            segment_bytes=_segment_bytes(data.txn_log_size_limit_kb),
            reserve_bytes=data.disk_reserve_kb << 10,
            compression=Compression(data.compression.value),
        ),
    )


def _ensemble(config: ServerConfig) -> EnsembleOptions | None:
    if not config.is_distributed:
        return None
    # Here, because most of what it takes is of no use to a server alone.
    from keepfast.server.ensemble_options import ensemble_options

    return ensemble_options(config)


def _segment_bytes(limit_kb: int) -> int:
    """Where a log file is rolled; without a limit where one has become unwieldy."""
    return limit_kb << 10 if limit_kb > 0 else StoreOptions().segment_bytes


def run_server(config: ServerConfig, ready: Callable[[Server], None], errors: TextIO) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit code. `ready` is called once it serves."""
    try:
        options = options_of(config)
    except ConfigError as error:
        print(f"keepfast: {error}", file=errors)
        return EXIT_FAILED
    loop_factory = None
    if sys.platform != "win32":
        try:
            import uvloop
        except ImportError:
            log.info("loop kind=asyncio reason=uvloop-is-not-installed")
        else:
            loop_factory = uvloop.new_event_loop
    gc.set_threshold(*_GC_THRESHOLDS)
    # What was imported stays: the collector need not walk over it ever again.
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_serve(Server(options), ready, errors))


async def _serve(server: Server, ready: Callable[[Server], None], errors: TextIO) -> int:
    try:
        await server.start()
    except NotWholeError as error:
        recovery = error.recovery
        print(
            f"keepfast: the data in {server.options.data_dir} is {recovery.standing.value}; "
            "this server does not serve it. See keepfast verify.",
            file=errors,
        )
        for problem in recovery.problems:
            print(f"  {problem}", file=errors)
        return EXIT_WRONG
    except (ConfigError, StorageError, OSError) as error:
        print(f"keepfast: cannot start: {error}", file=errors)
        return EXIT_FAILED
    ready(server)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stopped.set)
    failed = loop.create_task(server.wait_failed())
    waiting = loop.create_task(stopped.wait())
    await asyncio.wait({failed, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        waiting.cancel()
        print(f"keepfast: stopped: {failed.result()}", file=errors)
        return EXIT_FAILED
    failed.cancel()
    await server.stop()
    return EXIT_OK
