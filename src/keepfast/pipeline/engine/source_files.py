"""Which files a data source reads, by its options, and what one task of it reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import msgspec
from pyspark.sql.datasource import InputPartition

from keepfast.pipeline.files.layout import (
    EnsembleFiles,
    FileEntry,
    PlaceError,
    ServerFiles,
    discover,
    is_remote,
    kind_of,
    local_path,
)
from keepfast.pipeline.files.listing import list_place
from keepfast.pipeline.files.parts import Part


def listing_text(ensembles: list[EnsembleFiles]) -> str:
    """Files that are known already, as the option `listing`."""
    return msgspec.json.encode(ensembles).decode()


def files_of(options: Mapping[str, str]) -> list[EnsembleFiles]:
    """The files that the options of a source name; raises PlaceError."""
    listing = options.get("listing")
    if listing:
        return msgspec.json.decode(listing, type=list[EnsembleFiles])
    paths: list[str] = (
        json.loads(options["paths"]) if options.get("paths") else [options.get("path", "")]
    )
    if not paths or not all(paths):
        raise PlaceError("load()", "name a directory, or give the option paths (a JSON list)")
    files = [path for path in paths if _is_file(path)]
    places = [path for path in paths if path not in files]
    found = discover(places, list_place) if places else []
    return found + ([_loose_files(files)] if files else [])


def _is_file(path: str) -> bool:
    name = path.rstrip("/").rpartition("/")[2]
    if is_remote(path):
        return kind_of(name)[0] in ("log", "snapshot")
    return os.path.isfile(local_path(path))


def _loose_files(paths: list[str]) -> EnsembleFiles:
    """Single files, as the files of one server without a name."""
    entries = []
    for path in paths:
        kind, zxid = kind_of(path.rpartition("/")[2])
        if is_remote(path):
            entries.append(FileEntry(path, kind, zxid, 0, 0.0))
        else:
            status = os.stat(local_path(path))
            place = local_path(path)
            entries.append(FileEntry(place, kind, zxid, status.st_size, status.st_mtime))
    directory = entries[0].path.rpartition("/")[0]
    return EnsembleFiles("", (ServerFiles("", "", directory, directory, tuple(entries)),))


class FilesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(len(parts))
        self.parts = parts
