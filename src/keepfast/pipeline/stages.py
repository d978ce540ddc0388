"""The audit as steps: items of work go out, small values come back, wherever they are run.

An item is a plain value that one process can do by itself; `run_item` does it.  `audit_with` asks a
runner for all items of a step, of all ensembles at once, so that a step is one Spark job however
many ensembles there are.  A small ensemble is one item as a whole.

    facts     each file: runs, bucket hashes, damage; seals and stats of snapshots
    records   again the buckets in which the servers' hashes differ, record by record
    replay    each ensemble: the agreed history, every snapshot, every suspect server
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from keepfast.pipeline.checks import local, shared
from keepfast.pipeline.checks.agreement import (
    Agreement,
    judge,
    range_of_bucket,
    strangers,
    suspicious_buckets,
)
from keepfast.pipeline.checks.plan import ReplayOutcome, ReplayPlan, ServerOutcome, plan_replay
from keepfast.pipeline.checks.serving import replay_ensemble
from keepfast.pipeline.checks.view import EnsembleView, ServerView
from keepfast.pipeline.columns.access import open_file
from keepfast.pipeline.columns.known import Known
from keepfast.pipeline.coverage import coverage_of, lanes_of
from keepfast.pipeline.electorate import (
    Electorate,
    electorate_of,
    is_configuration,
    own_id,
    version_of,
    with_version_of_name,
)
from keepfast.pipeline.facts import (
    EpochFacts,
    LogFacts,
    RecordFacts,
    SnapshotFacts,
    epoch_value,
    joined,
    log_facts,
    record_facts,
    sealed,
    snapshot_facts,
)
from keepfast.pipeline.findings import (
    EnsembleResult,
    Finding,
    FindingSeverity,
    Verdict,
    sorted_findings,
)
from keepfast.pipeline.layout import EnsembleFiles, ServerFiles, is_remote
from keepfast.pipeline.parts import Part, parts_of, side_by_side
from keepfast.pipeline.scan import Summary
from keepfast.pipeline.schemas import BUCKET_BITS
from keepfast.pipeline.verdict import verdict_of
from keepfast.pipeline.voters import config_text
from keepfast.storage import (
    DataDirectory,
    Disk,
    Manifest,
    ReadFile,
    RealDisk,
    Seal,
    disk_views,
    load_manifest,
)
from keepfast.wire import StorageError

# More buckets than this differ only if everything does; the first ones tell where it began.
_MOST_BUCKETS = 256


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What an audit may cost.

    `replay_limit`: histories of more records are held against their snapshots only at their end; a
    million takes some twenty seconds.  0 replays nothing but suspect servers.
    """

    replay_limit: int = 1_000_000


@dataclass(frozen=True, slots=True)
class FactsItem:
    """Read one file, or a part of a large log."""

    part: Part


@dataclass(frozen=True, slots=True)
class RecordsItem:
    """Read ranges of one log again: first and last zxid, and the bytes between which they lie."""

    ensemble: str
    server: str
    path: str
    ranges: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """Replay one ensemble."""

    plan: ReplayPlan
    limit: int


@dataclass(frozen=True, slots=True)
class EnsembleItem:
    """Audit one small ensemble as a whole."""

    files: EnsembleFiles
    options: AuditOptions


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What came of a FactsItem; one of the four is there. `is_changed`: since it was listed."""

    log: LogFacts | None = None
    snapshot: SnapshotFacts | None = None
    epoch: int | None = None
    config: str | None = None
    is_changed: bool = False


Item = FactsItem | RecordsItem | ReplayItem | EnsembleItem
Value = FileFacts | tuple[RecordFacts, ...] | ReplayOutcome | EnsembleResult
# Does all items, in any order, and gives their values in the order of the items.
Runner = Callable[[Sequence[Item]], Sequence[Value]]


class PlacesDisk(disk_views.ReadOnlyDisk):
    """The local disk and whatever else paths name, through which nothing can be changed."""

    def __init__(self) -> None:
        super().__init__(RealDisk())

    def open_read(self, path: str) -> ReadFile:
        return open_file(path) if is_remote(path) else super().open_read(path)

    def exists(self, path: str) -> bool:
        if not is_remote(path):
            return super().exists(path)
        try:
            open_file(path).close()
        except OSError:
            return False
        return True

    def size(self, path: str) -> int:
        if not is_remote(path):
            return super().size(path)
        with open_file(path) as file:
            return file.size()


def run_item(item: Item, known: Known[Summary]) -> Value:
    """Do one item, here; `known` is what the items before it read of logs."""
    disk = PlacesDisk()
    if isinstance(item, FactsItem):
        return _facts(disk, item.part, known)
    if isinstance(item, RecordsItem):
        return tuple(record_facts(item.path, item.ranges))
    if isinstance(item, ReplayItem):
        return replay_ensemble(disk, item.plan, item.limit)
    return audit_with(run_here, [item.files], item.options)[0]


def run_here(items: Sequence[Item]) -> list[Value]:
    """A runner that does everything in this process."""
    known: Known[Summary] = Known()
    return [run_item(item, known) for item in items]


def _facts(disk: Disk, part: Part, known: Known[Summary]) -> FileFacts:
    facts = FileFacts()
    if part.kind == "log":
        facts = FileFacts(log=log_facts(part, known))
    elif part.kind == "snapshot":
        facts = FileFacts(snapshot=snapshot_facts(disk, part.path, part.zxid, part.mtime))
    elif part.kind == "epoch":
        facts = FileFacts(epoch=epoch_value(disk, part.path))
    elif part.kind == "config":
        facts = FileFacts(config=config_text(disk, part.path))
    if is_remote(part.path):
        return facts
    try:
        is_changed = disk.mtime(part.path) != part.mtime or disk.size(part.path) != part.size
    except OSError:
        is_changed = True
    return replace(facts, is_changed=is_changed)


# -- the steps -------------------------------------------------------------------------------------


def audit_with(
    run: Runner, ensembles: Sequence[EnsembleFiles], options: AuditOptions
) -> list[EnsembleResult]:
    """Audit ensembles; gives a result for each, in their order."""
    views = _views(run, ensembles)
    records = _records(run, views)
    judged = _judged(run, views, records, options)
    # A record may have changed who votes since the newest snapshot: then a majority is another one.
    fresh = [
        _with_new_voters(view, outcome) for view, (_, outcome) in zip(views, judged, strict=True)
    ]
    changed = [index for index, view in enumerate(fresh) if view != views[index]]
    again = _judged(run, [fresh[i] for i in changed], [records[i] for i in changed], options)
    for index, result in zip(changed, again, strict=True):
        judged[index] = result
    return [
        conclude(files, view, rows, agreement, outcome)
        for files, view, rows, (agreement, outcome) in zip(
            ensembles, fresh, records, judged, strict=True
        )
    ]


def _judged(
    run: Runner,
    views: list[EnsembleView],
    records: list[dict[str, list[RecordFacts]]],
    options: AuditOptions,
) -> list[tuple[Agreement, ReplayOutcome]]:
    """What the records of ensembles agree on, and what a replay of that gives."""
    agreements = [judge(view, rows) for view, rows in zip(views, records, strict=True)]
    plans: list[Item] = [
        ReplayItem(plan_replay(view, agreement), options.replay_limit)
        for view, agreement in zip(views, agreements, strict=True)
    ]
    values = run(plans) if plans else []
    outcomes = [value for value in values if isinstance(value, ReplayOutcome)]
    return list(zip(agreements, outcomes, strict=True))


def _with_new_voters(view: EnsembleView, outcome: ReplayOutcome) -> EnsembleView:
    """The view with those who vote by what the records made of the membership."""
    texts = [server.membership for server in outcome.servers]
    if all(version_of(text) == 0 for text in texts):
        return view
    texts += [text for server in view.servers for text in server.configurations]
    return replace(view, electorate=_electorate(view.servers, texts))


def _electorate(servers: tuple[ServerView, ...], texts: list[str]) -> Electorate:
    return electorate_of([(server.name, server.server_id) for server in servers], texts)


def _views(run: Runner, ensembles: Sequence[EnsembleFiles]) -> list[EnsembleView]:
    parts = side_by_side(parts_of(ensembles, ("log", "snapshot", "epoch", "config")))
    values = run([FactsItem(part) for part in parts])
    found: dict[str, list[FileFacts]] = {}
    for part, value in zip(parts, values, strict=True):
        if isinstance(value, FileFacts):
            found.setdefault(part.path, []).append(value)
    views = []
    for files in ensembles:
        entries = [entry for server in files.servers for entry in server.files]
        is_live = any(one.is_changed for entry in entries for one in found.get(entry.path, ()))
        servers = tuple(_server_view(server, found) for server in files.servers)
        texts = [text for server in servers for text in server.configurations]
        views.append(EnsembleView(files.name, servers, _electorate(servers, texts), is_live))
    return views


def _server_view(server: ServerFiles, found: dict[str, list[FileFacts]]) -> ServerView:
    logs = []
    snapshots: list[SnapshotFacts] = []
    epochs: dict[str, int] = {}
    leftovers = []
    manifest = _manifest(server)
    # Files that a Keepfast server put out of use are no part of its history.
    retired = set() if manifest is None else {retired.name for retired in manifest.retired}
    seals = {} if manifest is None else _seals(server, manifest)
    membership = "" if manifest is None else (manifest.membership or b"").decode("utf-8", "replace")
    for entry in server.files:
        if entry.name in retired:
            continue
        facts = found.get(entry.path, [])
        of_log = [one.log for one in facts if one.log is not None]
        if of_log and not any(one.is_gone for one in of_log):
            seal = seals.get(entry.name)
            log = joined(of_log)
            logs.append(log if seal is None else sealed(log, seal.last, seal.end))
        snapshots += [
            one.snapshot for one in facts if one.snapshot is not None and not one.snapshot.is_gone
        ]
        if entry.kind == "epoch":
            if entry.name in ("acceptedEpoch", "currentEpoch") and facts:
                epochs[entry.name] = -1 if facts[0].epoch is None else facts[0].epoch
            else:
                leftovers.append(entry.path)
    return ServerView(
        server.server,
        tuple(sorted(logs, key=lambda log: (log.zxid, log.path))),
        tuple(sorted(snapshots, key=lambda snapshot: (snapshot.zxid, snapshot.path))),
        EpochFacts(epochs.get("acceptedEpoch"), epochs.get("currentEpoch"), tuple(leftovers)),
        is_managed=any(entry.name == "keepfast.manifest" for entry in server.files),
        temporaries=tuple(entry.path for entry in server.files if entry.name.endswith(".tmp")),
        unreadable=server.unreadable,
        server_id=_own_id(server, found),
        configurations=(*_configurations(server, found, snapshots), membership),
    )


def _seals(server: ServerFiles, manifest: Manifest) -> dict[str, Seal]:
    """Where logs that are finished end, by their names.

    Not where another log is there as well: an Apache server went on in it, which replays all that
    a file holds.
    """
    logs = {entry.name for entry in server.files if entry.kind == "log"}
    listed = {one.name for one in manifest.segments} | {one.name for one in manifest.retired}
    if not logs <= listed:
        return {}
    return {one.name: one.seal for one in manifest.segments if one.seal is not None}


def _own_id(server: ServerFiles, found: dict[str, list[FileFacts]]) -> str | None:
    for entry in server.files:
        if entry.name == "myid" and found.get(entry.path):
            return own_id(found[entry.path][0].config or "")
    return None


def _configurations(
    server: ServerFiles, found: dict[str, list[FileFacts]], snapshots: list[SnapshotFacts]
) -> list[str]:
    """The texts that name the members: the newest in a snapshot, and the files of the server."""
    # Older ones were right once; members that came without a record are in none of them.
    texts = [one.config for one in sorted(snapshots, key=lambda one: one.zxid) if one.config][-1:]
    for entry in server.files:
        if is_configuration(entry.name):
            configs = [one.config for one in found.get(entry.path, ()) if one.config]
            texts += [with_version_of_name(entry.name, config) for config in configs]
    return texts


def _manifest(server: ServerFiles) -> Manifest | None:
    """What a Keepfast server says about its files; None if there is no word of it."""
    if not any(entry.name == "keepfast.manifest" for entry in server.files):
        return None
    try:
        directory = DataDirectory(server.snapshots_dir, server.logs_dir)
        return load_manifest(PlacesDisk(), directory)
    except (StorageError, OSError):
        return None


def _records(run: Runner, views: list[EnsembleView]) -> list[dict[str, list[RecordFacts]]]:
    """Read again where servers differ, and where one server holds something twice."""
    items: list[RecordsItem] = []
    for view in views:
        suspicious = set(suspicious_buckets(view)[:_MOST_BUCKETS])
        for server in view.servers:
            doubled = local.overlaps(server)
            for log in server.logs:
                ranges = [
                    (*range_of_bucket(bucket.bucket), bucket.start, bucket.end)
                    for bucket in log.buckets
                    if bucket.bucket in suspicious
                ]
                ranges += [
                    (first, last, run.start, run.end)
                    for run in log.runs
                    for first, last in doubled
                    if run.first <= last
                    and first <= run.last
                    and run.first >> BUCKET_BITS not in suspicious
                ]
                if ranges:
                    items.append(RecordsItem(view.name, server.name, log.path, tuple(ranges)))
    values = run(items)
    found: list[dict[str, list[RecordFacts]]] = [{} for _ in views]
    index = {view.name: position for position, view in enumerate(views)}
    for item, value in zip(items, values, strict=True):
        if isinstance(value, tuple):
            found[index[item.ensemble]].setdefault(item.server, []).extend(value)
    return found


# -- the conclusion --------------------------------------------------------------------------------


def conclude(
    files: EnsembleFiles,
    view: EnsembleView,
    records: dict[str, list[RecordFacts]],
    agreement: Agreement,
    outcome: ReplayOutcome,
) -> EnsembleResult:
    """Put everything that was found about an ensemble into words."""
    mixed = strangers(view, records)
    if mixed is not None:
        return _of_different_ensembles(files, view, agreement, *mixed)
    found = [
        *local.unreadable_files(view),
        *local.record_damage(view),
        *local.names_and_order(view, records),
        *local.snapshot_validity(view),
        *local.recovery_paths(view),
        *local.epoch_files(view),
        *local.order_on_disk(view, agreement),
        *_divergences(view, agreement, outcome),
        *shared.agreement_notes(view, agreement),
        *shared.buried_records(view, agreement, outcome),
        *shared.snapshot_conflicts(view, outcome),
        *shared.digests(view, agreement, outcome),
        *shared.forgotten_sessions(view, outcome),
        *shared.tree_checks(view, outcome),
        *shared.configuration(view, agreement, outcome),
        *shared.roles(view),
    ]
    unchecked = _unchecked(view, outcome)
    if view.is_live:
        found.append(_live(view, agreement))
    findings = sorted_findings(found)
    return EnsembleResult(
        view.name,
        verdict_of(findings, is_readable=any(server.head >= 0 for server in view.servers)),
        tuple(server.name for server in view.servers),
        coverage_of(view, agreement),
        findings,
        lanes_of(view, agreement, findings),
        outcome.tree_diff,
        agreement.committed,
        tuple(unchecked),
        sum(log.records for server in view.servers for log in server.logs),
        sum(entry.size for server in files.servers for entry in server.files),
    )


def _divergences(view: EnsembleView, agreement: Agreement, outcome: ReplayOutcome) -> list[Finding]:
    wrong = {conflict.path for conflict in outcome.snapshot_conflicts if conflict.is_certain}
    by_name = {server.name: server for server in outcome.servers}
    found = []
    for server in view.servers:
        of_server = by_name.get(server.name, ServerOutcome(server.name))
        divergence = shared.Divergence(view, agreement, server, of_server, wrong)
        if divergence.is_any:
            found.append(divergence.finding())
    return found


def _unchecked(view: EnsembleView, outcome: ReplayOutcome) -> list[str]:
    found = list(outcome.unchecked)
    readable = [server for server in view.servers if server.head >= 0]
    if len(readable) == 1:
        found.append(
            f"server {readable[0].name} is the only one with data: its files can be whole in "
            "themselves, but whether it agrees with its ensemble cannot be proven from them"
        )
    found += [
        f"server {server.name} holds no history" for server in view.servers if server.head < 0
    ]
    absent = view.electorate.absent_count
    if absent:
        named = f" ({', '.join(view.electorate.absent)})" if view.electorate.absent else ""
        verb = "was" if absent == 1 else "were"
        found.append(
            f"{absent} of the {view.electorate.voters} voters{named} {verb} not among the "
            "directories given: what a majority holds is proven only as far as the others show it"
        )
    found += [sentence for server in view.servers for sentence in server.unreadable]
    found += [f"{path} {why}" for server in view.servers for path, _, why in server.unread]
    if view.is_live:
        found.append("files changed while they were read: what was written since is not covered")
    return list(dict.fromkeys(found))


def _of_different_ensembles(
    files: EnsembleFiles, view: EnsembleView, agreement: Agreement, left: str, right: str
) -> EnsembleResult:
    """Directories that were put together by mistake: there is nothing to compare."""
    text = (
        f"servers {left} and {right} have zxids in common and not one record: they are of "
        "different ensembles"
    )
    finding = Finding(
        *("A3", "mixed-ensembles", FindingSeverity.ERROR, view.name, text),
        "Audit the servers of each ensemble by themselves: ROOT/<ensemble>/<server>.",
        "Directories of several ensembles were put into one",
        server=right,
    )
    return EnsembleResult(
        view.name,
        Verdict.UNREADABLE,
        tuple(server.name for server in view.servers),
        (),
        (finding,),
        lanes_of(view, agreement, ()),
        unchecked=(text,),
        records=sum(log.records for server in view.servers for log in server.logs),
        size_bytes=sum(entry.size for server in files.servers for entry in server.files),
    )


def _live(view: EnsembleView, agreement: Agreement) -> Finding:
    heads = [head for head in agreement.heads.values() if head >= 0]
    return Finding(
        "A14",
        "being-written",
        FindingSeverity.NOTE,
        view.name,
        "files changed while they were read: a server is running on them",
        "The audit holds up to the last zxid that is given here; copy the directories, or run it "
        "again, for more.",
        last_zxid=min(heads, default=None),
    )
