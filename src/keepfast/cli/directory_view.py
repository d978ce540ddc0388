"""`keepfast inspect` on a data directory: its files, and the tree as it was."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from keepfast.cli.output import CommandFailed, DocumentStream, ExitCode, Out, print_document
from keepfast.cli.recovery_view import (
    NamedDirectory,
    exit_code_of,
    print_problems,
    print_verdict,
    recovery_fields,
    verdict_rows,
)
from keepfast.cli.snapshot_view import SnapshotOptions
from keepfast.cli.tree_view import (
    check_top,
    encoded_znodes,
    head_text,
    print_znodes,
    tree_fields,
    znodes,
)
from keepfast.cli.values import (
    counted,
    hexadecimal,
    optional_zxid,
    size_text,
    utc,
    zxid_fields,
)
from keepfast.storage import (
    DataDirectory,
    Disk,
    Frame,
    LogReader,
    Recovery,
    Severity,
    list_directory,
    load_manifest,
    prefix,
    recover_in_use,
    survey_log,
)
from keepfast.wire import CorruptManifest, StorageError, Zxid, format_zxid

_TIME = struct.Struct(">q")
_TIME_OFFSET = 20  # in an entry: after session id, cxid and zxid


@dataclass(frozen=True, slots=True)
class _File:
    """One row of the table."""

    name: str
    kind: str
    first: Zxid | None
    last: Zxid | None
    records: int | None
    size: int
    state: str

    @property
    def row(self) -> tuple[str, ...]:
        span = "-" if self.first is None else format_zxid(self.first)
        if self.last is not None and self.last != self.first:
            span += f" to {format_zxid(self.last)}"
        count = "-" if self.records is None else str(self.records)
        return (self.name, self.kind, span, count, size_text(self.size), self.state)

    @property
    def fields(self) -> dict[str, object]:
        return {
            "name": self.name,
            "kind": self.kind,
            "first_zxid": optional_zxid(self.first),
            "last_zxid": optional_zxid(self.last),
            "records": self.records,
            "size": self.size,
            "state": self.state,
        }


def show_directory(
    disk: Disk, directory: DataDirectory, target: NamedDirectory, as_json: bool, out: Out
) -> ExitCode:
    """Print the files of a directory and what they prove; returns the exit code."""
    recovery, view, use = recover_in_use(disk, directory, full=False)
    target = replace(target, is_in_use=bool(use))
    files = [*_snapshots(view, directory, recovery), *_logs(view, directory, recovery)]
    manifest = _manifest_fields(disk, directory)
    code = exit_code_of(recovery, use)
    if as_json:
        document: dict[str, object] = {"schema": "keepfast.directory/1"}
        document |= recovery_fields(recovery, directory, target, use)
        document["manifest"] = manifest
        document["files"] = [file.fields for file in files]
        document["exit_code"] = int(code)
        print_document(out, document)
        return code
    print_verdict(out, recovery, target, use)
    out.facts([*verdict_rows(recovery), ("manifest", _manifest_text(manifest))])
    if files:
        out.line()
        heads = ("file", "kind", "zxids", "records", "size", "state")
        out.table(heads, [file.row for file in files], right="records size")
    if recovery.problems:
        out.line()
        print_problems(out, recovery, target)
    return code


def _role(name: str, recovery: Recovery) -> str:
    if recovery.tree is None:
        return ""
    if name in recovery.manifest.names():
        return "part of the history"
    return "not needed"


def _logs(disk: Disk, directory: DataDirectory, recovery: Recovery) -> Iterator[_File]:
    for name in list_directory(disk, directory).logs:
        survey = survey_log(disk, directory, name)
        ending = survey.ending
        if ending.is_plain:
            state = "plain end"
        else:
            word = "DAMAGED" if survey.is_damaged else "torn tail"
            state = f"{word} at offset {ending.offset}"
        role = _role(name, recovery)
        yield _File(
            name,
            "log",
            survey.runs[0].first if survey.runs else None,
            survey.last,
            sum(run.last - run.first + 1 for run in survey.runs),
            disk.size(directory.in_logs(name)),
            f"{role}, {state}" if role else state,
        )


def _snapshots(disk: Disk, directory: DataDirectory, recovery: Recovery) -> Iterator[_File]:
    bad = {p.file for p in recovery.problems if p.file and p.severity is Severity.DAMAGE}
    base = None if recovery.base is None else recovery.base.name
    for name in list_directory(disk, directory).snapshots:
        path = directory.in_snapshots(name)
        if path in bad:
            state = "DAMAGED"
        elif name == base:
            state = "base of the recovery"
        else:
            state = _role(name, recovery) or "not used"
        zxid = Zxid(int(name.split(".")[1], 16))
        yield _File(name, "snapshot", zxid, None, None, disk.size(path), state)


def _manifest_fields(disk: Disk, directory: DataDirectory) -> dict[str, object] | None:
    try:
        manifest = load_manifest(disk, directory)
    except CorruptManifest as error:
        return {"problem": error.reason}
    if manifest is None:
        return None
    return {
        "generation": manifest.generation,
        "serial": manifest.serial,
        "snapshots": [entry.name for entry in manifest.snapshots],
        "segments": [entry.name for entry in manifest.segments],
        "retired": [entry.name for entry in manifest.retired],
    }


def _manifest_text(fields: dict[str, object] | None) -> str:
    if fields is None:
        return "none: not written by Keepfast, or not taken over yet"
    if "problem" in fields:
        return f"DAMAGED: {fields['problem']}"
    counts = {n: len(v) for n, v in fields.items() if isinstance(v, list)}
    return (
        f"generation {fields['generation']}, serial {fields['serial']}, "
        f"{counts['snapshots']} snapshots, {counts['segments']} segments"
    )


# -- the tree as it was --------------------------------------------------------------------------


def show_tree(
    disk: Disk,
    directory: DataDirectory,
    target: NamedDirectory,
    moment: tuple[Zxid | None, int | None],
    options: SnapshotOptions,
    out: Out,
) -> ExitCode:
    """Print the tree at a zxid or a time, as far as the files prove it; returns the exit code.

    With neither: at the head.
    """
    until, time_ms = moment
    if time_ms is not None:
        until = _last_before(disk, directory, time_ms)
    found = _prefix(disk, directory, target, until)
    note, code = _proof(disk, directory, found, until)
    top = check_top(found.tree, options.path, f"{target.path} at {format_zxid(found.head)}")
    listed = islice(znodes(found.tree, top), options.limit)
    base = found.base_name or "the empty tree"
    if options.as_json:
        document = DocumentStream(out)
        document.fields({"schema": "keepfast.tree/1", "directory": target.path})
        document.fields({"asked": None if until is None else format_zxid(until)})
        document.fields({"head": zxid_fields(found.head), "base": found.base_name})
        document.fields({"records_replayed": found.replay.applied, "note": note})
        document.field("tree", tree_fields(found.tree))
        document.array("nodes", encoded_znodes(found.tree, listed, options.redact))
        document.field("exit_code", int(code))
        document.end()
        return code
    out.facts(
        [
            ("tree at", head_text(found.head)),
            ("from", f"{base} and {counted(found.replay.applied, 'record')} after it"),
            ("tree digest", hexadecimal(found.tree.digest)),
            ("znodes", str(found.tree.node_count)),
            *([("note", note)] if note else []),
        ]
    )
    out.line()
    count = print_znodes(out, found.tree, listed, options.redact)
    out.line(f"{counted(count, 'znode')} shown")
    return code


def _prefix(
    disk: Disk, directory: DataDirectory, target: NamedDirectory, until: Zxid | None
) -> prefix.Prefix:
    limit = prefix.NO_LIMIT if until is None else until
    found = prefix.prefix_of(disk, directory, limit)
    if isinstance(found, prefix.Prefix):
        return found
    reason = "there is no snapshot to begin with" if found is None else found.reason
    raise CommandFailed(
        f"the files of {target.path} do not prove any state at or before "
        f"{'the head' if until is None else format_zxid(until)}: {reason}; "
        f"{target.command('verify')} shows what they prove",
        ExitCode.REFUSED,
    )


def _proof(
    disk: Disk, directory: DataDirectory, found: prefix.Prefix, until: Zxid | None
) -> tuple[str, ExitCode]:
    """The caveat about a state, and the matching exit code."""
    head = format_zxid(found.head)
    if found.stop is not None:
        return f"proven up to {head} only: {found.stop.reason}", ExitCode.INCOMPLETE
    if found.replay.unproven:
        first = format_zxid(found.replay.unproven[0].zxid)
        return f"from {first} on not proven: the records carry no digest", ExitCode.INCOMPLETE
    if until is None or found.head == until:
        return "", ExitCode.OK
    try:
        whole = prefix.prefix_of(disk, directory)
    except StorageError:
        whole = None
    if isinstance(whole, prefix.Prefix) and whole.head > until:
        return f"{head} is the last record at or before {format_zxid(until)}", ExitCode.OK
    return f"the records end at {head}: nothing shows what came later", ExitCode.INCOMPLETE


def _last_before(disk: Disk, directory: DataDirectory, time_ms: int) -> Zxid | None:
    """The last record made at or before a time, by the leaders' clocks; None for the last of all.

    Ends at the first record that is later, so that a clock that was set back does not matter much.
    """
    last: Zxid | None = None
    for frame in _frames(disk, directory):
        if _TIME.unpack_from(frame.entry, _TIME_OFFSET)[0] > time_ms:
            if last is None:
                raise CommandFailed(
                    f"the first record that is left, {format_zxid(frame.zxid)}, is later than "
                    f"{utc(time_ms)}: nothing shows what the tree was then",
                    ExitCode.REFUSED,
                )
            return last
        last = Zxid(frame.zxid)
    return None


def _frames(disk: Disk, directory: DataDirectory) -> Iterator[Frame]:
    """The records of all logs that count, in the order of the files."""
    manifest = load_manifest(disk, directory)
    for name in list_directory(disk, directory).logs:
        if manifest is None or name in manifest.names():
            with disk.open_read(directory.in_logs(name)) as file:
                yield from LogReader(file)
