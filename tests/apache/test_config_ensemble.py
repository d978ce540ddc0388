"""Members of an ensemble: their lines, the dynamic file, myid, and what cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.apache.config import ConfigError, ServerConfig, load_config
from keepfast.apache.config_ensemble import parse_member_line
from keepfast.quorum import Address, MemberRole, Membership, MemberSpec, parse_membership
from keepfast.wire import ServerId, Zxid

THREE = """\
tickTime=2000
initLimit=10
syncLimit=5
clientPort=2181
server.1=zk1:2888:3888
server.2=zk2:2888:3888
server.3=zk3:2888:3888
"""


def load(folder: Path, text: str, my_id: str | None = "1") -> ServerConfig:
    """The configuration of a file with this text, dataDir and myid added."""
    if my_id is not None:
        (folder / "myid").write_text(my_id)
    (folder / "zoo.cfg").write_text(text + f"dataDir={folder}\n")
    return load_config(folder / "zoo.cfg")


def messages(folder: Path, text: str, my_id: str | None = "1") -> list[str]:
    """What is wrong with a configuration, one line an error, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, my_id)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def member(
    text: str, client: Address | None = None, *, role: MemberRole = MemberRole.PARTICIPANT
) -> MemberSpec:
    host, quorum_port, election_port = text.rsplit(":", 2)
    quorum, election = Address(host, int(quorum_port)), Address(host, int(election_port))
    return MemberSpec(ServerId(7), (quorum,), (election,), role, client)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk1:2888:3888", member("zk1:2888:3888")),
        ("zk1:2888:3888:participant", member("zk1:2888:3888")),
        ("zk1:2888:3888:OBSERVER", member("zk1:2888:3888", role=MemberRole.OBSERVER)),
        ("zk1:2888:3888;2181", member("zk1:2888:3888", Address("0.0.0.0", 2181))),
        ("zk_1.a-b:2888:3888;", member("zk_1.a-b:2888:3888")),
        ("10.0.0.1:1:2;zk1:2181", member("10.0.0.1:1:2", Address("zk1", 2181))),
        ("[::1]:1:2:observer", member("0:0:0:0:0:0:0:1:1:2", role=MemberRole.OBSERVER)),
        (
            "[2001:db8::1]:1:2;[::]:3",
            member("2001:db8:0:0:0:0:0:1:1:2", Address("0:0:0:0:0:0:0:0", 3)),
        ),
        (
            " zk1 : 2888 : 3888 : observer ; 2181 ",
            member("zk1:2888:3888", Address("0.0.0.0", 2181), role=MemberRole.OBSERVER),
        ),
    ],
)
def test_server_line__is_read(text: str, expected: MemberSpec) -> None:
    assert parse_member_line(7, text) == expected


def test_server_line__with_several_addresses_and_a_secure_port() -> None:
    text = "zk1:2888:3888|[fe80::1]:2889:3889:observer;2181;zk1:2281"

    found = parse_member_line(3, text, is_multi_address_enabled=True)

    assert found.quorum == (Address("zk1", 2888), Address("fe80:0:0:0:0:0:0:1", 2889))
    assert found.election == (Address("zk1", 3888), Address("fe80:0:0:0:0:0:0:1", 3889))
    assert (found.role, found.client) == (MemberRole.OBSERVER, Address("0.0.0.0", 2181))
    assert found.secure_client == Address("zk1", 2281)
    assert parse_member_line(3, found.text(), is_multi_address_enabled=True).client == found.client


_FORM = (
    "must be host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort],"
    " several addresses joined by |"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", _FORM),
        ("zk1", _FORM),
        ("zk1:2888", _FORM),
        ("zk1:2888:3888:observer:5", _FORM),
        ("zk1:2888:3888;1;2;3", _FORM),
        ("zk1:2888:3888;a:b:1", _FORM),
        ("[::1:1:2", _FORM),
        ("[::1]1:2:3", _FORM),
        ("::1:2888:3888", _FORM),
        ("zk1:x:3888", '"x" must be a port from 1 to 65535'),
        ("zk1:2888:0", '"0" must be a port from 1 to 65535'),
        ("zk1:2888:65536", '"65536" must be a port from 1 to 65535'),
        ("zk1:2888:3888;70000", '"70000" must be a port from 0 to 65535'),
        ("zk 1:2888:3888", '"zk 1" must be a host name or an IP address'),
        (":2888:3888", '"" must be a host name or an IP address'),
        ("zk1:2888:2888", "quorum port and election port must be different"),
        ("zk1:2888:3888:voter", '"voter" must be participant or observer'),
        ("a:1:2|b:1:2", "several addresses need multiAddress.enabled=true"),
    ],
)
def test_server_line__that_cannot_work_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_member_line(1, text)

    assert str(caught.value) == reason


def test_several_addresses__must_agree_on_the_role() -> None:
    with pytest.raises(ValueError, match="the same role"):
        parse_member_line(1, "a:1:2:observer|b:1:2:participant", is_multi_address_enabled=True)


def test_membership__is_written_as_apache_writes_it() -> None:
    membership = Membership(
        tuple(
            parse_member_line(number, f"127.0.0.1:3072{number}:3073{number};2181")
            for number in (1, 2)
        ),
        version=Zxid(0x200000008),
    )

    assert membership.text().decode() == (
        "server.1=127.0.0.1:30721:30731:participant;0.0.0.0:2181\n"
        "server.2=127.0.0.1:30722:30732:participant;0.0.0.0:2181\n"
        "version=200000008"
    )


@pytest.mark.parametrize(
    "lines",
    [
        "server.1=a:1:2\nserver.2=b:1:2;2181\nserver.3=[1:2:3:4:5:6:7:8]:1:2:observer;c:5\n",
        "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\ngroup.1=1:2\ngroup.2=3\nweight.2=3\n",
        "multiAddress.enabled=true\nserver.1=b:1:2|a:3:4\nserver.2=a:1:2\n",
    ],
    ids=["plain", "groups", "several"],
)
def test_members_of_a_file__are_those_that_peers_read_in_the_config_text(
    lines: str, tmp_path: Path
) -> None:
    text = f"clientPort=2181\ninitLimit=5\nsyncLimit=2\n{lines}"

    membership = load(tmp_path, text).ensemble.membership

    found = parse_membership(membership.text())
    assert found.text() == membership.text()
    assert found.voters == membership.voters
    assert [found.weight(id) for id in found.voters] == [
        membership.weight(id) for id in found.voters
    ]


def test_three_servers__are_an_ensemble(tmp_path: Path) -> None:
    config = load(tmp_path, THREE, "2\n")

    assert config.is_distributed
    assert config.ensemble.my_id == 2
    assert config.ensemble.is_my_id_stored
    assert config.ensemble.me == parse_member_line(2, "zk2:2888:3888")
    assert config.ensemble.membership.voters == {1, 2, 3}
    assert config.client_address == Address("0.0.0.0", 2181)
    assert config.warnings == ()


def test_one_server__is_standalone_unless_told_otherwise(tmp_path: Path) -> None:
    one = "clientPort=2181\nserver.1=zk1:2888:3888\n"

    assert not load(tmp_path, one).is_distributed

    config = load(tmp_path, one + "standaloneEnabled=false\ninitLimit=5\nsyncLimit=2\n")

    assert config.is_distributed
    (warning,) = config.warnings
    assert str(warning).endswith("with 1 voters no failure is tolerated; 3 tolerate one")


def test_one_server_without_myid__takes_the_client_port_of_its_line(tmp_path: Path) -> None:
    config = load(tmp_path, "server.1=localhost:2888:3888;127.0.0.1:2181\n", None)

    assert config.client_address == Address("127.0.0.1", 2181)


def test_four_voters__are_a_warning(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, THREE + "server.4=zk4:2888:3888\n").warnings

    assert str(warning).endswith("server.4: 4 voters tolerate no more failures than 3")
    assert warning.line == 8


@pytest.mark.parametrize(
    ("static", "line", "expected"),
    [
        ("clientPort=2181", "", Address("0.0.0.0", 2181)),
        ("", ";2182", Address("0.0.0.0", 2182)),
        ("clientPort=2182", ";2182", Address("0.0.0.0", 2182)),
        ("clientPort=2182", ";zk1:2182", Address("zk1", 2182)),
        ("clientPort=2182\nclientPortAddress=zk1", ";zk1:2182", Address("zk1", 2182)),
        ("clientPort=2182\nclientPortAddress=0.0.0.0", ";zk1:2182", Address("zk1", 2182)),
    ],
)
def test_client_port__comes_from_the_file_or_from_the_line(
    static: str, line: str, expected: Address, tmp_path: Path
) -> None:
    text = THREE.replace("clientPort=2181", static).replace("zk1:2888:3888", f"zk1:2888:3888{line}")

    assert load(tmp_path, text).client_address == expected


@pytest.mark.parametrize(
    "static", ["clientPort=2181", "clientPort=2182\nclientPortAddress=10.0.0.1"]
)
def test_client_port__that_differs_from_the_line_is_an_error(static: str, tmp_path: Path) -> None:
    text = THREE.replace("clientPort=2181", static).replace("zk1:2888:3888", "zk1:2888:3888;2182")

    (message,) = messages(tmp_path, text)

    assert message.startswith("zoo.cfg:4: clientPort=")
    assert "the line server.1 has 0.0.0.0:2182 for clients, not " in message


def test_flag__beats_the_client_port_of_the_line(tmp_path: Path) -> None:
    load(tmp_path, "server.1=zk1:2888:3888;127.0.0.1:2181\n")

    config = load_config(tmp_path / "zoo.cfg", port=0)

    assert config.client_address == Address("127.0.0.1", 0)


def test_groups_and_weights__make_a_hierarchical_quorum(tmp_path: Path) -> None:
    text = THREE + "server.4=zk4:2888:3888:observer\ngroup.1=1:2\ngroup.2=3\nweight.3=2\n"

    membership = load(tmp_path, text).ensemble.membership

    assert membership.is_hierarchical
    assert membership.observers == {4}
    assert membership.text().decode().splitlines()[4:] == [
        "group.1=1:2",
        "group.2=3",
        "weight.1=1",
        "weight.2=1",
        "weight.3=2",
        "version=0",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "group.1=1:2",
            "7: server.3=zk3:2888:3888: with groups or weights every voter must be in a group",
        ),
        ("group.1=1:2:3\ngroup.2=3", "9: group.2=3: server 3 is in group 1 already"),
        ("group.1=1:2:3:9", "8: group.1=1:2:3:9: there is no line server.9"),
        ("group.1=1;2;3", "8: group.1=1;2;3: must be ids of servers joined by :"),
        ("weight.9=1\ngroup.1=1:2:3", "8: weight.9=1: there is no line server.9"),
        (
            "group.1=1:2:3\nweight.1=-1",
            "9: weight.1=-1: must be a whole number from 0 to 9223372036854775807",
        ),
        (
            "group.1=1:2:3\nweight.1=0\nweight.2=0\nweight.3=0",
            "9: weight.1=0: one voter at least must have a weight above 0",
        ),
        (
            "server.x=zk4:1:2",
            '8: server.x=zk4:1:2: "x" must be a whole number from 0 to 9223372036854775807',
        ),
        ("server.01=zk4:1:2", "5: server.1=zk1:2888:3888: server 1 is there already"),
        (
            "server.4=zk3:3888:4888",
            "8: server.4=zk3:3888:4888: zk3:3888 is the address of another server, too",
        ),
        (
            "server.257=zk4:1:2",
            "8: server.257=zk4:1:2: session ids of servers 1 and 257 would be the same",
        ),
        (
            "extendedTypesEnabled=true\nserver.255=zk4:1:2",
            "9: server.255=zk4:1:2: with extendedTypesEnabled an id must not be above 254",
        ),
        (
            "quorum.auth.enableSasl=true\nquorum.auth.serverRequireSasl=true",
            "9: quorum.auth.serverRequireSasl=true: needs quorum.auth.learnerRequireSasl=true",
        ),
        (
            "quorum.auth.learnerRequireSasl=true",
            "8: quorum.auth.learnerRequireSasl=true: needs quorum.auth.enableSasl=true",
        ),
        (
            "sslQuorum=true\nssl.quorum.clientAuth=none",
            "8: sslQuorum=true: needs ssl.quorum.keyStore.location",
        ),
    ],
)
def test_ensemble__that_cannot_work_says_why(text: str, expected: str, tmp_path: Path) -> None:
    assert messages(tmp_path, THREE + text + "\n") == [f"zoo.cfg:{expected}"]


def test_ensemble__without_its_mandatory_keys_says_all_that_is_missing(tmp_path: Path) -> None:
    text = "clientPort=2181\nserver.1=zk1:2888:3888\nserver.2=zk2:2888:3888\n"

    assert messages(tmp_path, text, None) == [
        "zoo.cfg: initLimit: must be set, to 1 or more, in an ensemble",
        "zoo.cfg: syncLimit: must be set, to 1 or more, in an ensemble",
        "zoo.cfg: keepfast.myId: there must be a file myid",
    ]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("server.1=a:1:2\nserver.2=b:1:2:observer", "server.2=b:1:2:observer"),
        ("server.1=a:1:2:observer", "server.1=a:1:2:observer"),
        ("standaloneEnabled=false\nserver.1=a:1:2:observer", "server.1=a:1:2:observer"),
    ],
)
def test_observers_without_voters__are_an_error(lines: str, reason: str, tmp_path: Path) -> None:
    text = f"clientPort=2181\ninitLimit=5\nsyncLimit=5\n{lines}\n"

    (message,) = messages(tmp_path, text)

    assert f"{reason}: observers need an ensemble" in message


@pytest.mark.parametrize(
    ("content", "shown"), [("", ""), ("one", "one"), ("-1", "-1"), ("1.0", "1.0"), ("\xff", "��")]
)
def test_myid__that_is_no_number_is_an_error(content: str, shown: str, tmp_path: Path) -> None:
    (message,) = messages(tmp_path, THREE, content)

    assert message == (
        f'myid: its first line is "{shown}", must be the whole number of this server\'s line'
    )


def test_myid__that_no_line_has_is_an_error(tmp_path: Path) -> None:
    assert messages(tmp_path, THREE, "4") == [
        "zoo.cfg: server.4: there must be such a line: this server's id is not among 1, 2, 3"
    ]


def test_myid__blanks_and_further_lines_do_not_count(tmp_path: Path) -> None:
    assert load(tmp_path, THREE, " 3 \r\nsecond line\n").ensemble.my_id == 3


def test_id_given_otherwise__is_used_if_there_is_no_file_and_must_agree_if_there_is(
    tmp_path: Path,
) -> None:
    config = load(tmp_path, THREE + "keepfast.myId=3\n", None)

    assert config.ensemble.my_id == 3
    assert not config.ensemble.is_my_id_stored
    assert messages(tmp_path, THREE + "keepfast.myId=3\n", "2") == [
        "zoo.cfg:8: keepfast.myId=3: myid says 2"
    ]


def test_peer_type__the_line_wins_with_a_warning(tmp_path: Path) -> None:
    config = load(tmp_path, THREE + "peerType=observer\n")

    assert config.ensemble.peer_type is MemberRole.PARTICIPANT
    (warning,) = config.warnings
    assert str(warning).endswith("zoo.cfg:8: peerType: the line server.1 says participant")


def test_peer_type__follows_the_line_without_one(tmp_path: Path) -> None:
    config = load(tmp_path, THREE + "server.4=zk4:2888:3888:observer\n", "4")

    assert config.ensemble.peer_type is MemberRole.OBSERVER
    assert config.warnings == ()


# -- the dynamic file ----------------------------------------------------------------------------

STATIC = "\n".join(line for line in THREE.splitlines() if not line.startswith("server.")) + "\n"
DYNAMIC = "\n".join(line for line in THREE.splitlines() if line.startswith("server.")) + "\n"


def dynamic(folder: Path, content: str, name: str = "zoo.cfg.dynamic.10000000a") -> str:
    (folder / name).write_text(content)
    return f"{STATIC}dynamicConfigFile={folder}/{name}\n"


def test_dynamic_file__holds_the_members_and_its_name_the_version(tmp_path: Path) -> None:
    membership = load(tmp_path, dynamic(tmp_path, DYNAMIC)).ensemble.membership

    assert membership.version == 0x10000000A
    assert [one.server_id for one in membership.members] == [1, 2, 3]


@pytest.mark.parametrize("name", ["zoo.cfg.dynamic", "members", "cafe", "x.1g", "zoo.cfg.0x12"])
def test_dynamic_file__without_a_version_in_its_name_is_version_0(
    name: str, tmp_path: Path
) -> None:
    assert load(tmp_path, dynamic(tmp_path, DYNAMIC, name)).ensemble.membership.version == 0


def test_dynamic_file__and_lines_in_the_static_one_are_an_error(tmp_path: Path) -> None:
    text = dynamic(tmp_path, DYNAMIC) + "server.1=zk1:2888:3888\n"

    (message,) = messages(tmp_path, text)

    assert message == (
        "zoo.cfg:6: server.1=zk1:2888:3888: must stand in the file that dynamicConfigFile names, "
        "zoo.cfg.dynamic.10000000a"
    )


def test_dynamic_file__holds_members_only(tmp_path: Path) -> None:
    text = dynamic(tmp_path, DYNAMIC + "version=1\ntickTime=1\n")

    version, tick_time = messages(tmp_path, text)

    assert version == (
        "zoo.cfg.dynamic.10000000a:4: version=1: "
        "the version is the ending of the dynamic file's name"
    )
    assert tick_time == (
        "zoo.cfg.dynamic.10000000a:5: tickTime=1: "
        "a dynamic file holds server., group. and weight. lines only"
    )


def test_dynamic_file__that_is_missing_is_an_error(tmp_path: Path) -> None:
    text = f"{STATIC}dynamicConfigFile={tmp_path}/none\n"

    assert messages(tmp_path, text) == [
        "none: the dynamic configuration file cannot be read: No such file or directory"
    ]


def test_dynamic_file__errors_name_its_lines(tmp_path: Path) -> None:
    text = dynamic(tmp_path, "# members\n" + DYNAMIC.replace("zk2:2888", "zk2:x"))

    assert messages(tmp_path, text) == [
        'zoo.cfg.dynamic.10000000a:3: server.2=zk2:x:3888: "x" must be a port from 1 to 65535'
    ]
