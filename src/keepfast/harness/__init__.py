"""Servers as local processes, ours and Apache's: started, stopped, killed, partitioned.

What may live here: processes, the ports and the wires between them, the files that they are started
with, and where releases of Apache's come from. What may not: what is done with them; that is for
`lab`, `testing`, `cli` and the tests.
"""

from keepfast.harness.local_ensemble import (
    MARKER_NAME,
    EnsembleLayout,
    LocalEnsembleError,
    Ports,
    Route,
    ServerProcess,
    check_ports,
    held,
    open_layout,
    write_configurations,
)
from keepfast.harness.local_network import Network
from keepfast.harness.local_ports import LOCAL_HOST, HeldPorts, free_ports
from keepfast.harness.local_process import LocalProcess, stop_all
from keepfast.harness.releases import Release, ReleaseError, find_release

__all__ = [
    "LOCAL_HOST",
    "MARKER_NAME",
    "EnsembleLayout",
    "HeldPorts",
    "LocalEnsembleError",
    "LocalProcess",
    "Network",
    "Ports",
    "Release",
    "ReleaseError",
    "Route",
    "ServerProcess",
    "check_ports",
    "find_release",
    "free_ports",
    "held",
    "open_layout",
    "stop_all",
    "write_configurations",
]
