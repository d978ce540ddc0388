"""Logs, snapshots and ensembles for the benchmarks of the pipeline, the same in every run.

The mix is that of a busy ensemble: setData 62 %, create 15, delete 10, sessions 6, multi 5,
errors 2; 30 to 210 bytes of data; several epochs. Every tool of Apache ZooKeeper reads it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keepfast.storage import snapshot_pieces
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    encode_entry,
    encode_txn_body,
    make_zxid,
)

HEADER = b"ZKLG\0\0\0\2" + bytes(8)
PREALLOCATED = 64 << 20
_FRAME = struct.Struct(">qi")


def entries(count: int, seed: int = 1, epochs: int = 4) -> Iterator[tuple[int, bytes]]:
    """`count` txns as (zxid, entry)."""
    choose = random.Random(seed)
    noise = choose.randbytes(1 << 16)
    a_epoch = max(1, -(-count // epochs))
    for number in range(count):
        zxid = make_zxid(1 + number // a_epoch, 1 + number % a_epoch)
        type_, body = _body(choose, noise, number)
        session = SessionId(0x1000000000 + number % 500)
        header = TxnHeader(session, number & 0x7FFFFFFF, zxid, 1_790_000_000_000 + number, type_)
        digest = None if type_ == OpCode.ERROR else TxnDigest(2, choose.getrandbits(62))
        yield zxid, encode_entry(LogEntry(header, body, digest))


def _data(choose: random.Random, noise: bytes) -> bytes:
    start = choose.randrange(len(noise) - 256)
    return noise[start : start + choose.randrange(30, 210)]


def _body(choose: random.Random, noise: bytes, number: int) -> tuple[int, TxnBody]:
    pick = choose.random()
    path = f"/app/service-{number % 97:03d}/node-{choose.randrange(200_000):08d}"
    if pick < 0.62:
        return OpCode.SET_DATA, SetDataTxn(path, _data(choose, noise), number & 0xFFFF)
    if pick < 0.77:
        data = _data(choose, noise)
        return OpCode.CREATE, CreateTxn(path, data, OPEN_ACL, number % 5 == 0, number & 0xFFFFF)
    if pick < 0.87:
        return OpCode.DELETE, DeleteTxn(path)
    if pick < 0.90:
        return OpCode.CREATE_SESSION, CreateSessionTxn(30_000)
    if pick < 0.93:
        paths = tuple(f"{path}-{index}" for index in range(choose.randrange(3)))
        return OpCode.CLOSE_SESSION, CloseSessionTxn(paths)
    if pick < 0.98:
        return OpCode.MULTI, _multi(choose, noise, path)
    return OpCode.ERROR, ErrorTxn(-110)


def _multi(choose: random.Random, noise: bytes, path: str) -> MultiTxn:
    subs = [
        SubTxn(OpCode.CREATE, encode_txn_body(CreateTxn(f"{path}-m", b"m", OPEN_ACL, False, 3))),
        SubTxn(OpCode.SET_DATA, encode_txn_body(SetDataTxn(path, _data(choose, noise), 7))),
    ]
    if choose.random() < 0.05:
        subs.append(SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-101))))
    return MultiTxn(tuple(subs))


def frame(entry: bytes) -> bytes:
    """A whole record of a log."""
    return _FRAME.pack(zlib.adler32(entry), len(entry)) + entry + b"B"


def write_one_log(path: Path, count: int) -> None:
    """One large log."""
    with path.open("wb") as file:
        file.write(HEADER)
        parts: list[bytes] = []
        for _, entry in entries(count):
            parts.append(frame(entry))
            if len(parts) == 10_000:
                file.write(b"".join(parts))
                parts.clear()
        file.write(b"".join(parts))


class _Log:
    """The logs of one server, rolled as a server rolls them, padded and sparse."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._choose = random.Random(seed)
        self._parts: list[bytes] = []
        self._left = 0
        self._file: BinaryIO | None = None
        directory.mkdir(parents=True)

    def add(self, zxid: int, record: bytes) -> None:
        if self._left == 0:
            self.close()
            self._file = (self._directory / f"log.{zxid:x}").open("wb")
            self._parts.append(HEADER)
            self._left = self._choose.randrange(50_000, 100_000)
        self._parts.append(record)
        self._left -= 1
        if len(self._parts) > 5000:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None:
            self._file.write(b"".join(self._parts))
            self._parts.clear()

    def close(self) -> None:
        self._flush()
        if self._file is not None:
            size = max(PREALLOCATED + len(HEADER), self._file.tell())
            self._file.truncate(size)
            self._file.close()
            self._file = None


def write_ensemble(root: Path, count: int, servers: int = 3) -> None:
    """Servers with one history of `count` records, rolled at different points."""
    logs = [_Log(root / str(number) / "version-2", number) for number in range(servers)]
    with Tree().freeze() as frozen:
        snapshot = b"".join(snapshot_pieces(frozen))
    for number in range(servers):
        (root / str(number) / "version-2" / "snapshot.0").write_bytes(snapshot)
    for zxid, entry in entries(count):
        record = frame(entry)
        for log in logs:
            log.add(zxid, record)
    for log in logs:
        log.close()
