"""Replay: records onto a tree, one by one, with every check that the records allow.

Theory of operation.  A history is a base and records each of which directly follows the one
before (R1).  Inside an epoch the counter says what follows what.  Across epochs it does not: a
server may have missed the end of the old epoch, and the first record of the new one looks the
same.  Such a *join* is proven by the manifest, which recorded it when it happened, or by the tree
digest that 3.6 and later put into each record: it can only match if the tree under it was right.
A join that neither proves is remembered in `unproven`.

A snapshot written by Apache is fuzzy: it may hold effects of records after its zxid, and once in
a while of the record that was being applied when the snapshot was closed, which nothing in the file
shows.  So records are applied idempotently until a digest matches, which proves the window; where
there are no digests, until `GRACE` records after the last zxid that the file shows.  From then on
everything is exact (R12).  Digests that Apache is known to log wrong (ContainerQuirk) prove as much
as right ones; where one was logged before the base, the first digests after the base are off for a
reason that lies before it, and stay in doubt until one is right.

A mismatching digest is not conclusive either: an Apache leader that changes the root while changes
right below it are in flight logs digests that no server has, until it is idle again.  Each digest
covers the whole tree, so the newest one decides.  If it does not match, the history is broken,
unless the root was changed since the last match: then it is unproven.
"""

import msgspec

from keepfast.storage.log_file import Frame
from keepfast.storage.manifest import Join
from keepfast.tree import ContainerQuirk, DigestFit, ReplayConflict, Tree
from keepfast.wire import (
    BrokenHistory,
    CorruptLog,
    LogEntry,
    MalformedRecord,
    OpCode,
    Zxid,
    counter_of,
    decode_entry,
    epoch_of,
    follows_in_epoch,
    format_zxid,
)

GRACE = 64

_SETS = (OpCode.SET_DATA.value, OpCode.SET_ACL.value)
_ROOT = b"\0\0\0\1/"  # the root's path as a record holds it
_BODY_OFFSET = 32


class Base(msgspec.Struct, frozen=True):
    """Where a replay begins: a tree, and how far it may be ahead of its zxid."""

    zxid: Zxid
    fuzzy_until: Zxid  # greatest zxid of which the base shows an effect
    exact: bool  # known to hold the state at `zxid` and nothing else
    file: str | None = None
    digest: int | None = None  # what the tree's digest must be at `digest_zxid`
    digest_zxid: Zxid | None = None


class Replay:
    """Feeds records to a tree; `head` is the last one that was applied.

    Raises BrokenHistory for a record that does not follow or does not fit, CorruptLog for one
    that cannot be decoded.  After an error the tree must be discarded.
    """

    def __init__(
        self,
        tree: Tree,
        base: Base,
        known_joins: dict[Zxid, Zxid] | None = None,
        known_zxids: frozenset[Zxid] = frozenset(),
    ) -> None:
        """`known_joins` maps an epoch's first record to the one it follows, as recorded.

        With None, joins stand in `unproven` until a digest proves them.  `known_zxids` are zxids
        that this server is known to have had: no join may jump over one of them.
        """
        self.tree = tree
        self.head = base.zxid
        self.unproven: list[Join] = []
        self.joins: list[Join] = []
        self.quirks = 0
        self.applied = 0
        self._base = base
        self._exact = base.exact
        self._past_window = 0
        self._doubt: BrokenHistory | None = None
        self._known_joins = known_joins
        self._known_zxids = known_zxids
        self._quirk = ContainerQuirk()
        self.has_matched = False  # a record's digest was that of the tree
        self._root_changed = False  # since the last digest that was right
        self.unsettled: BrokenHistory | None = None
        if base.digest_zxid == base.zxid == base.fuzzy_until:
            self._check_base_digest()

    def feed(self, frame: Frame, name: str) -> LogEntry:
        """Check and apply one record; `name` is its file, for the error."""
        zxid = Zxid(frame.zxid)
        if not follows_in_epoch(zxid, self.head):
            self._join(zxid, frame, name)
        try:
            entry = decode_entry(frame.entry)
        except MalformedRecord as error:
            raise CorruptLog(
                f"a record with a good checksum cannot be decoded: {error}",
                name,
                frame.offset,
                zxid,
            ) from error
        try:
            if self._exact:
                self.tree.apply(entry.header, entry.body)
            else:
                self.tree.apply_fuzzy(entry.header, entry.body)
        except ReplayConflict as error:
            # The first mismatch is more telling than its consequences.
            raise self._doubt or BrokenHistory(
                f"the record does not fit the tree before it: {error.reason}"
                + (f" ({error.path})" if error.path else ""),
                name,
                frame.offset,
                zxid,
            ) from error
        self.head = zxid
        self.applied += 1
        self._root_changed |= _changes_root(frame.entry, entry.header.type)
        if self._exact:
            self._compare(entry, frame, name)
        else:
            self._compare_fuzzy(entry, frame, name)
        return entry

    def finish(self) -> None:
        """Call after the last record: raises if the end of the records leaves something in doubt.

        What only a changed root leaves in doubt is kept in `unsettled`.
        """
        if self.head < self._base.fuzzy_until:
            raise BrokenHistory(
                f"the snapshot holds effects of records up to {format_zxid(self._base.fuzzy_until)}"
                f", but the records end at {format_zxid(self.head)}",
                self._base.file,
                None,
                self.head,
            )
        if self._doubt is not None:
            if not self._root_changed:
                raise self._doubt
            self.unsettled = self._doubt
        if self.tree.acls.unknown_keys:
            # Apache writes its ACL table first, and then znodes that may be newer than it.
            raise BrokenHistory(
                "the snapshot has znodes whose ACLs are not in its table, and no record after it "
                "brings them",
                self._base.file,
                None,
                self._base.zxid,
            )

    def _join(self, zxid: Zxid, frame: Frame, name: str) -> None:
        """Accept the first record of a new epoch, or refuse what follows nothing."""
        if epoch_of(zxid) <= epoch_of(self.head) or counter_of(zxid) != 1:
            raise self._hole(zxid, frame, name)
        join = Join(zxid, self.head)
        if self._known_joins is not None:
            if self._known_joins.get(zxid) != self.head:
                raise self._hole(zxid, frame, name)
        else:
            for known in self._known_zxids:
                # The start of an epoch is not a record, so passing it skips nothing.
                if self.head < known < zxid and counter_of(known) != 0:
                    raise BrokenHistory(
                        f"hole in the history: records up to {format_zxid(known)} existed and are "
                        f"missing between {format_zxid(self.head)} and {format_zxid(zxid)}",
                        name,
                        frame.offset,
                        zxid,
                    )
            self.unproven.append(join)
        self.joins.append(join)

    def _hole(self, zxid: Zxid, frame: Frame, name: str) -> BrokenHistory:
        return BrokenHistory(
            f"hole in the history: {format_zxid(zxid)} does not follow {format_zxid(self.head)}",
            name,
            frame.offset,
            zxid,
        )

    def _compare(self, entry: LogEntry, frame: Frame, name: str) -> None:
        if self._digest_fits(entry) is False:
            self._doubt = self._doubt or self._mismatch(entry, frame, name)

    def _compare_fuzzy(self, entry: LogEntry, frame: Frame, name: str) -> None:
        """After the window's visible end: look for the digest that proves it."""
        if self.head < self._base.fuzzy_until:
            return
        if self.head == self._base.digest_zxid == self._base.fuzzy_until:
            self._check_base_digest()
        self._past_window += 1
        fits = self._digest_fits(entry)
        if fits is False:
            self._doubt = self._doubt or self._mismatch(entry, frame, name)
        elif self.has_matched or (self._past_window > GRACE and self._doubt is None):
            self._exact = True

    def _digest_fits(self, entry: LogEntry) -> bool | None:
        """Whether the record has the digest that it must have; None if it has none.

        What a wrong one puts in doubt, a digest further on may show to have been right.
        """
        fit = self._quirk.judge(self.tree, entry)
        if fit is DigestFit.UNKNOWN:
            return None
        if fit is DigestFit.WRONG:
            return False
        if fit is DigestFit.RIGHT:
            self._doubt = None
            self.has_matched = True
            self._root_changed = False
        else:
            self.quirks += 1
        if self.has_matched:
            # The tree under this record was right, so every join before it was too.
            self.unproven.clear()
        return True

    def _mismatch(self, entry: LogEntry, frame: Frame, name: str) -> BrokenHistory:
        logged = 0 if entry.digest is None else entry.digest.tree_digest
        return BrokenHistory(
            f"the tree digest is {self.tree.digest:#x} where the record says {logged:#x}",
            name,
            frame.offset,
            self.head,
        )

    def _check_base_digest(self) -> None:
        """Compare the digest that the base's file states, at the zxid for which it states it."""
        if self._base.digest is None:
            return
        if self.tree.digest == self._base.digest:
            self._doubt = None
            self._exact = True
        else:
            self._doubt = BrokenHistory(
                f"the tree digest is {self.tree.digest:#x} where the snapshot says "
                f"{self._base.digest:#x}",
                self._base.file,
                None,
                self.head,
            )


def _changes_root(entry: bytes, type_: int) -> bool:
    """Whether a record changes data or ACL of the root; a multi counts if it may."""
    if type_ in _SETS:
        return entry.startswith(_ROOT, _BODY_OFFSET)
    return type_ == OpCode.MULTI and _ROOT in entry
