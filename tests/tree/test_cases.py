"""Logs of real servers replayed: the digest that Apache wrote into each record is the judge."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from keepfast.tree import Tree, TreeBuilder
from keepfast.wire import (
    ACL,
    Id,
    LogEntry,
    Reader,
    Zxid,
    counter_of,
    decode_entry,
    epoch_of,
)
from tests.cases import case_names, load_case

HEALTHY = case_names("healthy")


def zxid_of(path: Path) -> int:
    return int(path.name.split(".")[1], 16)


def log_entries(directory: Path) -> Iterator[LogEntry]:
    """All whole records of the logs, in order."""
    for path in sorted(directory.glob("log.*"), key=zxid_of):
        raw = path.read_bytes()
        offset = 16
        while offset + 12 <= len(raw):
            checksum, size = struct.unpack_from(">qi", raw, offset)
            entry = raw[offset + 12 : offset + 12 + size]
            if size <= 0 or raw[offset + 12 + size : offset + 13 + size] != b"B":
                break
            assert zlib.adler32(entry) == checksum
            yield decode_entry(entry)
            offset += 13 + size


class Loaded(NamedTuple):
    tree: Tree
    zxid: int
    # Up to here, records may be in the snapshot already.
    fuzzy_until: int
    # The digest that the snapshot states, if it states it for the zxid of its name.
    digest: int | None


def load_snapshot(path: Path) -> Loaded:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    reader = Reader(raw, 16)
    builder = TreeBuilder(allow_unknown_acls=True)
    for _ in range(reader.read_int()):
        builder.add_session(reader.read_long(), reader.read_int())
    for _ in range(reader.read_int()):
        key = reader.read_long()
        entries = []
        for _ in range(reader.read_int()):
            perms, scheme, name = reader.read_int(), reader.read_string(), reader.read_string()
            entries.append(ACL(perms, Id(scheme or "", name or "")))
        builder.add_acl(key, tuple(entries))
    seal = builder.add_encoded(raw, reader.offset)
    assert builder.is_complete
    assert zlib.adler32(raw[:seal]) == struct.unpack_from(">q", raw, seal)[0]
    zxid, known, digest = zxid_of(path), 0, None
    if len(raw) > seal + 13:
        known, _, stated = struct.unpack_from(">qiQ", raw, seal + 13)
        digest = stated if known == zxid else None
    # One more than is known: the txn that was being applied when the file was finished.
    window = max(builder.max_zxid_seen, known + 1 if known else 0)
    return Loaded(builder.finish(Zxid(zxid)), zxid, window, digest)


def contiguous(entries: list[LogEntry], after: int) -> Iterator[LogEntry]:
    """The records behind `after`, up to the first gap (a server may have been given a snapshot)."""
    last = after
    for entry in entries:
        zxid = entry.header.zxid
        if zxid <= after:
            continue
        is_new_epoch = epoch_of(zxid) > epoch_of(last) and counter_of(zxid) == 1
        if zxid != last + 1 and not is_new_epoch:
            return
        yield entry
        last = zxid


def recomputed(tree: Tree) -> int:
    builder = TreeBuilder(allow_unknown_acls=True)
    with tree.freeze() as frozen:
        for session in frozen.sessions.items():
            builder.add_session(*session)
        for key, acl in frozen.acls.items():
            builder.add_acl(key, acl)
        for chunk in frozen.node_chunks():
            builder.add_encoded(chunk)
    again = builder.finish(tree.last_zxid)
    assert (again.digest, again.data_size) == (tree.digest, tree.data_size)
    return again.state_digest


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_case__every_digest_matches(name: str, tell: Callable[[str], None]) -> None:
    """From the empty tree and from every snapshot, on every server."""
    case = load_case(name)
    records = compared = 0
    for server_id in case.server_ids:
        directory = case.server_dir(server_id) / "version-2"
        entries = list(log_entries(directory))
        starts = [load_snapshot(path) for path in sorted(directory.glob("snapshot.*"))]
        if entries and counter_of(entries[0].header.zxid) == 1:
            starts.append(Loaded(Tree(), 0, 0, None))
        for tree, after, fuzzy_until, _ in starts:
            for entry in contiguous(entries, after):
                zxid = entry.header.zxid
                apply = tree.apply_fuzzy if zxid <= fuzzy_until else tree.apply
                apply(entry.header, entry.body)
                records += 1
                if entry.digest is not None and zxid >= fuzzy_until:
                    assert tree.digest == entry.digest.tree_digest, f"{server_id} {zxid:#x}"
                    compared += 1
            assert tree.acls.unknown_keys == frozenset()
            assert recomputed(tree) == tree.state_digest
    assert compared > 0 or case.version.startswith("3.4")
    tell(f"{records} records applied, {compared} digests equal")


@pytest.mark.parametrize("name", [n for n in HEALTHY if "3.4" not in n])
def test_healthy_case__snapshots_have_the_digest_they_state_or_one_txn_more(name: str) -> None:
    case = load_case(name)
    stated = equal = 0
    for server_id in case.server_ids:
        directory = case.server_dir(server_id) / "version-2"
        entries = {entry.header.zxid: entry for entry in log_entries(directory)}
        for path in sorted(directory.glob("snapshot.*")):
            tree, zxid, _, digest = load_snapshot(path)
            if digest is None or zxid == 0:
                continue
            stated += 1
            following = entries.get(Zxid(zxid + 1))
            if tree.digest == digest:
                equal += 1
            else:
                assert following is not None
                assert following.digest is not None
                assert tree.digest == following.digest.tree_digest
    assert stated > 0
    assert equal > 0


def test_trunc_that_kept_a_record__shows_in_the_digests() -> None:
    """The other direction: a tree that is not the leader's does not pass."""
    case = load_case("trunc-misses-record-short-3.9.5")
    wrong = 0
    tree = Tree()
    for entry in log_entries(case.server_dir("2") / "version-2"):
        tree.apply(entry.header, entry.body)
        wrong += entry.digest is not None and entry.digest.tree_digest != tree.digest
    assert wrong > 0
