"""Quotas: what is counted where. The expected texts are those of a live server (see the tests)."""

from __future__ import annotations

import pytest

from keepfast.tree.quota import deepest_quota, format_counts, limited_path, parse_counts
from keepfast.wire import OPEN_ACL, CreateTxn, DeleteTxn, OpCode, SetDataTxn
from tests.tree.test_strict import Server

LIMITS = "/zookeeper/quota/p/zookeeper_limits"
STATS = "/zookeeper/quota/p/zookeeper_stats"


class QuotaServer(Server):
    """/p with 2 bytes and /p/q with 3, and the client tool's steps to put a quota on /p."""

    def __init__(self) -> None:
        super().__init__()
        self.create("/p", b"12")
        self.create("/p/q", b"345")
        self.create("/zookeeper/quota/p")

    def create(self, path: str, data: bytes | None = b"") -> None:
        self.apply(OpCode.CREATE, CreateTxn(path, data, OPEN_ACL, False, -1))

    def add_quota(self) -> None:
        self.create(LIMITS, b"count=5,bytes=-1")
        self.create(STATS, b"count=0,bytes=0")

    def stats(self) -> bytes | None:
        node = self.tree.find(STATS)
        assert node is not None
        return node.data


def test_stats_znode__counts_what_is_there_and_then_each_change() -> None:
    server = QuotaServer()
    server.add_quota()
    assert server.stats() == b"count=2,bytes=5"
    server.create("/p/r", b"6789")
    assert server.stats() == b"count=3,bytes=9"
    server.apply(OpCode.SET_DATA, SetDataTxn("/p", None, 1))
    assert server.stats() == b"count=3,bytes=7"
    server.apply(OpCode.DELETE, DeleteTxn("/p/q"))
    assert server.stats() == b"count=2,bytes=4"
    server.create("/other", b"not counted")
    server.create("/pq", b"not counted")
    assert server.stats() == b"count=2,bytes=4"


def test_counting__changes_neither_digest_nor_stat_of_the_stats() -> None:
    server, plain = QuotaServer(), QuotaServer()
    server.add_quota()
    plain.add_quota()
    stat = server.stat(STATS)
    node = plain.tree.find(STATS)
    assert node is not None
    server.create("/p/r", b"6789")
    # The same znodes, but with other statistics.
    plain.tree.quotas.clear()
    plain.create("/p/r", b"6789")
    assert server.stats() != node.data
    assert (server.tree.digest, server.tree.state_digest) == (
        plain.tree.digest,
        plain.tree.state_digest,
    )
    assert server.stat(STATS) == stat


def test_quota_without_stats__nothing_is_counted_and_nothing_fails() -> None:
    server = QuotaServer()
    server.create(LIMITS, b"count=5,bytes=-1")
    server.create("/p/r", b"")
    assert server.tree.quotas == {"/p"}


def test_limits_deleted__counting_ends() -> None:
    server = QuotaServer()
    server.add_quota()
    server.apply(OpCode.DELETE, DeleteTxn(LIMITS))
    server.create("/p/r", b"6789")
    assert server.tree.quotas == set()
    assert server.stats() == b"count=2,bytes=5"


def test_nested_quotas__the_deepest_counts_alone() -> None:
    server = QuotaServer()
    server.add_quota()
    server.create("/zookeeper/quota/p/q")
    server.create("/zookeeper/quota/p/q/zookeeper_limits", b"count=5,bytes=-1")
    server.create("/zookeeper/quota/p/q/zookeeper_stats", b"")
    server.create("/p/q/r", b"1")
    assert server.stats() == b"count=2,bytes=5"
    node = server.tree.find("/zookeeper/quota/p/q/zookeeper_stats")
    assert node is not None
    assert node.data == b"count=2,bytes=4"


def test_counting_during_a_freeze__the_copy_keeps_the_old_numbers() -> None:
    server = QuotaServer()
    server.add_quota()
    with server.tree.freeze() as frozen:
        server.create("/p/r", b"")
        copied = {path: node.data for path, node in frozen.nodes()}
    assert copied[STATS] == b"count=2,bytes=5"
    assert server.stats() == b"count=3,bytes=5"


@pytest.mark.parametrize(
    "data", [b"", None, b"nonsense", b"count=x,bytes=", b"=;=,", b"\xff\xfe=1"]
)
def test_stats_that_a_client_spoiled__counting_goes_on(data: bytes | None) -> None:
    server = QuotaServer()
    server.add_quota()
    server.apply(OpCode.SET_DATA, SetDataTxn(STATS, data, 1))
    server.create("/p/r", b"1")
    counts = parse_counts(server.stats())
    assert (counts["count"], counts["bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (b"count=10,bytes=-1", {"count": 10, "bytes": -1}),
        (
            b"count=5,bytes=-1=;byteHardLimit=10;countHardLimit=-1",
            {"count": 5, "bytes": -1, "byteHardLimit": 10, "countHardLimit": -1},
        ),
    ],
)
def test_text__is_read_and_written_as_apache_does(text: bytes, counts: dict[str, int]) -> None:
    assert parse_counts(text) == counts
    assert format_counts(counts) == text


def test_quota_on_the_root__there_is_none() -> None:
    assert limited_path("/zookeeper/quota/zookeeper_limits") is None
    assert limited_path("/zookeeper/quota/a/b/zookeeper_limits") == "/a/b"
    assert limited_path("/a/zookeeper_limits") is None


def test_statistics_of_the_root__are_counted_once() -> None:
    """As Apache does: all znodes, this one and the data it came with included."""
    server = QuotaServer()
    path = "/zookeeper/quota/zookeeper_stats"
    server.create(path, b"12345")
    node = server.tree.find(path)
    assert node is not None
    # The root, /zookeeper with two and /zookeeper/quota/p, /p, /p/q; 2 + 3 + 5 bytes.
    assert node.data == b"count=8,bytes=10"
    server.create("/other", b"123")
    assert node.data == b"count=8,bytes=10"


def test_deepest_quota__is_an_ancestor_or_the_path_itself() -> None:
    quotas = {"/a", "/a/b/c"}
    assert deepest_quota(quotas, "/a/b/c/d") == "/a/b/c"
    assert deepest_quota(quotas, "/a/b/c") == "/a/b/c"
    assert deepest_quota(quotas, "/a/b") == "/a"
    assert deepest_quota(quotas, "/ab") is None
    assert deepest_quota(quotas, "/") is None
