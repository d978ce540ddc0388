"""A data directory made of a state: servers, Keepfast's and Apache's, start on it.

It holds one snapshot, exact, of the state as it was, and no log; where the source had epochs,
those of the state's zxid. It is written beside its place under another name, read back in full by
the same recovery that a server runs, and gets its name only if that finds the very state that was
asked for: the same zxid and both digests. Whatever goes wrong before leaves nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from keepfast.pipeline.replay.state import ServerState
from keepfast.storage import (
    DataDirectory,
    Epochs,
    RealDisk,
    Recovery,
    Standing,
    Store,
    data_directory,
    recover,
    snapshot_name,
)
from keepfast.wire import KeepfastError, Zxid, epoch_of, format_zxid

_UNFINISHED_SUFFIX = ".keepfast-restore"


class RestoreRefused(KeepfastError):  # noqa: N818 - it says what happened, in one sentence
    """Nothing was written; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A directory that was written and proven."""

    path: str
    head: Zxid
    tree_digest: int
    state_digest: int
    znodes: int
    sessions: int
    snapshot: str
    epoch: int | None


def restore_state(
    state: ServerState, target: str, sources: tuple[DataDirectory, ...] = ()
) -> Restored:
    """Write `state` as a new data directory at `target`, prove it, and only then name it so.

    `target` must not exist, or be an empty directory outside of `sources`. Raises RestoreRefused.
    """
    target = os.path.abspath(target)
    _check_target(target, (*sources, state.directory))
    unfinished = target + _UNFINISHED_SUFFIX
    if os.path.lexists(unfinished):
        raise RestoreRefused(
            f"{unfinished} is left from a restore that was cut short; remove it and run this again"
        )
    try:
        os.makedirs(unfinished)
        epoch = _write(state, unfinished)
        found = _read_back(state, unfinished)
        os.rename(unfinished, target)
        RealDisk().fsync_directory(os.path.dirname(target))
    except OSError as error:
        raise RestoreRefused(
            f"{error.filename or target}: {error.strerror}; nothing was restored"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Restored(
        target,
        found.head,
        state.tree.digest,
        state.tree.state_digest,
        state.tree.node_count,
        len(state.tree.sessions),
        snapshot_name(found.head),
        epoch,
    )


def _check_target(target: str, sources: tuple[DataDirectory, ...]) -> None:
    real = os.path.realpath(target)
    for source in (place for directory in sources for place in directory.both):
        inside = os.path.realpath(source)
        # Also beside version-2: a server's own directory is nobody's scratch space.
        home = os.path.dirname(inside) if os.path.basename(inside) == "version-2" else inside
        if real in (inside, home) or real.startswith(home + os.sep):
            raise RestoreRefused(f"{target} lies in a directory that is read; name another one")
    if os.path.isdir(target):
        if os.listdir(target):
            raise RestoreRefused(f"{target} is not empty; nothing is ever written over files")
    elif os.path.lexists(target):
        raise RestoreRefused(f"{target} is a file; name a directory that does not exist yet")


def _write(state: ServerState, path: str) -> int | None:
    """Write the directory; returns its epoch, if it has one."""
    disk = RealDisk()
    store, _ = Store.open(disk, data_directory(disk, path))
    try:
        store.install_snapshot(state.tree)
        epoch = epoch_of(state.head)
        if not _has_epochs(state.directory):
            return None
        store.set_epochs(Epochs(accepted=epoch, current=epoch))
        return epoch
    finally:
        store.close()


def _has_epochs(directory: DataDirectory) -> bool:
    """Whether the source was a member of an ensemble: a standalone server stores no epochs."""
    return RealDisk().exists(directory.in_snapshots("currentEpoch"))


def _read_back(state: ServerState, path: str) -> Recovery:
    """Recover what was written as a server would; raises RestoreRefused if it is not the state."""
    disk = RealDisk()
    found = recover(disk, data_directory(disk, path), full=True)
    tree = found.tree
    if found.standing is not Standing.WHOLE or tree is None:
        reasons = "; ".join(problem.reason for problem in found.problems)
        raise RestoreRefused(f"what was written does not read back: {reasons}")
    read = (found.head, tree.digest, tree.state_digest)
    if read != (state.head, state.tree.digest, state.tree.state_digest):
        raise RestoreRefused(
            f"what was written reads back as another state: {format_zxid(found.head)} with digest "
            f"{tree.digest:#x} instead of {format_zxid(state.head)} with {state.tree.digest:#x}"
        )
    return found
