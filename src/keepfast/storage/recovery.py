"""Recovery: from the files of a directory to the one state that they prove, or to a refusal.

`recover` only reads.  Its result is used in two ways: `keepfast verify` prints it, and
`Store.open` makes the directory agree with it before a server runs on it.  Anything unusual is
reported in `problems`; nothing is guessed and nothing is repaired on the side.
"""

from msgspec.structs import replace

from keepfast.storage.disk import Disk
from keepfast.storage.epochs import Epochs, check_epochs, read_epochs
from keepfast.storage.layout import (
    DataDirectory,
    Listing,
    list_directory,
    parse_log_name,
)
from keepfast.storage.log_file import LogReader
from keepfast.storage.manifest import Manifest, load_manifest
from keepfast.storage.problems import Problem, Severity, Standing
from keepfast.storage.recovered import HEAL, NO_HISTORY, Recovery, doubted, problem_of
from keepfast.storage.recovery_listed import recover_listed
from keepfast.storage.recovery_unlisted import recover_unlisted
from keepfast.storage.watermark import read_watermark
from keepfast.wire import CorruptManifest, Zxid, epoch_of, format_zxid


def recover(disk: Disk, directory: DataDirectory, *, full: bool = False) -> Recovery:
    """Read a directory and return the state that it proves.

    With `full`, files that this recovery does not need are checked as well.  Raises StorageError
    only if the directory cannot be listed or the disk does not read its manifest.
    """
    listing = list_directory(disk, directory)
    problems: list[Problem] = [
        Problem(
            "misplaced",
            Severity.WARNING,
            "lies in the wrong one of the two directories and is not used",
            path,
        )
        for path in listing.misplaced
    ]
    try:
        manifest = load_manifest(disk, directory)
    except CorruptManifest as error:
        problems.append(
            problem_of(
                error,
                "manifest",
                advice="let an ensemble refill this server from an empty directory, or run "
                "keepfast repair to verify the files anew",
            )
        )
        return Recovery(Standing.DAMAGED, problems=tuple(problems))
    epochs = read_epochs(disk, directory, manifest, problems)
    result = _recover_files(disk, directory, listing, manifest, problems, full)
    if result.adopted:
        result = _check_against_watermark(disk, directory, result, manifest, epochs, problems)
    result = _check_against_epochs(result, epochs, manifest, problems)
    if manifest is not None and manifest.is_catching_up and result.tree is not None:
        if result.standing is Standing.WHOLE:
            result = replace(result, standing=Standing.CATCHING_UP)
        problems.append(_short(manifest))
    completed = replace(
        result.manifest, accepted_epoch=epochs.accepted, current_epoch=epochs.current
    )
    return replace(result, epochs=epochs, manifest=completed, problems=tuple(problems))


def _short(manifest: Manifest) -> Problem:
    """Why a valid history may be less than this server has acknowledged."""
    if manifest.repaired_at is not None:
        return Problem(
            "repaired",
            Severity.WARNING,
            "a repair ended this history: records after it may have been acknowledged, so this "
            "server has no vote",
            zxid=manifest.repaired_at,
            advice="start it in its ensemble: it votes again once a leader has filled it whose "
            "quorum does not include it",
        )
    return Problem(
        "catching-up",
        Severity.WARNING,
        "a leader's tree was installed, and the records after it had not all come",
        advice="none needed in an ensemble: it learns from the leader before it votes",
    )


def _recover_files(
    disk: Disk,
    directory: DataDirectory,
    listing: Listing,
    manifest: Manifest | None,
    problems: list[Problem],
    full: bool,
) -> Recovery:
    """The state that logs and snapshots prove, by the manifest if it describes them."""
    if manifest is not None:
        foreign = foreign_names(disk, directory, listing, manifest, problems)
        if not foreign:
            return recover_listed(disk, directory, manifest, problems, full)
        problems.append(
            Problem(
                "changed-by-another-program",
                Severity.WARNING,
                f"{', '.join(sorted(foreign))} written by another program: "
                "the whole directory is verified anew",
            )
        )
    watermark = read_watermark(disk, directory)
    if manifest is None and watermark is not None:
        # The next manifest must not look older than what the watermark refers to.
        old = Manifest(serial=watermark.serial)
    else:
        old = manifest or Manifest()
    return recover_unlisted(disk, directory, listing, old, problems, full)


def _check_against_watermark(
    disk: Disk,
    directory: DataDirectory,
    result: Recovery,
    manifest: Manifest | None,
    epochs: Epochs,
    problems: list[Problem],
) -> Recovery:
    """Compare what the files prove by themselves with what is known to have been acknowledged."""
    known = last_known(disk, directory, manifest or Manifest())
    is_short = result.tree is not None and result.head < known
    if manifest is None:
        if not disk.exists(directory.watermark):
            return result
        reason = "is missing, although Keepfast wrote here: what it listed is not known"
        lost = Problem("manifest-missing", Severity.DAMAGE, reason, directory.manifest)
        result = doubted(result, lost, problems)
    if not is_short:
        return result
    reason = f"records up to {format_zxid(known)} were acknowledged here, and are no longer here"
    is_member = epochs.accepted is not None or epochs.current is not None
    if manifest is not None and is_member:
        # Apache may have truncated them for a leader, or they are lost: the files do not show.
        gone = Problem("records-gone", Severity.WARNING, reason, zxid=result.head)
        return doubted(result, gone, problems)
    # Nobody truncates the log of a standalone server, and without a manifest nothing says that
    # anybody did: these were acknowledged, and serving without them would hide the loss.
    problems.append(Problem("records-gone", Severity.DAMAGE, reason, zxid=result.head, advice=HEAL))
    return replace(result, standing=Standing.DAMAGED, tree=None)


def last_known(disk: Disk, directory: DataDirectory, manifest: Manifest) -> Zxid:
    """The last zxid that a manifest and its watermark know to have been there."""
    watermark = read_watermark(disk, directory)
    known = [snapshot.zxid for snapshot in manifest.snapshots]
    if watermark is not None and watermark.serial > manifest.serial:
        known.append(watermark.zxid)  # the manifest is an old one
    for segment in manifest.segments:
        if segment.seal is not None:
            known.append(segment.seal.last)
        elif watermark is not None and watermark.serial == segment.serial:
            known.append(watermark.zxid)
    return max(known, default=NO_HISTORY)


def _check_against_epochs(
    result: Recovery, epochs: Epochs, manifest: Manifest | None, problems: list[Problem]
) -> Recovery:
    """Compare a history with the epochs, which may show that part of it is missing."""
    head = result.head if result.tree is not None else None
    is_lost = result.standing is Standing.EMPTY and bool(epochs.current)  # 0: about to begin
    if is_lost:
        problems.append(
            Problem(
                "history-lost",
                Severity.DAMAGE,
                f"epoch {epochs.current} was established, but there is no history: it was lost",
                advice="start this server in its ensemble: it catches up without voting",
            )
        )
    is_unreadable = any(
        problem.code == "epoch-unreadable" and problem.severity is Severity.DAMAGE
        for problem in problems
    )
    is_sound = check_epochs(epochs, head, problems, is_listed=not result.adopted)
    if is_lost or is_unreadable or not is_sound:
        return replace(result, standing=Standing.DAMAGED, tree=None)
    current, stored = epochs.current, manifest.current_epoch if manifest is not None else None
    if head is None or current is None or stored is None or current <= max(stored, epoch_of(head)):
        return result
    # A server that claims a later epoch wins elections: without a record of that epoch to show for
    # it, one wrong digit in Apache's file would make a server with an old history the leader.
    reason = f"nothing here was written in epoch {current}, and {stored} was stored"
    if not result.manifest.ensemble_since <= epoch_of(head) <= stored:
        # The name of the ensemble was stored with an epoch, too; that the leader of this one gave
        # the same is not known.
        result = replace(result, manifest=replace(result.manifest, ensemble_since=current))
    return doubted(result, Problem("unproven-epoch", Severity.WARNING, reason), problems)


def foreign_names(
    disk: Disk,
    directory: DataDirectory,
    listing: Listing,
    manifest: Manifest,
    problems: list[Problem],
) -> set[str]:
    """Data files that the manifest does not know and that are not empty (R2)."""
    known = manifest.names() | {retired.name for retired in manifest.retired}
    foreign = set()
    for name in (*listing.logs, *listing.snapshots):
        if name in known:
            continue
        if parse_log_name(name) is not None and is_empty_log(disk, directory, name):
            problems.append(
                Problem(
                    "empty-log",
                    Severity.NOTE,
                    "holds no record and is not used",
                    directory.in_logs(name),
                )
            )
            continue
        foreign.add(name)
    return foreign


def is_empty_log(disk: Disk, directory: DataDirectory, name: str) -> bool:
    """Whether a log has no record and a crash explains that."""
    try:
        with disk.open_read(directory.in_logs(name)) as file:
            reader = LogReader(file)
            if any(True for _ in reader):
                return False
            return reader.ending.is_explained
    except OSError:
        return False
