"""The manifest: which files are the history, and what each of them must hold (rule R2).

One small file, replaced atomically.  What it does not list does not exist for recovery, catch-up
or purge, so one atomic rename switches from an old to a new history: a truncation, a received
snapshot and a purge are each one change of the manifest, and the files follow it.

    keepfast-manifest 1 sha256:<hex of everything after this line>
    { ... JSON, zxids and digests in hex ... }

Files follow the manifest in both directions.  A new file is complete, checked and durable under a
temporary name before the manifest lists it, *staged* under that name; then it is renamed to its
live name. A file that is dropped is listed as *retired*; then it is moved aside or deleted.
Recovery completes both, so a data file under a live name that the manifest neither lists nor
retires was put there by another program.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from keepfast.storage.disk import Disk, read_file, replace_file
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import HEADER_SIZE
from keepfast.wire import CorruptManifest, DiskFailed, Zxid, parse_zxid

_MAGIC = "keepfast-manifest 1 sha256:"
_SIZE_LIMIT = 64 << 20

T = TypeVar("T")


class Join(msgspec.Struct, frozen=True):
    """A record that opens an epoch, and the record of an earlier epoch that it follows.

    Inside an epoch the counter proves what follows what; across epochs only this does.
    """

    zxid: Zxid
    follows: Zxid


class Seal(msgspec.Struct, frozen=True):
    """What a finished segment holds."""

    last: Zxid
    end: int  # offset after the last record
    crc32: int  # of the bytes from the segment's start to its end
    digest: int | None  # tree digest after the last record, where known


class SegmentEntry(msgspec.Struct, frozen=True):
    """A log segment that is part of the history.

    `start` is the offset of its first record that is: a log taken over from Apache may begin
    with records that are not.  `serial` distinguishes this file from every other that ever had its
    name.
    """

    name: str
    first: Zxid
    follows: Zxid
    follows_digest: int | None
    serial: int
    start: int = HEADER_SIZE
    joins: tuple[Join, ...] = ()
    seal: Seal | None = None
    staged: str | None = None


class SnapshotEntry(msgspec.Struct, frozen=True):
    """A snapshot from which recovery may begin.

    An exact one holds the state at `zxid` and no other; one written by Apache may hold effects
    of later records, and recovery replays these over it.
    """

    name: str
    zxid: Zxid
    exact: bool
    digest: int | None
    state_digest: int | None
    size: int
    crc32: int
    staged: str | None = None


class Retired(msgspec.Struct, frozen=True):
    """A file that is out of use and still has to be moved aside or deleted."""

    name: str
    delete: bool


class Rescue(msgspec.Struct, frozen=True):
    """An operator accepted a loss (rescue.py): when, of what standing, and what stayed."""

    at: str
    was: str
    kind: str
    head: Zxid
    lost: Zxid | None  # the last record known to have been acknowledged and not kept


class Manifest(msgspec.Struct, frozen=True):
    """Everything that the history consists of."""

    generation: int = 1
    serial: int = 0
    # Which ensemble the data belong to, and the epoch that this was stored with. A term that was
    # never established may have named it: see replica/following.py.
    ensemble: str | None = None
    ensemble_since: int = 0
    accepted_epoch: int | None = None
    current_epoch: int | None = None
    snapshots: tuple[SnapshotEntry, ...] = ()
    segments: tuple[SegmentEntry, ...] = ()
    retired: tuple[Retired, ...] = ()
    # Records of a directory that was taken over from which on nothing was proven. Without this
    # list a restart would make an unproven history a proven one.
    unproven: tuple[Zxid, ...] = ()
    # A leader's tree was installed and the records after it have not arrived yet: this server may
    # have acknowledged more than it has, so it must not be counted on (R8).
    is_catching_up: bool = False
    # The same, since a repair ended the history of a member of an ensemble here.
    repaired_at: Zxid | None = None
    # The last membership of the ensemble that this server knew to be committed, as its text.
    membership: bytes | None = None
    # Never removed, so that a shorter history can be explained.
    rescues: tuple[Rescue, ...] = ()

    def names(self) -> set[str]:
        """Every live name."""
        return {s.name for s in self.snapshots} | {s.name for s in self.segments}

    def next(self, **changes: Any) -> "Manifest":
        """The manifest after a change; its serial is incremented."""
        return replace(self, serial=self.serial + 1, **changes)

    def with_snapshot(self, entry: SnapshotEntry) -> "Manifest":
        """The same manifest with another entry for a snapshot that it lists."""
        listed = (entry if s.name == entry.name else s for s in self.snapshots)
        return replace(self, snapshots=tuple(listed))

    def published(self, name: str) -> "Manifest":
        """The same manifest, once the file `name` has its live name; not worth a separate write."""
        return replace(
            self,
            snapshots=tuple(
                replace(s, staged=None) if s.name == name else s for s in self.snapshots
            ),
            segments=tuple(replace(s, staged=None) if s.name == name else s for s in self.segments),
        )


def store_manifest(disk: Disk, directory: DataDirectory, manifest: Manifest) -> None:
    """Replace the manifest; durable on return."""
    replace_file(disk, directory.manifest, encode_manifest(manifest))


def load_manifest(disk: Disk, directory: DataDirectory) -> Manifest | None:
    """The manifest, or None if there is none; raises CorruptManifest if it cannot be trusted."""
    if not disk.exists(directory.manifest):
        return None
    try:
        data = read_file(disk, directory.manifest, _SIZE_LIMIT)
    except OSError as error:
        raise DiskFailed(f"cannot be read: {error.strerror}", directory.manifest) from error
    return decode_manifest(data, directory.manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the manifest's file."""
    document: dict[str, object] = {
        "generation": manifest.generation,
        "serial": manifest.serial,
        "ensemble": manifest.ensemble,
        "ensemble_since": manifest.ensemble_since,
        "accepted_epoch": manifest.accepted_epoch,
        "current_epoch": manifest.current_epoch,
        "snapshots": [_snapshot_document(s) for s in manifest.snapshots],
        "segments": [_segment_document(s) for s in manifest.segments],
        "retired": [{"name": r.name, "delete": r.delete} for r in manifest.retired],
        "unproven": [_hex(zxid) for zxid in manifest.unproven],
        "is_catching_up": manifest.is_catching_up,
    }
    if manifest.membership is not None:
        document["membership"] = manifest.membership.decode()
    if manifest.repaired_at is not None:
        document["repaired_at"] = _hex(manifest.repaired_at)
    if manifest.rescues:
        document["rescues"] = [_rescue_document(rescue) for rescue in manifest.rescues]
    body = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return f"{_MAGIC}{hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The manifest in `data`; `name` is for the error."""
    head, _, body = data.partition(b"\n")
    expected = f"{_MAGIC}{hashlib.sha256(body).hexdigest()}".encode()
    if head != expected:
        if not head.startswith(_MAGIC.encode()):
            raise CorruptManifest("does not begin as a manifest of this format does", name, 0)
        raise CorruptManifest("fails its checksum", name, 0)
    try:
        document = msgspec.json.decode(body)
        return Manifest(
            generation=document["generation"],
            serial=document["serial"],
            ensemble=document["ensemble"],
            ensemble_since=document.get("ensemble_since", 0),
            accepted_epoch=document["accepted_epoch"],
            current_epoch=document["current_epoch"],
            snapshots=tuple(_snapshot(d) for d in document["snapshots"]),
            segments=tuple(_segment(d) for d in document["segments"]),
            retired=tuple(Retired(d["name"], d["delete"]) for d in document["retired"]),
            unproven=tuple(parse_zxid(text) for text in document["unproven"]),
            is_catching_up=document.get("is_catching_up", False),
            repaired_at=_optional(parse_zxid, document.get("repaired_at")),
            membership=_optional(str.encode, document.get("membership")),
            rescues=tuple(_rescue(d) for d in document.get("rescues", ())),
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise CorruptManifest(f"has a field that cannot be read: {error}", name) from error


def _hex(value: int | None) -> str | None:
    return None if value is None else f"{value:#x}"


def _optional(parse: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else parse(text)


def _integer(text: str) -> int:
    return int(text, 16)


def _rescue_document(rescue: Rescue) -> dict[str, object]:
    return {
        "at": rescue.at,
        "was": rescue.was,
        "kind": rescue.kind,
        "head": _hex(rescue.head),
        "lost": _hex(rescue.lost),
    }


def _rescue(document: dict[str, Any]) -> Rescue:
    return Rescue(
        document["at"],
        document["was"],
        document["kind"],
        parse_zxid(document["head"]),
        _optional(parse_zxid, document["lost"]),
    )


def _snapshot_document(entry: SnapshotEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "zxid": _hex(entry.zxid),
        "exact": entry.exact,
        "digest": _hex(entry.digest),
        "state_digest": _hex(entry.state_digest),
        "size": entry.size,
        "crc32": _hex(entry.crc32),
        "staged": entry.staged,
    }


def _snapshot(document: dict[str, Any]) -> SnapshotEntry:
    return SnapshotEntry(
        name=document["name"],
        zxid=parse_zxid(document["zxid"]),
        exact=document["exact"],
        digest=_optional(_integer, document["digest"]),
        state_digest=_optional(_integer, document["state_digest"]),
        size=document["size"],
        crc32=_integer(document["crc32"]),
        staged=document["staged"],
    )


def _segment_document(entry: SegmentEntry) -> dict[str, object]:
    seal = entry.seal
    return {
        "name": entry.name,
        "first": _hex(entry.first),
        "follows": _hex(entry.follows),
        "follows_digest": _hex(entry.follows_digest),
        "serial": entry.serial,
        "start": entry.start,
        "joins": [{"zxid": _hex(j.zxid), "follows": _hex(j.follows)} for j in entry.joins],
        "seal": None
        if seal is None
        else {
            "last": _hex(seal.last),
            "end": seal.end,
            "crc32": _hex(seal.crc32),
            "digest": _hex(seal.digest),
        },
        "staged": entry.staged,
    }


def _segment(document: dict[str, Any]) -> SegmentEntry:
    seal = document["seal"]
    return SegmentEntry(
        name=document["name"],
        first=parse_zxid(document["first"]),
        follows=parse_zxid(document["follows"]),
        follows_digest=_optional(_integer, document["follows_digest"]),
        serial=document["serial"],
        start=document["start"],
        joins=tuple(
            Join(parse_zxid(j["zxid"]), parse_zxid(j["follows"])) for j in document["joins"]
        ),
        seal=None
        if seal is None
        else Seal(
            parse_zxid(seal["last"]),
            seal["end"],
            _integer(seal["crc32"]),
            _optional(_integer, seal["digest"]),
        ),
        staged=document["staged"],
    )
