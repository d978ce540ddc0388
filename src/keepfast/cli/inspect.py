"""`keepfast inspect`: finds out what a path is and shows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from keepfast.cli.blame import BlamedServer, BlameOptions, blame
from keepfast.cli.directory_view import show_directory, show_tree
from keepfast.cli.log_view import LogOptions, show_log
from keepfast.cli.output import CommandFailed, Out
from keepfast.cli.places import check_permission, check_znode, open_directory, reading
from keepfast.cli.record_lines import RecordFilter, parse_types
from keepfast.cli.recovery_view import NamedDirectory
from keepfast.cli.snapshot_view import SnapshotOptions, show_snapshot
from keepfast.cli.values import parse_moment
from keepfast.storage import DataDirectory, Disk, parse_snapshot_name

_MAGIC_SIZE = 4


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """The command line."""

    path: str
    at: str | None
    znode: str | None
    types: tuple[str, ...]
    redact: bool
    limit: int | None
    verbose: bool
    log_dir: str | None
    as_json: bool
    as_lines: bool


def inspect(options: InspectOptions) -> int:
    """Show what `options.path` is; returns the exit code."""
    if options.znode is not None:
        check_znode(options.znode)
    path = options.path
    total = os.path.getsize(path) if os.path.isfile(path) else None
    with reading("reading", total) as (disk, out):
        return _inspect(disk, options, out)


def _inspect(disk: Disk, options: InspectOptions, out: Out) -> int:
    path = options.path
    if disk.is_directory(path):
        return _inspect_directory(disk, options, out)
    if not disk.exists(path):
        check_permission(path)
        raise CommandFailed(
            f"{path} does not exist; expected is a log, a snapshot or a data directory"
        )
    kind = _kind_of_file(disk, path)
    if options.log_dir is not None:
        raise CommandFailed("--log-dir goes with a data directory, not with a single file")
    if kind == "log":
        return _inspect_log(disk, options, out)
    for option, value in (("--at", options.at), ("--type", options.types)):
        if value:
            raise CommandFailed(
                f"{option} does not go with a snapshot: it holds one moment and no transactions"
            )
    if options.as_lines:
        raise CommandFailed("--jsonl goes with a log; a snapshot is shown with --json")
    return show_snapshot(disk, path, _snapshot_options(options), out)


def _kind_of_file(disk: Disk, path: str) -> str:
    """`log` or `snapshot`; ends the command for everything else."""
    with disk.open_read(path) as file:
        size = file.size()
        magic = file.read_at(0, _MAGIC_SIZE)
    if size == 0:
        raise CommandFailed(
            f"{path} is empty (0 bytes): neither a log nor a snapshot; keepfast verify DIR shows "
            "whether it matters"
        )
    parsed = parse_snapshot_name(path.rpartition("/")[2])
    if magic == b"ZKLG":
        return "log"
    if magic == b"ZKSN" or (parsed is not None and parsed[1].value):
        return "snapshot"
    if parsed is not None or path.rpartition("/")[2].startswith("log."):
        raise CommandFailed(
            f"{path} begins neither as a log (ZKLG) nor as a snapshot (ZKSN): it is damaged, or "
            "something else under this name"
        )
    raise CommandFailed(f"{path} is neither a transaction log (ZKLG) nor a snapshot (ZKSN)")


def _inspect_log(disk: Disk, options: InspectOptions, out: Out) -> int:
    at, at_time_ms = (None, None) if options.at is None else parse_moment(options.at)
    only = RecordFilter(at, at_time_ms, options.znode, parse_types(options.types))
    shown = LogOptions(only, options.limit, options.redact, options.as_json, options.as_lines)
    with disk.open_read(options.path) as file:
        return show_log(file, options.path, shown, out)


def _snapshot_options(options: InspectOptions) -> SnapshotOptions:
    return SnapshotOptions(
        options.znode, options.limit, options.redact, options.as_json, options.verbose
    )


def _inspect_directory(disk: Disk, options: InspectOptions, out: Out) -> int:
    directory = open_directory(disk, options.path, options.log_dir)
    target = NamedDirectory(options.path, options.log_dir)
    if options.types:
        raise CommandFailed("--type goes with a log: name one of the log files of the directory")
    if options.as_lines:
        raise CommandFailed("--jsonl goes with a log; a directory is shown with --json")
    if options.at is None and options.znode is None and not options.verbose:
        return show_directory(disk, directory, target, options.as_json, out)
    moment = (None, None) if options.at is None else parse_moment(options.at)
    return show_tree(disk, directory, target, moment, _snapshot_options(options), out)


def inspect_blame(places: Sequence[str], log_dir: str | None, options: BlameOptions) -> int:
    """Show what changed a znode, by the files of one server or of all; returns the exit code."""
    check_znode(options.path)
    if log_dir is not None and len(places) > 1:
        raise CommandFailed("--log-dir goes with one directory; name several as DIR:LOGDIR")
    with reading("reading") as (disk, out):
        return blame(disk, _blamed_servers(disk, places, log_dir), options, out)


def _blamed_servers(disk: Disk, places: Sequence[str], log_dir: str | None) -> list[BlamedServer]:
    path = places[0]
    if len(places) == 1:
        try:
            directory = open_directory(disk, path, log_dir)
            return [BlamedServer(path, directory, NamedDirectory(path, log_dir))]
        except CommandFailed as error:
            may_be_root = isinstance(error.__cause__, FileNotFoundError) or ":" in path
            if log_dir is not None or not may_be_root:
                raise
            try:
                return _servers_of(places)
            except CommandFailed:
                # It is no root of servers either.
                raise error from None
    return _servers_of(places)


def _servers_of(places: Sequence[str]) -> list[BlamedServer]:
    from keepfast.cli.ensembles import open_ensemble

    # As a person would name them: the places are made absolute on the way.
    return [
        BlamedServer(
            one.server,
            DataDirectory(one.snapshots_dir, one.logs_dir),
            NamedDirectory(
                os.path.relpath(one.snapshots_dir),
                None if one.logs_dir == one.snapshots_dir else os.path.relpath(one.logs_dir),
            ),
        )
        for one in open_ensemble(places).servers
    ]
