"""Who votes, by the files; and that only quorums of voters decide, in the audit as elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from keepfast.pipeline.agreement.committed import IntervalStanding, judge
from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.agreement.electorate import (
    Electorate,
    electorate_of,
    is_configuration,
    membership_of,
    with_version_of_name,
)
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.scan.facts import EpochFacts, LogFacts, RecordRun
from tests.cases import CASES_DIR
from tests.pipeline.test_audit_cases import audited

THREE = "server.1=a:1:2\nserver.2=b:1:2:participant;2181\nserver.3=c:1:2:observer;2181\n"
FIVE = "".join(f"server.{n}=h:1:2{':observer' if n > 3 else ''}\n" for n in range(1, 6))
# Two sites, and one server elsewhere whose word counts for nothing by itself.
GROUPS = (
    "".join(f"server.{n}=h:1:2\n" for n in range(1, 8))
    + "group.1=1:2:3\ngroup.2=4:5:6\ngroup.3=7\nweight.7=0\n"
)
OLD = CASES_DIR / "healthy-plain-3.4.14"
NEW = CASES_DIR / "healthy-plain-3.9.5"


def of(names: str, *texts: str) -> Electorate:
    return electorate_of([(name, None) for name in names], texts)


def test_members__and_their_roles() -> None:
    known = membership_of(f"dataDir=/x\nserverCnxnFactory=y\n{THREE}")
    assert known is not None
    assert sorted(known.voters) == [1, 2]
    assert sorted(known.observers) == [3]
    assert membership_of("tickTime=2000") is None
    later = THREE.replace(":observer", "") + "version=200000005"
    assert of("123", THREE, THREE, later).observers == frozenset()
    assert of("123", THREE, THREE, later).version == 0x200000005


@pytest.mark.parametrize(
    ("servers", "text", "observers", "voters", "absent", "absent_count"),
    [
        ([("1", None), ("zk2", None), ("c", "3")], THREE, {"c"}, 2, (), 0),
        ([("1", None), ("3", None)], THREE, {"3"}, 2, ("2",), 1),
        # All members vote: then it does not matter who is who.
        ([("a", None)], "server.1=a:1:2\nserver.2=b:1:2", set(), 2, (), 1),
        # Left behind by a change of the membership: it is none of the voters.
        ([("1", "1"), ("2", "2"), ("4", "4")], THREE, {"4"}, 2, (), 0),
    ],
)
def test_voters__as_far_as_files_tell(
    servers: list[tuple[str, str | None]],
    text: str,
    observers: set[str],
    voters: int,
    absent: tuple[str, ...],
    absent_count: int,
) -> None:
    found = electorate_of(servers, [text])
    assert found.observers == observers
    assert (found.voters, found.note) == (voters, "")
    assert (found.absent, found.absent_count) == (absent, absent_count)


@pytest.mark.parametrize("texts", [[], [THREE], [GROUPS]])
def test_voters_that_no_file_tells__are_said_to_be_unknown(texts: list[str]) -> None:
    found = of("ab", *texts)
    assert "counted as voters" in found.note
    assert (found.observers, found.voters) == (frozenset(), 2)
    assert not found.is_quorum(["a"])
    assert found.is_quorum(["a", "b"])


def test_groups_and_weights__a_quorum_is_most_of_the_weight_in_most_of_the_groups() -> None:
    found = of("1234567", f"tickTime=2000\n{GROUPS}")
    assert found.is_quorum("1245")
    # Most of the heads, and most of the weight in one of two groups only.
    assert not found.is_quorum("12347")
    assert found.support("1245") > found.support("12347")
    weighty = THREE.replace(":observer", "") + "group.1=1:2:3\nweight.1=5\n"
    assert of("123", weighty).is_quorum("1")
    assert not of("123", weighty).is_quorum("23")


def test_groups_that_no_server_starts_with__are_counted_by_heads_and_that_is_said() -> None:
    found = of("123", THREE.replace(":observer", "") + "group.1=1:2\n")
    assert "no server starts with such groups" in found.note
    assert found.is_quorum("13")
    # Weights without groups mean nothing, as 3.4 has it.
    assert of("123", THREE.replace(":observer", "") + "weight.1=5\n").note == ""


def test_addresses_that_each_member_writes_its_own_way__are_no_difference() -> None:
    mine = THREE.replace("=a:", "=0.0.0.0:")
    yours = THREE.replace(":observer", "")
    assert of("123", mine, THREE, yours).observers == {"3"}


def test_files__which_of_them_tell_the_members_and_since_when() -> None:
    names = ("zoo.cfg", "zoo.cfg.dynamic", "zoo.cfg.dynamic.100000005")
    assert all(map(is_configuration, names))
    assert not any(map(is_configuration, ("zoo.cfg.dynamic.next", "zoo.cfg.bak", "myid")))
    dated = with_version_of_name("zoo.cfg.dynamic.100000005", THREE)
    assert of("123", FIVE, dated).version == 0x100000005


def test_too_few_voters_given__decide_by_themselves_and_that_is_said() -> None:
    whole = of("1", FIVE)
    assert not whole.is_represented
    alone = whole.of_given()
    assert alone.is_quorum("1")
    assert "of the 3 voters the files of 1 were given" in alone.caution
    assert of("12", FIVE).of_given().caution == ""
    # An observer's word, where there is no other.
    assert of("4", FIVE).of_given().is_quorum("4")
    assert of("14", FIVE).of_given().is_quorum("1")
    assert not of("14", FIVE).of_given().is_quorum("4")


def test_number_that_a_person_asks_for__counts_all_and_stays() -> None:
    asked = of("1234", FIVE).by_heads(2)
    assert asked.is_quorum("14")
    assert asked.changed(THREE + "version=200000001") is asked
    assert asked.caution == ""


def test_record_that_changes_the_members__counts_if_it_is_newer() -> None:
    before = of("123", THREE + "version=100000001")
    assert before.changed(THREE + "version=100000001") is before
    after = before.changed(THREE.replace(":observer", "") + "version=100000002")
    assert before.observers == {"3"}
    assert after.observers == frozenset()


def test_electorate__travels_to_executors() -> None:
    found = of("1234567", GROUPS)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Electorate) == found


def view_of(heads: dict[str, int], electorate: Electorate) -> EnsembleView:
    servers = []
    for name, head in heads.items():
        run = RecordRun(0x100000001, head, 16, 1000)
        log = LogFacts("log.100000001", 0x100000001, 1000, 0.0, (run,), records=1)
        servers.append(ServerView(name, (log,), (), EpochFacts(1, 1)))
    return EnsembleView("e", tuple(servers), electorate)


def test_record_on_one_voter_and_two_observers__is_on_a_minority() -> None:
    heads = dict.fromkeys("145", 0x100000009) | dict.fromkeys("23", 0x100000008)
    told = judge(view_of(heads, of("14523", FIVE)), Compared())
    assert [i.standing for i in told.intervals] == [IntervalStanding.AGREED, IntervalStanding.TAIL]
    assert told.committed == 0x100000008
    untold = judge(view_of(heads, of("14523")), Compared())
    assert untold.committed == 0x100000009


def test_record_that_two_of_three_voters_pass_over__is_stale_whatever_observers_hold() -> None:
    """It lies at the end of an epoch; the next one begins right behind the record before it."""
    servers = []
    for name in "12345":
        last = 0x100000006 if name in "145" else 0x100000005
        runs = (
            RecordRun(0x100000001, last, 16, 500),
            RecordRun(0x200000001, 0x200000003, 500, 1000),
        )
        log = LogFacts("log.100000001", 0x100000001, 1000, 0.0, runs, records=9)
        servers.append(ServerView(name, (log,), (), EpochFacts(2, 2)))
    told = judge(EnsembleView("e", tuple(servers), of("12345", FIVE)), Compared())
    by_heads = judge(EnsembleView("e", tuple(servers), of("12345")), Compared())
    found = [
        [(i.first, i.standing) for i in one.intervals if i.skippers] for one in (told, by_heads)
    ]
    assert found == [
        [(0x100000006, IntervalStanding.STALE)],
        [(0x100000006, IntervalStanding.AGREED)],
    ]


def test_record_on_most_heads_but_on_no_quorum_of_the_groups__is_a_tail() -> None:
    heads = dict.fromkeys("12347", 0x100000009) | dict.fromkeys("56", 0x100000008)
    told = judge(view_of(heads, of("1234567", GROUPS)), Compared())
    assert [i.standing for i in told.intervals] == [IntervalStanding.AGREED, IntervalStanding.TAIL]
    assert told.committed == 0x100000008


def test_voters_that_were_not_given__count_in_the_majority() -> None:
    heads = {"1": 0x100000009, "2": 0x100000009, "3": 0x100000008}
    all_vote = FIVE.replace(":observer", "")
    of_three = "".join(all_vote.splitlines(keepends=True)[:3])
    assert judge(view_of(heads, of("123", of_three)), Compared()).committed == 0x100000009
    assert judge(view_of(heads, of("123", all_vote)), Compared()).committed == 0x100000008


def test_observer_of_an_old_release__is_told_by_its_configuration(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "e")
    assert [f.kind for f in audited(tmp_path / "e").findings].count("roles-unknown") == 1
    shutil.copytree(tmp_path / "e" / "0", tmp_path / "e" / "watcher")
    (tmp_path / "e" / "watcher" / "myid").write_text("9\n")
    lines = [f"server.{number}=10.0.0.{number}:2888:3888" for number in range(3)]
    text = "\n".join([*lines, "server.9=10.0.0.9:2888:3888:observer", ""])
    (tmp_path / "e" / "0" / "zoo.cfg").write_text(text)
    result = audited(tmp_path / "e")
    assert {lane.server: lane.is_observer for lane in result.lanes}["watcher"]
    assert sum(lane.is_observer for lane in result.lanes) == 1
    assert "roles-unknown" not in [f.kind for f in result.findings]
    assert result.unchecked == ()


def test_voter_that_was_not_given__is_not_checked(tmp_path: Path) -> None:
    for name in "01":
        shutil.copytree(NEW / name, tmp_path / "e" / name)
    (sentence,) = audited(tmp_path / "e").unchecked
    assert "1 of the 3 voters (2)" in sentence
