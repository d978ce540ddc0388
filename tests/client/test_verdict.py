"""What follows from what servers say about themselves."""

from __future__ import annotations

import pytest

from keepfast.client import Gravity, ServerAddress, ServerStatus, judge
from keepfast.client.probe import voters_in


def server(id: int, role: str = "follower", zxid: int = 0x100000005, **facts: str) -> ServerStatus:
    """A Keepfast server that is well."""
    return ServerStatus(
        ServerAddress("h", id),
        is_reached=True,
        is_serving=True,
        is_keepfast=True,
        role=role,
        server_id=id,
        zxid=zxid,
        digests={zxid: 7},
        voters=frozenset((1, 2, 3)),
        facts={"standing": "whole", "current_epoch": "1", "ensemble": "e", **facts},
    )


def well() -> list[ServerStatus]:
    return [server(1), server(2, "leader"), server(3)]


def kinds(servers: list[ServerStatus]) -> set[tuple[str, Gravity]]:
    return {(finding.kind, finding.gravity) for finding in judge(servers).findings}


def test_equal_servers_under_one_leader__are_well() -> None:
    verdict = judge(well())
    assert verdict.is_healthy
    assert verdict.leader is not None
    assert verdict.leader.server_id == 2


def test_server_down__wrong() -> None:
    servers = well()
    servers[0] = ServerStatus(
        ServerAddress("h", 1), problem="cannot be reached: connection refused"
    )
    assert kinds(servers) == {("down", Gravity.WRONG)}


def test_nobody_leads__wrong_if_all_were_asked_else_unknown() -> None:
    servers = [server(1), server(2), server(3)]
    assert kinds(servers) == {("no-leader", Gravity.WRONG)}
    assert kinds(servers[:2]) == {("leader-unknown", Gravity.UNKNOWN)}


def test_two_leaders__wrong_and_the_newer_one_counts() -> None:
    servers = well()
    servers[0] = server(1, "leader", current_epoch="2")
    verdict = judge(servers)
    assert ("two-leaders", Gravity.WRONG) in kinds(servers)
    assert verdict.leader is servers[0]


def test_trees_of_one_zxid_differ__wrong_with_both_sides() -> None:
    servers = well()
    servers[2].digests[0x100000005] = 8
    (finding,) = judge(servers).findings
    assert finding.kind == "digest-mismatch"
    assert "0x100000005" in finding.sentence
    assert "0x8 at server 3" in finding.sentence


def test_no_common_zxid__unknown() -> None:
    servers = well()
    servers[2] = server(3, zxid=0x100000004)
    assert kinds(servers) == {("digest-unknown", Gravity.UNKNOWN)}
    assert judge(servers).lag_of(servers[2]) == 1
    servers[2].digests[0x100000005] = 7
    assert judge(servers).is_healthy


def test_server_without_whole_data__wrong() -> None:
    servers = well()
    servers[0].facts["standing"] = "damaged"
    assert kinds(servers) == {("not-whole", Gravity.WRONG)}
    servers[0].is_serving, servers[0].problem = False, "its data is damaged"
    assert kinds(servers) == {("not-serving", Gravity.WRONG)}


def test_data_of_two_ensembles__wrong() -> None:
    servers = well()
    servers[0].facts["ensemble"] = "f"
    assert kinds(servers) == {("two-ensembles", Gravity.WRONG)}


def test_full_disk__wrong() -> None:
    servers = well()
    servers[0].facts["writable"] = "0"
    assert kinds(servers) == {("disk-full", Gravity.WRONG)}


def test_one_server_alone__is_well_and_several_are_no_ensemble() -> None:
    alone = server(1, "standalone")
    assert judge([alone]).is_healthy
    assert kinds([alone, server(2, "standalone")]) == {("standalone", Gravity.WRONG)}


def test_apache_that_tells_little__unknown() -> None:
    silent = ServerStatus(ServerAddress("h", 1), is_reached=True, is_serving=True, zxid=5)
    assert kinds([silent]) == {
        ("role-unknown", Gravity.UNKNOWN),
        ("leader-unknown", Gravity.UNKNOWN),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server.1=a:1:2:participant;0.0.0.0:5\nserver.3=b:1:2:observer\nversion=0", {1}),
        ("server.1=a:1:2\nserver.2=b:1:2\n", {1, 2}),
        ("", set()),
    ],
)
def test_voters_of_a_configuration(text: str, expected: set[int]) -> None:
    assert voters_in(text) == expected
