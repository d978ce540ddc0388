"""A small synchronous client of the ZooKeeper protocol, for the shell, tests and tools.

What may live here: one session over one connection at a time, its requests, its watches; and what
servers report about themselves when queried (`probe`, `look_at`). Only `wire` is imported: it alone
defines the formats. No caches, no recipes, no retries of operations: applications should use a full
client library. What this one has and those often lack is every operation of the protocol
(containers, TTL, addWatch, whoAmI, multiRead, ...).
"""

from keepfast.client.client import Client
from keepfast.client.client_connection import ServerConnection
from keepfast.client.client_errors import InvalidPath, OperationFailed
from keepfast.client.client_events import ClientEvent, ClientState
from keepfast.client.client_options import ClientOptions
from keepfast.client.client_paths import validate_path
from keepfast.client.ensemble_verdict import EnsembleStatus, Gravity, StatusFinding, judge, look_at
from keepfast.client.hosts import ServerAddress, Target, parse_target
from keepfast.client.probe import ServerStatus, ask_word, probe

__all__ = [
    "Client",
    "ClientEvent",
    "ClientOptions",
    "ClientState",
    "EnsembleStatus",
    "Gravity",
    "InvalidPath",
    "OperationFailed",
    "ServerAddress",
    "ServerConnection",
    "ServerStatus",
    "StatusFinding",
    "Target",
    "ask_word",
    "judge",
    "look_at",
    "parse_target",
    "probe",
    "validate_path",
]
