"""What a reconfig request makes of a membership: a real ensemble's answer, and ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import KazooException

from keepfast.client import Client, OperationFailed
from keepfast.quorum import parse_membership
from keepfast.wire import ErrorCode, KeeperError, Zxid
from tests.apache import ApacheEnsemble, ApacheServer, free_ports
from tests.keepfast_server import KeepfastServer

pytestmark = pytest.mark.conformance

CONFIG = "/zookeeper/config"
# A minute until a follower is given up: an election would cut the connection in mid-request.
CONFIGURATION = {"reconfigEnabled": "true", "syncLimit": "30"}


class Wish(NamedTuple):
    """A request; `{name}` stands for an address nobody has, `{old}` for the text as it is."""

    joining: str | None = None
    leaving: str | None = None
    new_members: str | None = None


# Made one after the other: each sees what those before it left behind. Ids below 8: the order of
# others in the text depends on how Java's hash maps grew.
WISHES = [
    # A member that does not exist joins: the three that do are a quorum of four.
    Wish("server.4={a};{c}"),
    Wish("server.5={b}:observer;127.0.0.1:{d}"),
    Wish("server.4={a}:observer;{c}"),
    Wish("server.4={b};{c}"),
    Wish(" server.6 = {a};{c} "),
    Wish("6={a};[::1]:{c}"),
    Wish("other.thing.7={b}:OBSERVER;{c}"),
    Wish(leaving="4, 5,,77"),
    Wish("server.5={a};{c}", "5"),
    Wish(None, "5,6,7"),
    Wish("server.7=10.9.8.7:{d}:{c};10.9.8.7:2181"),
    Wish("server.5=10.9.8.7:{d}:5;10.9.8.6:2182"),
    Wish("server.5=10.9.8.6:5:6:observer;10.9.8.7:2181"),
    Wish("server.5=10.9.8.6:5:6:observer;0.0.0.0:2181"),
    Wish("server.6=127.0.0.1:5:6:observer;0.0.0.0:2181"),
    Wish(leaving="5,6,7"),
    # No change at all is one, too.
    Wish("", ""),
    # What cannot be read.
    Wish("server.4={a}"),
    Wish("server.4={a};"),
    Wish("server.4"),
    Wish("server.4="),
    Wish("server.4={a};{c}=5"),
    Wish("server.4=127.0.0.1:5;{c}"),
    Wish("server.4=127.0.0.1:5:5;{c}"),
    Wish("server.4=127.0.0.1:5:6:leader;{c}"),
    Wish("server.4=127.0.0.1:x:6;{c}"),
    Wish("server.4=127.0.0.1:5:6:participant:7;{c}"),
    Wish("server.4=127.0.0.1:5:6;x"),
    Wish("server.4=127.0.0.1:5:6;a:b:c"),
    Wish("server.4={a}|{b};{c}"),
    Wish("server.4=[::1:5:6;{c}"),
    Wish("server.x={a};{c}"),
    Wish("server.={a};{c}"),
    Wish(leaving="x"),
    Wish(leaving="1,x"),
    Wish(leaving="-1"),
    Wish("server.4=127.0.0.1:99999:6;{c}"),
    Wish("server.4=127.0.0.1:5:6;99999"),
    # Too few would be left.
    Wish(leaving="1,2"),
    Wish(leaving="1,2,3"),
    # All at once.
    Wish(new_members="{old}\nserver.4={a}:observer;{c}"),
    Wish(new_members="{old},server.4={a}:participant;{c}"),
    Wish(new_members="{old}"),
    Wish(new_members="server.x={a}\nserver.2={b}"),
    Wish(new_members="{old}\ngroup.x=1:2:3"),
    Wish(new_members="{old}\ngroup.1=1:2:x"),
    Wish(new_members="server.1={a}"),
    Wish(new_members="server.1={a}\nserver.2={b}:observer"),
    Wish(new_members="server.1={a}:observer\nserver.2={b}:observer"),
    Wish(new_members="{old}\nclientPort=5"),
    Wish(new_members="{old}\ngroup.1=1:2"),
    Wish(new_members="{old}\ngroup.1=1:2:3\ngroup.2=3"),
    Wish(new_members="{old}\nweight.1=5"),
    Wish(new_members="{old}\nversion=xyz"),
    # Groups; from there, there is only the way back as a whole.
    Wish(new_members="{plain}\ngroup.1=1:2:3\nweight.2=5\nweight.3=0"),
    Wish("server.4={a};{c}"),
    Wish(leaving="3"),
    Wish(new_members="{plain}"),
]


def test_every_request__has_the_result_or_the_error_of_apache(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    ports = iter(free_ports(6))
    names: dict[str, object] = {
        "a": f"127.0.0.1:{next(ports)}:{next(ports)}",
        "b": f"127.0.0.1:{next(ports)}:{next(ports)}",
        "c": next(ports),
        "d": next(ports),
    }
    changes = 0
    differences = []
    with (
        ApacheEnsemble(tmp_path, configuration=CONFIGURATION) as ensemble,
        # The leader: it alone answers from what it has just decided.
        ensemble.servers[ensemble.wait_for_leader()].connect() as client,
    ):
        names["plain"] = _members(_config(client))
        for wish in WISHES:
            before = _config(client)
            names["old"] = _members(before)
            request = Wish(*(text and text.format(**names) for text in wish))
            theirs = _ask_apache(client, request)
            ours = _ask_ours(before, request, theirs)
            if ours != theirs:
                differences.append((request, theirs, ours))
            if isinstance(theirs, bytes):
                changes += 1
                assert _config(client) == theirs
    assert differences == []
    tell(f"{len(WISHES)} requests, {changes} of them changes, the others refused")


def _config(client: Any) -> bytes:
    data: bytes = client.retry(client.get, CONFIG)[0]
    return data


def _members(config: bytes) -> str:
    return re.sub(r"\n?version=.*", "", config.decode())


def _ask_apache(client: Any, wish: Wish) -> bytes | int:
    try:
        data: bytes = client.reconfig(wish.joining, wish.leaving, wish.new_members)[0]
    except KazooException as error:
        code: int = error.code
        return code
    return data


def _ask_ours(before: bytes, wish: Wish, theirs: bytes | int) -> bytes | int:
    # Which zxid the change gets is not for the membership to say.
    version = int(theirs.rpartition(b"=")[2], 16) if isinstance(theirs, bytes) else 0
    try:
        return parse_membership(before).with_changes(*wish, version=Zxid(version)).text()
    except KeeperError as error:
        return error.code.value


@pytest.mark.parametrize(
    ("enabled", "expected"),
    [("false", ErrorCode.RECONFIG_DISABLED), ("true", ErrorCode.UNIMPLEMENTED)],
)
@pytest.mark.parametrize("kind", [ApacheServer, KeepfastServer])
def test_reconfig_of_a_server_alone__the_same_refusal(
    tmp_path: Path, kind: type[ApacheServer], enabled: str, expected: ErrorCode
) -> None:
    configuration = {"reconfigEnabled": enabled}
    with (
        kind(tmp_path / "data", configuration=configuration) as server,
        Client(server.hosts) as client,
        pytest.raises(OperationFailed) as refused,
    ):
        client.reconfig(None, "3", None)
    assert refused.value.code is expected
