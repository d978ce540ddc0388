"""The store: one server's history on disk, open for writing.

Theory of operation.  The store is *open* on a directory that recovery found whole (or unproven,
if the caller accepts that), or *closed to appends* on one that is empty or damaged, until a
snapshot is installed.  Everything that changes which files count is one change of the manifest,
with the files following it (manifest.py).  Records become durable in groups: `append` accepts them,
`sync` writes all pending ones with one fdatasync.

Not thread-safe: one thread at a time, except that `append` may be called during `sync`.

After a failed write or fsync nothing that this process believes about its files can be trusted
(R7): every later call raises. The only way forward is to open the directory again.
"""

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from keepfast.storage.disk import Disk, directory_of, make_directory_durably
from keepfast.storage.disk_guard import DiskGuard
from keepfast.storage.epochs import Epochs, write_epoch_files
from keepfast.storage.history import Doubts, History, check_opens_epoch
from keepfast.storage.layout import DataDirectory, list_directory, log_name
from keepfast.storage.live_files import apply_manifest, make_durable, publish, remove_aside, retire
from keepfast.storage.locks import lock_directory, unlock_directory
from keepfast.storage.log_file import frame
from keepfast.storage.manifest import Manifest, Retired, SegmentEntry, SnapshotEntry, store_manifest
from keepfast.storage.problems import Standing
from keepfast.storage.recovered import NO_HISTORY, Recovery
from keepfast.storage.recovery import recover
from keepfast.storage.recovery_listed import GROUP_LIMIT_BYTES, check_bytes
from keepfast.storage.retention import plan_retention
from keepfast.storage.segment_writer import SegmentWriter
from keepfast.storage.snapshot_writer import SnapshotWriter, storage_error, temporary_name
from keepfast.storage.store_options import StoreOptions
from keepfast.storage.truncation import cut_segments, with_fitting_base
from keepfast.storage.watermark import WatermarkFile, lags, read_watermark, watermark_of
from keepfast.tree import FrozenTree, Tree
from keepfast.wire import (
    MAX_COUNTER,
    BrokenHistory,
    CorruptSnapshot,
    DiskFull,
    KeepfastError,
    StorageError,
    Zxid,
    counter_of,
    format_zxid,
    invariant,
)

T = TypeVar("T")


class Store(DiskGuard):
    """One server's history on disk: appends, makes durable, truncates, installs trees."""

    def __init__(
        self, disk: Disk, directory: DataDirectory, recovery: Recovery, options: StoreOptions
    ) -> None:
        """Use `Store.open`."""
        super().__init__(directory)
        self.options = options
        self.standing = recovery.standing
        self.degraded = recovery.degraded
        # Without a state that may be used nothing can be appended to it.
        head = NO_HISTORY if recovery.tree is None else recovery.head
        self.head = head  # last record taken
        self.durable = head  # last record on disk
        self._disk = disk
        self._manifest = recovery.manifest
        self._head_digest = recovery.tree.digest if recovery.tree is not None else None
        # Records accepted by append(), and those that sync() is writing: one thread each.
        self._pending: deque[tuple[Zxid, bytes, int | None]] = deque()
        self._taken: list[tuple[Zxid, bytes, int | None]] = []
        self._writer: SegmentWriter | None = None
        self._watermark: WatermarkFile | None = None
        self._doubts = Doubts()
        self._roll = False
        self._proven: set[str] = set() if recovery.base is None else {recovery.base.name}
        self._readable: tuple[Manifest, Zxid, int] = self._manifest, self.durable, 0

    @classmethod
    def open(
        cls, disk: Disk, directory: DataDirectory, options: StoreOptions | None = None
    ) -> tuple["Store", Recovery]:
        """Recover a directory, put it in order and open it; the directories are made if missing.

        The caller checks `Recovery.standing`: a damaged directory is not changed, and only
        `install_snapshot` can follow.
        """
        options = options or StoreOptions()
        try:
            for place in directory.both:
                make_directory_durably(disk, place)
            lock_directory(disk, directory)
        except BlockingIOError as error:
            raise StorageError(
                "another server is running on this directory", directory_of(error.filename)
            ) from error
        except OSError as error:
            raise storage_error(error, error.filename or directory.snapshots) from error
        try:
            recovery = recover(disk, directory)
            store = cls(disk, directory, recovery, options)
            if recovery.standing is not Standing.DAMAGED:
                store._guard(make_durable, disk, directory, recovery)
                with contextlib.suppress(DiskFull):
                    store._begin_with(lambda: store._take_over(recovery))
        except KeepfastError:
            unlock_directory(disk, directory)
            raise
        return store, recovery

    def _take_over(self, recovery: Recovery) -> None:
        """Make the directory agree with what recovery found; that much is durable already.

        May be repeated: on a full disk this server reads what recovery found, and this is what its
        first change of the disk begins with.
        """
        disk, directory = self._disk, self.directory
        if recovery.tree is not None:
            retired = self._manifest.retired
            if recovery.base is None:
                # Logs of 3.4 without a snapshot: write the base that recovery had to assume.
                self._write_base(recovery.tree, retired)
            else:
                self._write_manifest(retired=retired)
            apply_manifest(disk, directory, self._manifest)
            if recovery.unconfirmed_from is not None or lags(disk, directory, self._manifest):
                self._open_watermark()  # the old one may be lost, or not durable as far as was read
        self._ordinary_if_full(lambda: write_epoch_files(disk, directory, recovery.epochs))

    def _open_watermark(self) -> None:
        disk, directory, known = self._disk, self.directory, watermark_of(self._manifest)
        self._watermark = self._ordinary_if_full(lambda: WatermarkFile(disk, directory, known))

    # -- a new history ---------------------------------------------------------------------------

    def initialise(self) -> Tree:
        """Begin a new, empty history on an empty directory: Apache's empty tree at zxid 0."""
        invariant(self.standing is Standing.EMPTY, "only an empty directory is initialised")
        return self._change(self._initialise)

    def _initialise(self) -> Tree:
        tree = Tree()
        self._write_base(tree)
        self.standing = Standing.WHOLE
        self.head = self.durable = Zxid(0)
        self._head_digest = tree.digest
        return tree

    def _write_base(self, tree: Tree, retired: tuple[Retired, ...] = ()) -> None:
        entry = self._snapshot_now(tree.freeze())
        snapshots = (*self._manifest.snapshots, entry)
        self._list_snapshot(entry, snapshots=snapshots, retired=retired)
        self._publish(entry)
        self._proven.add(entry.name)

    def _publish(self, entry: SegmentEntry | SnapshotEntry) -> None:
        """Give a listed file its live name; the next manifest will no longer call it staged."""
        publish(self._disk, self.directory, entry)
        self._manifest = self._manifest.published(entry.name)

    def _snapshot_now(self, frozen: FrozenTree) -> SnapshotEntry:
        writer = self.begin_snapshot(frozen)
        while writer.step():
            pass
        return writer.complete()

    # -- records ---------------------------------------------------------------------------------

    def append(self, zxid: Zxid, entry: bytes, digest: int | None = None) -> None:
        """Take a record that directly follows the last one; `sync` makes it durable.

        `digest` is the tree digest after it, where known.  Raises DiskFull, or DiskFailed after a
        failure, with nothing accepted.
        """
        if not self._has_space:
            raise self._failure or DiskFull("no space left for records", self.directory.logs)
        self.append_all(((zxid, entry, digest),))

    def append_all(self, records: Iterable[tuple[Zxid, bytes, int | None]]) -> None:
        """Take records as `append` does, each with its digest, and into the disk's reserve.

        They were proposed already, here or by a leader; `sync` keeps what finds no space.
        """
        if self._failure is not None:
            raise self._failure
        pending, head = self._pending, self.head
        for record in records:
            zxid, entry, digest = record
            if zxid != head + 1 or not zxid & MAX_COUNTER:
                check_opens_epoch(zxid, head)
            # Framed here and not in sync(): this thread has time while the other waits.
            pending.append((zxid, frame(entry), digest))
            head = zxid
        self.head = head

    def sync(self) -> Zxid:
        """Write the records that wait and make them durable; returns the last durable zxid.

        Raises DiskFull with every record that is not durable still waiting: call again when there
        is space.  DiskFailed is final.
        """
        return self._change(self._sync)

    def _sync(self) -> Zxid:
        taken, pending = self._taken, self._pending
        while pending:
            taken.append(pending.popleft())
        while self._taken:
            self._write_group()
        return self.durable

    def _write_group(self) -> None:
        """Write as many pending records as fit into one segment and one group."""
        taken = self._taken
        first = taken[0][0]
        last, size, digest = self.durable, 0, None
        if first != last + 1 or not counter_of(first):
            self._roll = True  # an epoch begins, and the manifest says what it follows (R1)
        frames = [data for _, data, _ in taken]
        if taken[-1][0] - first == len(taken) - 1 and sum(map(len, frames)) <= GROUP_LIMIT_BYTES:
            # One epoch, one group: the usual case, and worth a fast path.
            last, _, digest = taken[-1]
        else:
            frames = []
            for zxid, data, after in taken:
                if frames and (zxid != last + 1 or size + len(data) > GROUP_LIMIT_BYTES):
                    break
                frames.append(data)
                size += len(data)
                last, digest = zxid, after
        writer = self._writer_for(first)
        self._ordinary_if_full(lambda: writer.write(b"".join(frames)))
        # From here on the records may be acknowledged, and must not be written again.
        del taken[: len(frames)]
        self.durable, self._head_digest = last, digest
        if writer.position >= self.options.segment_bytes:
            self._roll = True
        watermark, serial = self._watermark, self._manifest.segments[-1].serial
        if watermark is not None:
            self._ordinary_if_full(lambda: watermark.record(serial, writer.position, last))

    def _writer_for(self, first: Zxid) -> SegmentWriter:
        if self._writer is not None and (not self._roll or self._writer.is_empty):
            # An empty one was started for this very record, and then the disk was full.
            self._roll = False
            return self._writer
        if self._watermark is None:
            self._open_watermark()
        name = log_name(first)
        serial = self._manifest.serial + 1
        temporary = temporary_name(name, serial)
        path = self.directory.in_logs(temporary)
        entry = SegmentEntry(
            name=name,
            first=first,
            follows=self.durable,
            follows_digest=self._head_digest,
            serial=serial,
            staged=temporary,
        )
        segments = (*self._sealed_segments(), entry)
        writer = self._ordinary_if_full(
            lambda: SegmentWriter(self._disk, path, self.options.grow_bytes)
        )
        try:
            self._ordinary_if_full(lambda: self._disk.fsync_directory(directory_of(path)))
            self._write_manifest(segments=segments)
        except DiskFull:
            writer.discard()
            raise
        self._publish(entry)
        self._close_writer()
        self._writer, self._roll = writer, False
        return writer

    def _sealed_segments(self) -> tuple[SegmentEntry, ...]:
        """The listed segments, with the open one sealed where it stands."""
        segments = self._manifest.segments
        if self._writer is None:
            return segments
        seal = self._writer.seal(self.durable, self._head_digest)
        return (*segments[:-1], replace(segments[-1], seal=seal))

    def _close_writer(self) -> None:
        """Leave the segment that was just sealed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cut()
            writer.close()

    def _forget_pending(self) -> None:
        """Drop records that were never durable: the history that they belong to ends here."""
        self._pending.clear()
        self._taken.clear()

    def roll(self) -> None:
        """Begin a new segment with the next record."""
        self._roll = self._writer is not None

    @property
    def is_unconfirmed(self) -> bool:
        """Whether `confirm` has something to do."""
        return self._watermark is not None and self._watermark.is_unsynced

    def confirm(self) -> None:
        """Make durable how far records were acknowledged; for idle moments (see watermark.py)."""
        # Always through the guard: a failed store accepts nothing more.
        self._guard(lambda: None if self._watermark is None else self._watermark.sync())

    # -- reading ---------------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        """The manifest in force; for reports."""
        return self._manifest

    @property
    def history(self) -> History:
        """The durable records, for catch-up."""
        manifest, durable, end = self._readable
        return History(self._disk, self.directory, manifest, durable, self._doubts, end)

    def _changed(self) -> None:
        """What catch-up may read, as one value: it is read on another thread, at any moment."""
        end = 0 if self._writer is None else self._writer.position
        self._readable = self._manifest, self.durable, end

    # -- snapshots -------------------------------------------------------------------------------

    def begin_snapshot(self, frozen: FrozenTree) -> SnapshotWriter:
        """Start to write a snapshot; see SnapshotWriter.  Raises DiskFull or DiskFailed."""
        return self._guard(
            lambda: SnapshotWriter(
                self._disk,
                self.directory,
                frozen,
                self.options,
                self._manifest.serial,
                self._fail,
            )
        )

    def publish_snapshot(self, entry: SnapshotEntry) -> None:
        """List a completed snapshot of a committed state of this history.

        Raises DiskFull, with the snapshot removed, and BrokenHistory if the history that it was
        taken of was truncated or replaced since.
        """
        self._change(self._publish_snapshot, entry)

    def _publish_snapshot(self, entry: SnapshotEntry) -> None:
        if entry.zxid > self.durable or not self._disk.exists(self._staged_path(entry)):
            # The log was cut after it, and apply_manifest() removed it together with the history.
            raise BrokenHistory(
                "is of a history that is no longer this one", entry.name, None, entry.zxid
            )
        others = tuple(s for s in self._manifest.snapshots if s.name != entry.name)
        snapshots = tuple(sorted((*others, entry), key=lambda s: s.zxid))
        self._list_snapshot(entry, snapshots=snapshots)
        self._publish(entry)
        self._proven.add(entry.name)

    def install_snapshot(
        self, tree: Tree, *, is_exact: bool = True, promised: int | None = None, lacks: bool = False
    ) -> None:
        """Replace the whole history by the state of `tree` (SNAP): a new generation.

        The old files are out of use the moment the manifest changes and are kept aside.  On return
        the new state is durable, and with it the promise of the epoch of whoever sent it (R8), and
        whether it `lacks` what is still to come.  Raises DiskFull with the old history untouched.
        """
        self._change(self._install, tree, is_exact, promised, lacks)

    def _staged_path(self, entry: SnapshotEntry) -> str:
        return self.directory.in_snapshots(entry.staged or entry.name)

    def _list_snapshot(self, entry: SnapshotEntry, **changes: object) -> None:
        """Write a manifest with a new snapshot; on a full disk the file is removed."""
        try:
            self._write_manifest(**changes)
        except DiskFull:
            with contextlib.suppress(OSError):
                self._disk.remove(self._staged_path(entry))
            raise

    def _install(self, tree: Tree, is_exact: bool, promised: int | None, lacks: bool) -> None:
        watermark = read_watermark(self._disk, self.directory)
        if watermark is not None and watermark.serial > self._manifest.serial:
            # The manifest was lost and the watermark was not: the new one must not look older.
            self._manifest = replace(self._manifest, serial=watermark.serial)
        entry = replace(self._snapshot_now(tree.freeze()), exact=is_exact)
        epochs = self.epochs.after_promise(promised, entry.zxid)
        listing = list_directory(self._disk, self.directory)
        old = {*listing.snapshots, *listing.logs} - {entry.name}
        retired = tuple(Retired(name, delete=False) for name in sorted(old))
        self._list_snapshot(
            entry,
            generation=self._manifest.generation + 1,
            snapshots=(entry,),
            segments=(),
            retired=retired,
            unproven=(),  # the leader vouches for all of it
            is_catching_up=lacks,
            repaired_at=None,
            accepted_epoch=epochs.accepted,
            current_epoch=epochs.current,
        )
        self._forget_pending()
        self._abandon_writer()
        apply_manifest(self._disk, self.directory, self._manifest)
        self.head = self.durable = entry.zxid
        self._head_digest = tree.digest
        self.standing = Standing.CATCHING_UP if lacks else Standing.WHOLE
        self.degraded = False
        self._proven = {entry.name}

    # -- truncation and purge --------------------------------------------------------------------

    def truncate(self, zxid: Zxid) -> Recovery:
        """Drop every record and snapshot after `zxid` (TRUNC), durably, and load what is left.

        Raises BrokenHistory or DiskFull with nothing changed; the first if `zxid` is not in this
        history or nothing is left to recover it from: then only a leader's tree helps (R5).
        """
        return self._change(self._truncate, zxid)

    def _truncate(self, zxid: Zxid) -> Recovery:
        sealed = replace(self._manifest, segments=self._sealed_segments())
        history = History(self._disk, self.directory, sealed, self.durable)
        if not history.contains(zxid):
            raise BrokenHistory(
                f"{format_zxid(zxid)} is not in this history", self.directory.logs, None, zxid
            )
        snapshots = tuple(s for s in sealed.snapshots if s.zxid <= zxid)
        if not snapshots:
            raise BrokenHistory(
                f"no snapshot at or below {format_zxid(zxid)} is left", None, None, zxid
            )
        cut = replace(sealed, snapshots=snapshots, segments=cut_segments(history, zxid))
        kept = with_fitting_base(self._disk, self.directory, cut, zxid)
        retired = tuple(
            Retired(name, delete=False) for name in sorted(sealed.names() - kept.names())
        )
        self._write_manifest(
            generation=self._manifest.generation + 1,
            snapshots=kept.snapshots,
            segments=kept.segments,
            retired=retired,
            unproven=tuple(z for z in sealed.unproven if z <= zxid),
        )
        self._forget_pending()
        self._abandon_writer()
        apply_manifest(self._disk, self.directory, self._manifest)
        # Nothing is kept from memory: what counts is what a restart would read (R7).
        recovery = recover(self._disk, self.directory)
        self.standing, self.degraded = recovery.standing, recovery.degraded
        self.head = self.durable = recovery.head
        self._head_digest = recovery.tree.digest if recovery.tree is not None else None
        invariant(
            recovery.head == zxid or recovery.standing is Standing.DAMAGED,
            "a truncation ends at its zxid",
        )
        return recovery

    def _abandon_writer(self) -> None:
        """Leave a segment that is no longer listed, or that is sealed already."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def purge(self, retain: int) -> tuple[str, ...]:
        """Delete what no kept recovery path needs (R11); returns the names that went.

        Nothing is deleted while the last recovery was degraded or the data is not whole: then
        every file may be the one that is needed.
        """
        return self._change(self._purge, retain)

    def _purge(self, retain: int) -> tuple[str, ...]:
        if self.degraded or self.standing is not Standing.WHOLE:
            return ()
        self._prove_snapshots()
        plan = plan_retention(self._manifest, self.durable, retain, frozenset(self._proven))
        removed = remove_aside(self._disk, self.directory, keep_generation=-1)
        if plan.deleted:
            self._write_manifest(
                snapshots=plan.snapshots, segments=plan.segments, retired=plan.deleted
            )
            retire(self._disk, self.directory, self._manifest.retired, self._manifest.generation)
        return (*removed, *(entry.name for entry in plan.deleted))

    def _prove_snapshots(self) -> None:
        """Read those that this process did not load or write: only what can be read counts."""
        for entry in self._manifest.snapshots:
            if entry.name not in self._proven:
                with contextlib.suppress(CorruptSnapshot):
                    check_bytes(self._disk, self.directory.in_snapshots(entry.name), entry)
                    self._proven.add(entry.name)

    # -- epochs, space, the end ------------------------------------------------------------------

    @property
    def epochs(self) -> Epochs:
        """The epochs that this server promised and agreed to."""
        return Epochs(self._manifest.accepted_epoch, self._manifest.current_epoch)

    def set_epochs(self, epochs: Epochs, ensemble: str | None = None) -> None:
        """Store both epochs; durable on return, and only then may they be vouched for (R8).

        With `ensemble`, also to which ensemble the data belong from now on; empty: to none.
        """
        self._change(self._set_epochs, epochs, ensemble)

    def _set_epochs(self, epochs: Epochs, ensemble: str | None) -> None:
        invariant(
            epochs.accepted is not None and epochs.current is not None,
            "epochs are stored together: a missing one cannot be distinguished from a lost one",
        )
        for old, new in (
            (self._manifest.accepted_epoch, epochs.accepted),
            (self._manifest.current_epoch, epochs.current),
        ):
            invariant(old is None or (new is not None and new >= old), "an epoch never falls")
        known = self._manifest
        name = known.ensemble if ensemble is None else ensemble or None
        is_renamed = name != known.ensemble
        self._write_manifest(
            accepted_epoch=epochs.accepted,
            current_epoch=epochs.current,
            ensemble=name,
            ensemble_since=epochs.current if is_renamed else known.ensemble_since,
            is_catching_up=False,  # all that the leader had is durable here
            repaired_at=None,
        )
        if self.standing is Standing.CATCHING_UP:
            self.standing = Standing.WHOLE
        self._ordinary_if_full(lambda: write_epoch_files(self._disk, self.directory, epochs))

    def set_membership(self, text: bytes) -> None:
        """Store which membership was committed last; durable on return."""
        self._change(lambda: self._write_manifest(membership=text))

    def has_space(self) -> bool:
        """Check the disk again: whether new records are accepted. Raises DiskFailed."""
        free = self._guard(lambda: min(map(self._disk.free_bytes, self.directory.both)))
        self._has_space = free >= self.options.reserve_bytes and self._failure is None
        return self._has_space

    def close(self) -> None:
        """Make everything durable, seal the last segment and release the directory.

        Raises DiskFull if records that were never reported as durable still wait for space.
        """
        try:
            if self._failure is None:
                self._guard(self._close)
        finally:
            if self._watermark is not None:
                self._watermark.close()
            self._abandon_writer()
            unlock_directory(self._disk, self.directory)
            # From now on the files are somebody else's.
            self._fail(self._failure or StorageError("the store is closed", self.directory.logs))

    def _close(self) -> None:
        if self._beginning is not None and self.head == self.durable:
            return  # the disk was full all the time, and nothing was accepted
        self._begin()
        self._sync()
        if self._writer is not None:
            with contextlib.suppress(DiskFull):  # the next start finds its end, as after a crash
                self._write_manifest(segments=self._sealed_segments())
                self._close_writer()

    # -- failures --------------------------------------------------------------------------------

    def _write_manifest(self, **changes: object) -> None:
        """Write the manifest; what was retired before is gone by now and not listed again."""
        changes.setdefault("retired", ())
        manifest = self._manifest.next(**changes)
        self._ordinary_if_full(lambda: store_manifest(self._disk, self.directory, manifest))
        self._manifest = manifest
