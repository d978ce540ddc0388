"""What one server reports about itself: Keepfast's and Apache's alike.

Asked in this order, until enough is known: `srvr`, and Keepfast's word `kfst` unless that shows an
Apache server; Apache's words `conf` and `hash`, where they are whitelisted; the HTTP admin server,
if it is the one of this server; and at last a session, which shows the last zxid and the
configuration. Only the last one leaves a trace.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.client.client import Client
from keepfast.client.client_errors import OperationFailed
from keepfast.client.client_options import ClientOptions
from keepfast.client.hosts import ServerAddress, Target

_NOT_ALLOWED: Final = "is not executed because it is not in the whitelist"
_NOT_SERVING: Final = "not currently serving requests"
_MAX_ANSWER_BYTES: Final = 16 << 20
_WORD: Final = 1 << 64
ADMIN_PORT: Final = 8080


@dataclass(slots=True)
class ServerStatus:
    """What is known about one server; None and "": not known."""

    address: ServerAddress
    # Whether something answered there; `problem` says what is wrong if it is not as it should be.
    is_reached: bool = False
    is_serving: bool = False
    is_keepfast: bool = False
    problem: str = ""
    role: str = ""
    version: str = ""
    server_id: int | None = None
    zxid: int | None = None
    connections: int | None = None
    # Tree digests that were shown, by zxid; several zxids, because servers are never asked at once.
    digests: dict[int, int] = field(default_factory=dict)
    # The ids of those who vote.
    voters: frozenset[int] = frozenset()
    # What only Keepfast servers report: standing, epochs, leader, ensemble, last catch-up, ...
    facts: dict[str, str] = field(default_factory=dict)
    # The sources that answered.
    sources: list[str] = field(default_factory=list)

    @property
    def epoch(self) -> int | None:
        """The epoch that it agreed to, or that of its last zxid where that is all it reports."""
        reported = self.facts.get("current_epoch")
        if reported is not None:
            return int(reported)
        return None if self.zxid is None or self.role == "standalone" else self.zxid >> 32

    @property
    def digest(self) -> int | None:
        """The tree digest at its last zxid."""
        return None if self.zxid is None else self.digests.get(self.zxid)

    @property
    def standing(self) -> str:
        """The standing of its data."""
        return self.facts.get("standing", "")


def ask_word(address: ServerAddress, word: str, timeout_s: float) -> str:
    """The answer to a four-letter word; "" if the server hangs up. Raises OSError."""
    parts: list[bytes] = []
    size = 0
    with socket.create_connection(address, timeout_s) as connection:
        connection.sendall(word.encode())
        try:
            while chunk := connection.recv(1 << 16):
                parts.append(chunk)
                size += len(chunk)
                if size > _MAX_ANSWER_BYTES:
                    break
        except ConnectionResetError:
            pass  # how Apache refuses what is not a word of its own
    return b"".join(parts).decode("utf-8", "replace")


def probe(
    address: ServerAddress, timeout_s: float = 2.0, admin_port: int = ADMIN_PORT
) -> ServerStatus:
    """Ask a server everything; never raises for what the server does or does not do."""
    status = ServerStatus(address)
    try:
        _ask_words(status, timeout_s)
    except OSError as error:
        status.problem = f"cannot be reached: {_reason(error)}"
        return status
    status.is_reached = True
    if status.role and (status.is_keepfast or status.digests):
        return status
    _ask_admin(status, timeout_s, admin_port)
    if not status.role and not status.problem:
        _ask_session(status, timeout_s)
    return status


def _ask_words(status: ServerStatus, timeout_s: float) -> None:
    address = status.address
    summary = _allowed(ask_word(address, "srvr", timeout_s))
    # Not to a server that is surely Apache's: it would log a client that sends nonsense.
    if "keepfast" in summary or not summary or _NOT_SERVING in summary:
        own = ask_word(address, "kfst", timeout_s)
        if own.startswith("version="):
            _take_own(status, own)
            return
    if _NOT_SERVING in summary:
        status.role, status.problem = "looking", "it does not serve clients: no leader is elected"
    elif summary:
        _take_summary(status, summary)
    settings = _allowed(ask_word(address, "conf", timeout_s))
    if _NOT_SERVING not in settings and settings:
        _take_settings(status, settings)
    digests = _allowed(ask_word(address, "hash", timeout_s))
    if _NOT_SERVING not in digests and digests:
        status.sources.append("hash")
        for line in digests.splitlines():
            zxid, _, digest = line.partition(": ")
            status.digests[int(zxid, 16)] = int(digest) % _WORD


def _allowed(answer: str) -> str:
    return "" if _NOT_ALLOWED in answer else answer


def _take_own(status: ServerStatus, answer: str) -> None:
    """The answer to `kfst`."""
    facts = dict(line.partition("=")[::2] for line in answer.splitlines())
    status.facts = facts
    status.sources.append("kfst")
    status.is_keepfast = True
    status.version = facts.get("version", "")
    status.role = facts.get("role", "")
    status.server_id = int(facts["server_id"]) if "server_id" in facts else None
    status.is_serving = facts.get("serving") == "1"
    status.connections = int(facts.get("connections", "0"))
    status.voters = frozenset(int(text) for text in facts.get("voters", "").split(",") if text)
    status.problem = "" if status.is_serving else facts.get("reason", "it does not serve clients")
    if "zxid" in facts:
        status.zxid = int(facts["zxid"], 16)
        if "digest" in facts:
            status.digests[status.zxid] = int(facts["digest"], 16)
    for pair in filter(None, facts.get("recent_digests", "").split(",")):
        zxid, _, digest = pair.partition(":")
        status.digests[int(zxid, 16)] = int(digest, 16)


def _take_summary(status: ServerStatus, answer: str) -> None:
    """The answer to `srvr`."""
    fields = dict(line.partition(": ")[::2] for line in answer.splitlines())
    status.sources.append("srvr")
    status.is_serving = True
    status.version = fields.get("Zookeeper version", "")
    status.role = fields.get("Mode", "")
    status.zxid = int(fields["Zxid"], 16) if "Zxid" in fields else None
    status.connections = int(fields["Connections"]) if "Connections" in fields else None


def _take_settings(status: ServerStatus, answer: str) -> None:
    """The answer to `conf`."""
    status.sources.append("conf")
    before, _, members = answer.partition("membership:")
    fields = dict(line.partition("=")[::2] for line in before.splitlines())
    if fields.get("serverId", "").isdecimal():
        status.server_id = int(fields["serverId"])
    status.voters = voters_in(members)


def voters_in(members: str) -> frozenset[int]:
    """The ids of the voters in a configuration's text."""
    found = set()
    for line in members.splitlines():
        key, _, value = line.strip().partition("=")
        name, _, number = key.partition(".")
        if name == "server" and number.isdecimal() and ":observer" not in value:
            found.add(int(number))
    return frozenset(found)


# -- the admin server ----------------------------------------------------------------------------


def _ask_admin(status: ServerStatus, timeout_s: float, port: int) -> None:
    # Late: it takes a while to load, and the shell never needs it.
    from http.client import HTTPException

    try:
        # Several servers may share a host: is this the one?
        settings = _command(status, "configuration", timeout_s, port)
        if settings is None or settings.get("client_port") != status.address.port:
            return
        facts = _command(status, "server_stats", timeout_s, port) or {}
        digests = _command(status, "hash", timeout_s, port) or {}
    except (OSError, HTTPException, ValueError):
        return  # there is none, or it is somebody else's
    stats = facts.get("server_stats", {})
    if stats:
        status.sources.append("admin")
        status.is_serving = True
        status.version = status.version or str(facts.get("version", ""))
        status.role = status.role or str(stats.get("server_state", ""))
        status.server_id = settings.get("server_id", status.server_id)
        if status.zxid is None:
            status.zxid = stats.get("last_processed_zxid")
        if status.connections is None:
            status.connections = stats.get("num_alive_client_connections")
    for entry in digests.get("digests", ()):
        status.digests[int(entry["zxid"])] = int(entry["digest"]) % _WORD


def _command(status: ServerStatus, name: str, timeout_s: float, port: int) -> dict[str, Any] | None:
    from http.client import HTTPConnection

    connection = HTTPConnection(status.address.host, port, timeout=timeout_s)
    try:
        connection.request("GET", f"/commands/{name}")
        response = connection.getresponse()
        document = json.loads(response.read(_MAX_ANSWER_BYTES))
    finally:
        connection.close()
    is_answer = isinstance(document, dict) and document.get("error") is None
    return document if is_answer else None


# -- a session -----------------------------------------------------------------------------------


def _ask_session(status: ServerStatus, timeout_s: float) -> None:
    options = ClientOptions(
        session_timeout_ms=max(int(timeout_s * 2000), 1000),
        connect_timeout_s=timeout_s,
        operation_timeout_s=timeout_s,
        read_only=True,
    )
    try:
        with Client(Target((status.address,)), options) as client:
            config = client.get_config()
            status.sources.append("session")
            status.is_serving = True
            status.zxid = client.last_zxid
            status.voters = voters_in((config.data or b"").decode("utf-8", "replace"))
    except OperationFailed as error:
        if not status.is_serving:
            status.problem = f"it takes no session: {error}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
