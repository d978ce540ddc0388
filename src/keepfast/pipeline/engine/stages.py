"""The audit as steps: items of work go out, small values come back, wherever they are run.

An item is a plain value that one process can do by itself; `run_item` does it.  `audit_with` asks a
runner for all items of a step, of all ensembles at once, so that a step is one Spark job however
many ensembles there are.  A small ensemble is one item as a whole.

    facts     each file: runs, bucket hashes, damage; seals and stats of snapshots (large: in parts)
    compare   again the buckets in which the servers' hashes differ, record by record
    sums      long histories: every digest and snapshot, by sums over paths (`replay.relational`)
    replay    each ensemble: the agreed history, every suspect snapshot and server, on the tree
    evidence  the records that findings name, and those that a server lacks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from keepfast.pipeline.agreement.committed import (
    Agreement,
    judge,
    strangers,
    suspicious_buckets,
)
from keepfast.pipeline.agreement.comparing import (
    MAX_LISTED,
    Compared,
    ComparedSum,
    RangeOfLog,
    compare_range,
    range_of_bucket,
)
from keepfast.pipeline.agreement.electorate import (
    Electorate,
    electorate_of,
    is_configuration,
    own_id,
    version_of,
    with_version_of_name,
)
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.agreement.voters import config_text
from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.files.access import open_file
from keepfast.pipeline.files.layout import EnsembleFiles, FileKind, ServerFiles, is_remote
from keepfast.pipeline.files.parts import Part, parts_of, side_by_side
from keepfast.pipeline.findings import local, shared
from keepfast.pipeline.findings.coverage import coverage_of, lanes_of, sources_of
from keepfast.pipeline.findings.divergence import Divergence
from keepfast.pipeline.findings.document import (
    EnsembleResult,
    sorted_findings,
)
from keepfast.pipeline.findings.evidence import (
    Evidence,
    EvidencePlan,
    plan_evidence,
    read_evidence,
    with_evidence,
)
from keepfast.pipeline.findings.unproven import being_written, of_different_ensembles, unchecked_of
from keepfast.pipeline.findings.verdict import verdict_of
from keepfast.pipeline.keyed import Found, KeyedWork, work_here
from keepfast.pipeline.replay.plan import ReplayOutcome, ReplayPlan, ServerOutcome, plan_replay
from keepfast.pipeline.replay.proof import ChainProof, chain_plans, proofs_of
from keepfast.pipeline.replay.relational import collected
from keepfast.pipeline.replay.serving import replay_ensemble
from keepfast.pipeline.scan.facts import (
    EpochFacts,
    LogFacts,
    SnapshotFacts,
    epoch_value,
    joined,
    log_facts,
    sealed,
    snapshot_facts,
)
from keepfast.pipeline.scan.split_snapshots import split_facts, split_of
from keepfast.pipeline.scan.summaries import ScanSummary
from keepfast.pipeline.schemas import BUCKET_BITS
from keepfast.storage import (
    Disk,
    Manifest,
    ReadFile,
    RealDisk,
    Seal,
    disk_views,
    load_manifest,
)
from keepfast.wire import StorageError

# What the driver holds of all logs, however long they are: 270 bytes for each bucket.  A bucket
# more for each log and each epoch comes on top.
MAX_BUCKETS = 1 << 18
# A frame with a record that is nothing but a header is longer.
_MIN_RECORD_BYTES = 48
# Records that differ, of all ensembles; of each range the first ones.
_MAX_LISTED_IN_ALL = 1 << 20


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What an audit does; nothing here changes what it finds, but `is_replayed`."""

    # Histories up to this many records are replayed on the tree as a whole, which is faster for
    # them; longer ones are summed up, and replayed where that is not enough.
    tree_records: int = 20_000
    # False: the cheap pass alone. States, digests and snapshots are not checked, which is said.
    is_replayed: bool = True


@dataclass(frozen=True, slots=True)
class FactsItem:
    """Read one file, or a part of a large log."""

    part: Part
    bucket_bits: int = BUCKET_BITS


@dataclass(frozen=True, slots=True)
class CompareItem:
    """Read a range of zxids again, on all servers that hold some of it, and compare the records."""

    ensemble: str
    first: int
    last: int
    sources: tuple[RangeOfLog, ...]
    max_listed: int = MAX_LISTED


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """Replay one ensemble; of a long history only what its sums do not prove."""

    plan: ReplayPlan
    proofs: tuple[ChainProof, ...] | None = None


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """Read the records that belong to the findings about one ensemble."""

    plan: EvidencePlan


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


Item = FactsItem | CompareItem | ReplayItem | EvidenceItem | EnsembleItem
Value = FileFacts | Compared | ReplayOutcome | Evidence | EnsembleResult


class Runner(Protocol):
    """Does the work of an audit, somewhere."""

    def __call__(self, items: Sequence[Item]) -> Sequence[Value]:
        """Do all items, in any order; returns their values in the order of the items."""

    def sum_up(self, works: Sequence[KeyedWork]) -> Sequence[Found]:
        """Do works that are too large for one item; returns what came of them in their order."""


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


def run_item(item: Item, known: Known[ScanSummary]) -> Value:
    """Do one item, here; `known` is what the items before it read of logs."""
    disk = PlacesDisk()
    if isinstance(item, FactsItem):
        return _facts(disk, item, known)
    if isinstance(item, CompareItem):
        return compare_range(item.first, item.last, item.sources, item.max_listed)
    if isinstance(item, ReplayItem):
        return replay_ensemble(disk, item.plan, item.proofs)
    if isinstance(item, EvidenceItem):
        return read_evidence(disk, item.plan)
    return audit_with(run_here, [item.files], item.options)[0]


class LocalRunner:
    """Does everything in this process."""

    def __call__(self, items: Sequence[Item]) -> list[Value]:
        """Do items one after the other."""
        known: Known[ScanSummary] = Known()
        return [run_item(item, known) for item in items]

    def sum_up(self, works: Sequence[KeyedWork]) -> list[Found]:
        """Do works one after the other."""
        return [work_here(work) for work in works]


run_here = LocalRunner()


def _facts(disk: Disk, item: FactsItem, known: Known[ScanSummary]) -> FileFacts:
    facts, part = FileFacts(), item.part
    if part.kind == "log":
        facts = FileFacts(log=log_facts(part, known, bucket_bits=item.bucket_bits))
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
    """Audit ensembles; returns a result for each, in their order."""
    views = views_of(run, ensembles)
    compared = compared_of(run, views)
    judged = _judged(run, views, compared, options)
    # A record may have changed who votes since the newest snapshot: then a majority is another one.
    fresh = [
        with_new_voters(view, outcome) for view, (_, outcome) in zip(views, judged, strict=True)
    ]
    changed = [index for index, view in enumerate(fresh) if view != views[index]]
    again = _judged(run, [fresh[i] for i in changed], [compared[i] for i in changed], options)
    for index, result in zip(changed, again, strict=True):
        judged[index] = result
    results = [
        conclude(files, view, rows, agreement, outcome)
        for files, view, rows, (agreement, outcome) in zip(
            ensembles, fresh, compared, judged, strict=True
        )
    ]
    return with_records(run, fresh, judged, results)


def with_records(
    run: Runner,
    views: Sequence[EnsembleView],
    judged: Sequence[tuple[Agreement, ReplayOutcome]],
    results: Sequence[EnsembleResult],
    *,
    is_brief: bool = False,
) -> list[EnsembleResult]:
    """Results with the times, operations and sessions of the records that they name."""
    plans = [
        plan_evidence(view, agreed, divergences_of(view, agreed, found), result, is_brief=is_brief)
        for view, (agreed, found), result in zip(views, judged, results, strict=True)
    ]
    values = run(list(map(EvidenceItem, plans)))
    found = [value for value in values if isinstance(value, Evidence)]
    return [with_evidence(result, one) for result, one in zip(results, found, strict=True)]


def _judged(
    run: Runner,
    views: list[EnsembleView],
    compared: list[Compared],
    options: AuditOptions,
) -> list[tuple[Agreement, ReplayOutcome]]:
    """What the records of ensembles agree on, and what a replay of that gives."""
    agreements = [judge(view, rows) for view, rows in zip(views, compared, strict=True)]
    plans = [plan_replay(view, agreed) for view, agreed in zip(views, agreements, strict=True)]
    if not options.is_replayed:
        told = ("the history was not replayed: states, digests and snapshots were not checked",)
        outcomes = [ReplayOutcome(plan.ensemble, unchecked=told) for plan in plans]
        return list(zip(agreements, outcomes, strict=True))
    long = {
        plan.ensemble: chain_plans(plan) for plan in plans if plan.records > options.tree_records
    }
    chains = [chain for plan in plans for chain in long.get(plan.ensemble, ())]
    sums = [
        collected(chain, found) for chain, found in zip(chains, run.sum_up(chains), strict=True)
    ]
    items: list[Item] = []
    for plan in plans:
        proofs = None
        if plan.ensemble in long:
            count = len(long[plan.ensemble])
            proofs, sums = proofs_of(plan, sums[:count]), sums[count:]
        items.append(ReplayItem(plan, proofs))
    values = run(items) if items else []
    outcomes = [value for value in values if isinstance(value, ReplayOutcome)]
    return list(zip(agreements, outcomes, strict=True))


def with_new_voters(view: EnsembleView, outcome: ReplayOutcome) -> EnsembleView:
    """The view with those who vote by what the records made of the membership."""
    texts = [server.membership for server in outcome.servers]
    if all(version_of(text) == 0 for text in texts):
        return view
    texts += [text for server in view.servers for text in server.configurations]
    return replace(view, electorate=_electorate(view.servers, texts))


def _electorate(servers: tuple[ServerView, ...], texts: list[str]) -> Electorate:
    return electorate_of([(server.name, server.server_id) for server in servers], texts)


def views_of(
    run: Runner, ensembles: Sequence[EnsembleFiles], *, can_cut: bool = True
) -> list[EnsembleView]:
    """The facts of all files of ensembles; large ones are read in parts if that is allowed."""
    kinds: tuple[FileKind, ...] = ("log", "snapshot", "epoch", "config")
    parts = side_by_side(parts_of(ensembles, kinds, can_cut=can_cut))
    found = _split_snapshots(run, parts) if can_cut else {}
    parts = [part for part in parts if part.path not in found]
    bits = bucket_bits(parts)
    values = run([FactsItem(part, bits) for part in parts])
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


def bucket_bits(parts: Sequence[Part]) -> int:
    """How wide buckets of zxids are, so that all logs together have few however long they are."""
    records = sum(part.weight for part in parts if part.kind == "log") // _MIN_RECORD_BYTES
    return max(BUCKET_BITS, (records // MAX_BUCKETS).bit_length())


def _split_snapshots(run: Runner, parts: Sequence[Part]) -> dict[str, list[FileFacts]]:
    """The facts of the snapshots that are read in parts, by path; of sound ones alone."""
    splits = [split for part in parts if (split := split_of(part))]
    found: dict[str, list[FileFacts]] = {}
    for split, blobs in zip(splits, run.sum_up(splits), strict=True):
        facts = split_facts(split, blobs)
        if facts is not None:
            found[split.path] = [FileFacts(snapshot=facts[0], is_changed=facts[1])]
    return found


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

    Not where another log is there as well: an Apache server continued in it, which replays all that
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
        return load_manifest(PlacesDisk(), server.data_directory)
    except (StorageError, OSError):
        return None


def compared_of(run: Runner, views: list[EnsembleView]) -> list[Compared]:
    """Compare record by record where servers differ, and where one holds something twice."""
    items = [item for view in views for item in _comparisons(view)]
    # In steps: a watch knows what came of the same item before.
    most = max(1, min(MAX_LISTED, _MAX_LISTED_IN_ALL >> len(items).bit_length()))
    values = run([replace(item, max_listed=most) for item in items])
    sums = {view.name: ComparedSum() for view in views}
    for item, value in zip(items, values, strict=True):
        if isinstance(value, Compared):
            sums[item.ensemble].parts.append(value)
    return [sums[view.name].total() for view in views]


def _comparisons(view: EnsembleView) -> Iterator[CompareItem]:
    suspicious = set(suspicious_buckets(view))
    sources: dict[tuple[int, int], list[RangeOfLog]] = {}
    for server in view.servers:
        for log in server.logs:
            for bucket in log.buckets:
                if bucket.bucket in suspicious:
                    source = RangeOfLog(server.name, log.path, bucket.start, bucket.end)
                    key = range_of_bucket(bucket.bucket, log.bucket_bits)
                    sources.setdefault(key, []).append(source)
    for first, last in sorted(sources):
        yield CompareItem(view.name, first, last, tuple(sources[first, last]))
    for server in view.servers:
        for first, last in local.overlaps(server):
            held = [
                RangeOfLog(server.name, log.path, run.start, run.end)
                for run, log in server.runs
                if run.first <= last and first <= run.last
            ]
            yield CompareItem(view.name, first, last, tuple(held))


# -- the conclusion --------------------------------------------------------------------------------


def conclude(
    files: EnsembleFiles,
    view: EnsembleView,
    compared: Compared,
    agreement: Agreement,
    outcome: ReplayOutcome,
) -> EnsembleResult:
    """Put everything that was found about an ensemble into words."""
    mixed = strangers(view, compared)
    if mixed is not None:
        return of_different_ensembles(files, view, agreement, mixed)
    found = [
        *local.unreadable_files(view),
        *local.record_damage(view),
        *local.names_and_order(view, compared),
        *local.snapshot_validity(view),
        *local.recovery_paths(view),
        *local.epoch_files(view),
        *local.order_on_disk(view, agreement),
        *(one.finding() for one in divergences_of(view, agreement, outcome)),
        *shared.agreement_notes(view, agreement),
        *shared.latent_differences(view, agreement),
        *shared.buried_records(view, agreement, outcome),
        *shared.snapshot_conflicts(view, outcome),
        *shared.stated_digests(view, outcome),
        *shared.digests(view, agreement, outcome),
        *shared.forgotten_sessions(view, outcome),
        *shared.session_tables(view, outcome),
        *shared.tree_checks(view, outcome),
        *shared.configuration(view, agreement, outcome),
        *shared.roles(view),
    ]
    unchecked = unchecked_of(view, compared, outcome)
    if view.is_live:
        found.append(being_written(view, agreement))
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
        sources=sources_of(view, agreement),
    )


def divergences_of(
    view: EnsembleView, agreement: Agreement, outcome: ReplayOutcome
) -> list[Divergence]:
    """The servers about whose records or state there is something to say."""
    wrong = {conflict.path for conflict in outcome.snapshot_conflicts if conflict.is_certain}
    by_name = {server.name: server for server in outcome.servers}
    found = []
    for server in view.servers:
        of_server = by_name.get(server.name, ServerOutcome(server.name))
        divergence = Divergence(view, agreement, server, of_server, wrong)
        if divergence.is_any:
            found.append(divergence)
    return found
