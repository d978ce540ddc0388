"""`keepfast diff`: what differs between two servers at one moment, or between two moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from keepfast.cli.ensembles import moment_at, open_ensemble
from keepfast.cli.output import CommandFailed, DocumentStream, ExitCode, Out, to_json
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import check_znode, reading
from keepfast.cli.tree_view import head_text, znode_fields
from keepfast.cli.values import acl_text, counted, data_text, optional_zxid, utc
from keepfast.pipeline import (
    Difference,
    EnsembleFiles,
    EnsembleState,
    Moment,
    ServerState,
    differences,
    ensemble_state,
    server_state,
)
from keepfast.storage import Disk
from keepfast.tree import Node, Tree, persisted
from keepfast.wire import format_zxid, safe_text

_ZXID_FIELDS = ("czxid", "mzxid", "pzxid")
_TIME_FIELDS = ("ctime", "mtime")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The command line."""

    places: tuple[str, ...]
    at: str | None
    since: str | None  # --from
    until: str | None  # --to
    path: str | None
    limit: int | None
    redact: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two trees."""

    name: str
    tree: Tree
    head: int
    note: str
    is_sure: bool


@dataclass(frozen=True, slots=True)
class _Pair:
    left: _Side
    right: _Side
    # Whether the two should be the same: two servers at one moment.
    should_agree: bool
    problem: str = ""


def show_diff(options: DiffOptions) -> int:
    """Print what differs; returns the exit code."""
    if options.path is not None:
        check_znode(options.path)
    moments = options.since is not None or options.until is not None
    if moments and options.at is not None:
        raise CommandFailed("--at is for two servers, --from and --to are for two moments")
    if moments and options.since is None:
        raise CommandFailed("--to needs --from: the moment to compare with")
    ensemble = open_ensemble(options.places)
    with reading("replaying") as (disk, out), explained():
        if moments:
            pair = _two_moments(disk, ensemble, options)
        else:
            pair = _two_servers(disk, ensemble, options)
        return _show(out, pair, options)


def _two_moments(disk: Disk, ensemble: EnsembleFiles, options: DiffOptions) -> _Pair:
    def side(moment: Moment) -> _Side:
        state: EnsembleState = ensemble_state(disk, ensemble, moment)
        note = state.chosen.note
        if state.is_contradicted:
            note = f"server {', '.join(state.differing)} has another state"
        is_sure = state.chosen.reaches and state.chosen.is_proven and not state.is_contradicted
        return _Side(str(moment), state.tree, state.head, note, is_sure)

    left = side(moment_at(options.since, "--from"))
    return _Pair(left, side(moment_at(options.until, "--to")), should_agree=False)


def _two_servers(disk: Disk, ensemble: EnsembleFiles, options: DiffOptions) -> _Pair:
    if len(ensemble.servers) != 2:
        names = ", ".join(server.server for server in ensemble.servers)
        raise CommandFailed(
            f"two servers are compared, and these are {len(ensemble.servers)} ({names}); name two, "
            "or two moments with --from and --to; keepfast audit compares all"
        )
    one, other = ensemble.servers
    moment = moment_at(options.at)
    left, right = server_state(disk, one, moment), server_state(disk, other, moment)
    if options.at is None and left.head != right.head:
        # At the greatest zxid that both reach: after it they cannot be compared.
        common = Moment(zxid=min(left.head, right.head))
        if left.head > right.head:
            left = server_state(disk, one, common)
        else:
            right = server_state(disk, other, common)
    problem = ""
    if left.head != right.head and left.reaches and right.reaches:
        problem = (
            f"server {left.server} is at {format_zxid(left.head)} there and server {right.server} "
            f"at {format_zxid(right.head)}: one of them has a record that the other has not"
        )
    return _Pair(_server_side(left), _server_side(right), True, problem)


def _server_side(state: ServerState) -> _Side:
    name = f"server {state.server}"
    return _Side(name, state.tree, state.head, state.note, state.reaches and state.is_proven)


def _show(out: Out, pair: _Pair, options: DiffOptions) -> ExitCode:
    left, right = pair.left, pair.right
    top = options.path or "/"
    if options.path is not None and left.tree.find(top) is None and right.tree.find(top) is None:
        raise CommandFailed(f"there is no znode {safe_text(top)} on either side", ExitCode.REFUSED)
    found = list(differences(left.tree, right.tree, top))
    code = ExitCode.OK
    if not left.is_sure or not right.is_sure or left.head != right.head:
        code = ExitCode.INCOMPLETE if pair.should_agree else ExitCode.OK
    if not pair.should_agree and not (left.is_sure and right.is_sure):
        code = ExitCode.INCOMPLETE
    if pair.should_agree and (found or pair.problem):
        code = ExitCode.WRONG
    if options.as_json:
        _print_json(out, pair, found, options, int(code))
        return code
    rows = [("left", _side_text(left)), ("right", _side_text(right))]
    if pair.problem:
        rows.append(("problem", pair.problem))
    out.facts(rows)
    out.line()
    for difference in islice(found, options.limit):
        for line in _lines(difference, options.redact):
            out.line(line)
    shown = (
        "" if options.limit is None or options.limit >= len(found) else f", {options.limit} shown"
    )
    out.line(f"{counted(len(found), 'znode')} differ{'s' if len(found) == 1 else ''}{shown}")
    return code


def _side_text(side: _Side) -> str:
    text = f"{side.name}, tree at {head_text(side.head)}, {counted(side.tree.node_count, 'znode')}"
    return f"{text}; {side.note}" if side.note else text


def _lines(difference: Difference, redact: bool) -> Iterator[str]:
    path = safe_text(difference.path)
    if difference.kind != "changed":
        node = difference.left or difference.right
        sign = "-" if difference.right is None else "+"
        if node is not None:
            yield f"{sign} {path}  {data_text(node.data, redact)}  {_stat_text(node)}"
        return
    yield f"~ {path}"
    for name in difference.fields:
        before, after = _values(difference, name, redact)
        yield f"      {name}: {before} -> {after}"


def _stat_text(node: Node) -> str:
    stat = persisted(node)
    return f"czxid={format_zxid(stat.czxid)}  version={stat.version}"


def _values(difference: Difference, name: str, redact: bool) -> tuple[str, str]:
    """A field on both sides."""
    texts = []
    sides = ((difference.left, difference.left_acl), (difference.right, difference.right_acl))
    for node, acl in sides:
        if node is None:
            texts.append("-")
        elif name == "data":
            texts.append(data_text(node.data, redact))
        elif name == "acl":
            texts.append(acl_text(acl))
        else:
            value = getattr(persisted(node), name)
            if name in _ZXID_FIELDS or name == "ephemeral_owner":
                texts.append(format_zxid(value))
            else:
                texts.append(utc(value) if name in _TIME_FIELDS else str(value))
    return texts[0], texts[1]


def _print_json(
    out: Out, pair: _Pair, found: list[Difference], options: DiffOptions, code: int
) -> None:
    def side(one: _Side) -> dict[str, object]:
        fields = {"name": one.name, "head": optional_zxid(one.head), "note": one.note}
        return {**fields, "proven": one.is_sure, "znodes": one.tree.node_count}

    def encoded(one: Difference) -> str:
        sides = {}
        for name, tree, node in (
            ("left", pair.left.tree, one.left),
            ("right", pair.right.tree, one.right),
        ):
            known = None if node is None else znode_fields(tree, one.path, node, options.redact)
            sides[name] = known
        fields = {"path": one.path, "kind": one.kind, "fields": list(one.fields)}
        return to_json({**fields, **sides})

    document = DocumentStream(out)
    document.fields({"schema": "keepfast.diff/1", "left": side(pair.left)})
    document.fields({"right": side(pair.right), "problem": pair.problem, "count": len(found)})
    document.array("differences", map(encoded, islice(found, options.limit)))
    document.field("exit_code", code)
    document.end()
