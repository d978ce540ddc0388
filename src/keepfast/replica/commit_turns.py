"""How much of what is committed is applied in one turn of the loop, so that others have theirs.

A thousand writes that are committed together may be multis, have long paths, or be watched by many.
So a leader commits, a server alone applies, and a learner applies what the leader committed, only
so much in a turn; the rest follows in the next ones (`Service.has_more_work`). A leader never has
committed more than it has applied. Work is counted, and not timed: a simulated world does the same
again. The unit is a small write, some microseconds; every event that is sent is one more.
"""

from __future__ import annotations

from typing import Final

from keepfast.replica.backpressure import put_off
from keepfast.replica.connection import Connection
from keepfast.replica.proposals import work_of
from keepfast.replica.service import Service
from keepfast.wire import Zxid

# Slices that are done in one turn.
_SLICES: Final = 8
# What is not counted when it is made, in small writes.
_SMALL: Final = 32


def note_made(service: Service, work: int) -> None:
    """Count a txn that was made; small ones are bounded by how many may be under way."""
    if work > _SMALL:
        service.made += work


def wait_if_enough_made(service: Service, connection: Connection) -> None:
    """Have a client wait with its next requests, if this turn has made enough large txns."""
    if service.made >= _SLICES * service.options.prepare.slice_size:
        put_off(service, connection)


def is_spent(service: Service) -> bool:
    """Whether this turn has done enough, or events are still to be sent; then there is another."""
    if service.gate is None and service.spent < _SLICES * service.options.prepare.slice_size:
        return False
    service.has_more_work = True
    return True


def next_stop(service: Service, zxid: Zxid) -> Zxid:
    """How far to commit in one go on the way to `zxid`; what is applied already: not in this turn.

    A leader's txns, or those of a server alone. What is behind the stop is asked for again at once.
    """
    if not service.proposals:
        return zxid
    if is_spent(service):
        return service.last_zxid
    work, most = 0, service.options.prepare.slice_size
    for proposal in service.proposals:
        if proposal.zxid > zxid:
            break
        work += proposal.work
        if work >= most:
            zxid = proposal.zxid
            break
    service.spent += work
    return zxid


def may_apply(service: Service, entry: bytes) -> bool:
    """Whether a learner's next txn may be applied in this turn."""
    if is_spent(service):
        return False
    service.spent += work_of(entry)
    return True
