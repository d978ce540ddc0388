"""Who may use a console, and what znodes cannot do to it."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from kazoo.security import make_acl, make_digest_acl
from playwright.sync_api import Browser, expect

from keepfast.testing import Server
from tests.console.harness import ConsoleProcess, open_page, shoot, zookeeper

SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = '<img src=x onerror="window.hacked = 1">'
LONG = "n" * 10_000


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(scope="module")
def console(ensemble: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    log = tmp_path_factory.mktemp("log") / "console.log"
    with ConsoleProcess(ensemble.hosts, "--allow-writes", log=log) as found:
        yield found


# -- hostile znodes --------------------------------------------------------------------------------


def test_hostile_znodes__show_as_text(
    ensemble: Server, console: ConsoleProcess, browser: Browser
) -> None:
    with zookeeper(ensemble.hosts) as client:
        client.create("/hostile", IMAGE.encode())
        names = {
            IMAGE: SCRIPT.encode(),
            "escape": b"\x1b]0;title\x07\x1b[31mred",
            "left\u202eright": "\u202eevil".encode(),
            "big": b"A" * 1_000_000,
            LONG: b"long",
            "json": b'{"a": "<b>bold</b>"}',
        }
        for name, data in names.items():
            client.create(f"/hostile/{name}", data)
        client.create("/hostile/null", None)
        with open_page(browser, f"{console.url}/#tree/%2Fhostile") as page:
            expect(page.locator(".data-card pre")).to_have_text(IMAGE)
            page.get_by_role("tree").focus()
            page.keyboard.press("ArrowRight")
            rows = page.locator(".treerow .name")
            expect(rows.filter(has_text="<img")).to_have_text(IMAGE)
            expect(rows.filter(has_text="left")).to_have_text("left\\u202eright")
            expect(rows.filter(has_text="nnnn")).to_contain_text("10,000 characters")
            value = page.locator(".data-card pre")
            rows.filter(has_text="<img").click()
            expect(value).to_have_text(SCRIPT)
            rows.filter(has_text="escape").click()
            expect(value).to_have_text("\\u001b]0;title\\u0007\\u001b[31mred")
            rows.filter(has_text="left").click()
            expect(value).to_have_text("\\u202eevil")
            rows.filter(has_text="null").click()
            expect(value).to_have_text("null")
            rows.filter(has_text="nnnn").click()
            expect(value).to_have_text("long")
            shoot(page, "hostile")
            rows.filter(has_text="json").click()
            expect(value).to_have_text('{\n  "a": "<b>bold</b>"\n}')
            rows.filter(has_text="big").click()
            expect(value).to_contain_text("the first 64.0 KiB of 977 KiB")
            page.get_by_role("button", name="Show all 977 KiB").click()
            expect(page.get_by_role("button", name="Show all")).to_have_count(0)
            assert value.evaluate("(one) => one.textContent.length") == 1_000_000
            assert page.evaluate("window.hacked") is None
            assert page.locator("main img, main script, main b:has-text('bold')").count() == 0


# -- other origins ---------------------------------------------------------------------------------


@pytest.fixture
def other_origin(tmp_path: Path) -> Iterator[str]:
    """A page of somebody else, on the same machine and thus of the same site."""
    (tmp_path / "index.html").write_text("<!doctype html><title>other</title>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    thread.join()
    server.server_close()


def test_page_of_another_origin__can_neither_read_nor_write(
    ensemble: Server, console: ConsoleProcess, browser: Browser, other_origin: str
) -> None:
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(other_origin)
        ask = """async ([url, options]) => {
            try { const answer = await fetch(url, options); return [answer.type, answer.status]; }
            catch (error) { return String(error); }
        }"""
        hello = f"{console.url}/api/hello"
        assert "TypeError" in str(page.evaluate(ask, [hello, {}]))
        # Sent without asking first, and refused; nothing of the answer can be read.
        assert page.evaluate(ask, [hello, {"mode": "no-cors"}])[0] in ("opaque", "T")
        body = '{"kind": "create", "path": "/from-elsewhere", "base64": ""}'
        simple = {"method": "POST", "mode": "no-cors", "body": body}
        page.evaluate(ask, [f"{console.url}/api/change", simple])
        source = f"new EventSource('{console.url}/api/events')"
        failed = page.evaluate(
            f"new Promise((done) => {{ const s = {source}; s.onerror = () => done('refused');"
            " s.onopen = () => done('open'); })"
        )
        assert failed == "refused"
        frame = page.evaluate(
            """(url) => new Promise((done) => { const f = document.createElement('iframe');
            f.src = url; f.onload = () => { try { done(f.contentDocument ? 'seen' : 'blocked'); }
            catch { done('blocked'); } }; document.body.append(f); })""",
            console.url,
        )
        assert frame == "blocked"
    finally:
        context.close()
    with zookeeper(ensemble.hosts) as client:
        assert client.exists("/from-elsewhere") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
    ids=["rebound-name", "origin", "null-origin", "cross-site", "same-site"],
)
def test_requests_of_others__are_refused(console: ConsoleProcess, headers: dict[str, str]) -> None:
    status, answer, given = console.ask("/api/hello", headers=headers)
    assert status == 403
    assert "token" not in answer
    assert "access-control-allow-origin" not in {name.lower() for name in given}


def test_changes__need_the_token_of_the_page(ensemble: Server, console: ConsoleProcess) -> None:
    form = {"kind": "create", "path": "/without-token", "base64": ""}
    for headers in ({}, {"x-keepfast-token": "guessed"}):
        status, answer, _ = console.ask("/api/change", form, headers)
        assert status == 403, answer
    assert console.post("/api/change", form)[0] == 200
    with zookeeper(ensemble.hosts) as client:
        assert client.exists("/without-token") is not None


def test_read_only_console__refuses_changes_whatever_is_sent(
    ensemble: Server, tmp_path: Path
) -> None:
    with ConsoleProcess(ensemble.hosts, log=tmp_path / "console.log") as console:
        form = {"kind": "create", "path": "/read-only", "base64": ""}
        status, answer = console.post("/api/change", form)
        assert status == 400
        assert "--allow-writes" in answer["error"]
        for path in ("/api/undo", "/api/audits"):
            assert console.post(path, {"id": 1})[0] == 400
    with zookeeper(ensemble.hosts) as client:
        assert client.exists("/read-only") is None


def test_policy__lets_no_script_in(console: ConsoleProcess) -> None:
    for path in ("/", "/static/app.js", "/api/hello", "/nothing"):
        policy = console.ask(path)[2]["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy


@pytest.mark.parametrize("path", ["/static/..%2fserving.py", "/static/nothing.js", "/api/nothing"])
def test_other_files__are_not_served(console: ConsoleProcess, path: str) -> None:
    assert console.ask(path)[0] == 404


# -- beyond loopback -------------------------------------------------------------------------------


def refused(*arguments: str, code: int = 4) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "keepfast", "console", "127.0.0.1:1", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done
    return done.stderr


def test_beyond_loopback__tls_and_a_login_are_demanded(tmp_path: Path) -> None:
    assert "--tls-cert" in refused("--listen", "0.0.0.0:0")
    certificate = tmp_path / "cert.pem"
    certificate.write_text("")
    files = ("--tls-cert", str(certificate), "--tls-key", str(certificate))
    assert "--login-znode" in refused("--listen", "0.0.0.0:0", *files)
    assert "belong together" in refused("--tls-cert", str(certificate), code=2)
    assert "belong together" in refused("--tls-key", str(certificate), code=2)
    assert "cannot be used" in refused(*files)


def test_login__acts_with_the_rights_of_its_user(
    ensemble: Server, browser: Browser, tmp_path: Path
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    with zookeeper(ensemble.hosts) as client:
        alice = make_digest_acl("alice", "right", all=True)
        bob = make_digest_acl("bob", "also", all=True)
        client.create("/console-users", b"", acl=[alice, bob])
        client.create("/of-alice", b"hers", acl=[alice])
        client.create("/of-bob", b"his", acl=[bob])
        client.create("/of-all", b"", acl=[make_acl("world", "anyone", all=True)])
    arguments = ("--tls-cert", str(certificate), "--tls-key", str(key))
    login = ("--login-znode", "/console-users", "--host-name", "localhost", "--allow-writes")
    log = tmp_path / "audit.log"
    with ConsoleProcess(
        ensemble.hosts,
        *(*arguments, *login, "--audit-log", str(log)),
        log=tmp_path / "console.log",
        listen="0.0.0.0:0",
    ) as console:
        assert console.url.startswith("https://localhost:")
        with open_page(browser, console.url, ignore_https_errors=True) as page:
            for password, is_right in (("wrong", False), ("right", True)):
                page.get_by_label("User").fill("alice")
                page.get_by_label("Password").fill(password)
                page.get_by_role("button", name="Log in").click()
                if not is_right:
                    expect(page.get_by_role("alert")).to_contain_text("not accepted")
                    shoot(page, "login")
            expect(page.locator(".user")).to_have_text("digest:alice")
            page.goto(f"{console.url}/#tree/%2Fof-alice")
            expect(page.locator(".data-card pre")).to_have_text("hers")
            page.goto(f"{console.url}/#tree/%2Fof-bob")
            expect(page.locator(".znode-pane")).to_contain_text("Insufficient permission")
            page.goto(f"{console.url}/#tree/%2Fof-alice")
            page.get_by_role("button", name="Edit", exact=True).click()
            page.get_by_role("textbox", name="Value").fill("changed")
            page.get_by_role("button", name="Save").click()
            expect(page.locator(".data-card pre")).to_have_text("changed")
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_role("button", name="Log in")).to_be_visible()
        unsafe = ssl.create_default_context()
        authority.configure_trust(unsafe)
        assert console.ask_tls("/api/znode?path=/", unsafe)[0] == 401
    assert "user=digest:alice" in log.read_text()
    assert "operation=setData\tznode=/of-alice\tresult=success" in log.read_text()


def test_login_znode_that_everybody_may_read__lets_nobody_in(
    ensemble: Server, tmp_path: Path
) -> None:
    with zookeeper(ensemble.hosts) as client:
        client.create("/open-door", b"")
    log = tmp_path / "console.log"
    with ConsoleProcess(ensemble.hosts, "--login-znode", "/open-door", log=log) as console:
        assert console.ask("/api/znode?path=/")[0] == 401
        form = {"scheme": "digest", "user": "eve", "password": "any"}
        status, answer, _ = console.ask("/api/login", form, {"x-keepfast-token": "none"})
        assert status == 400
        assert "everybody may read /open-door" in answer["error"]
