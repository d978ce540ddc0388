"""An ensemble whose digests are true: every record was applied to a tree, and states its digest.

    python -m benchmarks.true_data DIR [--records N] [--snapshots N] [--fuzzy RECORDS]

Three servers log one history and roll at their own times; each takes its share of the snapshots.
With `--fuzzy` a snapshot is copied while that many records are applied, as Apache copies it: half
of the tree before them, half after.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import BinaryIO
from zlib import adler32

from keepfast.storage import frame
from keepfast.tree import CONFIG, Tree, encode_node
from keepfast.wire import (
    OPEN_ACL,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    encode,
    encode_entry,
)

_EPOCH = 1 << 32
_LOG_HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
_SNAPSHOT_HEADER = b"ZKSN" + struct.pack(">iq", 2, -1)
_SERVERS = 3
_DIRECTORIES = 200
_TIME_MS = 1_700_000_000_000


class _Workload:
    """setData 65 %, create 17, delete 11, sessions 5, failures 2: a tree of some ten thousand."""

    def __init__(self, seed: int) -> None:
        self.tree = Tree()
        self._random = Random(seed)
        self._paths: list[str] = []
        self._number = 0
        self._zxid = _EPOCH
        self._sessions: list[int] = []

    def next_entry(self) -> tuple[int, bytes]:
        """The next record, applied."""
        self._zxid += 1
        zxid = self._zxid
        session = SessionId(self._sessions[-1] if self._sessions else 0x1000)
        type_, body = self._body(zxid)
        if type_ in (OpCode.CREATE_SESSION, OpCode.CLOSE_SESSION):
            session = SessionId(self._session)
        header = TxnHeader(session, zxid & 0xFFFF, Zxid(zxid), _TIME_MS + (zxid & 0xFFFFFF), type_)
        self.tree.apply(header, body)
        digest = None if type_ == OpCode.ERROR else TxnDigest(2, self.tree.digest)
        return zxid, encode_entry(LogEntry(header, body, digest))

    def _body(self, zxid: int) -> tuple[int, TxnBody]:
        random, counter = self._random, zxid - _EPOCH
        if counter <= _DIRECTORIES:
            return OpCode.CREATE, CreateTxn(f"/d{counter:03}", b"", OPEN_ACL, False, counter)
        pick = random.random()
        if pick < 0.65 and self._paths:
            path = self._paths[int(random.random() * len(self._paths))]
            node = self.tree.find(path)
            version = 1 if node is None else 1 + struct.unpack_from(">i", node.stat, 32)[0]
            return OpCode.SET_DATA, SetDataTxn(path, random.randbytes(30 + zxid % 180), version)
        if (pick < 0.93 and len(self._paths) > 40_000) or (0.82 <= pick < 0.93 and self._paths):
            place = int(random.random() * len(self._paths))
            self._paths[place], self._paths[-1] = self._paths[-1], self._paths[place]
            return OpCode.DELETE, DeleteTxn(self._paths.pop())
        if pick < 0.93 or (pick < 0.95 and not self._sessions):
            self._number += 1
            parent = f"/d{1 + self._number % _DIRECTORIES:03}"
            node = self.tree.find(parent)
            cversion = 1 + (0 if node is None else struct.unpack_from(">i", node.stat, 36)[0])
            path = f"{parent}/node-{self._number:08}"
            self._paths.append(path)
            data = random.randbytes(30 + zxid % 180)
            return OpCode.CREATE, CreateTxn(path, data, OPEN_ACL, False, cversion)
        if pick < 0.955:
            self._session = 0x1000 + zxid
            self._sessions.append(self._session)
            return OpCode.CREATE_SESSION, CreateSessionTxn(30_000)
        if pick < 0.98 and len(self._sessions) > 5:
            self._session = self._sessions.pop(0)
            return OpCode.CLOSE_SESSION, CloseSessionTxn(())
        return OpCode.ERROR, ErrorTxn(-101)


def _head(tree: Tree) -> bytes:
    acls = tree.acls.entries()
    parts = [_SNAPSHOT_HEADER, struct.pack(">i", len(tree.sessions))]
    parts += [struct.pack(">qi", *item) for item in tree.sessions.items()]
    parts.append(struct.pack(">i", len(acls)))
    for key, acl in acls.items():
        parts.append(struct.pack(">qi", key, len(acl)) + b"".join(encode(one) for one in acl))
    return b"".join(parts)


def _znodes(tree: Tree, paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        node = tree.find(path)
        if node is not None:
            yield encode_node(path, node)


def _sorted(tree: Tree) -> list[str]:
    paths = sorted(path for path in tree.paths() if path != CONFIG)
    return [*paths, CONFIG]


class _Snapshot:
    """A snapshot in the making: the first half now, the second when its window is over."""

    def __init__(self, workload: _Workload, zxid: int, wait: int) -> None:
        tree = workload.tree
        paths = _sorted(tree)
        half = len(paths) // 2 if wait else len(paths)
        self._content = _head(tree) + b"".join(_znodes(tree, paths[:half]))
        self._last = paths[half - 1]
        self._is_half = wait > 0
        self.zxid, self.due = zxid, zxid + wait

    def finish(self, workload: _Workload, zxid: int) -> bytes:
        tree = workload.tree
        if self._is_half:
            rest = [path for path in _sorted(tree) if path > self._last or path == CONFIG]
            self._content += b"".join(_znodes(tree, [p for p in rest if p != self._last]))
        content = self._content + struct.pack(">i", 1) + b"/"
        adler = adler32(content)
        for tail in (struct.pack(">qiQ", zxid, 2, tree.digest), struct.pack(">q", zxid), b""):
            piece = struct.pack(">qi1s", adler, 1, b"/") + tail
            adler = adler32(piece, adler)
            content += piece
        return content


class _ServerLog:
    """The logs of one server."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True)
        (place / "acceptedEpoch").write_text("1")
        (place / "currentEpoch").write_text("1")
        self._place = place
        self._file: BinaryIO | None = None

    def append(self, zxid: int, framed: bytes, is_new: bool) -> None:
        if self._file is None or is_new:
            self.close()
            self._file = (self._place / f"log.{zxid:x}").open("wb", buffering=1 << 20)
            self._file.write(_LOG_HEADER)
        self._file.write(framed)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.write(bytes(4096))
            self._file.close()


def write_true_ensemble(
    root: Path,
    records: int,
    snapshots: int,
    fuzzy: int,
    *,
    every: int = 0,
    look: Callable[[int], None] | None = None,
) -> None:
    """Write three servers below `root`; `look` is called after each `every` records."""
    workload = _Workload(records)
    places = [root / str(server) / "version-2" for server in range(1, _SERVERS + 1)]
    logs = [_ServerLog(place) for place in places]
    roll = max(10_000, records // 12)
    between = max(1, records // max(1, snapshots))
    pending: list[tuple[int, _Snapshot]] = []
    for number in range(1, records + 1):
        zxid, entry = workload.next_entry()
        framed = frame(entry)
        for server, log in enumerate(logs):
            log.append(zxid, framed, (number + server * roll // _SERVERS) % roll == 0)
        if number % between == 0 and snapshots:
            pending.append((number // between % _SERVERS, _Snapshot(workload, zxid, fuzzy)))
        while pending and (pending[0][1].due <= zxid or number == records):
            server, snapshot = pending.pop(0)
            path = places[server] / f"snapshot.{snapshot.zxid:x}"
            path.write_bytes(snapshot.finish(workload, zxid))
        if look is not None and number % every == 0:
            for log in logs:
                log.flush()
            look(number)
    for log in logs:
        log.close()


def main(arguments: list[str]) -> None:
    """Write one ensemble."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=42)
    parser.add_argument("--fuzzy", type=int, default=0)
    options = parser.parse_args(arguments)
    write_true_ensemble(options.directory, options.records, options.snapshots, options.fuzzy)


if __name__ == "__main__":
    main(sys.argv[1:])
