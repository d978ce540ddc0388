"""Data directories written byte for byte as Apache writes them, without Keepfast's own writers.

A fixture is told in zxids: `e.c` is epoch and counter, both in hex. Each txn sets a znode of its
own that was there from the start, so that a record applies to every state: nothing but the rules
of recovery stands between a hole in the history and a tree that looks healthy.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import cramjam

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import set_mtime
from keepfast.storage import Compression, DataDirectory, Disk, RealDisk
from keepfast.tree import Tree, TreeBuilder
from keepfast.wire import (
    READ_ACL,
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnDigest,
    TxnHeader,
    Zxid,
    counter_of,
    encode_entry,
    epoch_of,
    make_zxid,
)
from tests.tree.znode_records import add_node

SESSION = SessionId(0x51)
LOG_HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
_ZERO_STAT = bytes(60)
# /zookeeper/config alone has an aversion from the start: -1.
_CONFIG_STAT = _ZERO_STAT[:40] + b"\xff\xff\xff\xff" + _ZERO_STAT[44:]


def zxids(text: str) -> tuple[Zxid, ...]:
    """The zxids in a text like "1.1-1.3,2.1"."""
    found: list[Zxid] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        found.extend(Zxid(z) for z in range(zxid(first), zxid(last or first) + 1))
    return tuple(found)


def zxid(text: str) -> Zxid:
    """The zxid in a text like "1.1f"."""
    epoch, counter = text.split(".")
    return make_zxid(int(epoch, 16), int(counter, 16))


def short(value: int) -> str:
    """A zxid as the fixtures write it."""
    return f"{epoch_of(value):x}.{counter_of(value):x}"


@dataclass(frozen=True, slots=True)
class Line:
    """One history: the txns that were applied, one after the other."""

    znodes: tuple[Zxid, ...]  # the txns that have a znode, whether they are in this history or not
    txns: tuple[Zxid, ...]

    def but(self, text: str) -> Line:
        """Another history on the same znodes."""
        return Line(self.znodes, zxids(text))

    def tree_at(self, last: Zxid) -> Tree:
        """The state after every txn up to `last`."""
        builder = TreeBuilder()
        builder.add_acl(1, READ_ACL)
        add_node(builder, "/", b"", -1, _ZERO_STAT)
        for path in ("/zookeeper", "/zookeeper/quota"):
            add_node(builder, path, b"", -1, _ZERO_STAT)
        add_node(builder, "/zookeeper/config", b"", 1, _CONFIG_STAT)
        for txn in self.znodes:
            add_node(builder, f"/{short(txn)}", b"", -1, _ZERO_STAT)
        tree = builder.finish(Zxid(0))
        for txn in self.txns:
            if txn <= last:
                tree.apply(*_txn(txn))
        tree.advance(last)
        return tree

    def entry(self, txn: Zxid, has_digest: bool = True) -> bytes:
        """The record of a txn of this history as the leader logs it."""
        header, body = _txn(txn)
        digest = TxnDigest(2, self.tree_at(txn).digest) if has_digest else None
        return encode_entry(LogEntry(header, body, digest))


def line(text: str) -> Line:
    """A history in which every txn has a znode."""
    return Line(zxids(text), zxids(text))


def _txn(txn: Zxid) -> tuple[TxnHeader, SetDataTxn]:
    header = TxnHeader(SESSION, 0, txn, 1_700_000_000_000 + counter_of(txn), OpCode.SET_DATA)
    return header, SetDataTxn(f"/{short(txn)}", f"set by {short(txn)}".encode(), 1)


# -- files ---------------------------------------------------------------------------------------


def record(entry: bytes) -> bytes:
    """One record of a log."""
    return struct.pack(">qi", zlib.adler32(entry), len(entry)) + entry + b"B"


def log_bytes(entries: list[bytes], padding: int = 0) -> bytes:
    """A log, with `padding` zeros after its records."""
    return LOG_HEADER + b"".join(record(entry) for entry in entries) + bytes(padding)


def snapshot_bytes(
    tree: Tree, *, sections: int = 3, ahead: Zxid | None = None, seal_error: int = 0
) -> bytes:
    """A snapshot of `tree`; `sections`: 1 as 3.5 writes it, 2 as 3.6 does, 3 as 3.9 does.

    `ahead`: the zxid in the sections after the znodes, if it is not that of the tree.
    `seal_error` is added to every seal.
    """
    parts = [b"ZKSN", struct.pack(">iq", 2, -1), struct.pack(">i", len(tree.sessions))]
    parts += (struct.pack(">qi", *session) for session in tree.sessions.items())
    acls = tree.acls.entries()
    parts.append(struct.pack(">i", len(acls)))
    for key, acl in acls.items():
        parts.append(struct.pack(">qi", key, len(acl)))
        for perms, (scheme, id_) in acl:
            parts += (struct.pack(">i", perms), _text(scheme), _text(id_))
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        node = tree.find(path)
        assert node is not None
        parts += (_text("" if path == "/" else path), _buffer(node.data))
        parts += (struct.pack(">q", node.acl), node.stat)
        waiting += sorted(node.children or (), reverse=True)
    parts.append(_text("/"))
    at = tree.last_zxid if ahead is None else ahead
    tails = [struct.pack(">qiQ", at, 2, tree.digest if at else 0), struct.pack(">q", at)]
    for tail in (*tails[: sections - 1], b""):
        seal = zlib.adler32(b"".join(parts)) + seal_error
        parts += (struct.pack(">q", seal), _text("/"), tail)
    return b"".join(parts)


def _text(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def packed(data: bytes, compression: Compression) -> bytes:
    """The bytes of a snapshot as they lie in its file."""
    if compression is Compression.GZIP:
        return gzip.compress(data, mtime=0)
    if compression is Compression.SNAPPY:
        parts = [b"\x82SNAPPY\0", struct.pack(">ii", 1, 1)]
        for start in range(0, len(data), 32768):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + 32768]))
            parts += (struct.pack(">i", len(block)), block)
        return b"".join(parts)
    return data


# -- directories ---------------------------------------------------------------------------------


class Place:
    """A data directory in the making, on a `MemoryDisk` or below a real path."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = None if root is None else root / "version-2"
        self.disk: Disk
        if self._root is None:
            self.disk = MemoryDisk()
            path = "/data/version-2"
            self.disk.make_directory(path)
            self.disk.settle()
        else:
            self.disk = RealDisk()
            self._root.mkdir(parents=True)
            path = str(self._root)
        self.directory = DataDirectory(path, path)

    @property
    def memory(self) -> MemoryDisk:
        assert isinstance(self.disk, MemoryDisk)
        return self.disk

    def put(self, name: str, data: bytes, mtime: float | None = None) -> None:
        """Place a file; `mtime` in seconds since 1970."""
        if self._root is None:
            path = self.directory.path_of(name)
            self.memory.put(path, data)
            if mtime is not None:
                set_mtime(self.memory, path, mtime)
            return
        (self._root / name).write_bytes(data)
        if mtime is not None:
            os.utime(self._root / name, (mtime, mtime))

    def contents(self, name: str) -> bytes:
        path = self.directory.path_of(name)
        with self.disk.open_read(path) as file:
            return file.read_at(0, file.size())

    def overwrite(self, name: str, offset: int, data: bytes) -> None:
        """Change bytes inside a file."""
        old = self.contents(name)
        assert offset + len(data) <= len(old)
        self.put(name, old[:offset] + data + old[offset + len(data) :])

    def log(
        self,
        text: str,
        history: Line,
        *,
        has_digests: bool = True,
        padding: int = 64,
        mtime: float | None = None,
    ) -> dict[Zxid, int]:
        """Place a log named after its first record; returns the offset of each of its records."""
        txns = zxids(text)
        entries = [history.entry(txn, has_digests) for txn in txns]
        self.put(f"log.{txns[0]:x}", log_bytes(entries, padding), mtime)
        offsets, offset = {}, len(LOG_HEADER)
        for txn, entry in zip(txns, entries, strict=True):
            offsets[txn] = offset
            offset += len(record(entry))
        return offsets

    def snapshot(
        self,
        text: str,
        tree: Tree,
        *,
        compression: Compression = Compression.NONE,
        sections: int = 3,
        ahead: Zxid | None = None,
        bad_seal: bool = False,
        mtime: float | None = None,
    ) -> str:
        """Place a snapshot of `tree` under the zxid `text`; returns its name."""
        data = snapshot_bytes(tree, sections=sections, ahead=ahead, seal_error=int(bad_seal))
        name = f"snapshot.{zxid(text):x}{compression.value}"
        self.put(name, packed(data, compression), mtime)
        return name

    def epochs(self, accepted: int | None, current: int | None) -> None:
        for name, value in (("acceptedEpoch", accepted), ("currentEpoch", current)):
            if value is not None:
                self.put(name, str(value).encode())
