"""The real world around a replica: sockets, clocks, files, configuration, operations.

What may live here: everything that waits, listens or reads a clock. What may not: a decision about
the protocol; it belongs into `replica` or `quorum`, where a simulation can reach it.
"""

from keepfast.server.admin import AdminOptions
from keepfast.server.config import ConfigError, ServerConfig, load_config, split_definitions
from keepfast.server.logs import LogFormat, configure_logs
from keepfast.server.security_options import check_files
from keepfast.server.serve import options_of, run_server
from keepfast.server.server import NotWholeError, Server, ServerOptions

__all__ = [
    "AdminOptions",
    "ConfigError",
    "LogFormat",
    "NotWholeError",
    "Server",
    "ServerConfig",
    "ServerOptions",
    "check_files",
    "configure_logs",
    "load_config",
    "options_of",
    "run_server",
    "split_definitions",
]
