"""The real world around a replica: sockets, clocks, files, configuration, operations.

What may live here: everything that waits, listens or reads a clock. What may not: a decision about
the protocol; it belongs into `replica` or `quorum`, where a simulation can reach it.
"""

from keepfast.server.admin import AdminOptions
from keepfast.server.config import ConfigError, ServerConfig, load_config, split_definitions
from keepfast.server.local_ensemble import (
    LOCAL_HOST,
    MARKER_NAME,
    Layout,
    LocalEnsembleError,
    Ports,
    Route,
    ServerProcess,
    check_ports,
    held,
    open_layout,
    stop_all,
    write_configurations,
)
from keepfast.server.logs import LogFormat, configure_logs
from keepfast.server.member_driver import EnsembleOptions
from keepfast.server.security_options import check_files
from keepfast.server.serve import options_of, run_server
from keepfast.server.server import NotWholeError, Server, ServerOptions

__all__ = [
    "LOCAL_HOST",
    "MARKER_NAME",
    "AdminOptions",
    "ConfigError",
    "EnsembleOptions",
    "Layout",
    "LocalEnsembleError",
    "LogFormat",
    "NotWholeError",
    "Ports",
    "Route",
    "Server",
    "ServerConfig",
    "ServerOptions",
    "ServerProcess",
    "check_files",
    "check_ports",
    "configure_logs",
    "held",
    "load_config",
    "open_layout",
    "options_of",
    "run_server",
    "split_definitions",
    "stop_all",
    "write_configurations",
]
