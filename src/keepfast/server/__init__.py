"""The real world around a replica: sockets, clocks, files, configuration, operations.

What may live here: everything that waits, listens or reads a clock. What may not: a decision about
the protocol; it belongs into `replica` or `quorum`, where a simulation can reach it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keepfast.server.admin_options import AdminOptions
from keepfast.server.config import ConfigError, ServerConfig, load_config, split_definitions
from keepfast.server.logs import LogFormat, configure_logs
from keepfast.server.security_options import check_files
from keepfast.server.serve import options_of, run_server
from keepfast.server.server import NotWholeError, Server
from keepfast.server.server_options import ServerOptions

if TYPE_CHECKING:
    from keepfast.server.local_ensemble import (
        MARKER_NAME,
        Layout,
        LocalEnsembleError,
        Ports,
        Route,
        ServerProcess,
        check_ports,
        held,
        open_layout,
        write_configurations,
    )
    from keepfast.server.local_network import Network
    from keepfast.server.local_ports import LOCAL_HOST, HeldPorts, free_ports
    from keepfast.server.local_process import LocalProcess, stop_all
    from keepfast.server.member_driver import EnsembleOptions
else:
    # What a server alone does not need, and ensembles on one machine, for tests and demos: imported
    # when they are asked for, as the start of a server is little else than imports.
    _LATE: Final = {
        "EnsembleOptions": "member_driver",
        "MARKER_NAME": "local_ensemble",
        "Layout": "local_ensemble",
        "LocalEnsembleError": "local_ensemble",
        "Ports": "local_ensemble",
        "Route": "local_ensemble",
        "ServerProcess": "local_ensemble",
        "check_ports": "local_ensemble",
        "held": "local_ensemble",
        "open_layout": "local_ensemble",
        "write_configurations": "local_ensemble",
        "Network": "local_network",
        "LOCAL_HOST": "local_ports",
        "HeldPorts": "local_ports",
        "free_ports": "local_ports",
        "LocalProcess": "local_process",
        "stop_all": "local_process",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)


__all__ = [
    "LOCAL_HOST",
    "MARKER_NAME",
    "AdminOptions",
    "ConfigError",
    "EnsembleOptions",
    "HeldPorts",
    "Layout",
    "LocalEnsembleError",
    "LocalProcess",
    "LogFormat",
    "Network",
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
    "free_ports",
    "held",
    "load_config",
    "open_layout",
    "options_of",
    "run_server",
    "split_definitions",
    "stop_all",
    "write_configurations",
]
