"""What recovery finds in a directory: a state that is proven, or the reasons why there is none."""

import msgspec
from msgspec.structs import replace

from keepfast.storage.epochs import Epochs
from keepfast.storage.layout import parse_snapshot_name
from keepfast.storage.manifest import Manifest, SegmentEntry, SnapshotEntry
from keepfast.storage.problems import Problem, Severity, Standing
from keepfast.tree import Tree
from keepfast.wire import StorageError, Zxid

NO_HISTORY = Zxid(-1)
SNAPSHOT_REWRITTEN = "snapshot-rewritten"
HEAL = (
    "an ensemble member refills itself from its peers; a server alone: restore a backup, or see "
    "keepfast repair for what can be kept"
)


class Recovery(msgspec.Struct, frozen=True):
    """What a directory holds.

    `tree` is the state at `head`; it is None when there is no state that may be used.  `manifest`
    is what the manifest must contain once the directory is in order: the files of the proven
    history, the last segment sealed at its last sound record.
    """

    standing: Standing
    head: Zxid = NO_HISTORY
    tree: Tree | None = None
    base: SnapshotEntry | None = None  # None with a tree: the empty tree
    manifest: Manifest = msgspec.field(default_factory=Manifest)
    epochs: Epochs = msgspec.field(default_factory=Epochs)
    problems: tuple[Problem, ...] = ()
    degraded: bool = False  # the state is right, but a file that should back it is not
    adopted: bool = False  # no manifest described these files: they were verified again
    records: int = 0  # replayed
    # The last segment was open: from this offset on its bytes may not be durable.
    unconfirmed_from: int | None = None

    @property
    def has_foreign_files(self) -> bool:
        """Whether another program wrote some of the files, and perhaps did not fsync them."""
        return self.adopted or any(p.code == SNAPSHOT_REWRITTEN for p in self.problems)

    @property
    def may_vote(self) -> bool:
        """Whether a server may count on this data in an election and a commit (R8)."""
        return self.standing.may_vote

    @property
    def log_start(self) -> Zxid:
        """A peer at this zxid or later, up to the head, can be served from the log alone."""
        segments = self.manifest.segments
        return segments[0].follows if segments else self.head


def doubted(result: Recovery, problem: Problem, problems: list[Problem]) -> Recovery:
    """The same state, but no longer proven; if there is no state, it was lost."""
    problems.append(problem)
    if result.tree is None:
        return replace(result, standing=Standing.DAMAGED)
    unproven = tuple(sorted({*result.manifest.unproven, result.head}))
    return replace(
        result,
        standing=Standing.UNPROVEN,
        manifest=replace(result.manifest, unproven=unproven),
    )


def problem_of(
    error: StorageError, code: str, severity: Severity = Severity.DAMAGE, advice: str = ""
) -> Problem:
    """A storage error as something to report."""
    zxid = None if error.zxid is None else Zxid(error.zxid)
    return Problem(code, severity, error.reason, error.file, error.offset, zxid, advice)


def zxid_of_snapshot(name: str) -> Zxid:
    """The zxid in a snapshot's name, which is known to be one."""
    parsed = parse_snapshot_name(name)
    return Zxid(0) if parsed is None else parsed[0]


def segments_after(segments: tuple[SegmentEntry, ...], zxid: Zxid) -> list[SegmentEntry]:
    """The segments that hold records after `zxid`."""
    return [s for s in segments if s.seal is None or s.seal.last > zxid]
