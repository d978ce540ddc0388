"""Whether a server should be sent clients, and if not, why not."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.server.ensemble_report import reason_of, standing_of
from keepfast.server.running_server import RunningServer
from keepfast.storage import Standing
from keepfast.wire import format_zxid


class Condition(NamedTuple):
    """One condition; `detail` describes its state, or what is wrong."""

    name: str
    is_met: bool
    detail: str


def conditions(server: RunningServer) -> list[Condition]:
    """Everything that a ready server fulfils, in the order in which it comes about."""
    if not server.is_loaded:
        names = ("loaded", "whole", "serving", "space")
        return [Condition(name, False, server.loading) for name in names]
    tree = server.core.tree
    at = "no state that may be served" if tree is None else f"at zxid {format_zxid(tree.last_zxid)}"
    return [
        Condition("loaded", True, at),
        _whole(server),
        Condition("serving", server.is_serving, _serving(server)),
        _space(server),
    ]


def _whole(server: RunningServer) -> Condition:
    store, standing = server.store, standing_of(server)
    if standing is Standing.WHOLE:
        detail = "one contiguous history, proven from a snapshot to its last record"
        if store.degraded:
            detail += "; but a file that should back it is not sound, see the log"
        return Condition("whole", True, detail)
    reasons = [f"the data is {standing.value}", *map(str, server.recovery.problems)]
    if server.member is not None:
        # A member heals on its own, or reports what prevents it.
        reasons = [f"the data is {standing.value}", reason_of(server), *reasons[1:]]
    return Condition("whole", False, "; ".join(filter(None, reasons)))


def _serving(server: RunningServer) -> str:
    reason = reason_of(server)
    if reason:
        return reason
    return f"as {server.mode}, {server.connection_count} connections"


def _space(server: RunningServer) -> Condition:
    free, reserve = server.free_bytes(), server.options.store.reserve_bytes
    if server.driver.disk.has_space:
        return Condition("space", True, f"{free} bytes are free")
    detail = f"{free} bytes are free, less than the reserve of {reserve}: writes are refused"
    return Condition("space", False, detail)
