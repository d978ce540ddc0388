"""Who votes, by the files; and that only voters make a majority."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepfast.pipeline.checks.agreement import Standing, judge
from keepfast.pipeline.checks.roles import Roles, members_of, newest_members, roles_of
from keepfast.pipeline.checks.view import EnsembleView, ServerView
from keepfast.pipeline.facts import EpochFacts, LogFacts, Run
from tests.cases import CASES_DIR
from tests.pipeline.test_audit_cases import audited

THREE = "server.1=a:1:2\nserver.2=b:1:2:participant;2181\nserver.3=c:1:2:observer;2181\n"
OLD = CASES_DIR / "healthy-plain-3.4.14"
NEW = CASES_DIR / "healthy-plain-3.9.5"


def test_members__and_their_roles() -> None:
    assert members_of(f"dataDir=/x\n{THREE}") == {"1": False, "2": False, "3": True}
    assert newest_members(["tickTime=2000", ""]) == {}
    later = THREE.replace(":observer", "") + "version=200000005"
    assert newest_members([THREE, THREE, later]) == {"1": False, "2": False, "3": False}


@pytest.mark.parametrize(
    ("servers", "texts", "expected"),
    [
        ([("1", None), ("zk2", None), ("c", "3")], [THREE], Roles(frozenset({"c"}), 2)),
        ([("1", None), ("3", None)], [THREE], Roles(frozenset({"3"}), 2, ("2",), 1)),
        # All members vote: then it does not matter who is who.
        ([("a", None)], ["server.1=a:1:2\nserver.2=b:1:2"], Roles(voters=2, absent_count=1)),
        # Left behind by a change of the membership: it is none of the voters.
        ([("1", "1"), ("2", "2"), ("4", "4")], [THREE], Roles(frozenset({"4"}), 2)),
    ],
)
def test_roles__as_far_as_files_tell(
    servers: list[tuple[str, str | None]], texts: list[str], expected: Roles
) -> None:
    assert roles_of(servers, texts) == expected


@pytest.mark.parametrize(
    ("servers", "texts"),
    [([("a", None), ("b", None)], []), ([("a", None), ("b", None)], [THREE])],
)
def test_roles_that_no_file_tells__are_said_to_be_unknown(
    servers: list[tuple[str, str | None]], texts: list[str]
) -> None:
    roles = roles_of(servers, texts)
    assert "counted as voters" in roles.note
    assert roles.observers == frozenset()


def view_of(heads: dict[str, int], roles: Roles) -> EnsembleView:
    servers = []
    for name, head in heads.items():
        run = Run(0x100000001, head, 16, 1000)
        log = LogFacts("log.100000001", 0x100000001, 1000, 0.0, (run,), records=1)
        servers.append(ServerView(name, (log,), (), EpochFacts(1, 1)))
    return EnsembleView("e", tuple(servers), roles)


def test_record_on_one_voter_and_two_observers__is_on_a_minority() -> None:
    heads = dict.fromkeys("145", 0x100000009) | dict.fromkeys("23", 0x100000008)
    told = judge(view_of(heads, Roles(frozenset("45"), 3)), {})
    assert [i.standing for i in told.intervals] == [Standing.AGREED, Standing.TAIL]
    assert told.committed == 0x100000008
    untold = judge(view_of(heads, Roles()), {})
    assert untold.committed == 0x100000009


def test_voters_that_were_not_given__count_in_the_majority() -> None:
    heads = {"1": 0x100000009, "2": 0x100000009, "3": 0x100000008}
    assert judge(view_of(heads, Roles(voters=3)), {}).committed == 0x100000009
    assert judge(view_of(heads, Roles(voters=5)), {}).committed == 0x100000008


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
