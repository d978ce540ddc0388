"""Curator's recipes, Apache's Java client and zkCli work on a server of ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache import ApacheServer, find_java, java_command
from tests.keepfast_server import KeepfastServer

pytestmark = pytest.mark.conformance

_SOURCE = Path(__file__).with_name("Recipes.java")
_RECIPES = re.findall(r"static void recipe(\w+)", _SOURCE.read_text())
_JARS = ("curator-", "guava-", "failureaccess-", "jline-2")
_TIMEOUT = 280


def _has_compiler() -> bool:
    modules = subprocess.run(
        [str(find_java()), "--list-modules"], capture_output=True, text=True, check=False
    )
    return "jdk.compiler@" in modules.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepfastServer]:
    with KeepfastServer(tmp_path_factory.mktemp("java") / "data") as found:
        yield found


@pytest.fixture(scope="module")
def results(server: KeepfastServer) -> str:
    if not _has_compiler():
        pytest.skip("this Java runtime has no compiler: Recipes.java is run from source")
    command = java_command(str(_SOURCE), [server.hosts], jars=_JARS)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    ).stdout


@pytest.mark.parametrize("recipe", _RECIPES)
def test_recipe__works(results: str, recipe: str) -> None:
    assert f"ok {recipe}\n" in results, results[-6000:]


_COMMANDS = """\
create /a one
create -e /e two
create -s /a/s- three
create -c /c
create -t 100000 /ttl four
stat /a
get -s /a
set -s /a five
set -v 7 /a six
ls -s /
ls -R /
getAcl -s /a
addauth digest ann:secret
setAcl /a auth::cdrwa
getAcl /a
addWatch -m PERSISTENT_RECURSIVE /a
create /a/b seven
delete /a/b
removewatches /a
setquota -n 3 /a
listquota /a
delquota /a
getAllChildrenNumber /a
getEphemerals
whoami
sync /a
version
delete /missing
deleteall /a
ls /
config
reconfig -remove 1
close
quit
"""


def _zkcli(server: ApacheServer) -> list[str]:
    command = java_command(
        "org.apache.zookeeper.ZooKeeperMain",
        ["-server", server.hosts, "-waitforconnection"],
        # Its editor of lines would draw the prompt anew around every key.
        properties=[("jline.terminal", "jline.UnsupportedTerminal")],
        jars=("commons-cli-",),
    )
    found = subprocess.run(
        command, input=_COMMANDS, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    lines = found.stdout.replace(server.hosts, "HOST").splitlines()
    # The ids of a connection are a set; events and logs are printed by threads of their own.
    ids = sorted(line for line in lines if line.startswith(("ip: ", "digest: ")))
    events = [line for line in lines if line.startswith("WatchedEvent")]
    apart = {"", "WATCHER::", *ids, *events}
    # The last one: the program may be over before the thread that prints it.
    events = [line for line in events if "state:Closed" not in line]
    others = [_normal(line) for line in lines if " - " not in line and line not in apart]
    return ids + events + others


def _normal(line: str) -> str:
    line = re.sub(r"^([cm]time = ).*", r"\1", line)
    return re.sub(r"0x1[0-9a-f]{14}", "SESSION", line)


def test_zkcli__prints_the_same_for_apache_and_for_us(tmp_path: Path) -> None:
    with ApacheServer(tmp_path / "theirs") as apache:
        expected = _zkcli(apache)
    with KeepfastServer(tmp_path / "ours") as ours:
        assert _zkcli(ours) == expected
    assert any("NodeCreated" in line for line in expected), expected
    assert any("count=3" in line for line in expected), expected
