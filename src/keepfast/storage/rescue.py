"""Rescue: let a member vote again although its data is lost, damaged or not proven (R8).

A server whose data is not whole learns from a leader whose quorum does not include it. When a
majority is in that state there is no such leader, and no program can know what was acknowledged and
is gone. A rescue is an operator's statement that the loss is accepted. It keeps everything that the
files prove, deletes nothing, claims no later epoch than the history that is left, and is written
into the manifest, so that it is known later why the history became shorter.

The promise not to follow older leaders (the accepted epoch) is kept: it costs nothing to keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keepfast.storage.disk import Disk, make_directory_durably, replace_file
from keepfast.storage.epochs import Epochs, read_epochs, write_epoch_files
from keepfast.storage.layout import (
    ACCEPTED_EPOCH_NAME,
    CURRENT_EPOCH_NAME,
    DataDirectory,
)
from keepfast.storage.manifest import Rescue, load_manifest, store_manifest
from keepfast.storage.problems import Severity, Standing
from keepfast.storage.recovered import NO_HISTORY, Recovery
from keepfast.storage.recovery import recover
from keepfast.storage.repair import (
    RepairPlan,
    RepairRefused,
    apply_repair,
    hold,
    plan_repair,
)
from keepfast.storage.snapshot_writer import storage_error
from keepfast.storage.store import Store
from keepfast.storage.watermark import read_watermark
from keepfast.tree import Tree
from keepfast.wire import CorruptManifest, StorageError, Zxid, epoch_of, invariant

_ABOUT_EPOCHS = frozenset(("epoch-order", "epoch-unreadable"))


class RescueKind(Enum):
    """What a rescue accepts."""

    NOTHING = "nothing"  # the data is whole
    UNPROVEN = "unproven"  # the history is accepted as it is
    TREE = "tree"  # a leader's tree, or what a repair left, is accepted as all that there was
    EPOCHS = "epochs"  # so it is, without the epoch that it was committed in
    CUT = "cut"  # the history ends after its last proven record
    EMPTY = "empty"  # nothing is left: the empty tree


@dataclass(frozen=True, slots=True)
class RescuePlan:
    """What a rescue does to one directory."""

    kind: RescueKind
    before: Recovery
    head: Zxid  # the last record that stays; 0: none
    # The last record that is known to have been acknowledged, where it does not stay.
    lost: Zxid | None
    repair: RepairPlan | None = None


def plan_rescue(disk: Disk, directory: DataDirectory) -> RescuePlan:
    """Look at a directory, and change nothing. Raises StorageError if it cannot be read."""
    if not all(disk.is_directory(place) for place in directory.both):
        return RescuePlan(RescueKind.EMPTY, Recovery(Standing.EMPTY), Zxid(0), None)
    before = recover(disk, directory, full=True)
    head = before.head
    if before.standing is Standing.WHOLE:
        return RescuePlan(RescueKind.NOTHING, before, head, None)
    if before.standing is Standing.UNPROVEN:
        return RescuePlan(RescueKind.UNPROVEN, before, head, None)
    last = _last_acknowledged(disk, directory)
    if before.standing is Standing.CATCHING_UP:
        is_lost = last is not None and last > head
        return RescuePlan(RescueKind.TREE, before, head, last if is_lost else None)
    damage = {p.code for p in before.problems if p.severity is Severity.DAMAGE}
    if head != NO_HISTORY and damage and damage <= _ABOUT_EPOCHS:
        return RescuePlan(RescueKind.EPOCHS, before, head, None)
    if before.standing is Standing.DAMAGED:
        try:
            plan = plan_repair(disk, directory)
        except RepairRefused:
            pass  # nothing is proven from which a history could begin
        else:
            invariant(isinstance(plan, RepairPlan), "what is damaged can be repaired")
            if isinstance(plan, RepairPlan):
                kept = plan.after.head
                lost = last if last is not None and last > kept else None
                return RescuePlan(RescueKind.CUT, before, kept, lost, plan)
    return RescuePlan(RescueKind.EMPTY, before, Zxid(0), last)


def _last_acknowledged(disk: Disk, directory: DataDirectory) -> Zxid | None:
    watermark = read_watermark(disk, directory)
    return None if watermark is None or watermark.zxid <= 0 else watermark.zxid


def apply_rescue(disk: Disk, directory: DataDirectory, plan: RescuePlan, at: str) -> Recovery:
    """Carry it out; `at` is the time, for the manifest. Returns what is there afterwards.

    Power lost, or no space left, in between leaves a directory that is as it was, or already cut,
    and that can be rescued again. Raises RepairRefused if a server runs on it, StorageError if it
    does not succeed.
    """
    try:
        after = _carry_out(disk, directory, plan, at)
    except OSError as error:
        raise storage_error(error, error.filename or directory.snapshots) from error
    if after.standing is not Standing.WHOLE or after.head != plan.head:
        raise StorageError(
            f"the rescued directory is {after.standing.value} at {after.head:#x}, which is not "
            "what was planned",
            directory.snapshots,
        )
    return after


def _carry_out(disk: Disk, directory: DataDirectory, plan: RescuePlan, at: str) -> Recovery:
    for place in directory.both:
        make_directory_durably(disk, place)
    with hold(disk, directory):
        epochs = _epochs_after(disk, directory, plan)
        if plan.repair is not None:
            apply_repair(disk, directory, plan.repair)
        if plan.kind is RescueKind.EPOCHS:
            _replace_epochs(disk, directory, epochs)
    # The store puts the directory in order: what it says from now on is in a manifest.
    store, recovery = Store.open(disk, directory)
    try:
        if plan.kind is RescueKind.EMPTY:
            if recovery.standing is Standing.EMPTY:
                store.initialise()
            else:
                store.install_snapshot(Tree())
    finally:
        store.close()
    with hold(disk, directory):
        _sign(disk, directory, plan, epochs, at)
        return recover(disk, directory)


def _epochs_after(disk: Disk, directory: DataDirectory, plan: RescuePlan) -> Epochs:
    """The promise as it is, and an agreement to no more than what is left.

    Who claims a later epoch wins elections: a server that lost its end must not win over one that
    still has it.
    """
    try:
        manifest = load_manifest(disk, directory)
    except CorruptManifest:
        manifest = None
    known = read_epochs(disk, directory, manifest, [])
    last = max(epoch_of(plan.head), 0)
    if known.accepted is None and known.current is None:
        return Epochs(last, last) if last else Epochs()
    accepted = max(known.accepted or 0, known.current or 0, last)
    current = last
    if plan.kind is RescueKind.UNPROVEN:
        stored = manifest.current_epoch if manifest is not None else None
        agreed = known.current if stored is None else stored
        current = max(agreed or 0, last)
    return Epochs(accepted, min(current, accepted))


def _replace_epochs(disk: Disk, directory: DataDirectory, epochs: Epochs) -> None:
    """Write epochs that may be lower than those that are there."""
    manifest = load_manifest(disk, directory)
    if manifest is not None:
        changed = manifest.next(accepted_epoch=epochs.accepted, current_epoch=epochs.current)
        store_manifest(disk, directory, changed)
    for name, value in (
        (ACCEPTED_EPOCH_NAME, epochs.accepted),
        (CURRENT_EPOCH_NAME, epochs.current),
    ):
        if value is not None:
            replace_file(disk, directory.in_snapshots(name), str(value).encode("ascii"))


def _sign(disk: Disk, directory: DataDirectory, plan: RescuePlan, epochs: Epochs, at: str) -> None:
    """Say in the manifest what was accepted: from now on this is the history."""
    manifest = load_manifest(disk, directory)
    if manifest is None:
        raise StorageError("no manifest was written", directory.manifest)
    entry = Rescue(at, plan.before.standing.value, plan.kind.value, plan.head, plan.lost)
    store_manifest(
        disk,
        directory,
        manifest.next(
            accepted_epoch=epochs.accepted,
            current_epoch=epochs.current,
            unproven=(),
            is_catching_up=False,
            repaired_at=None,
            rescues=(*manifest.rescues, entry),
        ),
    )
    write_epoch_files(disk, directory, epochs)
