"""An ensemble of three servers with large snapshots: what a snapshot of 10,000,000 znodes costs.

    python -m benchmarks.large_snapshot DIR [--znodes N] [--records N]

Server 1 has a snapshot and the log after it, server 2 the same log and a snapshot of its end,
server 3 the first snapshot and the log.  The znodes are written as bytes: no tree has to hold them.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from zlib import adler32

from keepfast.storage import frame
from keepfast.wire import (
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnHeader,
    Zxid,
    encode_entry,
)

# Records before this are purged: the snapshot is where the history begins.
_FIRST = (1 << 32) + 1_000_000
_TIME_MS = 1_700_000_000_000
_PER_DIRECTORY = 1000
_STAT = struct.Struct(">qqqqiiiqq")
_INT = struct.Struct(">i")
_OPEN_KEY = struct.pack(">q", -1)
_HEAD = b"ZKSN" + struct.pack(">iq", 2, -1) + struct.pack(">ii", 0, 0)
_LOG_HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
_DATA = b"the value of a znode, about as long as many are: 64 bytes in all"


def _record(path: bytes, data: bytes, stat: tuple[int, ...]) -> bytes:
    sizes = _INT.pack(len(path)), _INT.pack(len(data))
    return b"".join((sizes[0], path, sizes[1], data, _OPEN_KEY, _STAT.pack(*stat)))


def _stat(czxid: int, cversion: int, pzxid: int) -> tuple[int, ...]:
    return czxid, czxid, _TIME_MS, _TIME_MS, 0, cversion, 0, 0, pzxid


def _path(number: int) -> str:
    return f"/app/shard-{number // _PER_DIRECTORY:06}/member-{number:09}"


def _pieces(znodes: int, changed: dict[int, tuple[int, bytes]]) -> Iterator[bytes]:
    """The znodes, children right after their parents; `changed`: zxid and data of a setData."""
    built_in = (0, 0, 0, 0, 0, 0, 0, 0, 0)
    yield _record(b"", b"", (0, 0, 0, 0, 0, 1, 0, 0, 1))
    yield _record(b"/zookeeper", b"", built_in)
    yield _record(b"/zookeeper/quota", b"", built_in)
    directories = -(-znodes // _PER_DIRECTORY)
    yield _record(b"/app", b"", _stat(1, directories, 1))
    plain = _stat(1, 0, 1)
    for first in range(0, znodes, _PER_DIRECTORY):
        numbers = range(first, min(first + _PER_DIRECTORY, znodes))
        parent = _path(first).rpartition("/")[0].encode()
        found = [_record(parent, b"", _stat(1, len(numbers), 1))]
        for number in numbers:
            stat, data = plain, _DATA
            if number in changed:
                zxid, data = changed[number]
                stat = (1, zxid, _TIME_MS, _TIME_MS + zxid - _FIRST, 1, 0, 0, 0, 1)
            found.append(_record(_path(number).encode(), data, stat))
        yield b"".join(found)


def _write_snapshot(path: Path, znodes: int, changed: dict[int, tuple[int, bytes]]) -> None:
    adler = 1
    with path.open("wb", buffering=1 << 20) as file:
        for piece in (_HEAD, *_pieces(znodes, changed), b"\0\0\0\1/"):
            adler = adler32(piece, adler)
            file.write(piece)
        file.write(struct.pack(">qi1s", adler, 1, b"/"))


def write_large_directory(place: Path, znodes: int) -> None:
    """One server that has a snapshot and nothing else."""
    place.mkdir(parents=True)
    _write_snapshot(place / f"snapshot.{_FIRST:x}", znodes, {})


def write_large_ensemble(root: Path, znodes: int, records: int) -> None:
    """Write three servers below `root`."""
    places = [root / str(server) / "version-2" for server in (1, 2, 3)]
    for place in places:
        place.mkdir(parents=True)
        (place / "acceptedEpoch").write_text("1")
        (place / "currentEpoch").write_text("1")
    changed: dict[int, tuple[int, bytes]] = {}
    log = [_LOG_HEADER]
    for number in range(1, records + 1):
        zxid, znode = _FIRST + number, number * 7919 % znodes
        data = b"changed by %d" % number
        header = TxnHeader(SessionId(7), number, Zxid(zxid), _TIME_MS + number, OpCode.SET_DATA)
        entry = LogEntry(header, SetDataTxn(_path(znode), data, 1), None)
        log.append(frame(encode_entry(entry)))
        changed[znode] = (zxid, data)
    for place in places:
        (place / f"log.{_FIRST + 1:x}").write_bytes(b"".join(log) + bytes(4096))
    first = places[0] / f"snapshot.{_FIRST:x}"
    _write_snapshot(first, znodes, {})
    (places[2] / first.name).hardlink_to(first)
    _write_snapshot(places[1] / f"snapshot.{_FIRST + records:x}", znodes, changed)


def main(arguments: list[str]) -> None:
    """Write one ensemble."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--znodes", type=int, default=10_000_000)
    parser.add_argument("--records", type=int, default=30_000)
    options = parser.parse_args(arguments)
    write_large_ensemble(options.directory, options.znodes, options.records)


if __name__ == "__main__":
    main(sys.argv[1:])
