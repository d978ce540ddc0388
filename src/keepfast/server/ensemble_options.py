"""Builds an ensemble member's options from the configuration."""

from __future__ import annotations

import os

from keepfast.apache import ServerConfig
from keepfast.quorum import Address, ElectionOptions, QuorumOptions
from keepfast.server.election_links import LinkOptions
from keepfast.server.peer_network import EnsembleOptions
from keepfast.server.security_options import has_closed_quorum_ports
from keepfast.wire import ServerId, invariant

_ALL_ADDRESSES = "0.0.0.0"


def ensemble_options(config: ServerConfig) -> EnsembleOptions:
    """This server's place among its peers, and its timeouts."""
    ensemble, timing = config.ensemble, config.timing
    membership = ensemble.membership
    my_id = ensemble.my_id
    invariant(my_id is not None, "the configuration of an ensemble says which server this is")
    me = membership.find(ServerId(my_id or 0))
    quorum, election = ((), ()) if me is None else (me.quorum, me.election)
    if ensemble.quorum_listen_on_all_ips:
        quorum = tuple(Address(_ALL_ADDRESSES, port) for _, port in quorum)
        election = tuple(Address(_ALL_ADDRESSES, port) for _, port in election)
    identify_ms = ensemble.quorum_cnxn_timeout_ms
    # Where servers authenticate, their address does not matter.
    is_address_checked = ensemble.check_addresses and not has_closed_quorum_ports(config)
    return EnsembleOptions(
        server_id=my_id or 0,
        membership=membership,
        quorum_addresses=quorum,
        election_addresses=election,
        quorum=QuorumOptions(
            tick_ms=timing.tick_time_ms,
            init_limit=timing.init_limit,
            sync_limit=timing.sync_limit,
            snapshot_size_factor=config.data.snapshot_size_factor,
            max_snapshot_catch_ups=ensemble.max_concurrent_snap_syncs,
            max_diff_catch_ups=ensemble.max_concurrent_diff_syncs,
            max_unsent_bytes=ensemble.max_unsent_bytes,
            is_empty_trusted=config.data.db_autocreate,
            is_read_only_enabled=config.features.read_only_mode,
            is_reconfig_enabled=config.features.reconfig_enabled,
            is_standalone_enabled=config.features.standalone_enabled,
            is_address_checked=is_address_checked,
            is_secret_shared=config.auth.has_session_secret and not config.auth.session_secret_file,
            election=ElectionOptions(
                min_interval_ms=ensemble.min_notification_interval_ms,
                max_interval_ms=ensemble.max_notification_interval_ms,
                learns_members=config.features.reconfig_enabled,
            ),
        ),
        links=LinkOptions(
            connect_timeout_ms=ensemble.cnx_timeout_ms,
            identify_timeout_ms=identify_ms if identify_ms > 0 else timing.sync_limit_ms,
            bind_attempts=ensemble.election_port_bind_retry,
            is_address_checked=is_address_checked,
            is_multi_address=ensemble.multi_address_enabled,
            is_keep_alive=ensemble.quorum_tcp_keep_alive,
        ),
        config_file=_file_of_members(config),
    )


def _file_of_members(config: ServerConfig) -> str | None:
    """The file that a membership change is written to; None if the members come from none."""
    if config.file is None or not config.features.reconfig_enabled:
        return None
    dynamic = config.ensemble.dynamic_config_file
    keys = ["dynamicConfigFile"] if dynamic else [k for k, _ in config.ensemble.membership.lines()]
    # Members configured elsewhere would contradict the file at the next start.
    if not all(
        config.origins.get(key, f"{config.file}:").startswith(f"{config.file}:") for key in keys
    ):
        return None
    return os.path.abspath(config.file)
