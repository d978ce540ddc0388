"""The overview says only what the servers that were asked can show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from keepfast.client import ServerAddress, ServerStatus, judge
from keepfast.console.ensemble_overview import overview_of
from keepfast.console.measurements import Series
from keepfast.console.server_watching import Picture, WatchedServer

_THREE = frozenset((1, 2, 3))
_HASH = "293c895a8d966a3ecb92872be4a1daf87d725da2"


def status(id: int, role: str, **fields: Any) -> ServerStatus:
    address = ServerAddress("127.0.0.1", 2180 + id)
    found = ServerStatus(address, True, role != "looking", role=role, server_id=id, voters=_THREE)
    return replace(found, **fields)


def overview(*statuses: ServerStatus) -> dict[str, Any]:
    servers = tuple(WatchedServer(one.address, True, one) for one in statuses)
    return overview_of(Picture(0, servers, judge(statuses), (), 0), "", {})


def kinds(document: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in document["findings"]]


def test_follower_alone__somebody_leads_it_and_nothing_is_wrong() -> None:
    document = overview(status(1, "follower", zxid=0x100000005))
    assert document["level"] == "warning"
    assert document["sentence"] == (
        "The leader is among the servers that were not asked: servers 2, 3."
    )
    assert document["quorum"]["has_quorum"]
    assert document["quorum"]["unasked"] == [2, 3]
    assert kinds(document) == ["not-asked"]
    (finding,) = document["findings"]
    assert finding["sentence"].startswith("Servers 2, 3 are members too")
    assert finding["command"] == "keepfast console 127.0.0.1:2181,HOST:PORT"


def test_two_of_three_named__the_third_is_not_counted_as_failed() -> None:
    document = overview(
        status(1, "follower", zxid=0x100000005), status(3, "leader", zxid=0x100000005)
    )
    assert document["level"] == "warning"
    assert document["sentence"] == (
        "2 of 3 voters serve, server 3 leads in epoch 1; not asked: server 2."
    )
    assert kinds(document) == ["not-asked"]


def test_nobody_leads_one_that_looks_for_a_leader__is_wrong() -> None:
    document = overview(status(1, "looking", problem="no quorum: only server 1 can vote"))
    assert document["level"] == "bad"
    # Its files are not what is wrong.
    (finding,) = [one for one in document["findings"] if one["kind"] == "not-serving"]
    assert (finding["command"], finding["hint"][:15]) == ("", "It serves again")
    assert "nothing can be written" in document["sentence"]
    assert not document["quorum"]["has_quorum"]


def test_all_asked__one_down__is_counted() -> None:
    down = status(2, "", is_reached=False, is_serving=False, problem="cannot be reached")
    document = overview(
        status(1, "follower", zxid=0x100000005), down, status(3, "leader", zxid=0x100000005)
    )
    assert document["level"] == "bad"
    assert document["sentence"] == (
        "2 of 3 voters serve, server 3 leads in epoch 1; no further one may fail."
    )
    assert kinds(document) == ["down"]
    sentence = document["findings"][0]["sentence"]
    assert sentence == "Server 2 (127.0.0.1:2182) cannot be reached"


def test_server_that_does_not_answer__is_not_said_to_have_ended() -> None:
    problem = "cannot be reached: timed out"
    silent = status(1, "", is_reached=False, is_serving=False, problem=problem)
    (finding,) = [one for one in overview(silent)["findings"] if one["kind"] == "down"]
    assert finding["command"] == ""
    assert finding["hint"].startswith("Its host or the network is away")


def test_version_of_apache__without_the_commit_it_was_built_from() -> None:
    document = overview(status(1, "standalone", is_serving=True, version=f"3.9.5-{_HASH}, built"))
    assert document["servers"][0]["version"] == "3.9.5"


def test_latency_of_a_server_that_was_asked_nothing__is_not_zero() -> None:
    series = Series()
    values = {"packets_received": "1", "cnt_readlatency": "1", "sum_readlatency": "2"}
    series.take(1.0, values, 1)
    series.take(2.0, values, 1)
    series.take(3.0, values | {"cnt_readlatency": "3", "sum_readlatency": "5"}, 1)
    assert series.document()["latency"] == [None, None, 1.5]
