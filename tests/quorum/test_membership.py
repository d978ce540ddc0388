"""Config texts, and which servers are a quorum."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.quorum import (
    Address,
    MemberRole,
    Membership,
    MemberSpec,
    Quorums,
    canonical_host,
    parse_member,
    parse_membership,
)
from keepfast.wire import ErrorCode, KeeperError, MalformedRecord, ServerId, Zxid
from tests.quorum.electorate import majority, member

# In the form in which servers of Apache 3.9.5 write them.
APACHE_TEXTS = [
    (
        b"server.1=127.0.0.1:30721:30731:participant;0.0.0.0:2181\n"
        b"server.2=127.0.0.1:30722:30732:participant;0.0.0.0:2182\n"
        b"server.4=127.0.0.1:30724:30734:observer\nversion=200000008"
    ),
    b"server.1=127.0.0.1:1:2:participant\nversion=0",
    b"server.1=[0:0:0:0:0:0:0:1]:1:2:participant;[0:0:0:0:0:0:0:0]:2181\nversion=100000000",
    b"server.1=127.0.0.1:1:2|127.0.0.2:3:4:participant\nversion=0",
    (
        b"server.1=a:1:2:participant\nserver.2=b:1:2:participant\nserver.3=c:1:2:observer\n"
        b"group.1=1:2\nweight.1=2\nweight.2=1\nversion=2ffffffff"
    ),
]


@pytest.mark.parametrize("text", APACHE_TEXTS)
def test_text_of_apache__is_written_back_byte_for_byte(text: bytes) -> None:
    assert parse_membership(text).text() == text


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::0a", "2001:db8:0:0:0:0:0:a"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("127.0.0.1", "127.0.0.1"),
        ("Some.Host", "Some.Host"),
    ],
)
def test_host__is_written_as_java_does(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


def test_text__says_everything() -> None:
    (text, *_) = APACHE_TEXTS
    membership = parse_membership(text)

    assert membership.version == 0x200000008
    assert membership.voters == {1, 2}
    assert membership.observers == {4}
    assert membership.find(ServerId(2)) == MemberSpec(
        ServerId(2),
        (Address("127.0.0.1", 30722),),
        (Address("127.0.0.1", 30732),),
        MemberRole.PARTICIPANT,
        Address("0.0.0.0", 2182),
    )
    assert membership.find(ServerId(3)) is None


@pytest.mark.parametrize(
    "text",
    [
        b"server.1=127.0.0.1:1\nversion=0",
        b"server.1=127.0.0.1:1:1\nversion=0",
        b"server.1=127.0.0.1:1:70000\nversion=0",
        b"server.1=127.0.0.1:1:2:leader\nversion=0",
        b"server.1=127.0.0.1:1:2:observer|127.0.0.1:3:4:participant\nversion=0",
        b"server.x=127.0.0.1:1:2\nversion=0",
        b"server.1=:1:2\nversion=0",
        b"server.1=[::1:1:2\nversion=0",
        b"server.1=a:1:2;1;2;3\nversion=0",
        b"version=xyz",
        b"version=",
        b"clientPort=2181",
        b"nonsense",
        b"group.1=1:2\nserver.1=a:1:2\nserver.3=a:1:2",
        b"group.1=1\ngroup.2=1\nserver.1=a:1:2",
        b"weight.1=1\nserver.1=a:1:2",
        b"group.1=1\nweight.1=-1\nserver.1=a:1:2",
        b"\xff\xfe",
    ],
)
def test_text_that_describes_no_ensemble__is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedRecord):
        parse_membership(text)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes__are_a_membership_or_malformed(text: bytes) -> None:
    try:
        parse_membership(text)
    except MalformedRecord:
        pass


@st.composite
def any_membership(draw: st.DrawFn) -> Membership:
    hosts = st.sampled_from(["127.0.0.1", "zk1", canonical_host("::1"), "10.0.0.2"])
    addresses = st.builds(Address, hosts, st.integers(0, 65535))
    ids = draw(st.lists(st.integers(0, 300), min_size=1, max_size=6, unique=True))
    members = []
    for id in ids:
        places = draw(st.lists(st.tuples(hosts, st.integers(1, 30000)), min_size=1, max_size=3))
        members.append(
            MemberSpec(
                ServerId(id),
                tuple(Address(host, port) for host, port in places),
                tuple(Address(host, port + 30000) for host, port in places),
                draw(st.sampled_from(MemberRole)),
                draw(st.none() | addresses),
            )
        )
    return Membership(tuple(members), Zxid(draw(st.integers(0, 1 << 40))))


@given(any_membership())
def test_any_membership__survives_its_text(membership: Membership) -> None:
    again = parse_membership(membership.text())

    assert again.text() == membership.text()
    assert again.voters == membership.voters
    assert again.with_version(Zxid(7)).has_same_members(again)


def test_majority__is_more_than_half_of_the_voters() -> None:
    for count in range(1, 8):
        membership = majority(count, observers=[9])
        for size in range(count + 1):
            ids = [ServerId(id) for id in range(1, size + 1)]
            assert membership.is_quorum(ids) == (2 * size > count)
            # Whoever is no voter does not count.
            assert membership.is_quorum([*ids, ServerId(9), ServerId(77)]) == (2 * size > count)


def hierarchy(groups: dict[int, list[int]], weights: dict[int, int]) -> Membership:
    ids = sorted(id for of in groups.values() for id in of)
    return Membership(
        tuple(member(id) for id in ids),
        groups=tuple((group, tuple(map(ServerId, of))) for group, of in groups.items()),
        weights=tuple((ServerId(id), weight) for id, weight in weights.items()),
    )


def test_groups__a_majority_of_weight_in_a_majority_of_groups() -> None:
    membership = hierarchy({1: [1, 2, 3], 2: [4, 5, 6], 3: [7, 8, 9]}, {})

    assert membership.is_quorum(list(map(ServerId, [1, 2, 4, 5])))
    assert not membership.is_quorum(list(map(ServerId, [1, 2, 3, 4, 7])))
    assert not membership.is_quorum(list(map(ServerId, [1, 4, 7])))


def test_group_without_weight__has_no_say() -> None:
    membership = hierarchy({1: [1, 2, 3], 2: [4, 5]}, {4: 0, 5: 0})

    assert membership.is_quorum(list(map(ServerId, [1, 2])))
    assert not membership.is_quorum(list(map(ServerId, [3, 4, 5])))
    assert membership.weight(ServerId(4)) == 0
    assert membership.weight(ServerId(1)) == 1


def test_weights__half_of_an_even_total_is_not_enough() -> None:
    membership = hierarchy({1: [1, 2]}, {1: 1, 2: 1})

    assert not membership.is_quorum([ServerId(1)])
    assert membership.is_quorum([ServerId(1), ServerId(2)])


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=6))
def test_any_two_quorums__have_a_server_in_common(voters: list[tuple[int, int]]) -> None:
    groups: dict[int, list[int]] = {}
    for id, (group, _) in enumerate(voters, start=1):
        groups.setdefault(group, []).append(id)
    membership = hierarchy(groups, {id: weight for id, (_, weight) in enumerate(voters, start=1)})
    ids = sorted(membership.voters)
    sets = [set(some) for size in range(len(ids) + 1) for some in combinations(ids, size)]
    quorums = [some for some in sets if membership.is_quorum(some)]

    assert all(one & other for one in quorums for other in quorums)


def test_pending_change__needs_a_quorum_of_both() -> None:
    both = Quorums(majority(3), Membership(tuple(map(member, (3, 4, 5))), Zxid(9)))

    assert both.voters == {1, 2, 3, 4, 5}
    assert not both.is_quorum(list(map(ServerId, [1, 2, 3])))
    assert not both.is_quorum(list(map(ServerId, [3, 4, 5])))
    assert both.is_quorum(list(map(ServerId, [1, 3, 4])))
    assert both.weight(ServerId(5)) == 1
    assert both.find(ServerId(5)) == member(5)
    assert both.find(ServerId(6)) is None


def test_proposed_change_that_is_not_newer__has_no_say() -> None:
    assert Quorums(majority(3, version=9), majority(5, version=9)).next is None
    assert Quorums(majority(3, version=9), majority(5, version=9)).voters == {1, 2, 3}


def test_several_ids_of_one_number__are_refused_as_our_own_bug() -> None:
    with pytest.raises(Exception, match="same id"):
        Membership((member(1), member(1)))


LINE = "server.4=10.0.0.4:1:2;2181"


def changed(current: Membership, **changes: str | None) -> Membership:
    return current.with_changes(
        changes.get("joining"),
        changes.get("leaving"),
        changes.get("new_members"),
        version=Zxid(0x200000001),
    )


def test_joining_and_leaving__are_done_in_that_order_of_the_request() -> None:
    result = changed(majority(3), joining=f"{LINE}, server.1=h:5:6:observer;7", leaving="2,77")

    assert result.version == 0x200000001
    assert result.voters == {3, 4}
    assert result.observers == {1}
    assert result.find(ServerId(4)) == parse_member(ServerId(4), "10.0.0.4:1:2;0.0.0.0:2181")


def test_new_members__replace_all() -> None:
    result = changed(majority(3), new_members=f"{LINE},server.5=10.0.0.5:1:2;2181\nversion=77")

    assert result.voters == {4, 5}
    assert result.version == 0x200000001


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"joining": "server.4=10.0.0.4:1:2"}, ErrorCode.BAD_ARGUMENTS),
        ({"joining": "server.4"}, ErrorCode.BAD_ARGUMENTS),
        ({"joining": "server.4=10.0.0.4:1;2181"}, ErrorCode.BAD_ARGUMENTS),
        ({"joining": "server.x=10.0.0.4:1:2;2181"}, ErrorCode.MARSHALLING_ERROR),
        ({"leaving": "x"}, ErrorCode.MARSHALLING_ERROR),
        ({"leaving": "1,2"}, ErrorCode.BAD_ARGUMENTS),
        ({"new_members": "clientPort=1"}, ErrorCode.BAD_ARGUMENTS),
        ({"new_members": ""}, ErrorCode.BAD_ARGUMENTS),
        ({"new_members": LINE}, ErrorCode.BAD_ARGUMENTS),
    ],
)
def test_change_that_cannot_be_made__is_answered_as_by_apache(
    changes: dict[str, str], code: ErrorCode
) -> None:
    with pytest.raises(KeeperError) as raised:
        changed(majority(3), **changes)
    assert raised.value.code is code


def test_address_of_another_member__is_refused_unless_it_is_loopback() -> None:
    current = changed(majority(3), joining=LINE)

    with pytest.raises(KeeperError):
        changed(current, joining="server.5=10.0.0.4:3:2;2182")
    assert changed(current, joining="server.5=127.0.0.1:20001:2;2181").find(ServerId(5))


def test_groups__cannot_be_changed_one_by_one() -> None:
    current = hierarchy({1: [1, 2, 3]}, {})

    with pytest.raises(KeeperError) as raised:
        changed(current, joining=LINE)
    assert raised.value.code is ErrorCode.BAD_ARGUMENTS
    assert changed(current, new_members=majority(3).text().decode()).voters == {1, 2, 3}


def test_single_voter__is_enough_where_standalone_is_off() -> None:
    result = majority(2).with_changes(None, "2", None, version=Zxid(5), is_standalone_enabled=False)
    assert result.voters == {1}
