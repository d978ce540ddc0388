"""Our shell beside ZooKeeper's own: the same lines to two fresh servers, the same answers.

Both servers are Apache's and begin empty, so that even the zxids have to agree: our commands send
the same writes, in the same number and order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache import SUPER_CREDENTIAL, ApacheEnsemble, ApacheServer
from tests.shell.transcripts import run_apache, run_ours

pytestmark = pytest.mark.conformance

# A script that prints hardly anything has compared nothing.
MIN_LINES = 20

SCRIPTS = {
    "create": """
create /a hello
create /a/b
create /a/b/c x
create -s /a/q-
create -s /
create -e /a/own data
create -es /a/own- data
create -c /box
create -t 5000 /ttl data
create -s -t 5000 /ttl- data
create -t 0 /ttl2
create -t x /ttl2
create -t 1099511627776 /ttl2
create -e -t 5 /ttl2
create -c -t 5 /ttl2
create -c -e /x
create -c -s /x
create /a again
create /none/x
create /a/own/child
create nopath
create /bad/
create /bad//x
create /bad/../x
create /bad/.
create "/b\tx"
create
create -t
create -z /x
create /empty ""
create /quoted 'two words'
create /acl data digest:bob:xx:rw,ip:127.0.0.1:cdrwa
create /acl2 data foo:bar:rz
create /acl3 data nonsense
create /acl4 data world:anyone:
create /umlaut-ä-漢 grüße
ls -R /
get /umlaut-ä-漢
getAllChildrenNumber /
getEphemerals
getEphemerals /a
getEphemerals /zz
getEphemerals zz
""",
    "read": """
create /a hello
create /a/b
create /a/e ""
create /a/long "0123456789 abcdefghijklmnopqrstuvwxyz äöü"
ls /
ls -s /a
ls -z /
ls
ls /a watch
ls /none
ls -R /none
ls -R nopath
ls none
ls /a/
get /a
get -s /a
get -b /a
get -x /a
get -x /a/long
get -sx /a/long
get -b -s /a/long
get -bx /a
get /a/b
get -x /a/b
get -b /a/b
get /a/e
get -x /a/e
get -b /a/e
get
get -s
get /none
get --x /a
stat /a
stat /none
stat none
stat
getAcl /
getAcl -s /a
getAcl /none
getAcl
getAcl /zookeeper/config
sync /
sync /none
sync none
sync
getAllChildrenNumber /a
getAllChildrenNumber /none
getAllChildrenNumber
whoami
whoami x
config
config -s
config -c
reconfig
reconfig -remove 3
reconfig -remove 3 -members x
reconfig -file a -members b
reconfig -v xyz -remove 3
version x
""",
    "change": """
create /a hello
create /a/b
create /a/b/c
create /a/d
set /a new
set -s /a new2
set /a x -v 77
set /a x -v 2
set /a y -v3
set /a z -v=4
set /a aGVsbG8= -b
get /a
set /a
set /a x -v
set /none x
set /a -5
set /a -- -5
get /a
set /a "unterminated data
get /a
set /a 'single quoted' extra
get -s /a
delete /a
delete /none
delete /a/b/c -v 3
delete -v 0 /a/b/c
delete /a/b/c
delete /
delete
delete none
delete /zookeeper
setAcl /a world:anyone:cdrwa
setAcl -s /a world:anyone:cdrwa
setAcl -v 9 /a world:anyone:cdrwa
setAcl -v 2 /a world:anyone:cdrwa
setAcl /a auth::cdrwa
setAcl /a nonsense
setAcl /a
setAcl /none world:anyone:r
addauth digest u:p
whoami
setAcl /a auth::crwa
getAcl /a
setAcl -R /a/b world:anyone:r
getAcl /a/b
get /a
addauth
create /d
create /d/a
create /d/b
create /d/b/c
deleteall /d
ls /d
deleteall /none
deleteall
deleteall /a/d -b x
deleteall /a/d -b 0
deleteall /a/b -b 1
deleteall nopath
deleteall /zookeeper
ls -s /
""",
    "quota": """
create /q 12345
create /q/a 1
setquota -n 5 /q
listquota /q
get /zookeeper/quota/q/zookeeper_limits
setquota -b 3 /q
listquota /q
setquota -N 1 /q
setquota -B 100 /q
listquota /q
setquota -n 5 -b 4 /q
setquota -n x /q
setquota -n 99999999999 /q
setquota -n 0 /q
setquota -b -1 /q
setquota -b 0 /q
setquota /q
setquota -n 5
setquota -n
setquota -n 5 /none
setquota -n 5 /q/a
create /p
create /p/c
create /p/c/d
setquota -n 9 /p/c
setquota -n 9 /p
setquota -n 9 /p/c/d
setquota -n 9 /zookeeper/quota/q
setquota -n 9 q
setquota -n 9 /
listquota /none
listquota
listquota /p
delquota -n /q
listquota /q
delquota -B /q
delquota /q
delquota /q
ls -R /zookeeper
delquota /none
delquota
delquota -n -b /p/c
delquota /p/c
ls -R /zookeeper
ls -s /
""",
    "watch": """
create /q 1
create /q/a
get -w /q
set /q 2
get -w /q
ls -w /q
stat -w /q/none
create /q/none
set /q 3
set /q 4
addWatch /q/a
create /q/a/deep
set -s /q/a/deep 5
delete /q/a/deep
addWatch -m persistent /q
create /q/b
set /q 5
addWatch -m foo /q
addWatch
addWatch /q x
removewatches /q
removewatches /q
removewatches /q/a -r
removewatches /q/a -r
removewatches /nix -c -l
removewatches
removewatches none
get -w /q
ls -w /q
removewatches /q -d
removewatches /q -c
removewatches /q -a
get -w /q
delete /q/b
delete /q/none
delete /q/a
delete /q
config -w
printwatches
printwatches off
printwatches
printwatches on
printwatches
""",
    "shell": """
create /a 1
history
redo 0
redo 1
redo 99
redo -1
redo 0x0
create /b 1
create /c 1
create /d 1
create /e 1
create /f 1
create /g 1
history
redo 7
history
close
ls /
connect
ls /
close
close
""",
}

CHROOT_SCRIPT = """
ls /
create -e /own
getEphemerals
getEphemerals /app
getEphemerals /own
config
get /nothing
get -w /
set / x
create /sub
create -s /sub/
ls -R /
stat /sub/none
delete /
getAllChildrenNumber /
sync /
getAcl /sub
setAcl /sub world:anyone:rw
deleteall /sub
ls /
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ApacheServer, ApacheServer]]:
    with ApacheServer(tmp_path / "one") as one, ApacheServer(tmp_path / "two") as two:
        yield one, two


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__prints_what_zookeepers_shell_prints(
    servers: tuple[ApacheServer, ApacheServer], name: str
) -> None:
    script = SCRIPTS[name].strip() + "\n"
    theirs = run_apache(servers[0].hosts, script=script)
    ours = run_ours(servers[1].hosts, script=script)

    assert ours.lines == theirs.lines
    assert ours.blank_lines == theirs.blank_lines
    assert ours.events == theirs.events
    assert len(ours.lines) >= MIN_LINES


def test_script_in_a_chroot__prints_what_zookeepers_shell_prints(
    servers: tuple[ApacheServer, ApacheServer],
) -> None:
    transcripts = []
    for run, server in zip((run_apache, run_ours), servers, strict=True):
        run(server.hosts, script="create /app\ncreate /app/a\nclose\n")
        transcripts.append(run(f"{server.hosts}/app", script=CHROOT_SCRIPT))
        transcripts.append(run(f"{server.hosts}/none", script="ls /\nget /\ncreate /x\n"))

    assert [one.lines for one in transcripts[2:]] == [one.lines for one in transcripts[:2]]
    assert [one.events for one in transcripts[2:]] == [one.events for one in transcripts[:2]]


@pytest.mark.parametrize(
    ("command", "code_of_theirs", "code_of_ours"),
    [
        (["ls", "/zookeeper"], 0, 0),
        (["get", "-s", "/zookeeper/config"], 0, 0),
        (["ls", "/none"], 1, 1),
        (["get"], 1, 2),
        (["create", "-t", "5"], 1, 2),
        (["set", "/a", "two words", "-v", "3"], 1, 1),
    ],
)
def test_single_command__prints_what_zookeepers_shell_prints(
    one_server: ApacheServer, command: list[str], code_of_theirs: int, code_of_ours: int
) -> None:
    theirs = run_apache(one_server.hosts, *command)
    ours = run_ours(one_server.hosts, *command)

    assert ours.lines == theirs.lines
    assert (theirs.exit_code, ours.exit_code) == (code_of_theirs, code_of_ours)


def test_unknown_command__is_one_line_with_the_nearest_word_and_help_lists_all(
    one_server: ApacheServer,
) -> None:
    theirs = run_apache(one_server.hosts, "creat")
    ours = run_ours(one_server.hosts, "creat")
    listed = run_ours(one_server.hosts, "help")

    assert ours.lines == ["Command not found: creat; did you mean create?"]
    # What 3.4 called it.
    old = run_ours(one_server.hosts, "rmr", "/a")
    assert old.lines == ["Command not found: rmr; did you mean deleteall?"]
    assert set(theirs.lines) - set(listed.lines) == {
        "ZooKeeper -server host:port -client-configuration properties-file cmd args",
        "Command not found: Command not found creat",
    }
    assert [line for line in listed.lines if line.startswith("\thelp")] == ["\thelp [command]"]
    assert (theirs.exit_code, ours.exit_code) == (127, 2)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    with ApacheServer(tmp_path_factory.mktemp("apache") / "data") as server:
        assert run_ours(server.hosts, "create", "/a", "1").exit_code == 0
        yield server


def test_ensemble__configuration_is_shown_and_changed(tmp_path: Path) -> None:
    with ApacheEnsemble(tmp_path, configuration={"reconfigEnabled": "true"}) as ensemble:
        leader = ensemble.wait_for_leader()
        host = ensemble.servers[leader].hosts
        script = "config\nconfig -c\nconfig -s\nreconfig -remove 1\n"
        theirs, ours = run_apache(host, script=script), run_ours(host, script=script)
        assert ours.lines == theirs.lines
        assert ours.lines[-1] == "Insufficient permission : "

        leaving = next(id for id in ensemble.servers if id != leader)
        changed = run_ours(
            host,
            script=f"addauth digest {SUPER_CREDENTIAL}\n"
            f"reconfig -s -remove {leaving}\nreconfig -v 1 -remove {leader}\n",
        )
        shown = run_apache(host, "config", "-s")
        assert changed.lines == [
            "Committed new configuration:",
            *shown.lines,
            "version No is not valid : ",
        ]
        assert f"server.{leaving}=" not in "".join(changed.lines)
