"""The data directories under tests/data/cases: what is read from them is what Apache made of them.

Judges: `truth.json`, which states what the live servers answered; a real Apache 3.9.5 started on
a copy of each directory; and the digest that Apache 3.6 and later wrote into each record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keepfast.storage import (
    Frame,
    LogReader,
    Severity,
    Standing,
    frame,
    load_tree,
    parse_snapshot_name,
    recovery_unlisted,
    survey_log,
)
from keepfast.storage.replay import Replay
from keepfast.tree import ROOT, ZOOKEEPER, Tree
from keepfast.wire import (
    CorruptSnapshot,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    Zxid,
    decode_entry,
    decode_txn_body,
    encode_entry,
    encode_txn_body,
    format_zxid,
)
from tests.apache import Znode
from tests.cases import Case, as_truth_writes, case_names, load_case
from tests.conformance.judging import (
    DISK,
    assert_equal,
    assert_judged_equal,
    directory_of,
    judge,
    recovered,
    seen_by_clients,
    without_config,
)

pytestmark = pytest.mark.conformance

# 3.4 wrote no snapshot before the first one was due; without this 3.9.5 refuses its directories.
TRUST_EMPTY = {"zookeeper.snapshot.trust.empty": "true"}


class Wrong(NamedTuple):
    """A server whose data is not what the ensemble committed, and what its own files show."""

    standing: Standing
    # The problem that says so; None where the files of this server alone cannot show it.
    code: str | None
    zxid: str | None
    why: str


# Every server of a broken case that is not listed here is right, and so is every server of a
# healthy case. What one server's files cannot show is for the comparison of all servers; besides
# what is marked so below, that is the record that was never committed in the log of server 3 of
# snap-stale-log-served-3.9.5, which lies below its newest snapshot and was served from there.
WRONG = {
    ("diff-over-gap-3.6.3", "3"): Wrong(
        Standing.DAMAGED, "history-broken", "0x2000005e1", "the records of the gap are not there"
    ),
    ("diff-over-gap-3.9.5", "3"): Wrong(
        Standing.DAMAGED, "history-broken", "0x2000005e1", "the records of the gap are not there"
    ),
    ("disk-full-3.4.14", "0"): Wrong(
        Standing.DAMAGED, "no-base", None, "three partial snapshots, and logs without a beginning"
    ),
    ("disk-full-3.9.5-gz", "0"): Wrong(
        Standing.DAMAGED, "no-base", None, "three partial snapshots, and logs without a beginning"
    ),
    ("snap-keeps-stale-log-3.4.14", "1"): Wrong(
        Standing.UNPROVEN,
        "unproven-join",
        "0x300000001",
        "nothing proves that the record that was never committed follows the one before it",
    ),
    ("snap-stale-log-served-3.9.5", "4"): Wrong(
        Standing.DAMAGED, "history-broken", "0x300000002", "0x300000001 is missing"
    ),
    ("trunc-misses-record-3.4.14", "2"): Wrong(
        Standing.UNPROVEN,
        None,
        "0x400000001",
        "a snapshot has taken in the record that was never committed, and 3.4 has no digests; "
        "the directory is unproven for another join, as those of its peers are",
    ),
    ("trunc-misses-record-short-3.9.5", "2"): Wrong(
        Standing.DAMAGED,
        "history-broken",
        "0x400000001",
        "the next record has the digest of a tree without the one that was never committed",
    ),
    ("unsynced-snapshot-3.4.14-trunc", "2"): Wrong(
        Standing.DAMAGED, "history-broken", "0x200000002", "0x200000001 was in the lost snapshot"
    ),
    ("unsynced-snapshot-leader-3.9.5-delete", "2"): Wrong(
        Standing.DAMAGED,
        "history-broken",
        "0x200000001",
        "the record does not fit a tree without those that were in the lost snapshot",
    ),
}

ALL = [(name, id) for name in case_names() for id in load_case(name).server_ids]
RIGHT = [server for server in ALL if server not in WRONG]
SERVING = [
    server
    for server in ALL
    if server not in WRONG or WRONG[server].standing is not Standing.DAMAGED
]

Servers = pytest.mark.parametrize(("name", "id"), ALL)


def frames_of(path: Path) -> Iterator[Frame]:
    with DISK.open_read(str(path)) as file:
        yield from LogReader(file)


def logs_of(case: Case, id: str) -> list[Path]:
    paths = (case.server_dir(id) / "version-2").glob("log.*")
    return sorted(paths, key=lambda path: int(path.suffix[1:], 16))


def undated(name: str, id: str, tmp_path: Path) -> Path:
    """A copy of a server's directory in which all files are of the same age.

    A check-out gives each file the time at which it was written out, and recovery takes a log
    that is older than the snapshot before it for a sign of trouble.
    """
    data_dir = load_case(name).copy_server(id, tmp_path / "undated")
    for path in (data_dir / "version-2").iterdir():
        os.utime(path, (0, 0))
    return data_dir


# -- decoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", case_names())
def test_every_log__records_encode_back_byte_for_byte(
    name: str, tell: Callable[[str], None]
) -> None:
    case = load_case(name)
    records = operations = 0
    for id in case.server_ids:
        for log in logs_of(case, id):
            raw = log.read_bytes()
            for one in frames_of(log):
                entry = decode_entry(one.entry)
                assert entry.trailing == b""
                assert encode_entry(entry) == one.entry
                assert frame(one.entry) == raw[one.offset : one.end]
                records += 1
                if isinstance(entry.body, MultiTxn):
                    for sub in entry.body.txns or ():
                        body = decode_txn_body(sub.type, sub.data)
                        # Apache's followers put an error's type in front of the other
                        # operations of a failed multi, and leave their bodies.
                        is_overwritten = sub.type == OpCode.ERROR and body == ErrorTxn(0)
                        assert encode_txn_body(body) == sub.data or is_overwritten
                        operations += 1
    assert records > 0
    tell(f"{records} records, {operations} operations of multis")


@Servers
def test_every_file__holds_what_the_truth_file_says(name: str, id: str) -> None:
    case = load_case(name)
    directory = directory_of(case.server_dir(id))
    files: dict[str, Any] = case.truth["files"][id]
    for file, stated in files.items():
        if file.startswith("log."):
            runs = survey_log(DISK, directory, file).runs
            ranges = [_range(run.first, run.last) for run in runs]
            assert ranges == stated["zxids"], file
        elif parse_snapshot_name(file) is not None:
            _check_snapshot(case, directory.in_snapshots(file), stated)


def _range(first: Zxid, last: Zxid) -> str:
    return format_zxid(first) if first == last else f"{format_zxid(first)}-{format_zxid(last)}"


def _check_snapshot(case: Case, path: str, stated: dict[str, Any]) -> None:
    if not stated["valid"]:
        with pytest.raises(CorruptSnapshot):
            load_tree(DISK, path)
        return
    tree, info, seen = load_tree(DISK, path)
    # 3.4 knows no /zookeeper/config; it is added.
    added = 1 if case.version.startswith("3.4.") else 0
    assert tree.node_count == stated["nodes"] + added
    assert format_zxid(seen) >= stated["max_mzxid"]
    footer = stated["footer"]
    zxid, version, digest = footer.get("digest", ("0x0", None, None))
    if zxid == "0x0":
        assert info.digest is None
    else:
        assert info.digest_zxid is not None
        assert info.digest is not None
        assert (format_zxid(info.digest_zxid), info.digest_version) == (zxid, version)
        assert hex(info.digest) == digest
    if "last_processed" in footer:
        assert info.last_processed is not None
        assert format_zxid(info.last_processed) == footer["last_processed"]


# -- recovery ------------------------------------------------------------------------------------


class CountingReplay(Replay):
    """A replay that remembers how many digests there were, and which of them were not equal."""

    digests = 0
    unequal: list[Zxid]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        CountingReplay.digests = 0
        CountingReplay.unequal = []

    def feed(self, frame: Frame, name: str) -> LogEntry:
        entry = super().feed(frame, name)
        if entry.digest is not None:
            CountingReplay.digests += 1
            if entry.digest.tree_digest != self.tree.digest:
                CountingReplay.unequal.append(self.head)
        return entry


@pytest.mark.parametrize(("name", "id"), SERVING)
def test_serving_server__recovers_to_what_it_answered(name: str, id: str, tmp_path: Path) -> None:
    case = load_case(name)
    recovery = recovered(undated(name, id, tmp_path))

    assert recovery.tree is not None
    values = {
        path: as_truth_writes(_data(recovery.tree.find(path)))
        for path in recovery.tree.paths()
        if path != ROOT and not path.startswith(ZOOKEEPER)
    }
    assert values == {path: value for path, value in case.values(id).items() if path != ROOT}


def _data(node: Any) -> bytes | None:
    data: bytes | None = node.data
    return data


@pytest.mark.parametrize(("name", "id"), RIGHT)
def test_right_server__is_whole_as_far_as_its_version_can_prove_it(
    name: str, id: str, tmp_path: Path
) -> None:
    case = load_case(name)
    recovery = recovered(undated(name, id, tmp_path))

    codes = {problem.code for problem in recovery.problems}
    assert not recovery.degraded
    assert all(problem.severity is not Severity.DAMAGE for problem in recovery.problems)
    if case.version.startswith("3.4."):
        assert recovery.standing in (Standing.WHOLE, Standing.UNPROVEN)
        unproven = {"unproven-join", "unproven-base"}
        assert codes <= {"torn-tail"} | unproven
        assert bool(codes & unproven) == (recovery.standing is Standing.UNPROVEN)
    else:
        assert recovery.standing is Standing.WHOLE
        assert codes <= {"torn-tail"}
    assert ("torn-tail" in codes) <= bool(case.truth["torn_tails"])


@pytest.mark.parametrize(("name", "id"), sorted(WRONG))
def test_wrong_server__is_found_where_its_own_files_can_show_it(
    name: str, id: str, tmp_path: Path
) -> None:
    expected = WRONG[name, id]
    recovery = recovered(undated(name, id, tmp_path))

    assert recovery.standing is expected.standing
    assert not recovery.may_vote
    assert (recovery.tree is None) == (expected.standing is Standing.DAMAGED)
    if expected.code is not None:
        found = [p for p in recovery.problems if p.code == expected.code]
        zxids = {None if p.zxid is None else format_zxid(p.zxid) for p in found}
        assert expected.zxid in zxids


def test_every_broken_case__has_a_server_in_the_table() -> None:
    broken = {name for name in case_names() if load_case(name).outcome != "consistent"}
    assert {name for name, _ in WRONG} == broken


@pytest.mark.parametrize(("name", "id"), [s for s in RIGHT if "-3.4." not in s[0]])
def test_right_server__every_digest_behind_the_fuzzy_part_is_equal(
    name: str,
    id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tell: Callable[[str], None],
) -> None:
    """From its newest snapshot and, as if the newer ones were lost, from every older one."""
    monkeypatch.setattr(recovery_unlisted, "Replay", CountingReplay)
    data_dir = undated(name, id, tmp_path)
    expected = recovered(data_dir).tree
    assert expected is not None
    snapshots = sorted((data_dir / "version-2").glob("snapshot.*"), key=_zxid_of)
    digests = starts = 0
    while snapshots:
        base = snapshots.pop()
        window = load_tree(DISK, str(base))[2:]
        recovery = recovered(data_dir)
        base.unlink()
        if recovery.tree is None:
            # Older records were purged, or replaced by a snapshot from the leader.
            continue
        assert recovery.tree.digest == expected.digest
        assert recovery.tree.sessions == expected.sessions
        assert_equal(_shared(recovery.tree), _shared(expected))
        # One more than the file shows: the record that was being applied when it was closed.
        assert all(zxid <= max(*window, _zxid_of(base)) + 1 for zxid in CountingReplay.unequal)
        digests += CountingReplay.digests - len(CountingReplay.unequal)
        starts += 1
    assert starts > 0
    tell(f"{digests} digests equal, from {starts} snapshots")


def _shared(tree: Tree) -> dict[str, Znode]:
    return without_config(seen_by_clients(tree))


def _zxid_of(path: Path) -> Zxid:
    parsed = parse_snapshot_name(path.name)
    assert parsed is not None
    return parsed[0]


# -- Apache's opinion ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "id"), SERVING)
def test_apache_started_on_a_copy__has_the_same_tree_and_sessions(
    name: str, id: str, tmp_path: Path
) -> None:
    case = load_case(name)
    is_3_4 = case.version.startswith("3.4.")
    data_dir = undated(name, id, tmp_path)
    recovery = recovered(data_dir)
    assert recovery.tree is not None

    verdict = judge(data_dir, tmp_path / "data", TRUST_EMPTY if is_3_4 else None)

    assert_judged_equal(recovery.tree, verdict, from_3_4=is_3_4)
