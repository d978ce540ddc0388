"""`keepfast verify`: is there a proven recovery path, and to which zxid."""

from __future__ import annotations

from dataclasses import replace

from keepfast.cli.output import ExitCode, Out, print_document
from keepfast.cli.recovery_view import (
    NamedDirectory,
    exit_code_of,
    print_problems,
    print_verdict,
    recovery_fields,
    verdict_rows,
)
from keepfast.cli.values import counted
from keepfast.storage import (
    DataDirectory,
    Disk,
    Recovery,
    RetentionPlan,
    Severity,
    Standing,
    has_path,
    list_directory,
    plan_retention,
    recover_in_use,
)
from keepfast.wire import format_zxid


def verify(
    disk: Disk,
    directory: DataDirectory,
    target: NamedDirectory,
    retain: int,
    as_json: bool,
    out: Out,
) -> ExitCode:
    """Read everything, print the verdict and return the exit code. Changes nothing."""
    recovery, view, use = recover_in_use(disk, directory, full=True)
    target = replace(target, is_in_use=bool(use))
    snapshots = _snapshots(view, directory, recovery)
    plan = _purge(recovery, retain)
    # What a finished change put out of use is listed until the next one, and gone already.
    aside = [
        retired.name
        for retired in recovery.manifest.retired
        if not retired.delete and disk.exists(directory.path_of(retired.name))
    ]
    code = exit_code_of(recovery, use)
    if as_json:
        document: dict[str, object] = {"schema": "keepfast.verify/1"}
        document |= recovery_fields(recovery, directory, target, use)
        document["log"] = _log_fields(recovery)
        document["retention"] = {
            "retain": retain,
            "snapshots": [
                {"name": name, "zxid": zxid, "path": path} for name, zxid, path in snapshots
            ],
            "purge_deletes": [] if plan is None else [r.name for r in plan.deleted],
            "moved_aside_at_start": aside,
        }
        document["exit_code"] = int(code)
        print_document(out, document)
        return code
    print_verdict(out, recovery, target, use)
    rows = verdict_rows(recovery)
    if recovery.tree is not None:
        rows.append(("log serves", _log_text(recovery)))
        rows.append(("purge", _purge_text(plan, retain, len(aside))))
    out.facts(rows)
    if snapshots:
        out.line()
        out.table(("snapshot", "zxid", "path to the head"), snapshots)
    if recovery.problems:
        out.line()
        print_problems(out, recovery, target)
    return code


def _snapshots(
    disk: Disk, directory: DataDirectory, recovery: Recovery
) -> list[tuple[str, str, str]]:
    """Name, zxid and what is known of the path to the head, of every snapshot that is there."""
    bad = {p.file for p in recovery.problems if p.file and p.severity is not Severity.NOTE}
    listed = {entry.name: entry for entry in recovery.manifest.snapshots}
    found = []
    for name in list_directory(disk, directory).snapshots:
        entry = listed.get(name)
        if directory.in_snapshots(name) in bad:
            path = "none: it is damaged"
        elif recovery.tree is None:
            path = "none"
        elif entry is None:
            path = "not used: put aside at the next start"
        elif has_path(recovery.manifest, entry, recovery.head):
            path = "unproven" if recovery.standing is Standing.UNPROVEN else "proven"
        else:
            path = "none: records are missing after it"
        found.append((name, "0x" + name.split(".")[1], path))
    return found


def _purge(recovery: Recovery, retain: int) -> RetentionPlan | None:
    """What a purge would do; None if it would refuse (R11)."""
    if recovery.degraded or recovery.standing is not Standing.WHOLE:
        return None
    proven = frozenset(entry.name for entry in recovery.manifest.snapshots)
    return plan_retention(recovery.manifest, recovery.head, retain, proven)


def _purge_text(plan: RetentionPlan | None, retain: int, aside: int) -> str:
    text = f"to {counted(retain, 'snapshot')} deletes "
    if plan is None:
        return "deletes nothing: every file may be the one that is needed"
    text += ", ".join(retired.name for retired in plan.deleted) or "nothing"
    return f"{text}; {counted(aside, 'file')} put aside at the next start" if aside else text


def _log_text(recovery: Recovery) -> str:
    if recovery.log_start == recovery.head:
        return "nothing: a peer that lacks anything needs a snapshot"
    return f"peers from {format_zxid(recovery.log_start)} to {format_zxid(recovery.head)}"


def _log_fields(recovery: Recovery) -> dict[str, object] | None:
    if recovery.tree is None:
        return None
    return {
        "serves_peers_from": format_zxid(recovery.log_start),
        "serves_peers_to": format_zxid(recovery.head),
    }
