"""Four-letter words, and what Apache answers to the same words after the same requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.apache.four_letter_words import FOUR_LETTER_WORDS
from keepfast.apache.java_text import java_double, java_hex, java_long
from keepfast.client import Client, ClientOptions, OperationFailed
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AddWatchMode,
    CreateMode,
    CreateRequest,
    GetDataRequest,
    Id,
    MultiOp,
    OpCode,
    WatcherType,
)
from tests.apache import ApacheServer
from tests.apache.words import ask
from tests.server.live import Live, live, say

NOT_SERVING = "This ZooKeeper instance is not currently serving requests"


@pytest.fixture(autouse=True)
def _no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets are counted, and a client that is slow pings in between."""
    monkeypatch.setattr("keepfast.client.client_session._MAX_PING_INTERVAL_S", 3600.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data") as found:
        yield found


# -- answers -------------------------------------------------------------------------------------


def test_every_word_of_apache_is_answered(server: Live) -> None:
    for word in sorted(FOUR_LETTER_WORDS):
        if word != "stmk":
            assert isinstance(server.ask(word), str)


def test_word_that_is_not_allowed__is_refused_with_apaches_sentence(tmp_path: Path) -> None:
    allowed = frozenset(("srvr", "ruok"))
    with live(tmp_path / "data", word_whitelist=allowed) as server:
        assert server.ask("ruok") == "imok"
        refused = "mntr is not executed because it is not in the whitelist.\n"
        assert server.ask("mntr") == refused


def test_not_serving__words_say_so_and_some_answer_anyway(server: Live) -> None:
    def stop_serving(is_serving: bool) -> None:
        server.call(lambda s: setattr(s.running, "is_up", is_serving))

    stop_serving(False)
    assert server.ask("ruok") == "imok"
    assert server.ask("envi").startswith("Environment:\n")
    assert server.ask("gtmk") == "306"
    assert server.ask("isro") == "null"
    assert server.ask("hash") == NOT_SERVING
    for word in ("srvr", "stat", "cons", "dump", "wchs", "wchc", "wchp", "mntr", "conf", "dirs"):
        assert server.ask(word) == f"{NOT_SERVING}\n"
    stop_serving(True)
    assert server.ask("isro") == "rw"


def test_names_of_others__are_shown_with_escapes(server: Live) -> None:
    name = "/a\u2028\u202e\u2066b"
    with server.client() as client:
        client.create(name, mode=CreateMode.EPHEMERAL)
        client.get_data(name, True)
        for word in ("dump", "wchc", "wchp"):
            text = server.ask(word)
            assert "/a\\u2028\\u202e\\u2066b" in text, text
            assert name not in text


def test_trace_mask_is_set_by_eight_bytes__in_one_piece_or_several(server: Live) -> None:
    mask = (0x1FF).to_bytes(8, "big")
    assert server.say(b"stmk" + mask) == b"511"
    assert server.ask("gtmk") == "511"
    assert server.say(b"st", b"mk" + b"\0" * 7, b"\x07") == b"7"


def test_a_word_with_more_behind_it__is_answered(server: Live) -> None:
    assert server.say(b"ruok\r\n") == b"imok"


def test_words_count_as_packets_and_resets_clear_them(server: Live) -> None:
    server.ask("srst")
    server.ask("ruok")
    text = server.ask("srvr")
    # Its own question is counted, its own answer is not yet.
    assert "Received: 2\nSent: 2\n" in text


def test_digests_of_every_128th_txn_are_kept(server: Live) -> None:
    with server.client() as client:
        client.create("/a")
        for number in range(260):
            client.set_data("/a", b"%d" % number)
    lines = server.ask("hash").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["80", "100"]
    assert all(re.fullmatch(r"[0-9a-f]+: -?\d+", line) for line in lines)


# -- Java's texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1.3415, "1.3415"),
        (12.0, "12.0"),
        (0.001, "0.001"),
        (0.0004, "4.0E-4"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (-0.0005, "-5.0E-4"),
    ],
)
def test_double_is_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


def test_longs_are_written_as_java_does() -> None:
    assert java_hex(-1) == "ffffffffffffffff"
    assert java_hex(0x4F) == "4f"
    assert java_long((1 << 64) - 1) == -1
    assert java_long(5) == 5


# -- the same requests to both -------------------------------------------------------------------


def connect(port: int, timeout_ms: int) -> Client:
    return Client(f"127.0.0.1:{port}", ClientOptions(session_timeout_ms=timeout_ms))


def failing(action: Callable[[], object]) -> None:
    with pytest.raises(OperationFailed):
        action()


def operations(client: Client) -> Iterator[tuple[str, Callable[[], object]]]:
    """One request of each kind, in an order in which each does what its name says."""
    everyone = (ACL(31, Id("world", "anyone")),)
    created = CreateRequest("/o/m", b"", OPEN_ACL, CreateMode.PERSISTENT)
    yield "create", lambda: client.create("/o", b"1")
    yield "create that fails", lambda: failing(lambda: client.create("/o"))
    yield "create2", lambda: client.create2("/o/two")
    yield "container", lambda: client.create("/o/c", mode=CreateMode.CONTAINER)
    yield "getData", lambda: client.get_data("/o")
    yield "getData that fails", lambda: failing(lambda: client.get_data("/nothing"))
    yield "exists", lambda: client.exists("/nothing", True)
    yield "setData", lambda: client.set_data("/o", b"2")
    yield "getACL", lambda: client.get_acl("/o")
    yield "setACL", lambda: client.set_acl("/o", everyone)
    yield "getChildren", lambda: client.get_children("/o")
    yield "getChildren2", lambda: client.get_children2("/o")
    yield "getAllChildrenNumber", lambda: client.get_all_children_number("/")
    yield "getEphemerals", client.get_ephemerals
    yield "whoAmI", client.who_am_i
    yield "sync", lambda: client.sync("/o")
    yield "multi", lambda: client.multi([MultiOp(OpCode.CREATE, created)])
    yield "multi that fails", lambda: client.multi([MultiOp(OpCode.CREATE, created)])
    yield (
        "multiRead",
        lambda: client.multi_read([MultiOp(OpCode.GET_DATA, GetDataRequest("/o", False))]),
    )
    yield "addWatch", lambda: client.add_watch("/o", AddWatchMode.PERSISTENT_RECURSIVE)
    yield "checkWatches", lambda: client.has_watch("/o", WatcherType.PERSISTENT_RECURSIVE)
    yield "removeWatches", lambda: client.remove_watches("/nothing", WatcherType.DATA)
    yield "delete", lambda: client.delete("/o/two")
    yield "ephemeral", lambda: client.create("/e", mode=CreateMode.EPHEMERAL)


def last_request(port: int, session_id: int) -> str:
    """What `cons` says of the last request of a session."""
    name = f"sid=0x{java_hex(session_id)},"
    line, before = "", None
    while line != before:
        # Apache counts a packet right after it was sent; its receiver may be quicker.
        time.sleep(0.01)
        before = line
        (line,) = (line for line in ask(port, "cons").splitlines() if name in line)
    fields = dict(pair.split("=") for pair in re.findall(r"\w+=\w+", line))
    return " ".join(
        f"{key}={fields.get(key)}" for key in ("lop", "lcxid", "lzxid", "recved", "sent", "to")
    )


def transcript(port: int) -> list[str]:
    """What a server's words say after each of the same requests, without times and places."""
    ask(port, "srst")
    lines = []
    with connect(port, 300_000) as first, connect(port, 600_000) as second:
        first.exists("/")
        lines.append(f"new: {last_request(port, second.session_id)}")
        for name, action in operations(first):
            action()
            lines.append(f"{name}: {last_request(port, first.session_id)}")
        second.get_data("/o", True)
        second.add_watch("/o/c", AddWatchMode.PERSISTENT)
        second.get_children("/o", True)
        names = {java_hex(first.session_id): "FIRST", java_hex(second.session_id): "SECOND"}
        for word in ("srvr", "stat", "cons", "dump", "wchs", "wchc", "wchp", "conf", "hash"):
            text = ask(port, word)
            ending = len(text) - len(text.rstrip("\n"))
            shown = sorted(plain(text, names))
            lines.append(f"{word} ({ending} line ends):")
            lines.extend(f"    {line}" for line in shown)
        ask(port, "crst")
        lines.append(f"after crst: {last_request(port, first.session_id)}")
        words = ("ruok", "isro", "gtmk", "srst", "crst")
        lines.extend(f"{word}: {ask(port, word)!r}" for word in words)
    return lines


# What differs from run to run and from place to place.
VARYING = (
    (r"Zookeeper version: .*", "Zookeeper version: V"),
    (r"Latency min/avg/max: \d+/\d+\.[\dE-]+/\d+", "Latency L"),
    # These count the words of the test itself.
    (r"(Received|Sent): \d+", r"\1: N"),
    (r"/127\.0\.0\.1:\d+", "/ADDRESS"),
    (r"(est|lresp|llat|minlat|avglat|maxlat|dataDirSize|dataLogSize|clientPort)=\d+", r"\1=N"),
    (r"(dataDir|dataLogDir)=.*/version-2", r"\1=D"),
    (r"Sets \(\d+\)/", "Sets (N)/"),
)


def plain(text: str, names: dict[str, str]) -> Iterator[str]:
    for sid, name in names.items():
        text = text.replace(f"0x{sid}", name)
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    for line in text.splitlines():
        # Apache shows buckets that have become empty, too.
        if not re.match(r"\d+ expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}:$", line):
            yield line


@pytest.mark.conformance
def test_words_say_what_apaches_words_say(server: Live, tmp_path: Path) -> None:
    with ApacheServer(tmp_path / "apache") as apache:
        # Both have a container cleaner that sleeps, and no limit on connections.
        expected = transcript(apache.port)
        strange = [say(apache.port, data) for data in (b"wutf", b"orst", b"\xff\xf4\xff\xfd")]
        mask = say(apache.port, b"stmk" + (511).to_bytes(8, "big"))
        keys = [line.partition("=")[0] for line in ask(apache.port, "envi").splitlines()]
    found = transcript(server.port)
    limits = {"    maxClientCnxns=60": "    maxClientCnxns=0"}
    assert [limits.get(line, line) for line in found] == expected
    assert [server.say(data) for data in (b"wutf", b"orst", b"\xff\xf4\xff\xfd")] == strange
    assert server.say(b"stmk" + (511).to_bytes(8, "big")) == mask
    ours = [line.partition("=")[0] for line in server.ask("envi").splitlines()]
    assert [key for key in ours if not key.startswith("python.")] == [
        key for key in keys if not key.startswith("java.")
    ]
