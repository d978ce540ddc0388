"""The effects of a turn, performed by the world; core.py defines their order.

A turn may answer thousands of requests: frequent ones are combined into one effect. The effects
of a member of an ensemble (votes, links, disk orders, notes) are in `quorum`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from keepfast.quorum import Effect, Link
from keepfast.replica.audit import AuditRecord
from keepfast.replica.authentication import Proof
from keepfast.replica.connection import Connection
from keepfast.replica.gathering import Group
from keepfast.replica.proposals import Append
from keepfast.tree import Tree


class SendToPeers(msgspec.Struct, frozen=True):
    """Send what is in `out` of these links, in that order."""

    links: Collection[Link]


class AppendTxns(msgspec.Struct, frozen=True):
    """Store these records and make them durable; `log_durable` follows."""

    records: list[Append]
    # Who they were gathered from.
    group: Group


class SendToClients(msgspec.Struct, frozen=True):
    """Send what is in `out` of these connections."""

    connections: Collection[Connection]


class AbortClients(msgspec.Struct, frozen=True):
    """Cut these connections immediately; unread data is lost."""

    connections: Collection[Connection]


class CloseClients(msgspec.Struct, frozen=True):
    """Close these connections after what was sent to them."""

    connections: Collection[Connection]


class PauseReads(msgspec.Struct, frozen=True):
    """Leave what these clients send in their sockets until further notice."""

    connections: Collection[Connection]


class ResumeReads(msgspec.Struct, frozen=True):
    """Read from these clients again."""

    connections: Collection[Connection]


class CheckProofs(msgspec.Struct, frozen=True):
    """Take these login steps off the loop; `proved` follows for each."""

    proofs: list[Proof]


class ContinueRequests(msgspec.Struct, frozen=True):
    """Come back to these clients, by `client_drained`, when others have had their turn."""

    connections: dict[Connection, None]


class ContinueWork(msgspec.Struct, frozen=True):
    """Come back, by `continue_work`, when others have had their turn."""


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Write a snapshot of a tree as it is at this moment, unless one is under way."""

    tree: Tree


class WriteAudit(msgspec.Struct, frozen=True):
    """Write these changes to the audit log."""

    records: list[AuditRecord]


TurnEffect = (
    Effect
    | SendToPeers
    | AppendTxns
    | SendToClients
    | AbortClients
    | CloseClients
    | PauseReads
    | ResumeReads
    | CheckProofs
    | ContinueRequests
    | ContinueWork
    | TakeSnapshot
    | WriteAudit
)
