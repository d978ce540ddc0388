"""A leader's txns as a learner applies them: each with the client that waits for it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final

from keepfast.replica.commits import LearnedSet
from keepfast.replica.forwarder import Forwarder
from keepfast.replica.long_reader import LongReader
from keepfast.replica.proposals import Proposal
from keepfast.replica.service import Service
from keepfast.tree import apply_plain_set
from keepfast.wire import LogEntry, OpCode, decode_entry

_SET_DATA: Final = OpCode.SET_DATA.value
_session_of: Final = Struct(">q").unpack_from


def learned_txns(
    service: Service,
    long_reader: LongReader,
    forwarder: Forwarder,
    entries: Iterable[bytes],
    applied: Callable[[LogEntry | None], None],
) -> Iterator[Proposal | LearnedSet]:
    """The txns, one after another: the next one is made when the tree has the one before.

    `applied`: see `Replica.commit_learned`.
    """
    stalled, connections = service.stalled, service.connections
    for entry in entries:
        if service.audits is not None or (
            # What is before it is answered before it is applied.
            stalled and connections.get(_session_of(entry)[0]) in stalled
        ):
            plain = None
        else:
            plain = apply_plain_set(service.tree, entry)
        if plain is None:
            ready = long_reader.take(entry)
            decoded = decode_entry(entry) if ready is None else ready.entry
            proposal = forwarder.proposal_of(decoded)
            if ready is not None:
                proposal.long_txn, proposal.reply_body = ready.txn, ready.reply_body
            yield proposal
            applied(decoded)
        else:
            zxid, session_id, cxid, path, node = plain
            found = forwarder.take(session_id, cxid, zxid, _SET_DATA)
            connection, waiting = (None, None) if found is None else found
            yield LearnedSet(zxid, path, node, connection, waiting)
            applied(None)
