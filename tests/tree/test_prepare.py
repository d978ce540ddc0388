"""The leader's half: txns that always fit, errors in Apache's order."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.tree import Caller, Outcome, PrepareOptions, Preparer, ReplayConflict, Tree
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    READ_ACL,
    CheckVersionRequest,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateRequest,
    CreateSessionTxn,
    CreateTTLRequest,
    CreateTxn,
    DeleteContainerRequest,
    DeleteRequest,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    Id,
    InvariantViolation,
    KeeperError,
    LogEntry,
    MultiOp,
    MultiTxn,
    OpCode,
    SessionId,
    SetACLRequest,
    SetACLTxn,
    SetDataRequest,
    SetDataTxn,
    TxnHeader,
    Zxid,
    decode,
    decode_entry,
    decode_txn_body,
    encode,
    encode_entry,
)
from tests.tree.wishes import BOB, Wisher

SESSION, OTHER = SessionId(0x1000), SessionId(0x2000)
BOBS_CALLER = Caller(SESSION, (Id("ip", "127.0.0.1"), BOB))
OPTIONS = PrepareOptions(is_ttl_enabled=True)


def reply_of(outcome: Outcome) -> list[tuple[int, int, bytes | None]]:
    """What the operations of a multi answer."""
    return [(result.type, result.error, result.stat) for result in outcome.results]


def facts_of(tree: Tree) -> list[object]:
    """All that a tree keeps, but for the znodes, which its digests cover."""
    return [
        tree.last_zxid,
        tree.digest,
        tree.state_digest,
        tree.node_count,
        tree.data_size,
        tree.sessions,
        tree.ephemerals,
        tree.containers,
        tree.ttls,
        tree.quotas,
        tree.acls.lists,
        [
            tree.descendants.count(path, node, tree.find)
            for path in sorted(tree.paths())
            if (node := tree.find(path))
        ],
    ]


class Leader:
    """Prepares and applies, with a lag of `lag` txns between the two."""

    def __init__(self, options: PrepareOptions = OPTIONS, lag: int = 0) -> None:
        self.tree = Tree()
        self.twin = Tree()
        self.preparer = Preparer(self.tree, options)
        self.caller = BOBS_CALLER
        self.lag = lag
        self.zxid = 0
        self.entries: list[LogEntry] = []
        self.waiting: deque[LogEntry] = deque()
        self.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000))

    def ask(self, type_: int, request: Any, caller: Caller | None = None) -> LogEntry:
        """The txn of a request, which is an ErrorTxn if it is refused."""
        self.zxid += 1
        caller = caller or self.caller
        time_ms = 1000 + self.zxid
        try:
            entry = self.preparer.prepare(
                caller, self.zxid, Zxid(self.zxid), time_ms, type_, request
            )
        except KeeperError as error:
            return self.refuse(caller, time_ms, error)
        self.take_in(entry)
        return entry

    def refuse(self, caller: Caller, time_ms: int, error: KeeperError) -> LogEntry:
        zxid = Zxid(self.zxid)
        header = TxnHeader(caller.session_id, self.zxid, zxid, time_ms, OpCode.ERROR)
        entry = LogEntry(header, ErrorTxn(error.code))
        self.take_in(entry)
        return entry

    def take_in(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self.waiting.append(entry)
        self.catch_up(self.lag)

    def apply(self, entry: LogEntry) -> None:
        # A learner has the record alone; what the leader installs must be the same.
        learned = self.twin.apply(entry.header, entry.body)
        installed = self.preparer.apply(entry)
        assert installed.error == learned.error
        assert installed.changes == learned.changes
        assert reply_of(installed) == reply_of(learned)
        assert facts_of(self.tree) == facts_of(self.twin)

    def catch_up(self, lag: int = 0) -> None:
        while len(self.waiting) > lag:
            entry = self.waiting.popleft()
            self.apply(entry)
            if entry.digest is not None:
                assert self.tree.digest == entry.digest.tree_digest

    def code(self, type_: int, request: Any, caller: Caller | None = None) -> int:
        """The error of a request; 0 for none."""
        body = self.ask(type_, request, caller).body
        return body.err if isinstance(body, ErrorTxn) else 0

    def create(self, path: str, flags: int = 0, **others: Any) -> int:
        fields: dict[str, Any] = {"data": b"", "acl": OPEN_ACL, **others}
        return self.code(OpCode.CREATE, CreateRequest(path, flags=flags, **fields))


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(20, 120))
def test_random_requests_with_a_lag__same_txns_as_without(seed: int, lag: int, count: int) -> None:
    """What is pending counts exactly as if it were applied; and every txn fits when it is."""
    random = Random(seed)
    slow, quick = Leader(lag=lag), Leader()
    wisher = Wisher(random, is_harmless=False)
    callers = (BOBS_CALLER, Caller(OTHER, (Id("ip", "10.1.2.3"),)))
    for step in range(count):
        caller = random.choice(callers)
        type_: int
        request: Any
        match random.randrange(20):
            case 0:
                type_, request = OpCode.CLOSE_SESSION, None
            case 1 | 2:
                type_, request = OpCode.CREATE_SESSION, CreateSessionTxn(4000 + step)
            case 3:
                path = random.choice(("/a", "/b", "/a/b"))
                type_, request = OpCode.DELETE_CONTAINER, DeleteContainerRequest(path.encode())
            case _:
                type_, request = wisher.wish()
        late = slow.ask(type_, request, caller)
        assert late == quick.ask(type_, request, caller)
        assert decode_entry(encode_entry(late)) == late
    slow.catch_up()
    assert slow.tree.state_digest == quick.tree.state_digest
    assert slow.preparer.digest == slow.tree.digest


# -- errors ----------------------------------------------------------------------------------------


def small_leader(options: PrepareOptions = OPTIONS) -> Leader:
    """/a (version 1) with /a/b; /ro that only bob may change; /e ephemeral."""
    leader = Leader(options, lag=100)
    assert leader.create("/a") == 0
    assert leader.create("/a/b") == 0
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/a", b"", 0)) == 0
    bobs = (ACL(31, BOB), *READ_ACL)
    assert leader.create("/ro", acl=bobs) == 0
    assert leader.create("/ro/x") == 0
    assert leader.create("/e", flags=1) == 0
    return leader


STRANGER = Caller(OTHER, (Id("ip", "10.1.2.3"),))

# Each request has the faults of all lines below it in client-protocol 3.1, and gives the first.
CREATE_ERRORS: list[tuple[str, int, CreateRequest, int]] = [
    ("flags", OpCode.CREATE, CreateRequest("x", b"", None, 7), -8),
    ("flags", OpCode.CREATE2, CreateRequest("x", b"", None, -1), -8),
    ("no slash", OpCode.CREATE, CreateRequest("x", b"", None, 0), -8),
    ("nul", OpCode.CREATE, CreateRequest("/ro/\0", b"", None, 0), -8),
    ("null acl", OpCode.CREATE, CreateRequest("/no/x", b"", None, 0), -114),
    ("empty acl", OpCode.CREATE, CreateRequest("/no/x", b"", (), 0), -114),
    ("no parent", OpCode.CREATE, CreateRequest("/no/\x01", b"", OPEN_ACL, 0), -101),
    ("no parent", OpCode.CREATE, CreateRequest("/a//b", b"", OPEN_ACL, 0), -101),
    ("no parent", OpCode.CREATE, CreateRequest("/x/", b"", OPEN_ACL, 0), -101),
    ("no permission", OpCode.CREATE, CreateRequest("/ro/\x01", b"", OPEN_ACL, 0), -102),
    ("bad name", OpCode.CREATE, CreateRequest("/a/\x01", b"", OPEN_ACL, 0), -8),
    ("bad name", OpCode.CREATE, CreateRequest("/a/", b"", OPEN_ACL, 0), -8),
    ("exists", OpCode.CREATE, CreateRequest("/e", b"", OPEN_ACL, 0), -110),
    ("exists", OpCode.CREATE, CreateRequest("/", b"", OPEN_ACL, 0), -110),
    ("below ephemeral", OpCode.CREATE, CreateRequest("/e/x", b"", OPEN_ACL, 0), -108),
    ("ttl flag without ttl", OpCode.CREATE, CreateRequest("/n", b"", OPEN_ACL, 5), -8),
    ("container op", OpCode.CREATE_CONTAINER, CreateRequest("/n", b"", OPEN_ACL, 0), -8),
]


@pytest.mark.parametrize(("_name", "type_", "request_", "code"), CREATE_ERRORS)
def test_create__error_of_the_first_fault(
    _name: str, type_: int, request_: CreateRequest, code: int
) -> None:
    leader = small_leader()
    leader.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000), STRANGER)
    digest = leader.preparer.digest
    assert leader.code(type_, request_, STRANGER) == code
    assert leader.preparer.digest == digest
    leader.catch_up()


@pytest.mark.parametrize(
    ("is_enabled", "flags", "ttl", "code"),
    [
        (False, 5, 10, -6),
        (False, 0, -1, -8),
        (True, 5, 10, 0),
        (True, 6, (1 << 40) - 1, 0),
        (True, 5, 0, -8),
        (True, 5, 1 << 40, -8),
        (True, 0, -1, -8),
        (True, 4, -1, -8),
    ],
)
def test_create_ttl__only_with_a_ttl_flag_and_in_range(
    is_enabled: bool, flags: int, ttl: int, code: int
) -> None:
    leader = Leader(PrepareOptions(is_ttl_enabled=is_enabled))
    request = CreateTTLRequest("/t", b"", OPEN_ACL, flags, ttl)
    assert leader.code(OpCode.CREATE_TTL, request) == code


@pytest.mark.parametrize(
    ("type_", "request_", "code"),
    [
        (OpCode.DELETE, DeleteRequest("/", -1), -8),
        (OpCode.DELETE, DeleteRequest("/zookeeper", -1), -8),
        (OpCode.DELETE, DeleteRequest("/zookeeper/config", -1), -8),
        (OpCode.DELETE, DeleteRequest("x", -1), -8),
        (OpCode.DELETE, DeleteRequest("/no/x", 9), -101),
        (OpCode.DELETE, DeleteRequest("/ro/no", 9), -102),
        (OpCode.DELETE, DeleteRequest("/no", 9), -101),
        (OpCode.DELETE, DeleteRequest("/a", 9), -103),
        (OpCode.DELETE, DeleteRequest("/a", 1), -111),
        (OpCode.DELETE, DeleteRequest("/a/b", 0), 0),
        (OpCode.SET_DATA, SetDataRequest("/a/", b"", 9), -8),
        (OpCode.SET_DATA, SetDataRequest("", b"", 9), -8),
        (OpCode.SET_DATA, SetDataRequest("/no", b"", 9), -101),
        (OpCode.SET_DATA, SetDataRequest("/ro", b"", 9), -102),
        (OpCode.SET_DATA, SetDataRequest("/a", b"", 0), -103),
        (OpCode.SET_DATA, SetDataRequest("/a", b"", 1), 0),
        (OpCode.SET_ACL, SetACLRequest("/..", None, 9), -8),
        (OpCode.SET_ACL, SetACLRequest("/no", None, 9), -114),
        (OpCode.SET_ACL, SetACLRequest("/no", OPEN_ACL, 9), -101),
        (OpCode.SET_ACL, SetACLRequest("/ro", OPEN_ACL, 9), -102),
        (OpCode.SET_ACL, SetACLRequest("/a", OPEN_ACL, 9), -103),
        (OpCode.SET_ACL, SetACLRequest("/a", OPEN_ACL, 0), 0),
        (OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/"), -8),
        (OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/no"), -101),
        (OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/a"), -111),
        (OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/a/b"), -103),
        (OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/e"), -103),
        (OpCode.RECONFIG, b"server.1=", -102),
        (OpCode.CHECK, CheckVersionRequest("/a", 1), -6),
        (OpCode.GET_DATA, None, -6),
    ],
)
def test_other_requests__error_of_the_first_fault(type_: int, request_: Any, code: int) -> None:
    leader = small_leader()
    leader.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000), STRANGER)
    assert leader.code(type_, request_, STRANGER) == code
    leader.catch_up()


def test_sessions__unknown_closing_moved_and_local() -> None:
    leader = small_leader()
    request = SetDataRequest("/a", b"", -1)
    assert leader.code(OpCode.SET_DATA, request, Caller(SessionId(7))) == -112
    assert leader.code(OpCode.SET_DATA, request, BOBS_CALLER._replace(is_moved=True)) == -118
    local = Caller(SessionId(7), is_local=True)
    assert leader.code(OpCode.SET_DATA, request, local) == 0
    ephemeral = CreateRequest("/n", b"", OPEN_ACL, 1)
    assert leader.code(OpCode.CREATE, ephemeral, local) == -120
    closed = leader.ask(OpCode.CLOSE_SESSION, None)
    assert closed.body == CloseSessionTxn(("/e",))
    # Prepared, not applied yet: it counts already.
    assert leader.code(OpCode.SET_DATA, request) == -112
    assert leader.ask(OpCode.CLOSE_SESSION, None).body == CloseSessionTxn(())
    leader.catch_up()
    assert leader.code(OpCode.SET_DATA, request) == -112
    assert leader.tree.sessions == {}


def test_close_session__pending_ephemerals_created_deleted_and_created_again() -> None:
    leader = Leader(lag=100)
    for path in ("/e", "/f"):
        assert leader.create(path, flags=1) == 0
    assert leader.code(OpCode.DELETE, DeleteRequest("/e", -1)) == 0
    assert leader.create("/e", flags=1) == 0
    assert leader.code(OpCode.DELETE, DeleteRequest("/f", -1)) == 0
    assert leader.create("/f", flags=0) == 0
    # The first creation of /e is applied; its second is still pending.
    leader.catch_up(3)
    assert leader.ask(OpCode.CLOSE_SESSION, None).body == CloseSessionTxn(("/e",))
    leader.catch_up()
    assert set(leader.tree.paths()) - set(Tree().paths()) == {"/f"}


# -- txns ------------------------------------------------------------------------------------------


def test_create__txn_says_all_that_results() -> None:
    leader = small_leader()
    names = [leader.ask(OpCode.CREATE, CreateRequest("/a/n-", b"", OPEN_ACL, 2)) for _ in "12"]
    assert [entry.body for entry in names] == [
        CreateTxn("/a/n-0000000001", b"", OPEN_ACL, False, 2),
        CreateTxn("/a/n-0000000002", b"", OPEN_ACL, False, 3),
    ]
    assert leader.ask(OpCode.CREATE, CreateRequest("/", b"", OPEN_ACL, 2)).body == CreateTxn(
        "/0000000003", b"", OPEN_ACL, False, 4
    )
    leader.catch_up()


@pytest.mark.parametrize("type_", [OpCode.CREATE, OpCode.CREATE2])
def test_container_flag_in_a_plain_create__persistent_as_in_apache(type_: int) -> None:
    leader = Leader()
    entry = leader.ask(type_, CreateRequest("/c", b"", OPEN_ACL, 4))
    assert entry.header.type == type_
    assert entry.body == CreateTxn("/c", b"", OPEN_ACL, False, 1)
    assert leader.tree.containers == set()


def test_create_container__makes_a_container_that_can_be_cleaned() -> None:
    leader = Leader()
    entry = leader.ask(OpCode.CREATE_CONTAINER, CreateRequest("/c", b"", OPEN_ACL, 4))
    assert entry.header.type == OpCode.CREATE_CONTAINER
    assert entry.body == CreateContainerTxn("/c", b"", OPEN_ACL, 1)
    assert leader.tree.containers == {"/c"}
    cleaned = leader.ask(
        OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/c"), Caller(SessionId(0))
    )
    assert cleaned.body == DeleteTxn("/c")
    assert leader.tree.containers == set()


def test_acl__is_stored_fixed() -> None:
    leader = small_leader()
    auth = ACL(31, Id("auth", "whatever"))
    entry = leader.ask(OpCode.SET_ACL, SetACLRequest("/a", (auth, auth, *READ_ACL), -1))
    assert entry.body == SetACLTxn("/a", (ACL(31, BOB), *READ_ACL), 1)
    # The ip of a connection proves nothing, and "super" has no provider.
    nobody = Caller(SESSION, (Id("ip", "127.0.0.1"), Id("super", "")))
    assert leader.code(OpCode.SET_ACL, SetACLRequest("/a", (auth,), -1), nobody) == -114


def test_skipped_acls__everything_is_allowed() -> None:
    leader = small_leader(PrepareOptions(is_acl_skipped=True))
    nobody = Caller(SESSION)
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/ro", b"", -1), nobody) == 0


def test_reconfig__sets_the_configuration_with_version_minus_1() -> None:
    leader = small_leader()
    superuser = Caller(SESSION, (Id("super", ""),))
    entry = leader.ask(OpCode.RECONFIG, b"server.1=", superuser)
    assert entry.body == SetDataTxn("/zookeeper/config", b"server.1=", -1)
    leader.catch_up()


def test_version_after_minus_2__is_0() -> None:
    leader = Leader()
    assert leader.create("/a") == 0
    node = leader.tree.find("/a")
    assert node is not None
    node.put_stat(node.stat[:32] + (-2).to_bytes(4, "big", signed=True) + node.stat[36:])
    entry = leader.preparer.prepare(
        BOBS_CALLER, 1, Zxid(9), 1, OpCode.SET_DATA, SetDataRequest("/a", b"", -2)
    )
    assert entry.body == SetDataTxn("/a", b"", 0)


def test_zxid_that_does_not_rise__is_a_bug() -> None:
    leader = small_leader()
    with pytest.raises(InvariantViolation):
        leader.preparer.prepare(
            BOBS_CALLER, 1, Zxid(3), 1, OpCode.SET_DATA, SetDataRequest("/a", b"", -1)
        )


# -- multi -----------------------------------------------------------------------------------------


def sub_bodies(entry: LogEntry) -> list[object]:
    assert isinstance(entry.body, MultiTxn)
    return [decode_txn_body(sub.type, sub.data) for sub in entry.body.txns or ()]


def test_multi__operations_see_each_other() -> None:
    leader = small_leader()
    entry = leader.ask(
        OpCode.MULTI,
        (
            MultiOp(OpCode.CREATE, CreateRequest("/m", b"", OPEN_ACL, 0)),
            MultiOp(OpCode.CREATE2, CreateRequest("/m/", b"", OPEN_ACL, 2)),
            MultiOp(OpCode.CREATE_CONTAINER, CreateRequest("/m/c", b"", OPEN_ACL, 4)),
            MultiOp(OpCode.SET_DATA, SetDataRequest("/m", b"1", 0)),
            MultiOp(OpCode.CHECK, CheckVersionRequest("/m", 1)),
            MultiOp(OpCode.DELETE, DeleteRequest("/m/c", 0)),
        ),
    )
    assert isinstance(entry.body, MultiTxn)
    assert [sub.type for sub in entry.body.txns or ()] == [1, 15, 19, 5, 13, 2]
    assert sub_bodies(entry)[1] == CreateTxn("/m/0000000000", b"", OPEN_ACL, False, 1)
    leader.catch_up()


def test_multi_that_fails__leaves_nothing_pending() -> None:
    leader = small_leader()
    digest = leader.preparer.digest
    entry = leader.ask(
        OpCode.MULTI,
        (
            MultiOp(OpCode.DELETE, DeleteRequest("/a/b", -1)),
            MultiOp(OpCode.CREATE, CreateRequest("/a/b", b"", OPEN_ACL, 1)),
            MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"long", -1)),
            MultiOp(OpCode.DELETE, DeleteRequest("/no", -1)),
            MultiOp(OpCode.CREATE, CreateRequest("/never", b"", OPEN_ACL, 0)),
        ),
    )
    assert sub_bodies(entry)[3:] == [ErrorTxn(-101), ErrorTxn(-2)]
    assert sub_bodies(entry)[0] == DeleteTxn("/a/b")
    assert entry.digest is not None
    assert entry.digest.tree_digest == digest == leader.preparer.digest
    # As if it had not been: the ephemeral is not the session's, the version is 1, /a/b is there.
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/a", b"", 1)) == 0
    assert leader.create("/a/b") == -110
    assert leader.ask(OpCode.CLOSE_SESSION, None).body == CloseSessionTxn(("/e",))
    leader.catch_up()


@pytest.mark.parametrize("flags", [5, 6, 7, -1])
def test_multi_with_flags_that_apache_cannot_decode__fails_as_a_whole(flags: int) -> None:
    leader = small_leader()
    request = CreateRequest("/m", b"", OPEN_ACL, flags)
    ops = (MultiOp(OpCode.DELETE, DeleteRequest("/no", -1)), MultiOp(OpCode.CREATE, request))
    assert leader.code(OpCode.MULTI, ops) == ErrorCode.MARSHALLING_ERROR


def test_multi_with_nothing_in_it__is_a_txn() -> None:
    assert Leader().ask(OpCode.MULTI, ()).body == MultiTxn(())


# -- quotas ----------------------------------------------------------------------------------------


def leader_with_quota(limits: bytes, *, is_enforced: bool = True) -> Leader:
    leader = Leader(PrepareOptions(is_quota_enforced=is_enforced))
    for path, data in (
        ("/p", b"12"),
        ("/zookeeper/quota/p", b""),
        ("/zookeeper/quota/p/zookeeper_limits", limits),
        ("/zookeeper/quota/p/zookeeper_stats", b""),
    ):
        assert leader.create(path, data=data) == 0
    return leader


def test_hard_limit_of_znodes__refuses_the_next_create() -> None:
    leader = leader_with_quota(b"count=-1,bytes=-1=;countHardLimit=2")
    assert leader.create("/p/1") == 0
    assert leader.create("/p/2") == ErrorCode.QUOTA_EXCEEDED
    assert leader.create("/other") == 0
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/p", b"1" * 100, -1)) == 0


def test_hard_limit_of_bytes__refuses_growth_only() -> None:
    leader = leader_with_quota(b"count=-1,bytes=-1=;byteHardLimit=4")
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/p", b"12345", -1)) == -125
    assert leader.create("/p/1", data=b"123") == -125
    assert leader.create("/p/1", data=b"12") == 0
    assert leader.create("/p/2", data=None) == 0
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/p", None, -1)) == 0


def test_soft_limits_and_limits_not_enforced__refuse_nothing() -> None:
    for leader in (
        leader_with_quota(b"count=1,bytes=1"),
        leader_with_quota(b"count=1,bytes=1=;countHardLimit=1", is_enforced=False),
    ):
        assert leader.create("/p/1", data=b"12345") == 0


@pytest.mark.parametrize("data", [None, b"x", b"count", b"count=", b"count=x", b",count=1"])
def test_statistics_that_java_cannot_read__are_refused(data: bytes | None) -> None:
    leader = leader_with_quota(b"count=-1,bytes=-1")
    stats = "/zookeeper/quota/p/zookeeper_stats"
    for good in (b"", b"count=1,bytes=-1", b"count=5,bytes=-1=;byteHardLimit=10;"):
        assert leader.code(OpCode.SET_DATA, SetDataRequest(stats, good, -1)) == 0
    assert leader.code(OpCode.SET_DATA, SetDataRequest(stats, data, -1)) == -8
    # Counted at once, whatever the client wrote.
    assert leader.code(OpCode.DELETE, DeleteRequest(stats, -1)) == 0
    assert leader.create(stats, data=data) == 0
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/p", data, -1)) == 0


def test_limits_of_the_root__are_refused() -> None:
    leader = Leader()
    assert leader.create("/zookeeper/quota/zookeeper_limits") == -8
    assert leader.create("/zookeeper/quota/zookeeper_stats") == 0


def test_prepared_change_of_a_deleted_parent__is_refused() -> None:
    leader = Leader(lag=100)
    assert leader.create("/a") == 0
    assert leader.code(OpCode.DELETE, DeleteRequest("/a", -1)) == 0
    assert leader.create("/a/b") == -101
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/a", b"", -1)) == -101
    leader.catch_up()


@pytest.mark.parametrize("change", ["znode", "parent", "digest", "exists", "gone"])
def test_tree_that_is_another_one__nothing_is_installed(change: str) -> None:
    """What was prepared fits one tree; on any other it is refused, and nothing changes (R12)."""
    leader = Leader()
    for path in ("/a", "/b"):
        assert leader.create(path) == 0
    leader.lag = 1
    multi = (
        MultiOp(OpCode.SET_DATA, SetDataRequest("/b", b"new", -1)),
        MultiOp(OpCode.CREATE, CreateRequest("/a/c", b"", OPEN_ACL, 0)),
    )
    entry = leader.preparer.prepare(BOBS_CALLER, 9, Zxid(99), 5000, OpCode.MULTI, multi)
    tree = leader.tree
    header = TxnHeader(SESSION, 1, Zxid(98), 4000, OpCode.SET_DATA)
    if change == "znode":
        tree.apply(header, SetDataTxn("/b", b"other", 1))
    elif change == "parent":
        tree.apply(header._replace(type=OpCode.CREATE), CreateTxn("/a/d", b"", OPEN_ACL, False, 1))
    elif change == "exists":
        tree.apply(header._replace(type=OpCode.CREATE), CreateTxn("/a/c", b"", OPEN_ACL, False, 1))
    elif change == "gone":
        tree.apply(header._replace(type=OpCode.DELETE), DeleteTxn("/b"))
    else:
        tree.digest ^= 1
    before = facts_of(tree), [tree.find(path) for path in sorted(tree.paths())]
    with pytest.raises(ReplayConflict, match="another tree"):
        leader.preparer.apply(entry)
    assert (facts_of(tree), [tree.find(path) for path in sorted(tree.paths())]) == before


def test_usual_acl__is_one_value() -> None:
    """Decoded ACLs of most znodes are the same object: comparisons of them cost nothing."""
    request = CreateRequest("/a", b"", OPEN_ACL, 0)
    decoded = decode(CreateRequest, encode(request))
    assert decoded == request
    assert decoded.acl is OPEN_ACL
    other = CreateRequest("/a", b"", (*OPEN_ACL, *READ_ACL), 0)
    assert decode(CreateRequest, encode(other)) == other
