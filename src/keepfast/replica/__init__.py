"""One whole server without I/O: connections, sessions, the order of requests, roles.

What may live here: every decision a server takes about its clients and, with `quorum`, about its
peers. What may not: sockets, files, threads, clocks, logging. The driver passes in bytes, times and
what became durable; it takes out bytes to send, records to store and connections to close.
"""

from keepfast.replica.audit import AuditRecord
from keepfast.replica.authentication import AuthenticationOptions
from keepfast.replica.backpressure import go_on
from keepfast.replica.condition import CatchUpReport, Census, census_of, why_not_serving
from keepfast.replica.connection import NO_OPERATION, Connection, Phase
from keepfast.replica.member import Member, Role, StoreFacts
from keepfast.replica.members import proposed_membership
from keepfast.replica.options import ReplicaOptions
from keepfast.replica.proposals import WRITES, Append
from keepfast.replica.reads import answer_single
from keepfast.replica.replica import Replica
from keepfast.replica.sasl import QUORUM_SERVICE, DigestMd5, DigestMd5Client
from keepfast.replica.statistics import (
    Distribution,
    ReplicaStatistics,
    ResponseSizes,
    Summary,
    TreeDigest,
)
from keepfast.replica.throttle import ThrottleOptions

__all__ = [
    "NO_OPERATION",
    "QUORUM_SERVICE",
    "WRITES",
    "Append",
    "AuditRecord",
    "AuthenticationOptions",
    "CatchUpReport",
    "Census",
    "Connection",
    "DigestMd5",
    "DigestMd5Client",
    "Distribution",
    "Member",
    "Phase",
    "Replica",
    "ReplicaOptions",
    "ReplicaStatistics",
    "ResponseSizes",
    "Role",
    "StoreFacts",
    "Summary",
    "ThrottleOptions",
    "TreeDigest",
    "answer_single",
    "census_of",
    "go_on",
    "proposed_membership",
    "why_not_serving",
]
