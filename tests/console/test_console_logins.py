"""What a login sees: by SASL in the page, and of the past only what its user may read."""

from __future__ import annotations

import base64
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from kazoo.security import make_acl, make_digest_acl
from playwright.sync_api import Browser, expect

from keepfast.testing import Server
from tests.console.harness import ConsoleProcess, open_page, zookeeper
from tests.server.secured import running
from tests.server.test_sasl_login import PROVIDER, jaas, login

GONE = b"hers, then deleted"
BEFORE = b"hers, before it was opened"


def test_sasl_login__acts_with_the_rights_of_its_user(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, PROVIDER, properties=jaas(tmp_path)) as server:
        with server.client(**login("bob", "hush-hush")) as bob:
            of_bob = make_acl("sasl", credential="bob", all=True)
            bob.create("/console-users", b"", acl=[of_bob])
            bob.create("/of-bob", b"his", acl=[of_bob])
            bob.create("/of-eve", b"hers", acl=[make_acl("sasl", credential="eve", all=True)])
        arguments = ("--login-znode", "/console-users")
        hosts, log = f"127.0.0.1:{server.port}", tmp_path / "console.log"
        with (
            ConsoleProcess(hosts, *arguments, log=log) as console,
            open_page(browser, console.url) as page,
        ):
            for password in ("wrong", "hush-hush"):
                page.get_by_label("Scheme").select_option("sasl")
                page.get_by_label("User").fill("bob")
                page.get_by_label("Password").fill(password)
                page.get_by_role("button", name="Log in").click()
                if password == "wrong":
                    expect(page.get_by_role("alert")).to_contain_text("not accepted")
            expect(page.locator(".user")).to_have_text("sasl:bob")
            page.goto(f"{console.url}/#tree/%2Fof-bob")
            expect(page.locator(".data-card pre")).to_have_text("his")
            page.goto(f"{console.url}/#tree/%2Fof-eve")
            expect(page.locator(".znode-pane")).to_contain_text("Insufficient permission")


class Visitor:
    """Somebody who logged in, without a browser."""

    def __init__(self, console: ConsoleProcess, user: str, password: str) -> None:
        self._url = console.url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar()),
        )
        form = {"scheme": "digest", "user": user, "password": password}
        self.open("/api/login", {"x-keepfast-token": "none"}, form).close()

    def open(self, resource: str, headers: dict[str, str] | None = None, form: Any = None) -> Any:
        """The answer to a request; with headers it is one that changes something."""
        body = None if headers is None else json.dumps(form).encode()
        request = urllib.request.Request(f"{self._url}{resource}", body, headers or {})
        return self._opener.open(request, timeout=60)

    def feed(self) -> Any:
        """The feed's rows, once it has read the logs."""
        with self.open("/api/events?feed=1") as events:
            while b"following the logs" not in events.readline():
                pass
            return self.ask("/api/feed")

    def ask(self, resource: str, /, **query: str) -> Any:
        """The document at a resource, or the status that it was refused with."""
        url = f"{self._url}{resource}?{urllib.parse.urlencode(query)}"
        try:
            with self._opener.open(url, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def test_past__is_hidden_from_those_whom_its_acl_kept_out(tmp_path: Path) -> None:
    alice = make_digest_acl("alice", "right", all=True)
    bob = make_digest_acl("bob", "also", all=True)
    everybody = make_acl("world", "anyone", all=True)
    data = tmp_path / "data"
    data.mkdir()
    with Server(str(data)) as server, zookeeper(server.hosts) as client:
        client.add_auth("digest", "alice:right")
        client.create("/users", b"", acl=[alice, bob])
        client.create("/gone", GONE, acl=[alice])
        client.create("/opened", BEFORE, acl=[alice])
        client.create("/box", b"", acl=[alice])
        child = client.create("/box/inside", b"x", acl=[everybody])
        client.create("/plain", b"for-all")
        then = client.exists("/plain").czxid
        client.delete("/gone")
        client.set("/opened", b"for-all")
        client.set_acls("/opened", [everybody])
        client.delete(child)
        now = client.exists("/opened").mzxid + 2
        arguments = ("--data", str(data), "--login-znode", "/users")
        with ConsoleProcess(server.hosts, *arguments, log=tmp_path / "console.log") as console:
            seen = {
                user: _all_that_is_told(Visitor(console, user, password), then, now)
                for user, password in (("alice", "right"), ("bob", "also"))
            }
    for secret in (GONE, BEFORE, b"/gone"):
        assert _is_told(secret, seen["alice"]), secret
        assert not _is_told(secret, seen["bob"]), secret
    for public in (b"for-all", b"/plain"):
        assert _is_told(public, seen["alice"]), public
        assert _is_told(public, seen["bob"]), public
    # As a server: who may not read a znode is not told its children.
    assert [one["name"] for one in seen["alice"]["box"]["children"]] == ["inside"]
    assert seen["bob"]["box"] == 403


def _all_that_is_told(visitor: Visitor, then: int, now: int) -> dict[str, Any]:
    """Whatever the past, its differences, histories and the feed say."""
    deleted = visitor.ask("/api/timeline", path="/gone")
    return {
        "feed": visitor.feed(),
        "compare": visitor.ask("/api/compare", **{"from": hex(then), "to": hex(now), "path": "/"}),
        "box": visitor.ask("/api/children", path="/box", at=hex(then)),
        "timelines": [visitor.ask("/api/timeline", path=path) for path in ("/opened", "/plain")],
        "znodes": [
            visitor.ask("/api/znode", path=path, at=hex(then)) for path in ("/opened", "/plain")
        ],
        # Whoever asks for a path knows its name already; the rest of it is what counts.
        "deleted": [{**row, "path": ""} for row in deleted["changes"]],
    }


def _is_told(what: bytes, documents: object) -> bool:
    """Whether a name or a value, which travels in base64, is anywhere in what was told."""
    text = json.dumps(documents)
    return what.decode() in text or base64.b64encode(what).decode() in text


def test_stream_of_events__ends_with_its_login(tmp_path: Path) -> None:
    """What is changed afterwards may be what its user alone can read."""
    data = tmp_path / "data"
    data.mkdir()
    with Server(str(data)) as server, zookeeper(server.hosts) as client:
        client.add_auth("digest", "alice:right")
        client.create("/users", b"", acl=[make_digest_acl("alice", "right", all=True)])
        arguments = ("--data", str(data), "--login-znode", "/users")
        with ConsoleProcess(server.hosts, *arguments, log=tmp_path / "console.log") as console:
            alice = Visitor(console, "alice", "right")
            with alice.open("/api/events?feed=1") as events:
                while b"following the logs" not in events.readline():
                    pass
                token = alice.ask("/api/hello")["token"]
                alice.open("/api/logout", {"x-keepfast-token": token}).close()
                client.set("/users", b"later")
                while line := events.readline():
                    assert b"setData" not in line


def test_undo__is_not_for_others_of_the_same_name(tmp_path: Path) -> None:
    """The digest scheme takes any password for a name."""
    with Server() as server, zookeeper(server.hosts) as client:
        client.create("/mine", b"")
        arguments = ("--allow-writes",)
        with ConsoleProcess(server.hosts, *arguments, log=tmp_path / "console.log") as console:
            alice, other = (Visitor(console, "alice", one) for one in ("right", "invented"))
            form = {"kind": "set", "path": "/mine", "base64": "", "version": 0}
            token = alice.ask("/api/hello")["token"]
            alice.open("/api/change", {"x-keepfast-token": token}, form).close()
            assert len(alice.ask("/api/undos")["undos"]) == 1
            assert other.ask("/api/undos")["undos"] == []
            assert Visitor(console, "alice", "right").ask("/api/undos") == alice.ask("/api/undos")


def test_long_login__is_refused_before_it_has_come(tmp_path: Path) -> None:
    """Whoever logs in is not known yet, and may not fill the memory."""
    log = tmp_path / "console.log"
    with Server() as server, ConsoleProcess(server.hosts, log=log) as console:
        place = urllib.parse.urlsplit(console.url)
        with socket.create_connection((place.hostname, place.port), 60) as stranger:
            head = f"POST /api/login HTTP/1.1\r\nHost: {place.netloc}\r\nx-keepfast-token: x\r\n"
            stranger.sendall(f"{head}Content-Length: 3000000\r\n\r\n".encode() + bytes(50_000))
            assert stranger.recv(100).startswith(b"HTTP/1.1 400")
