"""A small synchronous client of the ZooKeeper protocol, for the shell, tests and tools.

What may live here: one session over one connection at a time, its requests, its watches; and what
servers say about themselves to somebody who only asks (`probe`, `look_at`). Only
`wire` is imported: how bytes are laid out is said there, once. No caches, no recipes, no retries of
operations: an application takes a full client library. What this one has and those often lack is
every operation of the protocol (containers, TTL, addWatch, whoAmI, multiRead, ...).
"""

from keepfast.client.client import Client
from keepfast.client.errors import InvalidPath, OperationFailed
from keepfast.client.events import ClientEvent, ClientState
from keepfast.client.hosts import Address, Target, parse_target
from keepfast.client.options import ClientOptions
from keepfast.client.paths import validate_path
from keepfast.client.probe import ServerStatus, ask_word, probe
from keepfast.client.verdict import Finding, Gravity, Verdict, judge, look_at

__all__ = [
    "Address",
    "Client",
    "ClientEvent",
    "ClientOptions",
    "ClientState",
    "Finding",
    "Gravity",
    "InvalidPath",
    "OperationFailed",
    "ServerStatus",
    "Target",
    "Verdict",
    "ask_word",
    "judge",
    "look_at",
    "parse_target",
    "probe",
    "validate_path",
]
