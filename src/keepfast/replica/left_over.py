"""Records in the log that are not known to be committed when a term ends.

A server votes with it: it may have been committed. But nobody knows that before there is a leader
again, so until then it is not applied: the tree is what is known to be committed, and that is what
a read-only server shows.
"""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.quorum import Membership
from keepfast.replica.members import proposed_membership
from keepfast.tree import Tree
from keepfast.wire import LogEntry, Zxid, decode_entry


class LeftOver:
    """The records after a tree, in order."""

    def __init__(self, records: Iterable[LogEntry | bytes] = ()) -> None:
        self._records = records
        self._entries: list[LogEntry] = []

    def read(self, tree: Tree | None) -> list[Membership]:
        """See what comes after a tree, which may be none; returns the memberships that it makes.

        Raises MalformedRecord.
        """
        records, self._records = self._records, ()
        for record in records if tree is not None else ():
            entry = decode_entry(record) if isinstance(record, bytes) else record
            if tree is not None and entry.header.zxid > tree.last_zxid:
                self._entries.append(entry)
        found = map(proposed_membership, self._entries)
        return [membership for membership in found if membership is not None]

    def head(self, tree: Tree) -> Zxid:
        """The last zxid of the log."""
        return self._entries[-1].header.zxid if self._entries else tree.last_zxid

    def apply(self, tree: Tree | None) -> bool:
        """Have the tree hold all of it; returns whether there was any. Raises ReplayConflict."""
        entries, self._entries = self._entries, []
        for entry in entries:
            if tree is not None:
                tree.apply(entry.header, entry.body)
        return bool(entries)
