"""One whole server without I/O: connections, sessions, the order of requests, roles.

What may live here: every decision a server takes about its clients and, with `quorum`, about its
peers. What may not: sockets, files, threads, clocks, logging. The driver passes in bytes, times and
what became durable; it takes out bytes to send, records to store and connections to close.
"""

from keepfast.replica.audit import AuditRecord
from keepfast.replica.authentication import AuthenticationOptions
from keepfast.replica.connection import NO_OPERATION, Connection, Phase
from keepfast.replica.options import ReplicaOptions
from keepfast.replica.proposals import Append
from keepfast.replica.replica import WRITES, Replica
from keepfast.replica.statistics import (
    Distribution,
    ReplicaStatistics,
    ResponseSizes,
    Summary,
    TreeDigest,
)

__all__ = [
    "NO_OPERATION",
    "WRITES",
    "Append",
    "AuditRecord",
    "AuthenticationOptions",
    "Connection",
    "Distribution",
    "Phase",
    "Replica",
    "ReplicaOptions",
    "ReplicaStatistics",
    "ResponseSizes",
    "Summary",
    "TreeDigest",
]
