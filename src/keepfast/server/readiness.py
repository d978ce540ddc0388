"""Whether a server should be sent clients, and if not, why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keepfast.storage import Standing
from keepfast.wire import format_zxid

if TYPE_CHECKING:
    from keepfast.server.server import Server


class Condition(NamedTuple):
    """One thing that has to be true; `detail` says what is, or what is wrong."""

    name: str
    is_met: bool
    detail: str


def conditions(server: Server) -> list[Condition]:
    """Everything that a ready server fulfils, in the order in which it comes about."""
    if not server.is_loaded:
        waiting = "the data directory is being read"
        return [
            Condition("loaded", False, waiting),
            Condition("whole", False, waiting),
            Condition("serving", False, waiting),
            Condition("space", False, waiting),
        ]
    zxid = format_zxid(server.replica.tree.last_zxid)
    return [
        Condition("loaded", True, f"at zxid {zxid}"),
        _whole(server),
        Condition("serving", server.is_serving, _serving(server)),
        _space(server),
    ]


def _whole(server: Server) -> Condition:
    store, problems = server.syncer.store, server.recovery.problems
    if store.standing is Standing.WHOLE:
        detail = "one contiguous history, proven from a snapshot to its last record"
        if store.degraded:
            detail += "; but a file that should back it is not sound, see the log"
        return Condition("whole", True, detail)
    reasons = "; ".join(map(str, problems)) or f"the data is {store.standing.value}"
    return Condition("whole", False, reasons)


def _serving(server: Server) -> str:
    if server.failure is not None:
        return f"the disk failed: {server.failure}"
    if not server.is_serving:
        return "the server is stopping"
    return f"as {server.mode}, {server.connection_count} connections"


def _space(server: Server) -> Condition:
    free, reserve = server.free_bytes(), server.options.store.reserve_bytes
    if server.syncer.has_space:
        return Condition("space", True, f"{free} bytes are free")
    detail = f"{free} bytes are free, less than the reserve of {reserve}: writes are refused"
    return Condition("space", False, detail)
