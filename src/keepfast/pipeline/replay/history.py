"""The history of an ensemble: every transaction that its servers committed, with what it changed.

It begins at the oldest snapshot from which the logs lead on (or at the empty tree) and ends where a
quorum of the voters ends. The tree is replayed along, so that each row knows the value before;
each digest on the way is compared. Where the records between two points are on no server any more,
the feed has a row that says so, and continues from the next snapshot: what is missing is never
passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.agreement.quorum_history import AgreedHistory, Stop
from keepfast.pipeline.agreement.server_log import Record, ServerLog
from keepfast.pipeline.agreement.voters import config_in, electorate_by_files
from keepfast.pipeline.files.layout import EnsembleFiles, ServerFiles
from keepfast.pipeline.replay.changes import ZnodeChange, changes_of
from keepfast.storage import (
    Disk,
    Frame,
    list_directory,
    load_tree,
    parse_log_name,
    parse_snapshot_name,
    replay,
)
from keepfast.tree import Tree
from keepfast.wire import (
    KeepfastError,
    MalformedRecord,
    StorageError,
    Zxid,
    counter_of,
    decode_entry,
    epoch_of,
    follows_in_epoch,
    format_zxid,
)

# Rows that say something about the feed itself; `new_data` has it in words.
GAP = "gap"
BROKEN = "broken"


class HistoryGone(KeepfastError):  # noqa: N818 - it says what is the case
    """The records from where a feed has to continue are no longer there; `str()` is a sentence."""


class HistoryBroken(KeepfastError):  # noqa: N818
    """Records that servers agree on do not fit each other; `str()` is a sentence."""


@dataclass(frozen=True, slots=True)
class HistoryOrigin:
    """A snapshot of some server, or the empty tree (no path), from which a history may begin."""

    zxid: int
    path: str | None
    server: str = ""

    def load(self, disk: Disk) -> tuple[Tree, replay.Base]:
        """The tree, and how far it may be ahead; raises StorageError."""
        if self.path is None:
            return Tree(), replay.Base(Zxid(0), Zxid(0), exact=True)
        tree, info, seen = load_tree(disk, self.path, is_fuzzy=True)
        until = max(info.zxid, info.digest_zxid or 0, info.last_processed or 0, seen)
        if info.zxid == 0 and tree.shared_digest == Tree().shared_digest:
            # What a new server writes first: nothing can be ahead of it.
            return tree, replay.Base(Zxid(0), Zxid(0), True, self.path)
        base = replay.Base(info.zxid, Zxid(until), False, self.path, info.digest, info.digest_zxid)
        return tree, base


def origins(disk: Disk, servers: tuple[ServerFiles, ...]) -> list[HistoryOrigin]:
    """All points from which a history may begin, oldest first."""
    found: list[HistoryOrigin] = []
    begins = False
    for server in servers:
        try:
            listing = list_directory(disk, server.data_directory)
        except StorageError:
            continue  # no files at the moment
        for name in listing.snapshots:
            parsed = parse_snapshot_name(name)
            if parsed is not None:
                path = server.data_directory.in_snapshots(name)
                found.append(HistoryOrigin(parsed[0], path, server.server))
        first = min((parse_log_name(name) or 0 for name in listing.logs), default=0)
        begins |= counter_of(first) == 1 and epoch_of(first) <= 1
    if begins and not any(origin.zxid == 0 for origin in found):
        found.append(HistoryOrigin(0, None))
    return sorted(found, key=lambda origin: (origin.zxid, origin.path or ""))


def saying(what: str, zxid: int, text: str) -> ZnodeChange:
    """A row that says something about the feed itself, at a zxid."""
    row = ZnodeChange(zxid, 0, what, what, 0, 0, 0, is_old_known=False)
    return row._replace(new_data=text.encode())


class EnsembleHistory:
    """Walks the history of one ensemble; may be asked again when its servers have written more.

    `reached` is the last zxid that was given, `stop` why it ended there. With `with_values` off
    the tree is not kept and no rows are made: to find out how far the history goes.
    """

    def __init__(
        self,
        disk: Disk,
        ensemble: EnsembleFiles,
        *,
        electorate: Electorate | None = None,
        after: int | None = None,
        with_values: bool = True,
    ) -> None:
        """Stand at `after`, or at the oldest point there is.

        Without `electorate` the files say who votes. Raises HistoryGone if there is no way to
        `after`.
        """
        self.ensemble = ensemble
        self._electorate = electorate or electorate_by_files(disk, ensemble).of_given()
        self._disk = disk
        self._with_values = with_values
        self._unread = dict.fromkeys(
            f"server {server.server}: {text}"
            for server in ensemble.servers
            for text in server.unreadable
        )
        self._replay: replay.Replay | None = None
        self._agreement = self._begin() if after is None else self._return_to(after)

    @property
    def reached(self) -> int:
        """The last zxid of what was given; at first the point from which it begins."""
        return self._agreement.reached

    @property
    def stop(self) -> Stop:
        """Why the last `read` ended."""
        return self._agreement.stop

    @property
    def electorate(self) -> Electorate:
        """Who votes on what comes next."""
        return self._agreement.electorate

    @property
    def unread(self) -> tuple[str, ...]:
        """What is there and could not be read so far, a sentence each, with its server."""
        return tuple(self._unread)

    @property
    def tree(self) -> Tree | None:
        """The state at `reached`, where values are kept."""
        return None if self._replay is None else self._replay.tree

    def read(self, until: int | None = None) -> Iterator[list[ZnodeChange]]:
        """The rows of each transaction after `reached`, up to `until`.

        Without values the lists are empty. Raises HistoryBroken for records that do not fit.
        """
        while True:
            last = self.reached
            try:
                for record in self._agreement.records(until):
                    rows = self._apply(record)
                    last = record.zxid
                    yield rows
                stop = self.stop
            except HistoryBroken as error:
                if follows_in_epoch(self.reached, last):
                    raise
                # What an epoch begins with does not fit: the end of the one before is missing, on
                # all servers alike, and no number shows it.
                stop = Stop("hole", str(error), (), self.reached)
                gap = self._pass_gap(last, stop, until)
                if gap is None:
                    raise
            else:
                if stop.kind != "hole" or (until is not None and self.reached >= until):
                    return
                gap = self._pass_gap(last, stop, until)
                if gap is None:
                    return
            yield [gap] if self._with_values else []

    # -- where to begin --------------------------------------------------------------------------

    def _start(self, origin: HistoryOrigin) -> AgreedHistory | None:
        """Stand at an origin; None if it cannot be read."""
        try:
            tree, base = origin.load(self._disk)
        except StorageError as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError)
            if isinstance(error.__cause__, OSError) and not is_gone:
                self._unread[f"server {origin.server}: {error}"] = None
            return None
        if self._with_values:
            self._replay = replay.Replay(tree, base)
            self._base = base
        logs = [
            ServerLog(self._disk, server.data_directory, server.server, self._unread)
            for server in self.ensemble.servers
        ]
        return AgreedHistory(logs, self._electorate.changed(config_in(tree)), base.zxid)

    def _begin(self) -> AgreedHistory:
        found = self._enter(origins(self._disk, self.ensemble.servers))
        if found is None:
            raise HistoryGone(
                f"{self.ensemble.name}: no snapshot can be read, and the logs do not reach back to "
                "the beginning: there is nothing from which to begin"
            )
        return found

    def _enter(
        self, candidates: list[HistoryOrigin], *, must_lead_on: bool = False
    ) -> AgreedHistory | None:
        """Stand at the oldest origin from which the logs lead on.

        If none does, at the newest that can be read, unless it must; None if there is no such.
        """
        last: HistoryOrigin | None = None
        for origin in candidates:
            agreement = self._start(origin)
            if agreement is None:
                continue
            last = origin
            following = agreement.next_zxid()
            if following is not None:
                return self._nearest(candidates, origin, following)
        return None if last is None or must_lead_on else self._start(last)

    def _nearest(
        self, candidates: list[HistoryOrigin], origin: HistoryOrigin, following: int
    ) -> AgreedHistory | None:
        """The origin right before a record: where an epoch begins, no number shows which."""
        is_very_first = epoch_of(following) <= 1 and counter_of(following) == 1
        for other in [] if is_very_first else reversed(candidates):
            if origin.zxid < other.zxid < following:
                agreement = self._start(other)
                if agreement is not None and agreement.next_zxid() == following:
                    return agreement
        return self._start(origin)

    def _return_to(self, after: int) -> AgreedHistory:
        why = "no snapshot that leads there is left"
        for origin in reversed(origins(self._disk, self.ensemble.servers)):
            if origin.zxid > after:
                continue
            agreement = self._start(origin)
            if agreement is None:
                continue
            for record in agreement.records(after):
                self._feed(record)
            if agreement.reached == after:
                return agreement
            why = agreement.stop.text
        raise HistoryGone(
            f"{self.ensemble.name}: the records after {format_zxid(after)} cannot be reached any "
            f"more: {why}"
        )

    def _pass_gap(self, last: int, stop: Stop, until: int | None) -> ZnodeChange | None:
        """Continue at the next snapshot from which the logs lead on; None if there is none."""
        before, held = self._agreement, self._replay
        self._electorate = before.electorate
        found = self._enter(
            [
                origin
                for origin in origins(self._disk, self.ensemble.servers)
                if origin.zxid > last and (until is None or origin.zxid <= until)
            ],
            must_lead_on=True,
        )
        if found is None:
            self._agreement, self._replay = before, held
            return None
        self._agreement = found
        return saying(GAP, found.reached, stop.text)

    # -- what a record does ----------------------------------------------------------------------

    def _apply(self, record: Record) -> list[ZnodeChange]:
        if self._replay is None:
            return []
        try:
            entry = decode_entry(record.entry)
        except MalformedRecord as error:
            raise HistoryBroken(
                f"{self.ensemble.name}: the record {format_zxid(record.zxid)} cannot be decoded: "
                f"{error} ({record.file}, offset {record.offset})"
            ) from error
        is_known = is_exact(self._replay, self._base)
        rows = changes_of(entry, self._replay.tree)
        self._feed(record)
        return rows if is_known else [row._replace(is_old_known=False) for row in rows]

    def _feed(self, record: Record) -> None:
        if self._replay is None:
            return
        try:
            self._replay.feed(Frame(record.offset, record.zxid, record.entry), record.file)
        except StorageError as error:
            raise HistoryBroken(f"{self.ensemble.name}: {error}") from error


def is_exact(walk: replay.Replay, base: replay.Base) -> bool:
    """Whether a replay is known to stand at its head, and not ahead of it in places.

    A snapshot of Apache's holds effects of later records; once in a while more than it shows.
    """
    if base.exact or walk.has_matched:
        return True
    if walk.head < base.fuzzy_until:
        return False
    if base.digest is not None and base.digest_zxid == base.zxid == base.fuzzy_until:
        return True
    behind = counter_of(walk.head)
    if epoch_of(walk.head) == epoch_of(base.fuzzy_until):
        behind -= counter_of(base.fuzzy_until)
    return behind > replay.GRACE
