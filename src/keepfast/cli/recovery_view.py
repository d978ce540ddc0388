"""What recovery says about a directory: verdict, problems and the next safe command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from keepfast.cli.output import ExitCode, Out
from keepfast.cli.tree_view import head_text, tree_fields
from keepfast.cli.values import counted, hexadecimal, optional_zxid, zxid_fields
from keepfast.storage import DataDirectory, DirectoryUse, Problem, Recovery, Severity, Standing
from keepfast.wire import format_zxid

_STYLES = {
    Severity.NOTE: "dim",
    Severity.WARNING: "warning",
    Severity.DAMAGE: "bad",
}
_STANDING_STYLES = {
    Standing.WHOLE: "good",
    Standing.UNPROVEN: "warning",
    Standing.EMPTY: "warning",
    Standing.CATCHING_UP: "warning",
    Standing.DAMAGED: "bad",
}
_MEANINGS = {
    Standing.WHOLE: "one contiguous history, proven from a base to its head",
    Standing.UNPROVEN: "contiguous as far as the format shows, but not proven",
    Standing.DAMAGED: "something is missing or wrong, and no crash explains it",
    Standing.EMPTY: "no history at all: new, or wiped",
    Standing.CATCHING_UP: "sound, but perhaps not all that was acknowledged: no vote until it "
    "caught up",
}
# Damage of which a repair can keep the part in front; epochs are never guessed, so not those.
_REPAIRABLE = frozenset(
    (
        *("manifest", "manifest-missing", "history-broken", "log-damaged", "snapshot-damaged"),
        *("no-base", "records-gone"),
    )
)


@dataclass(frozen=True, slots=True)
class NamedDirectory:
    """The directory as it was named on the command line, for commands to run next."""

    path: str
    log_dir: str | None = None
    is_in_use: bool = False  # then nothing but to look again is safe

    def command(self, verb: str) -> str:
        """A command on this directory."""
        text = f"keepfast {verb} {shlex.quote(self.path)}"
        return text if self.log_dir is None else f"{text} --log-dir {shlex.quote(self.log_dir)}"


def exit_code_of(recovery: Recovery, use: DirectoryUse | None = None) -> ExitCode:
    """0 whole, with notes at most; 1 damage; 3 unproven, empty, warnings only, or in use."""
    severities = {problem.severity for problem in recovery.problems}
    if recovery.standing is Standing.DAMAGED or Severity.DAMAGE in severities:
        return ExitCode.WRONG
    if recovery.standing is not Standing.WHOLE or Severity.WARNING in severities or use:
        return ExitCode.INCOMPLETE
    return ExitCode.OK


def next_command(problem: Problem, target: NamedDirectory) -> str:
    """The next command that is safe to run: each of them is read-only."""
    if target.is_in_use:
        return target.command("verify")
    if problem.severity is Severity.DAMAGE:
        return target.command("repair" if problem.code in _REPAIRABLE else "inspect")
    at = "" if problem.zxid is None else f" --at {format_zxid(problem.zxid)}"
    if problem.file is not None and problem.file.rpartition("/")[2].startswith("log."):
        return f"keepfast inspect {shlex.quote(problem.file)}{at}"
    return target.command("inspect") + at


def print_verdict(out: Out, recovery: Recovery, target: NamedDirectory, use: DirectoryUse) -> None:
    """Print what the directory is, in one line, and whether somebody is using it."""
    standing = recovery.standing
    word = out.paint(standing.value.upper(), _STANDING_STYLES.get(standing, ""))
    meaning = _MEANINGS[standing]
    if standing is Standing.WHOLE and recovery.degraded:
        meaning += "; degraded: a file that should back it is not sound"
    out.line(f"{target.path}: {word} - {meaning}")
    if use:
        upto = "" if recovery.tree is None else f" up to {format_zxid(recovery.head)}"
        text = f"In use: {use}. Judged{upto} as it was a moment ago; stop the server for the rest."
        out.line(out.paint(text, "warning"))


def verdict_rows(recovery: Recovery) -> list[tuple[str, str]]:
    """Head, digests and base, for people."""
    tree, base = recovery.tree, recovery.base
    rows = []
    if tree is not None:
        rows += [
            ("head", head_text(recovery.head)),
            ("tree digest", hexadecimal(tree.digest)),
            ("state digest", hexadecimal(tree.state_digest)),
            (
                "holds",
                f"{counted(tree.node_count, 'znode')}, {counted(len(tree.sessions), 'session')}",
            ),
            ("base", "the empty tree" if base is None else f"{base.name}"),
            ("replayed", f"{counted(recovery.records, 'record')} after the base"),
        ]
    epochs = recovery.epochs
    if epochs.accepted is not None or epochs.current is not None:
        rows.append(("epochs", f"accepted {epochs.accepted}, current {epochs.current}"))
    return rows


def print_problems(out: Out, recovery: Recovery, target: NamedDirectory) -> None:
    """Print each problem with its place, its reason and what to do next."""
    for problem in recovery.problems:
        word = out.paint(problem.severity.value, _STYLES[problem.severity])
        place = problem.file or target.path
        if problem.offset is not None:
            place += f", offset {problem.offset}"
        if problem.zxid is not None:
            place += f", zxid {format_zxid(problem.zxid)}"
        out.line(f"{word} [{problem.code}] {place}")
        out.line(f"    {problem.reason}")
        if problem.advice:
            out.line(f"    advice: {problem.advice}")
        if problem.severity is not Severity.NOTE:
            out.line(f"    next: {next_command(problem, target)}")


def problem_fields(problem: Problem, target: NamedDirectory) -> dict[str, object]:
    """A problem for JSON."""
    return {
        "code": problem.code,
        "severity": problem.severity.value,
        "reason": problem.reason,
        "file": problem.file,
        "offset": problem.offset,
        "zxid": optional_zxid(problem.zxid),
        "advice": problem.advice,
        "next": next_command(problem, target),
    }


def recovery_fields(
    recovery: Recovery, directory: DataDirectory, target: NamedDirectory, use: DirectoryUse
) -> dict[str, object]:
    """What recovery found, for JSON."""
    tree, base = recovery.tree, recovery.base
    return {
        "directory": {"snapshots": directory.snapshots, "logs": directory.logs},
        "held_by_a_server": use.is_locked,
        "in_use": bool(use),
        "used_by": [{"pid": pid, "name": name} for pid, name in use.processes],
        "standing": recovery.standing.value,
        "may_vote": recovery.may_vote,
        "degraded": recovery.degraded,
        "adopted": recovery.adopted,
        "head": None if tree is None else zxid_fields(recovery.head),
        "tree": None if tree is None else tree_fields(tree),
        "base": None if base is None else {"name": base.name, "zxid": format_zxid(base.zxid)},
        "records_replayed": recovery.records,
        "epochs": {"accepted": recovery.epochs.accepted, "current": recovery.epochs.current},
        "problems": [problem_fields(problem, target) for problem in recovery.problems],
    }
