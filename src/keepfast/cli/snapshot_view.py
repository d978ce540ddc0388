"""`keepfast inspect` on a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from keepfast.cli.output import CommandFailed, DocumentStream, ExitCode, Out
from keepfast.cli.tree_view import (
    acl_table,
    check_top,
    encoded_znodes,
    head_text,
    print_znodes,
    session_fields,
    tree_fields,
    znodes,
)
from keepfast.cli.values import acl_text, counted, hexadecimal, optional_zxid, size_text
from keepfast.storage import Disk, SnapshotInfo, parse_snapshot, parse_snapshot_name
from keepfast.tree import Tree, TreeBuilder, TreeError
from keepfast.wire import CorruptSnapshot, MalformedRecord, Zxid, format_zxid

# Far beyond every jute.maxbuffer: a longer one is damage, and must not take all memory.
_MAX_FIELD_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What to show of a snapshot, and how."""

    path: str | None = None
    limit: int | None = None
    redact: bool = False
    as_json: bool = False
    verbose: bool = False

    @property
    def lists_znodes(self) -> bool:
        """Whether the znodes themselves are shown."""
        return self.verbose or self.path is not None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A snapshot that is sound as a file."""

    file: str
    size: int
    packing: str
    tree: Tree
    info: SnapshotInfo
    seen: Zxid

    @property
    def ahead(self) -> Zxid:
        """The last zxid of which the file shows an effect."""
        info = self.info
        return Zxid(max(info.zxid, info.digest_zxid or 0, info.last_processed or 0, self.seen))

    @property
    def seals(self) -> list[str]:
        """What the seals cover that are known to be there; all of them are good."""
        seals = ["znodes"]
        if self.info.digest is not None or self.info.last_processed is not None:
            seals.append("digest")
        if self.info.last_processed is not None:
            seals.append("last zxid")
        return seals

    @property
    def digest_verdict(self) -> str:
        """How the digest in the file compares with that of the znodes."""
        if self.info.digest is None:
            return "none stated"
        if self.info.digest == self.tree.digest:
            return "equal"
        return "differs"


def show_snapshot(disk: Disk, path: str, options: SnapshotOptions, out: Out) -> ExitCode:
    """Print a snapshot; returns the exit code."""
    builder = TreeBuilder(allow_unknown_acls=True, max_field=_MAX_FIELD_BYTES)
    try:
        info = parse_snapshot(disk, path, builder)
        tree = builder.finish(info.zxid)
    except (CorruptSnapshot, TreeError, MalformedRecord) as error:
        _fail_damaged(path, error, builder)
    parsed = parse_snapshot_name(path.rpartition("/")[2])
    packing = parsed[1].name.lower() if parsed is not None else "none"
    loaded = _Loaded(path, disk.size(path), packing, tree, info, Zxid(builder.max_zxid_seen))
    top = check_top(tree, options.path, path)
    if options.as_json:
        _print_document(loaded, top, options, out)
    else:
        _print_text(loaded, top, options, out)
    return ExitCode.OK


def _fail_damaged(
    path: str, error: CorruptSnapshot | TreeError | MalformedRecord, builder: TreeBuilder
) -> NoReturn:
    reason = str(error) if isinstance(error, TreeError) else error.reason
    offset = None if isinstance(error, TreeError) else error.offset
    where = "" if offset is None else f" (offset {offset} of the unpacked bytes)"
    if not builder.node_count:
        raise CommandFailed(f"{path}: not a snapshot that can be read: {reason}{where}")
    raise CommandFailed(
        f"{path}: damaged: {reason}{where}; the {builder.node_count} znodes in front of that prove "
        "nothing, see keepfast verify for what the other files do",
        ExitCode.WRONG,
    )


def _print_text(loaded: _Loaded, top: str, options: SnapshotOptions, out: Out) -> None:
    info, tree = loaded.info, loaded.tree
    digest = f"{hexadecimal(tree.digest)} recomputed"
    if info.digest is not None:
        digest += (
            f", {hexadecimal(info.digest)} stated at {format_zxid(info.digest_zxid or 0)}: "
            f"{loaded.digest_verdict}"
        )
        if loaded.digest_verdict == "differs":
            digest += (
                " (normal if it was copied while writes continued: keepfast verify replays it)"
            )
    fuzzy = "none seen" if loaded.ahead == info.zxid else f"up to {format_zxid(loaded.ahead)}"
    out.facts(
        [
            ("snapshot", f"{loaded.file} ({size_text(loaded.size)}, packing {loaded.packing})"),
            ("zxid of name", head_text(info.zxid)),
            ("last processed", optional_zxid(info.last_processed) or "not stated"),
            ("later effects", fuzzy),
            ("seals", f"good ({', '.join(loaded.seals)})"),
            ("tree digest", digest),
            ("state digest", hexadecimal(tree.state_digest)),
            ("znodes", f"{tree.node_count} ({size_text(tree.data_size)} of paths and data)"),
            ("sessions", str(len(tree.sessions))),
            ("acl lists", str(len(tree.acls))),
        ]
    )
    if not options.lists_znodes:
        out.line("-v lists sessions, ACLs and znodes, --path /a those below /a")
        return
    if options.path is None:
        _print_sessions(tree, out)
    out.line()
    count = print_znodes(out, tree, islice(znodes(tree, top), options.limit), options.redact)
    out.line(f"{counted(count, 'znode')} shown")


def _print_sessions(tree: Tree, out: Out) -> None:
    out.line()
    rows = [
        (hexadecimal(session), f"{timeout} ms", str(len(tree.ephemerals.get(session, ()))))
        for session, timeout in sorted(tree.sessions.items())
    ]
    out.table(("session", "timeout", "ephemerals"), rows, right="timeout ephemerals")
    out.line()
    rows_of_acls = [(str(k), acl_text(acl)) for k, acl in sorted(tree.acls.entries().items())]
    out.table(("key", "acl"), rows_of_acls, right="key")


def _print_document(loaded: _Loaded, top: str, options: SnapshotOptions, out: Out) -> None:
    info, tree = loaded.info, loaded.tree
    document = DocumentStream(out)
    document.fields(
        {
            "schema": "keepfast.snapshot/1",
            "file": loaded.file,
            "size": loaded.size,
            "packing": loaded.packing,
            "zxid": format_zxid(info.zxid),
            "last_processed_zxid": optional_zxid(info.last_processed),
            "later_effects_zxid": format_zxid(loaded.ahead),
            "seals": loaded.seals,
            "stated_digest": None if info.digest is None else hexadecimal(info.digest),
            "stated_digest_zxid": optional_zxid(info.digest_zxid),
            "digest_verdict": loaded.digest_verdict,
        }
    )
    counts = tree_fields(tree)
    document.fields({("session_count" if k == "sessions" else k): v for k, v in counts.items()})
    document.field("sessions", session_fields(tree))
    document.field("acls", acl_table(tree))
    if options.lists_znodes:
        found = islice(znodes(tree, top), options.limit)
        document.array("nodes", encoded_znodes(tree, found, options.redact))
    document.field("exit_code", int(ExitCode.OK))
    document.end()
