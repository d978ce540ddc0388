"""A backup from a running server, of either kind, by the snapshot that its admin server streams.

Each is a chain of its own with a snapshot and no records: those are in a server's files alone. The
snapshot is loaded in full before it becomes a backup. It has to be exact: one that holds effects of
later records, as Apache writes it while clients write, is refused, because only the records could
complete it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from keepfast.pipeline.backup.backup_place import take_at
from keepfast.pipeline.backup.chains import (
    BackupOptions,
    BackupRefused,
    BackupTaken,
    chain_name,
    expire_chains,
    list_local_chains,
    read_local_chain,
)
from keepfast.storage import Epochs, RealDisk, Store, data_directory, load_tree, snapshot_name
from keepfast.tree import Tree
from keepfast.wire import StorageError, Zxid, epoch_of, format_zxid, parse_zxid

_TIMEOUT_SECONDS: Final = 60.0
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Where a server's admin server is, and how to prove that one may do everything there."""

    url: str
    # As the admin server wants it: `digest user:password`, or `ip`.
    authorization: str


def back_up_server(
    request: SnapshotRequest,
    place: str,
    options: BackupOptions | None = None,
    now: datetime | None = None,
) -> BackupTaken:
    """Take a backup of a running server. Raises BackupRefused."""
    options, now = options or BackupOptions(), now or datetime.now(UTC)

    def take(folder: str, wanted: BackupOptions) -> BackupTaken:
        return _back_up(request, folder, wanted, now)

    return take_at(place, options, now, take, continues=False)


def _back_up(
    request: SnapshotRequest, place: str, options: BackupOptions, now: datetime
) -> BackupTaken:
    """Take a backup to a directory."""
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=place) as incoming:
            tree, zxid = _exact(_downloaded(request, incoming))
            staged = os.path.join(incoming, "chain")
            _write(tree, zxid, staged)
            os.rename(staged, os.path.join(place, chain_name(now)))
        RealDisk().fsync_directory(place)
        chains = list_local_chains(place)
        found = read_local_chain(chains[-1])
        expired = expire_chains(chains, options.keep_seconds, now)
    except OSError as error:
        raise BackupRefused(f"{error.filename or place}: {error.strerror or error}") from error
    except StorageError as error:
        raise BackupRefused(str(error)) from error
    why = "a running server gives snapshots, no records"
    return BackupTaken(chains[-1], found.head, tree.digest, why, 0, tuple(expired))


def _downloaded(request: SnapshotRequest, folder: str) -> str:
    """The snapshot as a file that is named by its zxid."""
    url = f"{request.url}/commands/snapshot?streaming=true"
    asked = urllib.request.Request(url, headers={"Authorization": request.authorization})
    path = os.path.join(folder, "stream")
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_SECONDS) as reply:
            told = reply.headers.get("last_zxid")
            if told is None:
                raise BackupRefused(
                    f"{url}: no snapshot came; is it an admin server of 3.9 or ours?"
                )
            with open(path, "wb") as file:
                shutil.copyfileobj(reply, file, _CHUNK)
    except urllib.error.HTTPError as error:
        raise BackupRefused(_refusal(url, error)) from error
    except urllib.error.URLError as error:
        raise BackupRefused(f"{url}: {error.reason}") from error
    named = os.path.join(folder, snapshot_name(parse_zxid(told)))
    os.rename(path, named)
    return named


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    advice = {
        401: "name a superuser with --auth digest:USER:PASSWORD",
        403: "the root's ACL does not let this id do everything; use a superuser",
        429: "a snapshot was taken a moment ago; try again later",
        503: "set admin.snapshot.enabled=true at the server",
    }
    return (
        f"{url}: {error.code} {error.reason}; {advice.get(error.code, 'see the log of the server')}"
    )


def _exact(path: str) -> tuple[Tree, Zxid]:
    tree, info, seen = load_tree(RealDisk(), path, is_fuzzy=True)
    ahead = max(info.zxid, info.digest_zxid or 0, info.last_processed or 0, seen)
    is_other = (
        info.digest is not None and info.digest_zxid == info.zxid and info.digest != tree.digest
    )
    if ahead > info.zxid or is_other:
        raise BackupRefused(
            f"the snapshot of {format_zxid(info.zxid)} holds effects of records after it, and only "
            "the server's files have those: back up its data directory instead"
        )
    return tree, info.zxid


def _write(tree: Tree, zxid: Zxid, path: str) -> None:
    disk = RealDisk()
    store, _ = Store.open(disk, data_directory(disk, path))
    try:
        store.install_snapshot(tree)
        epoch = epoch_of(zxid)
        if epoch > 0:
            store.set_epochs(Epochs(accepted=epoch, current=epoch))
    finally:
        store.close()
