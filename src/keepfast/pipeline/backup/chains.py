"""How backups lie in their place.

    PLACE/20261117T025500Z/version-2/...     a chain: a data directory, named by its beginning
    PLACE/20261124T025500Z/version-2/...     the next one, with a base of its own

A chain is never changed but by records that directly follow its last one. What begins a new one: an
interval, so that no restore depends on a chain that grows without end; records that are gone from
the servers; and a history that is not the one that was backed up before.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from keepfast.storage import (
    DataDirectory,
    RealDisk,
    Recovery,
    Standing,
    data_directory,
    recover,
)
from keepfast.wire import KeepfastError, Zxid

_NAME: Final = re.compile(r"\d{8}T\d{6}Z")
_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_DAY: Final = 86_400.0


class BackupRefused(KeepfastError):  # noqa: N818 - it says what happened, in one sentence
    """No backup was taken, or none can be used; `str()` says why."""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """When a chain starts over, how long chains are kept, and what is kept on this machine."""

    # Low: much space. High: a restore replays much, and one bad disk costs a long chain.
    full_every_seconds: float = 7 * _DAY
    # 0: without end.
    keep_seconds: float = 0.0
    # A directory for a copy of the newest chain of an object store; without one it is downloaded
    # for each backup.
    cache: str | None = None


@dataclass(frozen=True, slots=True)
class BackupChain:
    """One chain; what it holds is known once it was read. `path` may be an address."""

    path: str
    name: str
    began: datetime

    @property
    def directory(self) -> DataDirectory:
        """Where the files of a local one lie."""
        return data_directory(RealDisk(), self.path)


@dataclass(frozen=True, slots=True)
class BackupTaken:
    """What a backup did."""

    chain: BackupChain
    head: Zxid
    tree_digest: int
    # None: the chain was continued; otherwise why a new one was begun.
    new_because: str | None
    records: int
    expired: tuple[str, ...]
    # What an operator should know; `is_wrong` if it must not be so.
    note: str = ""
    is_wrong: bool = False


def chain_name(now: datetime) -> str:
    """The name of a chain that begins now."""
    return now.astimezone(UTC).strftime(_FORMAT)


def is_chain_name(name: str) -> bool:
    """Whether a directory is named as a chain is."""
    return _NAME.fullmatch(name) is not None


def chain_of(place: str, name: str) -> BackupChain:
    """The chain of this name at a place, which may be an address."""
    began = datetime.strptime(name, _FORMAT).replace(tzinfo=UTC)
    return BackupChain(os.path.join(place, name), name, began)


def list_local_chains(place: str) -> list[BackupChain]:
    """The chains in a directory, oldest first; raises BackupRefused if it cannot be listed."""
    try:
        names = sorted(name for name in os.listdir(place) if is_chain_name(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BackupRefused(f"{place}: {error.strerror}; name a directory") from error
    return [chain_of(place, name) for name in names]


def read_local_chain(chain: BackupChain) -> Recovery:
    """Read all of a chain as a server would; raises BackupRefused unless it is proven whole."""
    found = recover(RealDisk(), chain.directory, full=True)
    if found.standing is not Standing.WHOLE or found.tree is None:
        reasons = "; ".join(problem.reason for problem in found.problems) or found.standing.value
        raise BackupRefused(
            f"{chain.path} is not whole: {reasons}; move it away, and run the backup again"
        )
    return found


def expired_chains(
    chains: Sequence[BackupChain], kept_seconds: float, now: datetime
) -> list[BackupChain]:
    """The chains that nothing within the time to keep needs; with 0 none, for all are kept.

    A chain serves the moments up to the beginning of the next one, so the newest always stays.
    """
    return [
        chain
        for chain, following in pairwise(chains)
        if 0 < kept_seconds < (now - following.began).total_seconds()
    ]


def expire_chains(chains: Sequence[BackupChain], kept_seconds: float, now: datetime) -> list[str]:
    """Delete the chains that nothing within the time to keep needs; returns their names."""
    gone = expired_chains(chains, kept_seconds, now)
    for chain in gone:
        # Out of the listing first: one that is half deleted must not look like a backup.
        doomed = f"{chain.path}.expired"
        os.rename(chain.path, doomed)
        shutil.rmtree(doomed)
    return [chain.name for chain in gone]
