"""Backups wherever they lie: in a directory of this machine, or in an object store.

A chain of an object store is worked on in a copy on this machine: the newest one is downloaded,
continued and proven there as any other, and then what is new is uploaded (object_store.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from keepfast.pipeline.backup.chains import (
    BackupChain,
    BackupOptions,
    BackupRefused,
    BackupTaken,
    expired_chains,
    list_local_chains,
    read_local_chain,
)
from keepfast.pipeline.backup.object_store import ObjectStore
from keepfast.pipeline.files.layout import is_remote, local_path
from keepfast.storage import Recovery
from keepfast.wire import Zxid, format_zxid

Take = Callable[[str, BackupOptions], BackupTaken]


def list_chains(place: str) -> list[BackupChain]:
    """The chains of a place, oldest first; raises BackupRefused if it cannot be listed."""
    return ObjectStore(place).chains() if is_remote(place) else list_local_chains(_folder(place))


@contextmanager
def chain_here(chain: BackupChain) -> Iterator[BackupChain]:
    """A chain as a directory of this machine: itself, or a copy that goes away at the end."""
    if not is_remote(chain.path):
        yield chain
        return
    store = ObjectStore(os.path.dirname(chain.path))
    with _folder_for_copies(None) as folder:
        yield store.fetch(chain, folder)[0]


def read_chain(chain: BackupChain) -> Recovery:
    """Read all of a chain as a server would; raises BackupRefused unless it is proven whole."""
    with chain_here(chain) as here, _named(here.path, chain.path):
        return read_local_chain(here)


def chain_at(place: str, zxid: Zxid | None, time_ms: int | None) -> BackupChain:
    """The newest chain that begins no later than a moment; raises BackupRefused without one."""
    chains = list_chains(place)
    if not chains:
        raise BackupRefused(f"{place} holds no backup; keepfast backup makes one")
    for chain in reversed(chains):
        if zxid is not None:
            snapshots = read_chain(chain).manifest.snapshots
            if min((entry.zxid for entry in snapshots), default=zxid + 1) <= zxid:
                return chain
        elif time_ms is None or chain.began.timestamp() * 1000 <= time_ms:
            return chain
    moment = format_zxid(zxid) if zxid is not None else "that time"
    raise BackupRefused(f"{place}: the oldest backup, {chains[0].name}, begins after {moment}")


def take_at(
    place: str, options: BackupOptions, now: datetime, take: Take, *, continues: bool = True
) -> BackupTaken:
    """Have `take` take a backup to a directory: the place, or a copy of its newest chain.

    `continues`: whether it may add to that chain; without, the copy begins empty.
    """
    if not is_remote(place):
        return take(_folder(place), options)
    store = ObjectStore(place)
    chains = store.chains()
    last = chains[-1] if chains and continues else None
    with _folder_for_copies(options.cache) as folder:
        # What the place does not have, a copy of it does not have either.
        _keep_only(folder, last)
        fetched = None if last is None else _fetch(store, last, folder)
        with _named(folder, store.place):
            taken = take(folder, replace(options, keep_seconds=0.0))
        if taken.new_because is not None:
            fetched = None
        store.send(taken.chain, fetched)
        _keep_only(folder, taken.chain)
    return replace(
        taken,
        chain=replace(taken.chain, path=f"{store.place}/{taken.chain.name}"),
        expired=tuple(_expire(store, options.keep_seconds, now)),
    )


def _fetch(store: ObjectStore, chain: BackupChain, folder: str) -> bytes:
    """Copy a chain, whatever an earlier copy is like; returns its manifest."""
    is_new = not list_local_chains(folder)
    copy, manifest = store.fetch(chain, folder)
    if not is_new:
        try:
            read_local_chain(copy)
        except BackupRefused:
            # The files that were kept from the earlier copy may be at fault.
            shutil.rmtree(copy.path)
            _, manifest = store.fetch(chain, folder)
    return manifest


def _keep_only(folder: str, chain: BackupChain | None) -> None:
    for other in list_local_chains(folder):
        if chain is None or other.name != chain.name:
            shutil.rmtree(other.path)


def _expire(store: ObjectStore, kept_seconds: float, now: datetime) -> list[str]:
    chains = store.chains()
    gone = expired_chains(chains, kept_seconds, now)
    left_over = [one for one in store.unfinished() if kept_seconds and one.name < chains[-1].name]
    for chain in (*gone, *left_over):
        store.delete(chain)
    return [chain.name for chain in gone]


def _folder(place: str) -> str:
    return local_path(place) if place.startswith("file:") else place


@contextmanager
def _folder_for_copies(cache: str | None) -> Iterator[str]:
    try:
        if cache is not None:
            os.makedirs(cache, mode=0o700, exist_ok=True)
        folder = cache or tempfile.mkdtemp(prefix="keepfast-backup-")
    except OSError as error:
        raise BackupRefused(f"{error.filename}: {error.strerror}") from error
    try:
        yield folder
    finally:
        if cache is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _named(copy: str, place: str) -> Iterator[None]:
    """Have refusals name files as they are named where they lie."""
    try:
        yield
    except BackupRefused as error:
        raise BackupRefused(str(error).replace(copy, place)) from error
