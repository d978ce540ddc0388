"""Chains in an object store: S3 and what speaks its protocol, Google's, Azure's.

    s3://BUCKET/PREFIX/20261117T025500Z/version-2/snapshot.0
                                                 /log.1 ...
                                                 /keepfast.manifest

The objects of a chain are the files of a data directory, so that any tool that downloads them gets
one. Two facts make a backup all or nothing. An object appears whole or not at all, and the manifest
goes last: what an upload that was cut off left is not listed by any manifest, and nothing else is
ever downloaded. And a chain at rest has only finished segments, which never change: what the
manifest before listed stays as it is. For the same reason the watermark is not uploaded: it speaks
for an open segment, and there is none.

Every object that is written is read back and compared.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from keepfast.pipeline.backup.chains import BackupChain, BackupRefused, chain_of, is_chain_name
from keepfast.pipeline.files.access import arrow_system
from keepfast.storage import (
    ACCEPTED_EPOCH_NAME,
    CURRENT_EPOCH_NAME,
    MANIFEST_NAME,
    VERSION_DIRECTORY,
    Manifest,
    decode_manifest,
    parse_log_name,
    parse_snapshot_name,
)
from keepfast.wire import StorageError

if TYPE_CHECKING:
    from pyarrow import fs

_SCHEMES: Final = {"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss"}
_EPOCH_NAMES: Final = (ACCEPTED_EPOCH_NAME, CURRENT_EPOCH_NAME)
_PIECE_BYTES: Final = 8 << 20
_AWS_ERROR: Final = re.compile(r"AWS Error (\w+)[^:]*: (.*)", re.DOTALL)
_REFUSED: Final = {
    "ACCESS_DENIED",
    "EXPIRED_TOKEN",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "INVALID_SIGNATURE",
    "MISSING_AUTHENTICATION_TOKEN",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
}


def is_object_store(place: str) -> bool:
    """Whether a place is an address of an object store."""
    return "://" in place and place.partition("://")[0].lower() in _SCHEMES


@dataclass(frozen=True, slots=True)
class _StoredManifest:
    raw: bytes
    manifest: Manifest

    @property
    def sizes(self) -> dict[str, int]:
        """The files that make the chain, with their sizes."""
        sizes = {entry.name: entry.size for entry in self.manifest.snapshots}
        for segment in self.manifest.segments:
            if segment.seal is None:
                raise BackupRefused(f"{segment.name} is not finished: not the work of a backup")
            sizes[segment.name] = segment.seal.end
        return sizes

    @property
    def checksums(self) -> dict[str, int]:
        sums = {entry.name: entry.crc32 for entry in self.manifest.snapshots}
        sealed = ((one.name, one.seal) for one in self.manifest.segments)
        return sums | {name: seal.crc32 for name, seal in sealed if seal is not None}


class ObjectStore:
    """A place for backups in an object store. Every failure is a BackupRefused."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        if not is_object_store(place):
            raise BackupRefused(
                f"{place}: backups go to a directory, or to an address that begins with s3://, "
                "gs:// or abfs://"
            )
        with self._explained():
            system, inner = arrow_system(self.place)
        self._system: fs.FileSystem = system
        self._root = inner.rstrip("/")

    def chains(self) -> list[BackupChain]:
        """The chains that have a manifest, oldest first."""
        return [chain_of(self.place, name) for name, files in self._names() if files]

    def unfinished(self) -> list[BackupChain]:
        """What is left of chains whose upload, or whose deletion, was cut off; oldest first."""
        return [chain_of(self.place, name) for name, files in self._names() if not files]

    def _names(self) -> list[tuple[str, bool]]:
        """The names of chains, and whether each has a manifest."""
        found: dict[str, bool] = {}
        for path in self._list(self._root):
            name, _, rest = path.partition("/")
            if is_chain_name(name):
                is_manifest = rest == f"{VERSION_DIRECTORY}/{MANIFEST_NAME}"
                found[name] = found.get(name, False) or is_manifest
        return sorted(found.items())

    def fetch(self, chain: BackupChain, folder: str) -> tuple[BackupChain, bytes]:
        """Make a copy of a chain in a folder; returns it, and the manifest that it was made by.

        Files of an earlier copy stay if they fit in size, so only reading the copy as a server
        would shows whether it is whole.
        """
        stored = self._manifest(chain.name)
        copy = chain_of(folder, chain.name)
        place = os.path.join(copy.path, VERSION_DIRECTORY)
        with self._explained():
            os.makedirs(place, mode=0o700, exist_ok=True)
            sizes = stored.sizes
            for name in os.listdir(place):
                path = os.path.join(place, name)
                if os.path.isfile(path) and os.path.getsize(path) != sizes.get(name):
                    os.remove(path)
            there = self._list(self._of(chain.name))
            for name in (*sizes, *_EPOCH_NAMES):
                path = os.path.join(place, name)
                if not os.path.exists(path) and (name in sizes or name in there):
                    with open(path, "wb") as file:
                        for piece in self._pieces(self._of(chain.name, name)):
                            file.write(piece)
            with open(os.path.join(place, MANIFEST_NAME), "wb") as file:
                file.write(stored.raw)
        return copy, stored.raw

    def send(self, copy: BackupChain, fetched: bytes | None) -> None:
        """Upload what a chain's copy has and the store has not; read back, with the manifest last.

        `fetched` is the manifest that the copy was made of, None for a new chain.
        """
        place = os.path.join(copy.path, VERSION_DIRECTORY)
        with self._explained():
            with open(os.path.join(place, MANIFEST_NAME), "rb") as file:
                raw = file.read()
            new = _StoredManifest(raw, decode_manifest(raw, file.name))
            there = self._list(self._of(copy.name))
            old = self._manifest(copy.name) if MANIFEST_NAME in there else None
            if (None if old is None else old.raw) != fetched:
                raise BackupRefused(
                    f"{self.place}/{copy.name} was changed by somebody else meanwhile; give each "
                    "source of backups a prefix of its own, and run the backup again"
                )
            known = {} if old is None else old.checksums
            sums = new.checksums
            for name, size in new.sizes.items():
                if known.get(name) != sums[name] or there.get(name) != size:
                    self._upload(copy.name, name, place)
            for name in _EPOCH_NAMES:
                if os.path.exists(os.path.join(place, name)):
                    self._upload(copy.name, name, place)
            if raw != fetched:
                self._upload(copy.name, MANIFEST_NAME, place)

    def delete(self, chain: BackupChain) -> None:
        """Delete a chain, manifest first: what is left of one that is half deleted is none."""
        with self._explained():
            if MANIFEST_NAME in self._list(self._of(chain.name)):
                self._system.delete_file(self._of(chain.name, MANIFEST_NAME))
            self._system.delete_dir(f"{self._root}/{chain.name}")

    def _manifest(self, name: str) -> _StoredManifest:
        with self._explained():
            raw = b"".join(self._pieces(self._of(name, MANIFEST_NAME)))
            stored = _StoredManifest(raw, decode_manifest(raw, f"{self.place}/{name}"))
        for listed in stored.sizes:
            # They become names of files on this machine.
            if parse_log_name(listed) is None and parse_snapshot_name(listed) is None:
                raise BackupRefused(f"{self.place}/{name} lists a file of another kind: {listed}")
        return stored

    def _of(self, chain: str, name: str = "") -> str:
        return posixpath.join(self._root, chain, VERSION_DIRECTORY, name).rstrip("/")

    def _list(self, folder: str) -> dict[str, int]:
        """The objects below a folder, by their paths inside it, with their sizes."""
        from pyarrow import fs

        with self._explained():
            try:
                infos = self._system.get_file_info(fs.FileSelector(folder, recursive=True))
            except FileNotFoundError:
                return {}
        return {info.path[len(folder) + 1 :]: info.size for info in infos if info.is_file}

    def _pieces(self, path: str) -> Iterator[bytes]:
        with self._system.open_input_stream(path) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece

    def _upload(self, chain: str, name: str, place: str) -> None:
        path, sent, read = self._of(chain, name), hashlib.sha256(), hashlib.sha256()
        source = os.path.join(place, name)
        with open(source, "rb") as file, self._system.open_output_stream(path) as stream:
            for piece in _pieces_of(file):
                sent.update(piece)
                stream.write(piece)
        for piece in self._pieces(path):
            read.update(piece)
        if sent.digest() != read.digest():
            raise BackupRefused(f"{self.place}/{chain}: {name} reads back as other bytes than sent")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise BackupRefused(
                f"{self.place}: object stores need packages that are not installed "
                f"({error.name}): pip install 'keepfast[object-store]'"
            ) from error
        except OSError as error:
            raise BackupRefused(f"{self.place}: {_sentence(error)}") from error
        except StorageError as error:
            raise BackupRefused(str(error)) from error


def _pieces_of(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _sentence(error: OSError) -> str:
    """What an operator should know of a failure; PyArrow has one kind of exception for all."""
    if error.filename is not None and error.errno is not None:
        return f"{error.filename}: {error.strerror}"
    text = re.sub(r"^\[Errno \d+\] ", "", " ".join(str(error).split()))
    found = _AWS_ERROR.search(text)
    if found is None:
        return text
    code, detail = found[1], re.sub(r" \(Request ID: .*\)$", "", found[2])
    if code == "NO_SUCH_BUCKET":
        return "there is no such bucket; make it first"
    if code in _REFUSED:
        return (
            f"the store refuses these credentials ({code}); set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, of an identity that may list, read, write and "
            "delete there"
        )
    if code == "NETWORK_CONNECTION":
        return f"the store cannot be reached; is AWS_ENDPOINT_URL right? ({detail})"
    return f"{code}: {detail}"
