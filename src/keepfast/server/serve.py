"""Running a server in the foreground: from a configuration to a clean end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

from keepfast.apache import ConfigError, ServerConfig
from keepfast.replica import ReplicaOptions
from keepfast.server.admin_options import admin_options
from keepfast.server.security_options import (
    authentication_options,
    peer_security,
    tls_options,
)
from keepfast.server.server import ListeningServer, NotWholeError
from keepfast.server.server_options import ServerOptions
from keepfast.server.systemd import SystemdNotifier
from keepfast.server.throttle_options import throttle_options
from keepfast.storage import Compression, StoreOptions, storage_error
from keepfast.tree import PrepareOptions
from keepfast.wire import MAX_TXN_BYTES, StorageError, safe_lines

if TYPE_CHECKING:
    from keepfast.server.peer_network import EnsembleOptions

log = logging.getLogger("keepfast.server")

EXIT_OK = 0
EXIT_WRONG = 1
EXIT_FAILED = 4

# Beside the data of a member of a new ensemble.
MARKER_NAME: Final = "initialize"

# What a request leaves behind is freed at once, for it is in no cycle; hundreds of writes under way
# would have the collector look at them again and again, to find nothing. But it looks at all that
# is new in one go: 20,000 objects, which a large multi makes in a few turns, took it up to 8 ms.
_GC_THRESHOLDS = (5_000, 2, 2_000)


def options_of(config: ServerConfig) -> ServerOptions:
    """Builds options from a configuration and the files it names. Raises ConfigError for those."""
    address = config.client_address
    data = config.data
    return ServerOptions(
        data_dir=data.data_dir,
        log_dir=data.data_log_dir if data.data_log_dir != data.data_dir else None,
        host=config.client.host,
        port=None if address is None else address.port,
        tls=tls_options(config),
        backlog=config.client.backlog,
        is_keep_alive=config.client.tcp_keep_alive,
        snapshot_every=data.snap_count,
        snapshot_every_bytes=max(data.snap_size_limit_kb, 0) << 10,
        snapshot_every_percent=data.snap_znode_percent,
        retain_snapshots=data.autopurge_snap_retain_count
        if data.autopurge_purge_interval_ms > 0
        else 0,
        word_whitelist=config.four_letter_words,
        slow_fsync_ms=data.fsync_warning_threshold_ms,
        session_passwords_file=config.auth.session_secret_file,
        has_session_secret=config.auth.has_session_secret,
        admin=admin_options(config),
        ensemble=_ensemble(config),
        security=peer_security(config),
        replica=_replica_options(config),
        store=StoreOptions(
            grow_bytes=min(max(data.pre_alloc_size_kb, 64) << 10, 1 << 20),
            segment_bytes=_segment_bytes(data.txn_log_size_limit_kb),
            reserve_bytes=data.disk_reserve_kb << 10,
            compression=Compression(data.compression),
        ),
    )


def _replica_options(config: ServerConfig) -> ReplicaOptions:
    limits, features, timing = config.limits, config.features, config.timing
    return ReplicaOptions(
        server_id=config.ensemble.my_id if config.ensemble.my_id is not None else 1,
        tick_ms=timing.tick_time_ms,
        has_local_sessions=config.is_distributed and config.sessions.local_sessions_enabled,
        is_leader_serving=features.leader_serves,
        is_reconfig_enabled=features.reconfig_enabled,
        has_session_upgrades=config.sessions.local_sessions_upgrading_enabled,
        min_session_timeout_ms=timing.min_session_timeout_ms,
        max_session_timeout_ms=timing.max_session_timeout_ms,
        max_frame_bytes=limits.jute_max_buffer,
        max_field_bytes=limits.jute_max_buffer + limits.jute_max_buffer_extra_size,
        max_connections_per_address=max(limits.max_client_cnxns, 0),
        max_connections=max(limits.max_cnxns, 0),
        max_watch_bytes=limits.max_watch_bytes,
        outstanding_limit=limits.global_outstanding_limit,
        super_digest=config.auth.super_digest or None,
        is_audited=config.audit.enable,
        authentication=replace(
            authentication_options(config.auth), max_id_bytes=limits.max_id_bytes
        ),
        throttle=throttle_options(config),
        container_check_ms=features.container_check_interval_ms,
        container_max_per_minute=features.container_max_per_minute,
        container_max_never_used_ms=features.container_max_never_used_interval_ms,
        prepare=PrepareOptions(
            is_ttl_enabled=features.extended_types,
            is_quota_enforced=features.enforce_quota,
            is_acl_skipped=features.skip_acl,
            schemes=config.auth.schemes,
            max_txn_bytes=min(
                limits.jute_max_buffer + limits.jute_max_buffer_extra_size, MAX_TXN_BYTES
            ),
            max_path_bytes=limits.max_path_bytes,
            max_acl_entries=limits.max_acl_entries,
            max_ephemeral_bytes=limits.max_ephemeral_bytes,
            max_ephemerals=limits.max_ephemerals,
        ),
    )


def _ensemble(config: ServerConfig) -> EnsembleOptions | None:
    if not config.is_distributed:
        return None
    # Here, because most of what it takes is unusable to a standalone server.
    from keepfast.server.ensemble_options import ensemble_options

    return ensemble_options(config)


def check_directories(config: ServerConfig) -> None:
    """Raise ConfigError if a directory is missing that this server may not create."""
    data = config.data
    if data.datadir_autocreate:
        return
    for key, path in (("dataDir", data.data_dir), ("dataLogDir", data.data_log_dir)):
        # What Apache looks for: the folder inside, which only a mounted disk has.
        place = os.path.join(path, "version-2")
        if not os.path.isdir(place):
            reason = f"there is no directory {place}, and datadir.autocreate is off"
            raise ConfigError(reason, key=key, value=path)


def with_marker(options: ServerOptions) -> ServerOptions:
    """Trust an empty directory if the file `initialize` is beside it; removes the file.

    It is valid for one start, as in Apache: left in place, it would let a server whose disk is
    wiped later vote immediately.
    """
    ensemble = options.ensemble
    if ensemble is None:
        return options
    try:
        os.unlink(os.path.join(options.data_dir, MARKER_NAME))
    except FileNotFoundError:
        return options
    log.info("initialize reason=the-operator-says-that-the-ensemble-is-new")
    quorum = replace(ensemble.quorum, is_empty_trusted=True)
    return replace(options, ensemble=msgspec.structs.replace(ensemble, quorum=quorum))


def _segment_bytes(limit_kb: int) -> int:
    """Where a log file is rolled; without a limit where one has become unwieldy."""
    return limit_kb << 10 if limit_kb > 0 else StoreOptions().segment_bytes


def run_server(
    config: ServerConfig, ready: Callable[[ListeningServer], None], errors: TextIO
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `ready` is called once it serves."""
    try:
        options = options_of(config)
        check_directories(config)
        options = with_marker(options)
    except ConfigError as error:
        print(f"keepfast: {safe_lines(str(error))}", file=errors)
        return EXIT_FAILED
    except OSError as error:
        return _cannot_start(error, errors)
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
        return runner.run(_serve(ListeningServer(options), ready, errors))


def _cannot_start(error: Exception, errors: TextIO) -> int:
    if isinstance(error, OSError) and error.filename is not None:
        # Of a file; what went wrong with a socket says so itself.
        error = storage_error(error, error.filename)
    reason = getattr(error, "strerror", None) or str(error)
    print(f"keepfast: cannot start: {safe_lines(reason)}", file=errors)
    return EXIT_FAILED


async def _serve(
    server: ListeningServer, ready: Callable[[ListeningServer], None], errors: TextIO
) -> int:
    notifier = SystemdNotifier(os.environ)
    # From the start: reading the data may take a while, and that is worth a line of status.
    following = asyncio.get_running_loop().create_task(notifier.follow(server.running))
    try:
        return await _serve_until_stopped(server, ready, errors, notifier)
    finally:
        following.cancel()


async def _serve_until_stopped(
    server: ListeningServer,
    ready: Callable[[ListeningServer], None],
    errors: TextIO,
    notifier: SystemdNotifier,
) -> int:
    try:
        await server.start()
    except NotWholeError as error:
        recovery = error.recovery
        print(
            f"keepfast: the data in {server.running.options.data_dir} is "
            f"{recovery.standing.value}; this server does not serve it. See keepfast verify.",
            file=errors,
        )
        for problem in recovery.problems:
            print(f"  {safe_lines(str(problem))}", file=errors)
        return EXIT_WRONG
    except (ConfigError, StorageError, OSError) as error:
        return _cannot_start(error, errors)
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
        print(f"keepfast: stopped: {safe_lines(str(failed.result()))}", file=errors)
        return EXIT_FAILED
    failed.cancel()
    notifier.stopping()
    await server.stop()
    return EXIT_OK
