"""`keepfast backup`: proven, incremental backups of an ensemble, and what a place holds."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import Final

from keepfast.cli.ensembles import open_ensemble
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.pipeline_input import explained
from keepfast.cli.places import reading
from keepfast.cli.status import addresses_of
from keepfast.cli.values import counted, hexadecimal, parse_duration, zxid_fields
from keepfast.pipeline import (
    BackupOptions,
    BackupRefused,
    BackupTaken,
    SnapshotRequest,
    back_up_files,
    back_up_server,
    is_object_store,
    list_chains,
    read_chain,
)
from keepfast.wire import format_zxid

_ADDRESS: Final = re.compile(r".+:\d+")


@dataclass(frozen=True, slots=True)
class BackupArguments:
    """What the command line says."""

    sources: tuple[str, ...]
    place: str
    full_every: str
    keep: str | None
    admin_port: int
    auth: str | None
    as_json: bool
    metrics: str | None = None
    cache: str | None = None


def backup(arguments: BackupArguments) -> int:
    """Take a backup and say what it holds; returns the exit code."""
    options = BackupOptions(
        parse_duration(arguments.full_every, "--full-every"),
        0.0 if arguments.keep is None else parse_duration(arguments.keep, "--keep"),
        arguments.cache,
    )
    if arguments.cache is not None and not is_object_store(arguments.place):
        raise CommandFailed("--cache is for backups in an object store; leave it out")
    servers = [s for s in arguments.sources if _ADDRESS.fullmatch(s) and not os.path.exists(s)]
    if servers and len(servers) != len(arguments.sources):
        raise CommandFailed("name servers (HOST:PORT) or data directories, not both")
    try:
        if servers:
            request = SnapshotRequest(_url(arguments), _authorization(arguments.auth))
            out, taken = Out(), back_up_server(request, arguments.place, options)
        else:
            ensemble = open_ensemble(arguments.sources)
            with reading("backing up") as (disk, out), explained():
                taken = back_up_files(disk, ensemble, arguments.place, options)
    except BackupRefused as error:
        raise CommandFailed(f"refused: {error}", ExitCode.REFUSED) from error
    code = ExitCode.WRONG if taken.is_wrong else ExitCode.OK
    if arguments.metrics is not None:
        from keepfast.cli.metrics_file import write_backup_metrics

        write_backup_metrics(arguments.metrics, taken, code)
    if arguments.as_json:
        print_document(out, _document(taken) | {"exit_code": int(code)})
    else:
        _print(out, taken, arguments.place)
    out.flush()
    return code


def list_backups(place: str, as_json: bool) -> int:
    """Read every chain of a place in full and say what it holds; returns the exit code."""
    out, code, rows = Out(), ExitCode.OK, []
    try:
        chains = list_chains(place)
    except BackupRefused as error:
        # As everywhere: 4 where packages are missing.
        is_lacking = isinstance(error.__cause__, ImportError)
        code = ExitCode.REFUSED if is_lacking else ExitCode.UNUSABLE
        raise CommandFailed(str(error), code) from error
    if not chains:
        raise CommandFailed(
            f"{place} holds no backup; keepfast backup DIR... --to {place} makes one"
        )
    for chain in chains:
        try:
            found = read_chain(chain)
        except BackupRefused as error:
            code = ExitCode.WRONG
            rows.append([chain.name, "not whole", "-", "-", str(error)])
        else:
            base = min(entry.zxid for entry in found.manifest.snapshots)
            head = format_zxid(found.head)
            rows.append([chain.name, "whole", format_zxid(base), head, ""])
    heads = ("backup", "standing", "from", "to", "problem")
    if as_json:
        entries = [dict(zip(heads, row, strict=True)) for row in rows]
        document = {"schema": "keepfast.backups/1", "place": place, "backups": entries}
        print_document(out, document | {"exit_code": int(code)})
    else:
        out.table(heads, rows)
    out.flush()
    return code


def _url(arguments: BackupArguments) -> str:
    host = addresses_of(arguments.sources)[0].host
    return f"http://{f'[{host}]' if ':' in host else host}:{arguments.admin_port}"


def _authorization(auth: str | None) -> str:
    """scheme:credentials, as the shell's addauth has it, in the admin server's form."""
    if auth is None:
        return "ip"
    scheme, colon, credentials = auth.partition(":")
    if not colon:
        raise CommandFailed("--auth wants SCHEME:CREDENTIALS, for example digest:super:secret")
    return f"{scheme} {credentials}"


def _document(taken: BackupTaken) -> dict[str, object]:
    return {
        "schema": "keepfast.backup/1",
        "chain": taken.chain.path,
        "head": zxid_fields(taken.head),
        "tree_digest": hexadecimal(taken.tree_digest),
        "new_because": taken.new_because,
        "records": taken.records,
        "expired": list(taken.expired),
        "note": taken.note,
    }


def _print(out: Out, taken: BackupTaken, place: str) -> None:
    began = "continued" if taken.new_because is None else f"new: {taken.new_because}"
    rows = [
        ("backup", f"{taken.chain.path} ({began})"),
        ("holds", f"everything up to {format_zxid(taken.head)}, read back and proven whole"),
        ("added", counted(taken.records, "record")),
        ("tree digest", hexadecimal(taken.tree_digest)),
    ]
    if taken.expired:
        rows.append(("expired", ", ".join(taken.expired)))
    out.facts(rows)
    if taken.note:
        out.line(out.paint(taken.note, "bad"))
    out.line(f"next: keepfast restore {shlex.quote(place)} --to DIR")
