"""The real world around a replica: sockets, clocks, files, configuration, operations.

What may live here: everything that waits, listens or reads a clock. What may not: a decision about
the protocol; it belongs in `replica` or `quorum`, where a simulation can reach it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keepfast.server.admin_options import AdminOptions
from keepfast.server.last_turns import LAST_TURNS, close_listener
from keepfast.server.logs import LogFormat, configure_logs
from keepfast.server.security_options import check_files
from keepfast.server.serve import options_of, run_server
from keepfast.server.server import ListeningServer, NotWholeError
from keepfast.server.server_options import ServerOptions

if TYPE_CHECKING:
    from keepfast.server.election_links import LinkSecurity
    from keepfast.server.peer_network import EnsembleOptions
else:
    # What a standalone server does not need: imported on demand, because startup is little more
    # than imports.
    _LATE: Final = {"EnsembleOptions": "peer_network", "LinkSecurity": "election_links"}

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)


__all__ = [
    "LAST_TURNS",
    "AdminOptions",
    "EnsembleOptions",
    "LinkSecurity",
    "ListeningServer",
    "LogFormat",
    "NotWholeError",
    "ServerOptions",
    "check_files",
    "close_listener",
    "configure_logs",
    "options_of",
    "run_server",
]
