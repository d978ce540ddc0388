"""Epoch files: what this server promised and agreed to (rule R8).

Apache keeps two text files, which carry no checksum; the manifest keeps the same two numbers
under one.  The manifest is written first.  So Apache's files after the manifest are a write that
a crash cut short, and files ahead of it show that Apache ran on the directory in between, or that a
byte in them changed: either way the greater number is the safe one, because a promise only ever
rises, and the mismatch is reported.
"""

import msgspec

from keepfast.storage.disk import Disk, read_file, replace_file
from keepfast.storage.layout import ACCEPTED_EPOCH_NAME, CURRENT_EPOCH_NAME, DataDirectory
from keepfast.storage.manifest import Manifest
from keepfast.storage.problems import Problem, Severity
from keepfast.wire import MAX_EPOCH, Zxid, epoch_of, format_zxid

_SIZE_LIMIT = 32


class Epochs(msgspec.Struct, frozen=True):
    """The two epochs; None where this server never stored one (a standalone server)."""

    accepted: int | None = None
    current: int | None = None

    def after_promise(self, promised: int | None, head: Zxid) -> "Epochs":
        """The epochs in force once a state at `head` was installed and its leader's epoch promised.

        A promise never falls. The current epoch belongs to the history that it was committed in,
        and falls with it: where a majority was restored from a backup, its leader's epoch is below
        the one of a server that is filled again.
        """
        if promised is None:
            return self
        accepted = max(promised, self.accepted or 0)
        agreed = self.current if self.current is not None else max(epoch_of(head), 0)
        return Epochs(accepted, min(agreed, promised))


def read_epochs(
    disk: Disk, directory: DataDirectory, manifest: Manifest | None, problems: list[Problem]
) -> Epochs:
    """The epochs in force; what is wrong with them is added to `problems`."""
    known = manifest or Manifest()
    return Epochs(
        _read(disk, directory, ACCEPTED_EPOCH_NAME, known.accepted_epoch, problems),
        _read(disk, directory, CURRENT_EPOCH_NAME, known.current_epoch, problems),
    )


def _read(
    disk: Disk, directory: DataDirectory, name: str, known: int | None, problems: list[Problem]
) -> int | None:
    path = directory.in_snapshots(name)
    if not disk.exists(path):
        if known is not None:
            problems.append(
                Problem("epoch-missing", Severity.WARNING, f"is missing; {known} was agreed", path)
            )
        return known
    try:
        text = read_file(disk, path, _SIZE_LIMIT).decode("ascii").strip()
        value = int(text) if text.isdecimal() else -1
    except (OSError, UnicodeDecodeError):
        value = -1
    if not 0 <= value <= MAX_EPOCH:
        severity = Severity.DAMAGE if known is None else Severity.WARNING
        problems.append(Problem("epoch-unreadable", severity, "holds no epoch", path, 0))
        return known
    if known is not None and value > known:
        problems.append(
            Problem(
                "epoch-ahead",
                Severity.WARNING,
                f"says {value} where {known} was stored: another program ran on this directory, "
                "or the file is damaged; the greater one holds",
                path,
                0,
            )
        )
        return value
    return value if known is None else known


def check_epochs(
    epochs: Epochs, head: Zxid | None, problems: list[Problem], is_listed: bool
) -> bool:
    """Whether the epochs agree with each other and with the history.

    With `is_listed` the history is one that a manifest vouches for.  Then it may be ahead of the
    current epoch, up to the accepted one: a learner makes the leader's history durable first and
    agrees to its epoch afterwards (R8), and a crash may come in between.  Voting with the older
    epoch is safe: had a quorum agreed to the newer one, its members would win the election.
    """
    accepted, current = epochs.accepted, epochs.current
    head_epoch = 0 if head is None or head < 0 else epoch_of(head)
    if current is None and accepted is None:
        return True
    reason = ""
    if current is None or accepted is None:
        missing = CURRENT_EPOCH_NAME if current is None else ACCEPTED_EPOCH_NAME
        reason = f"{missing} is missing and must not be guessed"
    elif accepted < current:
        reason = f"the accepted epoch {accepted} is below the current epoch {current}"
    elif head is not None and head_epoch > current:
        reason = f"the history reaches {format_zxid(head)}, beyond the current epoch {current}"
        if is_listed and head_epoch <= accepted:
            problems.append(
                Problem(
                    "epoch-behind",
                    Severity.NOTE,
                    f"{reason}: a crash came before that epoch was agreed to",
                    advice="none needed: the next leader puts it right",
                )
            )
            return True
    if reason:
        problems.append(
            Problem(
                "epoch-order",
                Severity.DAMAGE,
                reason,
                advice="join the ensemble with an empty directory and let the leader fill it",
            )
        )
    return not reason


def write_epoch_files(disk: Disk, directory: DataDirectory, epochs: Epochs) -> None:
    """Write Apache's files, where they differ; durable on return."""
    for name, value in (
        (ACCEPTED_EPOCH_NAME, epochs.accepted),
        (CURRENT_EPOCH_NAME, epochs.current),
    ):
        if value is None:
            continue
        path = directory.in_snapshots(name)
        data = str(value).encode("ascii")
        if not _holds(disk, path, data):
            replace_file(disk, path, data)


def _holds(disk: Disk, path: str, data: bytes) -> bool:
    return (
        disk.exists(path)
        and disk.size(path) == len(data)
        and read_file(disk, path, _SIZE_LIMIT) == data
    )
