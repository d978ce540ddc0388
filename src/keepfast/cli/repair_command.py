"""`keepfast repair`: what can be kept of a damaged directory, and keeping it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.recovery_view import NamedDirectory, exit_code_of, problem_fields
from keepfast.cli.tree_view import head_text
from keepfast.cli.values import hexadecimal, optional_zxid, size_text, zxid_fields, zxid_span
from keepfast.storage import DataDirectory, Disk, Recovery, use_of
from keepfast.storage import repair as repairs
from keepfast.wire import StorageError, format_zxid

_NO_VOTE = (
    "This is a member of an ensemble. Others may rely on what it lacks now, so it has no vote "
    "until it caught up from a quorum without it. A start does that by itself, repaired or not: "
    "repair it only to read what is left, or to accept the loss (keepfast ensemble rescue)."
)
_LOOK_ELSEWHERE = (
    "The record after the new head contradicts the tree before it. Which of the two is wrong "
    "cannot be seen from this directory: compare with the other servers first."
)


def repair(
    view: Disk,
    disk: Disk | None,
    directory: DataDirectory,
    target: NamedDirectory,
    as_json: bool,
    out: Out,
) -> ExitCode:
    """Print the plan, carry it out on `disk` if there is one, and return the exit code.

    `view` is the same disk for reading: a plan is made without the means to change anything.
    """
    try:
        use = use_of(view, directory, is_patient=True)
        if use:
            reason = f"a server is running on this directory: {use}"
            raise repairs.RepairRefused(reason, directory.snapshots)
        if disk is None:
            return _show(repairs.plan_repair(view, directory), directory, target, as_json, out)
        with repairs.hold(disk, directory):
            plan = repairs.plan_repair(view, directory)
            if isinstance(plan, Recovery):
                return _show(plan, directory, target, as_json, out)
            after = repairs.apply_repair(disk, directory, plan)
            return _show_done(plan, after, directory, target, as_json, out)
    except repairs.RepairRefused as error:
        _fail_refused(error, target)


def _show_done(
    plan: repairs.RepairPlan,
    after: Recovery,
    directory: DataDirectory,
    target: NamedDirectory,
    as_json: bool,
    out: Out,
) -> ExitCode:
    """Print what was done."""
    code = exit_code_of(after)
    if as_json:
        _print_document(plan, directory, target, code, out, applied=True)
    else:
        _print_plan(plan, directory, out)
        out.line(f"Done. The directory is now {after.standing.value}.")
        if plan.gives_up_vote:
            out.line("Start it beside a quorum of the other servers: it votes once it caught up.")
        out.line(f"next: {target.command('verify')}")
    return code


def _fail_refused(error: repairs.RepairRefused, target: NamedDirectory) -> NoReturn:
    if error.reason.startswith("a server"):
        todo = "stop it first"
    else:
        todo = (
            "start the server with an empty directory in its ensemble, or restore a backup; "
            f"{target.command('verify')} lists every problem"
        )
    raise CommandFailed(f"refused: {error.reason}{_place(error)}; {todo}", ExitCode.REFUSED)


def _show(
    plan: repairs.RepairPlan | Recovery,
    directory: DataDirectory,
    target: NamedDirectory,
    as_json: bool,
    out: Out,
) -> ExitCode:
    """Print a plan, or that there is nothing to repair."""
    if isinstance(plan, repairs.RepairPlan):
        if as_json:
            _print_document(plan, directory, target, ExitCode.WRONG, out, applied=False)
        else:
            _print_plan(plan, directory, out)
            out.line(f"Nothing was changed. To carry it out: {target.command('repair')} --apply")
        return ExitCode.WRONG
    code = exit_code_of(plan)
    if as_json:
        print_document(
            out,
            {
                "schema": "keepfast.repair/1",
                "needed": False,
                "applied": False,
                "standing": plan.standing.value,
                "head": zxid_fields(plan.head),
                "problems": [problem_fields(problem, target) for problem in plan.problems],
                "exit_code": int(code),
            },
        )
        return code
    out.line(f"{target.path}: nothing to repair: {plan.standing.value} at {head_text(plan.head)}")
    if code is not ExitCode.OK:
        out.line(f"What is not proven cannot be proven from here: {target.command('verify')}")
    return code


def _print_plan(plan: repairs.RepairPlan, directory: DataDirectory, out: Out) -> None:
    stop, tree = plan.prefix.stop, plan.after.tree
    if stop is not None:
        out.line(f"The history is proven up to {head_text(plan.after.head)}, and no further:")
        out.line(f"    {stop.reason}{_place(stop)}")
    else:
        out.line(f"The history is proven up to its end, {head_text(plan.after.head)}.")
    out.line()
    out.facts(
        [
            ("stays", f"{plan.after.standing.value} at {format_zxid(plan.after.head)}"),
            ("tree digest", "-" if tree is None else hexadecimal(tree.digest)),
            ("base", plan.prefix.base_name or "the empty tree"),
            ("lost", _lost_text(plan)),
        ]
    )
    out.line()
    for place in directory.both:
        _print_steps(plan, directory, place, out)
    if stop is not None:
        out.line()
        if plan.prefix.is_contradicted:
            out.line(_LOOK_ELSEWHERE)
    if plan.gives_up_vote:
        out.line()
        out.line(_NO_VOTE)
    out.line()


def _print_steps(plan: repairs.RepairPlan, directory: DataDirectory, place: str, out: Out) -> None:
    """Print what happens in one of the two directories."""

    def is_here(name: str) -> bool:
        return directory.path_of(name).rpartition("/")[0] == place

    def aside(name: str) -> str:
        return directory.aside_of(name, plan.generation).removeprefix(f"{place}/")

    steps = [f"    move   {name} to {aside(name)}" for name in plan.moved if is_here(name)]
    steps += [f"    copy   {name} to {aside(name)}" for name in plan.copied if is_here(name)]
    for cut in plan.cuts:
        if is_here(cut.name):
            steps.append(f"    cut    {cut.name} at offset {cut.end} (of {size_text(cut.size)})")
    if place == directory.snapshots:
        steps.append(f"    write  {directory.manifest.removeprefix(f'{place}/')}")
    if steps:
        out.line(f"In {place}:")
        for step in steps:
            out.line(step)


def _place(error: StorageError) -> str:
    if error.file is None:
        return ""
    return f" ({error.file})" if error.offset is None else f" ({error.file}, offset {error.offset})"


def _lost_text(plan: repairs.RepairPlan) -> str:
    parts = [f"{zxid_span(run.first, run.last)} ({run.name})" for run in plan.lost]
    if plan.acknowledged is not None:
        parts.append(f"records up to {format_zxid(plan.acknowledged)} were acknowledged")
    if not parts:
        is_end = plan.prefix.stop is None
        return "nothing" if is_end else "what followed; nothing of it can be read"
    return ", ".join(parts)


def _print_document(
    plan: repairs.RepairPlan,
    directory: DataDirectory,
    target: NamedDirectory,
    code: ExitCode,
    out: Out,
    applied: bool,
) -> None:
    stop, tree = plan.prefix.stop, plan.after.tree
    print_document(
        out,
        {
            "schema": "keepfast.repair/1",
            "needed": True,
            "applied": applied,
            "standing": plan.after.standing.value,
            "may_vote": plan.after.may_vote,
            "head": zxid_fields(plan.after.head),
            "tree_digest": None if tree is None else hexadecimal(tree.digest),
            "state_digest": None if tree is None else hexadecimal(tree.state_digest),
            "base": plan.prefix.base_name,
            "ends_because": None
            if stop is None
            else {
                "reason": stop.reason,
                "file": stop.file,
                "offset": stop.offset,
                "zxid": optional_zxid(stop.zxid),
                "contradicts_the_tree": plan.prefix.is_contradicted,
            },
            "lost": [
                {
                    "first_zxid": format_zxid(run.first),
                    "last_zxid": format_zxid(run.last),
                    "file": directory.in_logs(run.name),
                }
                for run in plan.lost
            ],
            "lost_acknowledged_zxid": optional_zxid(plan.acknowledged),
            "moved": _aside(plan, directory, plan.moved),
            "copied": _aside(plan, directory, plan.copied),
            "cut": [
                {"file": directory.in_logs(c.name), "size": c.size, "new_size": c.end}
                for c in plan.cuts
            ],
            "problems": [problem_fields(problem, target) for problem in plan.before.problems],
            "exit_code": int(code),
        },
    )


def _aside(
    plan: repairs.RepairPlan, directory: DataDirectory, names: Iterable[str]
) -> list[dict[str, str]]:
    """Files, and where they or their copies go."""
    return [
        {"file": directory.path_of(name), "to": directory.aside_of(name, plan.generation)}
        for name in names
    ]
