"""The history that servers agree on, and the rows that tell it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.pipeline.replay.changes import ZnodeChange
from keepfast.pipeline.replay.diff import differences
from keepfast.pipeline.replay.history import GAP, EnsembleHistory, HistoryGone
from keepfast.pipeline.replay.state import ensemble_state, one_ensemble, read_only_disk
from keepfast.storage import frame
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnHeader,
    encode_entry,
    encode_txn_body,
    make_zxid,
)
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import LOG_HEADER, Life
from tests.pipeline.row_tree import RowTree
from tests.pipeline.test_audit_cases import audited

DISK = read_only_disk()
LIVES = int(os.environ.get("KEEPFAST_VIEW_LIVES", "25"))
# What happened behind this is held by one server each, and nothing but their trees tells who is
# right: no digests in 3.4.
CONFLICT = "snap-keeps-stale-log-3.4.14"


def history_of(place: Path, after: int | None = None) -> EnsembleHistory:
    return EnsembleHistory(DISK, one_ensemble([str(place)]), after=after)


def flat(rows: Iterator[list[ZnodeChange]]) -> list[ZnodeChange]:
    return [row for transaction in rows for row in transaction]


@pytest.mark.parametrize("name", [name for name in case_names() if name != CONFLICT])
def test_replayed_rows_of_a_case__are_the_tree(name: str) -> None:
    history = history_of(CASES_DIR / name)
    assert history.reached == 0
    tree = RowTree()
    zxids = []
    for rows in history.read():
        assert all(row.is_old_known for row in rows)
        zxids.append(rows[0].zxid)
        tree.apply(rows)
    state = ensemble_state(DISK, one_ensemble([str(CASES_DIR / name)]))
    assert zxids == sorted(set(zxids))
    assert (zxids[-1], history.stop.kind) == (state.head, "end")
    built = tree.build()
    assert built.digest == state.tree.digest
    assert built.sessions == state.tree.sessions
    assert not list(differences(built, state.tree))


def test_records_that_nobody_else_has__end_the_history_and_are_named() -> None:
    history = history_of(CASES_DIR / CONFLICT)
    assert flat(history.read())[-1].zxid == make_zxid(2, 1)
    assert history.stop.kind == "conflict"
    assert "0x300000001 on 1; 0x400000001 on 0" in history.stop.text


@pytest.mark.parametrize("seed", range(LIVES))
def test_generated_ensemble__every_committed_transaction_once(seed: int, tmp_path: Path) -> None:
    life = Life(seed)
    life.live()
    life.end()
    history = history_of(life.write_files(tmp_path / "e"))
    expected = [zxid for zxid, _ in life.history if zxid > history.reached]
    found = [rows[0].zxid for rows in history.read()]
    assert found == expected
    assert history.tree is not None
    assert not list(differences(history.tree, life.tree))


def test_multi_that_changes_one_znode_twice__each_row_has_the_value_between(
    tmp_path: Path,
) -> None:
    subs: list[tuple[OpCode, TxnBody]] = [
        (OpCode.CREATE, CreateTxn("/a", b"1", OPEN_ACL, False, 1)),
        (OpCode.SET_DATA, SetDataTxn("/a", b"2", 1)),
        (OpCode.SET_DATA, SetDataTxn("/a", b"3", 2)),
    ]
    body = MultiTxn(tuple(SubTxn(int(op), encode_txn_body(one)) for op, one in subs))
    write_log(tmp_path / "0", [LogEntry(header(1, OpCode.MULTI), body)])
    rows = flat(history_of(tmp_path / "0").read())
    assert [(row.operation, row.change, row.old_data, row.new_data) for row in rows] == [
        (0, "created", None, b"1"),
        (1, "data set", b"1", b"2"),
        (2, "data set", b"2", b"3"),
    ]


# -- logs made by hand -----------------------------------------------------------------------------


def header(counter: int, op: OpCode, epoch: int = 1) -> TxnHeader:
    return TxnHeader(SessionId(0x51), counter, make_zxid(epoch, counter), 1_700_000_000_000, op)


def created(counter: int, epoch: int = 1, name: str | None = None, total: int = 0) -> LogEntry:
    """The creation of a znode below the root; `total` counts them."""
    body = CreateTxn(f"/{name or f'n{epoch}-{counter}'}", b"x", OPEN_ACL, False, total or counter)
    return LogEntry(header(counter, OpCode.CREATE, epoch), body)


def write_log(server: Path, entries: list[LogEntry], padding: int = 4096) -> Path:
    place = server / "version-2"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"log.{entries[0].header.zxid:x}"
    frames = b"".join(frame(encode_entry(entry)) for entry in entries)
    path.write_bytes(LOG_HEADER + frames + bytes(padding))
    return path


def append(path: Path, entry: LogEntry, cut: int = 0) -> None:
    """Write a record into the padding, as a server does; all but `cut` bytes of it."""
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    record = frame(encode_entry(entry))
    with path.open("r+b") as file:
        file.seek(end)
        file.write(record[: len(record) - cut])


def zxids(rows: Iterator[list[ZnodeChange]]) -> list[int]:
    return [transaction[0].zxid for transaction in rows]


def three(tmp_path: Path, *counts: int) -> list[Path]:
    """Servers with the first records of one epoch, as many as given for each."""
    return [
        write_log(tmp_path / "e" / str(number), [created(c) for c in range(1, count + 1)])
        for number, count in enumerate(counts)
    ]


def test_record_on_a_minority__waits_until_a_majority_has_it(tmp_path: Path) -> None:
    logs = three(tmp_path, 5, 4, 3)
    history = history_of(tmp_path / "e")
    assert zxids(history.read()) == [make_zxid(1, c) for c in (1, 2, 3, 4)]
    assert (history.stop.kind, history.stop.servers) == ("minority", ("0",))
    append(logs[2], created(4))
    assert zxids(history.read()) == []
    append(logs[2], created(5))
    assert zxids(history.read()) == [make_zxid(1, 5)]


def test_record_that_is_half_written__is_not_there_yet(tmp_path: Path) -> None:
    logs = three(tmp_path, 2, 2, 2)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 2
    for log in logs:
        append(log, created(3), cut=5)
    assert zxids(history.read()) == []
    for log in logs:
        record = frame(encode_entry(created(3)))
        data = log.read_bytes()
        with log.open("r+b") as file:
            file.seek(data.rindex(record[:20]))
            file.write(record)
    assert zxids(history.read()) == [make_zxid(1, 3)]


def test_log_rolls__the_feed_goes_on_in_the_next_file(tmp_path: Path) -> None:
    logs = three(tmp_path, 2, 2, 2)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 2
    for number, log in enumerate(logs):
        append(log, created(3))
        write_log(tmp_path / "e" / str(number), [created(4), created(5)])
    assert zxids(history.read()) == [make_zxid(1, c) for c in (3, 4, 5)]


def test_one_log_was_listed_before_another_grew__nothing_is_missed(tmp_path: Path) -> None:
    """The first server's next record waits, read from a listing that is old by then."""
    logs = three(tmp_path, 5, 3, 3)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 3
    append(logs[1], created(4))
    append(logs[1], created(5))
    for number in (0, 1):
        write_log(tmp_path / "e" / str(number), [created(c) for c in range(6, 9)])
    assert zxids(history.read(make_zxid(1, 8))) == [make_zxid(1, c) for c in range(4, 9)]


def test_records_that_a_server_takes_back__are_passed_over(tmp_path: Path) -> None:
    """A leader logged two records alone, came back, and was truncated."""
    logs = three(tmp_path, 4, 2, 2)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 2
    data = logs[0].read_bytes()
    cut = len(LOG_HEADER) + sum(len(frame(encode_entry(created(c)))) for c in (1, 2))
    logs[0].write_bytes(data[:cut] + bytes(4096))
    for number in range(3):
        write_log(tmp_path / "e" / str(number), [created(1, epoch=2, total=3)])
    assert zxids(history.read()) == [make_zxid(2, 1)]


def test_records_that_are_taken_back_and_replaced_in_the_same_file__the_new_ones_count(
    tmp_path: Path,
) -> None:
    """What waits to be committed is gone by then; a vote for it would block the others."""
    logs = three(tmp_path, 4, 2, 2)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 2
    cut = len(LOG_HEADER) + sum(len(frame(encode_entry(created(c)))) for c in (1, 2))
    logs[0].write_bytes(logs[0].read_bytes()[:cut] + bytes(4096))
    for log in logs[:2]:  # the third server is down
        append(log, created(1, epoch=2, total=3))
    assert zxids(history.read()) == [make_zxid(2, 1)]


def test_stale_record_of_a_minority__is_passed_over(tmp_path: Path) -> None:
    """Left in the log of a server, which went on in the next epoch: its word alone."""
    three(tmp_path, 3, 2, 2)
    for number in range(3):
        write_log(tmp_path / "e" / str(number), [created(1, epoch=2, total=3)])
    assert zxids(history_of(tmp_path / "e").read())[-2:] == [make_zxid(1, 2), make_zxid(2, 1)]


def test_server_is_gone_for_a_while__its_records_are_found_again(tmp_path: Path) -> None:
    logs = three(tmp_path, 2, 2, 2)
    history = history_of(tmp_path / "e")
    assert len(zxids(history.read())) == 2
    shutil.move(tmp_path / "e" / "1", tmp_path / "away")
    append(logs[0], created(3))
    assert zxids(history.read()) == []
    shutil.move(tmp_path / "away", tmp_path / "e" / "1")
    append(logs[1], created(3))
    assert zxids(history.read()) == [make_zxid(1, 3)]


def test_go_on_from_a_zxid__the_rest_and_nothing_twice() -> None:
    whole = flat(history_of(CASES_DIR / "healthy-elections-3.9.5").read())
    middle = whole[len(whole) // 2].zxid
    history = history_of(CASES_DIR / "healthy-elections-3.9.5", after=middle)
    assert history.reached == middle
    # Where the values before come from a snapshot of another moment, they are not vouched for.
    rest = [row._replace(is_old_known=True) for row in flat(history.read())]
    assert rest == [row for row in whole if row.zxid > middle]


def test_point_that_is_gone__says_so(tmp_path: Path) -> None:
    three(tmp_path, 3, 3, 3)
    with pytest.raises(HistoryGone, match="0x100000009"):
        history_of(tmp_path / "e", after=make_zxid(1, 9))


def test_records_that_are_on_no_server__the_feed_says_so_and_goes_on(tmp_path: Path) -> None:
    for server in "012":
        shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / server, tmp_path / "e" / server)
        place = tmp_path / "e" / server / "version-2"
        for log in place.glob("log.1*"):
            if log.name not in ("log.100000001",):
                log.unlink()
    rows = flat(history_of(tmp_path / "e").read())
    gaps = [row for row in rows if row.change == GAP]
    assert gaps
    assert all(b"does not fit" in (row.new_data or b"") for row in gaps)
    zxids = [row.zxid for row in rows]
    assert zxids == sorted(zxids)
    assert zxids[-1] == make_zxid(2, 0x40)


def test_hole_inside_an_epoch__the_feed_says_so_and_goes_on(tmp_path: Path) -> None:
    for number in range(3):
        server = tmp_path / "e" / str(number)
        write_log(server, [created(1), created(2)])
        write_log(server, [created(9, total=3), created(10, total=4)])
        shutil.copy(
            CASES_DIR / "healthy-plain-3.9.5" / "0" / "version-2" / "snapshot.0",
            server / "version-2" / "snapshot.100000008",
        )
    history = history_of(tmp_path / "e")
    rows = flat(history.read())
    assert [row.zxid & 0xFF for row in rows[:2]] == [1, 2]
    assert history.stop.kind == "hole"
    assert "between 0x100000002 and 0x100000009" in history.stop.text


# -- who votes -------------------------------------------------------------------------------------


def members(place: Path, *lines: str, voters: int, observers: int = 0) -> None:
    """Put a `zoo.cfg` beside the first server: members are numbered from 0."""
    roles = ["participant"] * voters + ["observer"] * observers
    servers = [f"server.{n}=10.0.0.{n}:2888:3888:{role}" for n, role in enumerate(roles)]
    (place / "0" / "zoo.cfg").write_text("\n".join(["tickTime=2000", *servers, *lines, ""]))


def test_record_on_one_voter_and_two_observers__is_not_in_the_history(tmp_path: Path) -> None:
    three(tmp_path, 4, 3, 3, 4, 4)
    assert zxids(history_of(tmp_path / "e").read())[-1] == make_zxid(1, 4)
    members(tmp_path / "e", voters=3, observers=2)
    history = history_of(tmp_path / "e")
    assert zxids(history.read())[-1] == make_zxid(1, 3)
    assert history.stop.kind == "minority"
    assert "no quorum of the 3 voters" in history.stop.text
    # The audit and the state are of the same mind.
    assert audited(tmp_path / "e").committed_zxid == make_zxid(1, 3)


def test_record_on_most_servers_and_half_of_the_groups__is_not_in_the_history(
    tmp_path: Path,
) -> None:
    three(tmp_path, 4, 4, 4, 4, 3, 3, 4)
    groups = ("group.1=0:1:2", "group.2=3:4:5", "group.3=6", "weight.6=0")
    members(tmp_path / "e", *groups, voters=7)
    assert zxids(history_of(tmp_path / "e").read())[-1] == make_zxid(1, 3)
    assert audited(tmp_path / "e").committed_zxid == make_zxid(1, 3)


def test_voter_that_outweighs_the_others__decides(tmp_path: Path) -> None:
    three(tmp_path, 4, 3, 3)
    members(tmp_path / "e", "group.1=0:1:2", "weight.0=5", voters=3)
    assert zxids(history_of(tmp_path / "e").read())[-1] == make_zxid(1, 4)
    assert audited(tmp_path / "e").committed_zxid == make_zxid(1, 4)


def test_voters_that_were_not_given__count(tmp_path: Path) -> None:
    three(tmp_path, 4, 4, 3)
    members(tmp_path / "e", voters=5)
    assert zxids(history_of(tmp_path / "e").read())[-1] == make_zxid(1, 3)
    shutil.rmtree(tmp_path / "e" / "2")
    # Two of five can decide nothing: it is their word, and that is said.
    history = history_of(tmp_path / "e")
    assert zxids(history.read())[-1] == make_zxid(1, 4)
    assert "of the 5 voters the files of 2 were given" in history.electorate.caution


def reconfigured(counter: int, voters: int) -> LogEntry:
    servers = [f"server.{n}=10.0.0.{n}:2888:3888:participant;2181" for n in range(voters)]
    text = "\n".join([*servers, f"version={make_zxid(1, counter):x}"])
    return LogEntry(
        header(counter, OpCode.RECONFIG), SetDataTxn("/zookeeper/config", text.encode(), 1)
    )


def test_record_that_makes_observers_voters__both_sides_decide_on_it(tmp_path: Path) -> None:
    """By two of three it is committed, by two of the five that it makes it is not."""
    entries = [created(1), created(2), reconfigured(3, voters=5), created(4, total=3)]
    for number, count in enumerate((3, 3, 2, 2, 2)):
        write_log(tmp_path / "e" / str(number), entries[:count])
    members(tmp_path / "e", voters=3, observers=2)
    history = history_of(tmp_path / "e")
    assert zxids(history.read())[-1] == make_zxid(1, 2)
    logs = [tmp_path / "e" / str(n) / "version-2" / "log.100000001" for n in range(5)]
    append(logs[4], entries[2])
    assert zxids(history.read()) == [make_zxid(1, 3)]
    assert history.electorate.voters == 5
    for log in logs[:2]:
        append(log, entries[3])
    assert zxids(history.read()) == []
    append(logs[4], entries[3])
    assert zxids(history.read()) == [make_zxid(1, 4)]


def test_record_that_makes_observers_voters__the_head_is_that_of_the_new_quorum(
    tmp_path: Path,
) -> None:
    entries = [created(1), created(2), reconfigured(3, voters=5), created(4, total=3)]
    for number, count in enumerate((4, 4, 3, 3, 3)):
        write_log(tmp_path / "e" / str(number), entries[:count])
    members(tmp_path / "e", voters=3, observers=2)
    state = ensemble_state(DISK, one_ensemble([str(tmp_path / "e")]))
    assert (state.head, state.differing) == (make_zxid(1, 3), ())
    assert zxids(history_of(tmp_path / "e").read())[-1] == make_zxid(1, 3)
    assert audited(tmp_path / "e").committed_zxid == make_zxid(1, 3)
