"""A backup from the files of the servers, which may be running.

The history that a quorum holds is followed from where the last backup ended (`AgreedHistory`); each
record is applied to the chain's own tree and its digest compared before it is stored. At the end
all of the chain is read back as a server would read it. What no quorum holds yet is left for next
time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Final

from keepfast.pipeline.agreement.quorum_history import AgreedHistory, Stop
from keepfast.pipeline.agreement.server_log import Record, ServerLog
from keepfast.pipeline.agreement.voters import config_in, electorate_by_files
from keepfast.pipeline.backup.backup_place import take_at
from keepfast.pipeline.backup.chains import (
    BackupChain,
    BackupOptions,
    BackupRefused,
    BackupTaken,
    chain_name,
    expire_chains,
    list_local_chains,
    read_local_chain,
)
from keepfast.pipeline.files.layout import EnsembleFiles
from keepfast.pipeline.replay.restore import RestoreRefused, restore_state
from keepfast.pipeline.replay.state import ensemble_state
from keepfast.storage import Disk, Epochs, Frame, RealDisk, Store, replay
from keepfast.wire import StorageError, Zxid, canonical_entry, decode_entry, epoch_of, format_zxid

_GROUP: Final = 1000


def back_up_files(
    disk: Disk,
    ensemble: EnsembleFiles,
    place: str,
    options: BackupOptions | None = None,
    now: datetime | None = None,
) -> BackupTaken:
    """Take a backup of an ensemble by its servers' files. Raises BackupRefused or StateUnknown."""
    options, now = options or BackupOptions(), now or datetime.now(UTC)

    def take(folder: str, wanted: BackupOptions) -> BackupTaken:
        return _back_up(disk, ensemble, folder, wanted, now)

    return take_at(place, options, now, take)


def _back_up(
    disk: Disk, ensemble: EnsembleFiles, place: str, options: BackupOptions, now: datetime
) -> BackupTaken:
    """Take a backup to a directory."""
    chains = list_local_chains(place)
    why, note = _why_new(disk, ensemble, chains, options, now)
    try:
        if why is None:
            chain = chains[-1]
        else:
            os.makedirs(place, mode=0o700, exist_ok=True)
            chain = _begin(disk, ensemble, place, now)
            chains.append(chain)
        records, stop = _follow(disk, ensemble, chain)
        found = read_local_chain(chain)
        expired = expire_chains(chains, options.keep_seconds, now)
    except OSError as error:
        raise BackupRefused(f"{error.filename or place}: {error.strerror}") from error
    except (StorageError, RestoreRefused) as error:
        raise BackupRefused(str(error)) from error
    if stop.kind in ("hole", "conflict"):
        note = "; ".join(part for part in (note, stop.text) if part)
    return BackupTaken(
        chain,
        found.head,
        found.tree.digest if found.tree is not None else 0,
        why,
        records,
        tuple(expired),
        note,
        bool(note),
    )


def _why_new(
    disk: Disk,
    ensemble: EnsembleFiles,
    chains: Sequence[BackupChain],
    options: BackupOptions,
    now: datetime,
) -> tuple[str | None, str]:
    """Why a new chain begins, None: it does not; and what is wrong with the last one."""
    if not chains:
        return "it is the first", ""
    last = chains[-1]
    head = read_local_chain(last).head
    own = ServerLog(RealDisk(), last.directory, "backup").find(head)
    logs = _logs(disk, ensemble)
    theirs = [entry for log in logs if (entry := log.find(head)) is not None]
    if own is not None and theirs and all(not _is_same(own, entry) for entry in theirs):
        wrong = (
            f"the servers have another record at {format_zxid(head)} than the backup {last.name}: "
            "a history that was backed up is no longer theirs; keepfast audit shows where they "
            "diverged"
        )
        return "the history is another one", wrong
    newest = max((_head_of(log, head) for log in logs), default=Zxid(-1))
    if newest < head:
        # Logs do not hold what a server was sent as a snapshot.
        newest = ensemble_state(disk, ensemble).head
    if newest < head:
        wrong = (
            f"the servers end at {format_zxid(newest)}, before the backup {last.name} at "
            f"{format_zxid(head)}: they lost what was backed up; keepfast restore brings it back"
        )
        return "the servers are behind the last one", wrong
    if now - last.began >= timedelta(seconds=options.full_every_seconds):
        return "the last one is old enough", ""
    if not theirs and newest > head and not _leads_on(logs, head):
        return f"the records after {format_zxid(head)} are gone from the servers", ""
    return None, ""


def _is_same(one: bytes, other: bytes) -> bool:
    return canonical_entry(decode_entry(one)) == canonical_entry(decode_entry(other))


def _logs(disk: Disk, ensemble: EnsembleFiles) -> list[ServerLog]:
    return [ServerLog(disk, server.data_directory, server.server) for server in ensemble.servers]


def _head_of(log: ServerLog, near: Zxid) -> Zxid:
    """The last record of a log, -1 without any; files that end before `near` are not read."""
    last = Zxid(-1)
    log.start(near)
    log.poll(last)
    while (record := log.peek()) is not None:
        last = Zxid(record.zxid)
        log.pop()
    return last


def _leads_on(logs: Sequence[ServerLog], head: Zxid) -> bool:
    """Whether some log has the record after `head`."""
    for log in logs:
        log.start(head)
        log.poll(head)
        record = log.peek()
        if record is not None and record.zxid == head + 1:
            return True
    return False


def _begin(disk: Disk, ensemble: EnsembleFiles, place: str, now: datetime) -> BackupChain:
    """A new chain: the state that a quorum of the servers holds, written and read back."""
    state = ensemble_state(disk, ensemble)
    if state.is_contradicted:
        raise BackupRefused(
            f"{ensemble.name}: servers have different states at {format_zxid(state.head)}; "
            "keepfast audit shows where they diverged"
        )
    name = chain_name(now)
    sources = tuple(server.data_directory for server in ensemble.servers)
    restore_state(state.chosen, os.path.join(place, name), sources)
    return list_local_chains(place)[-1]


def _follow(disk: Disk, ensemble: EnsembleFiles, chain: BackupChain) -> tuple[int, Stop]:
    """Store the agreed records after the chain's head; returns how many, and why it ended."""
    store, found = Store.open(RealDisk(), chain.directory)
    try:
        tree = found.tree
        if tree is None:
            raise BackupRefused(f"{chain.path} holds no state")
        electorate = electorate_by_files(disk, ensemble).of_given().changed(config_in(tree))
        history = AgreedHistory(_logs(disk, ensemble), electorate, store.head)
        # It checks that each record follows, fits, and leaves the digest that it states.
        walk = replay.Replay(tree, replay.Base(store.head, store.head, exact=True))
        count = 0
        for epoch, fed in groupby(_fed(history.records(), walk), lambda one: epoch_of(one[0])):
            # Between the last record of one epoch and the first of the next, as a member does:
            # a chain whose records lie beyond its epoch is taken for damaged.
            if (store.epochs.current or epoch) < epoch:
                store.set_epochs(Epochs(accepted=epoch, current=epoch))
            while group := list(islice(fed, _GROUP)):
                store.append_all(group)
                store.sync()
                count += len(group)
        walk.finish()
        store.roll()
    finally:
        store.close()
    return count, history.stop


def _fed(
    records: Iterator[Record], walk: replay.Replay
) -> Iterator[tuple[Zxid, bytes, int | None]]:
    """The records, each once the replay has taken it."""
    for record in records:
        walk.feed(Frame(record.offset, record.zxid, record.entry), record.file)
        yield walk.head, record.entry, walk.tree.digest
