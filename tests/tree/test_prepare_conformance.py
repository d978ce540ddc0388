"""The same requests to a live Apache server and to our Preparer: the same bytes in the log."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from keepfast.tree import Caller, PrepareOptions, Preparer, Tree
from keepfast.wire import (
    CloseSessionTxn,
    CreateSessionTxn,
    ErrorTxn,
    Id,
    KeeperError,
    LogEntry,
    OpCode,
    decode_entry,
    encode_entry,
)
from tests.apache import ApacheServer
from tests.apache.requests import submit
from tests.tree.wishes import BOB, Wish, Wisher

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(600)]

REQUESTS = 4_000
BATCH = 400


class Raw(NamedTuple):
    """A request as kazoo sends it; the reply is not looked at, the log is."""

    type: int
    body: bytes

    def serialize(self) -> bytes:
        return self.body

    @staticmethod
    def deserialize(_body: bytes, _offset: int) -> list[str]:
        # A list, because kazoo walks over the result of a multi.
        return []


def raw_entries(directory: Path) -> Iterator[bytes]:
    paths = directory.glob("log.*")
    for path in sorted(paths, key=lambda path: int(path.suffix[1:], 16)):
        raw = path.read_bytes()
        offset = 16
        while offset + 12 <= len(raw):
            checksum, size = struct.unpack_from(">qi", raw, offset)
            if size <= 0:
                break
            entry = raw[offset + 12 : offset + 12 + size]
            assert zlib.adler32(entry) == checksum
            yield entry
            offset += 13 + size


def send(client: Any, wisher: Wisher) -> list[Wish]:
    """Send random requests over one session, pipelined: the log holds them in this order.

    It waits where Apache goes wrong while requests are pending: after a setACL, because what
    follows would be checked against the old ACL; and around a request on the root, because the
    root as "/" and as the parent "" have two pending records, and the digest in the log would
    be that of neither.
    """
    sent = []
    waiting: list[Any] = []

    def wait() -> None:
        for result in waiting:
            result.wait(150)
            assert result.ready(), "the connection was lost"
        waiting.clear()

    for number in range(REQUESTS):
        wish = wisher.wish()
        if wish.is_on_root or number % BATCH == 0:
            wait()
        sent.append(wish)
        waiting.append(submit(client, Raw(wish.type, wish.encode())))
        if wish.is_on_root or wish.type == OpCode.SET_ACL:
            wait()
    wait()
    return sent


def replayed(raw: list[bytes], sent: list[Wish], ids: tuple[Id, ...]) -> Iterator[LogEntry]:
    """What our leader makes of the requests, given Apache's session ids, zxids and times."""
    tree = Tree()
    preparer = Preparer(tree, PrepareOptions(is_ttl_enabled=True))
    wishes = iter(sent)
    for entry in map(decode_entry, raw):
        session_id, cxid, zxid, time_ms, type_ = entry.header
        caller = Caller(session_id, ids)
        request: Any = None
        if isinstance(entry.body, CreateSessionTxn):
            request = entry.body
        elif type_ != OpCode.CLOSE_SESSION:
            type_, request = next(wishes)
        try:
            ours = preparer.prepare(caller, cxid, zxid, time_ms, type_, request)
        except KeeperError as error:
            ours = LogEntry(entry.header._replace(type=OpCode.ERROR), ErrorTxn(error.code))
        yield ours
        preparer.apply(ours)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests__our_log_is_apaches_byte_for_byte(
    seed: int, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    with ApacheServer(tmp_path / "data") as server:
        with server.connect(credential=None) as client:
            client.add_auth("digest", "bob:secret")
            sent = send(client, Wisher(Random(seed)))
        raw = list(raw_entries(server.version_dir))
    errors: Counter[int] = Counter()
    ids = (Id("ip", "127.0.0.1"), BOB)
    for theirs, ours in zip(raw, replayed(raw, sent, ids), strict=True):
        expected = decode_entry(theirs)
        if isinstance(ours.body, CloseSessionTxn) and isinstance(expected.body, CloseSessionTxn):
            # Apache lists the ephemerals in the order of a hash table.
            paths = tuple(sorted(expected.body.paths or ()))
            assert ours == expected._replace(body=CloseSessionTxn(paths))
        else:
            assert ours == expected
            assert encode_entry(ours) == theirs
        errors[ours.body.err if isinstance(ours.body, ErrorTxn) else 0] += 1
    assert {0, -8, -101, -102, -103, -108, -110, -111, -114} <= set(errors)
    tell(f"{len(raw)} records equal; by error code: {dict(sorted(errors.items()))}")
