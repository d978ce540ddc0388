"""What an audit could not check, and why: sentences, and results without a judgement."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.pipeline.agreement.committed import Agreement, Strangers
from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.agreement.view import EnsembleView
from keepfast.pipeline.files.layout import EnsembleFiles
from keepfast.pipeline.findings.coverage import lanes_of
from keepfast.pipeline.findings.document import (
    EnsembleResult,
    Finding,
    FindingSeverity,
    Verdict,
)
from keepfast.pipeline.replay.plan import ReplayOutcome


def unchecked_of(view: EnsembleView, compared: Compared, outcome: ReplayOutcome) -> list[str]:
    """What could not be checked, a sentence each."""
    found = [*outcome.unchecked, *compared.unread]
    if compared.unlisted:
        found.append(f"{compared.unlisted} more records differ than were looked at one by one")
    readable = [server for server in view.servers if server.head >= 0]
    if len(readable) == 1:
        found.append(
            f"server {readable[0].name} is the only one with data: its files can be whole in "
            "themselves, but whether it agrees with its ensemble cannot be proven from them"
        )
    found += [
        f"server {server.name} holds no history" for server in view.servers if server.head < 0
    ]
    found += _copies(view)
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


def _copies(view: EnsembleView) -> Iterator[str]:
    """Directories that say they are one member: two copies of it are not two servers that agree."""
    by_id: dict[str, list[str]] = {}
    for server in view.servers:
        if server.server_id is not None:
            by_id.setdefault(server.server_id, []).append(server.name)
    for own, names in by_id.items():
        if len(names) > 1:
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            yield (
                f"servers {listed} have the same myid, {own}: copies of one server prove nothing "
                "about each other"
            )


def of_different_ensembles(
    files: EnsembleFiles, view: EnsembleView, agreement: Agreement, mixed: Strangers
) -> EnsembleResult:
    """Directories that were put together by mistake: there is nothing to compare."""
    text = (
        f"servers {mixed.left} and {mixed.right} have zxids in common and not one record: they are "
        "of different ensembles"
    )
    if mixed.odd is not None:
        other = mixed.left if mixed.odd == mixed.right else mixed.right
        text += (
            f"; the rest has records in common with {other}, so {mixed.odd} does not belong here"
        )
    finding = Finding(
        *("A3", "mixed-ensembles", FindingSeverity.ERROR, view.name, text),
        "Audit the servers of each ensemble by themselves: ROOT/<ensemble>/<server>.",
        "Directories of several ensembles were put into one",
        server=mixed.odd,
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


def being_written(view: EnsembleView, agreement: Agreement) -> Finding:
    """That servers were running on the files."""
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
