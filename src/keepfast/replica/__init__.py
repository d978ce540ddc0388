"""One whole server without I/O: connections, sessions, the order of requests, roles.

What may live here: every decision a server makes about its clients and, with `quorum`, about its
peers. What may not: sockets, files, threads, clocks, logging. The driver passes in bytes, times and
what became durable; it takes out bytes to send, records to store and connections to close.
"""

from keepfast.replica.audit import AuditRecord
from keepfast.replica.authentication import AuthenticationOptions, Proof, digest_id
from keepfast.replica.cadence import CadenceOptions, SnapshotCadence
from keepfast.replica.condition import Census, census_of, why_not_serving
from keepfast.replica.connection import SESSION_CLOSED, Connection, Phase
from keepfast.replica.core import ServerCore
from keepfast.replica.effects import (
    AbortClients,
    AppendTxns,
    CheckProofs,
    CloseClients,
    ContinueRequests,
    ContinueWork,
    PauseReads,
    ResumeReads,
    SendToClients,
    SendToPeers,
    TakeSnapshot,
    TurnEffect,
    WriteAudit,
)
from keepfast.replica.gathering import NO_GROUP, Group
from keepfast.replica.member import Member
from keepfast.replica.members import proposed_membership
from keepfast.replica.pending_write import NO_OPERATION
from keepfast.replica.proposals import WRITES, Append
from keepfast.replica.reads import answer_single
from keepfast.replica.replica import Replica
from keepfast.replica.replica_options import ReplicaOptions, ThrottleOptions
from keepfast.replica.roles import CatchUpReport, Role, StoreFacts
from keepfast.replica.sasl import (
    CLIENT_SERVICE,
    QUORUM_SERVICE,
    DigestMd5,
    DigestMd5Client,
    Exchange,
)
from keepfast.replica.session_passwords import SessionPasswords
from keepfast.replica.statistics import (
    Distribution,
    ReplicaStatistics,
    SizeRange,
    Summary,
    TreeDigest,
)

__all__ = [
    "CLIENT_SERVICE",
    "NO_GROUP",
    "NO_OPERATION",
    "QUORUM_SERVICE",
    "SESSION_CLOSED",
    "WRITES",
    "AbortClients",
    "Append",
    "AppendTxns",
    "AuditRecord",
    "AuthenticationOptions",
    "CadenceOptions",
    "CatchUpReport",
    "Census",
    "CheckProofs",
    "CloseClients",
    "Connection",
    "ContinueRequests",
    "ContinueWork",
    "DigestMd5",
    "DigestMd5Client",
    "Distribution",
    "Exchange",
    "Group",
    "Member",
    "PauseReads",
    "Phase",
    "Proof",
    "Replica",
    "ReplicaOptions",
    "ReplicaStatistics",
    "ResumeReads",
    "Role",
    "SendToClients",
    "SendToPeers",
    "ServerCore",
    "SessionPasswords",
    "SizeRange",
    "SnapshotCadence",
    "StoreFacts",
    "Summary",
    "TakeSnapshot",
    "ThrottleOptions",
    "TreeDigest",
    "TurnEffect",
    "WriteAudit",
    "answer_single",
    "census_of",
    "digest_id",
    "proposed_membership",
    "why_not_serving",
]
