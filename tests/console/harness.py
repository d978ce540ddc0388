"""A console as a process, and pages of it in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_SKIPPED = "Chromium is not installed (Debian: apt-get install chromium)"
# A busy machine draws slowly; nothing waits for as long as this unless something is wrong.
PATIENCE_MS = 60_000
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_STOP_SECONDS = 30
expect.set_options(timeout=PATIENCE_MS)


class ConsoleProcess:
    """`keepfast console` on a free port, for a `with` block; `url` is what it printed."""

    def __init__(self, hosts: str, *arguments: str, log: Path, listen: str = "127.0.0.1:0") -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "keepfast", "console", hosts),
                *("--listen", listen, *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=log.parent,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("console: "), f"{line!r}; {log.read_text()}"
        self.url = line.removeprefix("console: ").strip().rstrip("/")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> int:
        """Stop it in order; gives its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def ask(
        self,
        path: str,
        document: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any, Mapping[str, str]]:
        """A request without a browser: status, JSON (or None), headers."""
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self.url + path, body, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _json(answer.read()), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _json(error.read()), dict(error.headers)

    def ask_tls(self, path: str, context: ssl.SSLContext) -> tuple[int, Any]:
        """A request over TLS."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60, context=context) as answer:
                return answer.status, _json(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _json(error.read())

    def post(self, path: str, document: object) -> tuple[int, Any]:
        """A request that changes something, as the page sends it."""
        token = self.ask("/api/hello")[1]["token"]
        status, answer, _ = self.ask(path, document, {"x-keepfast-token": token})
        return status, answer


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


class BrowserPage:
    """A page that must not complain: every error in it, but those expected, fails the test."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _heard(self, message: ConsoleMessage) -> None:
        # Requests that fail are told by the browser itself, also where the page deals with it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Debian's Chromium, with nothing of anybody's profile."""
    assert CHROMIUM is not None
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def open_page(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page in a context of its own; fails at the end if it complained."""
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **options})
    held = BrowserPage(context.new_page())
    try:
        held.page.goto(url)
        yield held.page
        assert not held.complaints, held.complaints
    finally:
        context.close()


def shoot(page: Page, name: str) -> None:
    """Keep a picture for people, where KEEPFAST_SCREENSHOTS names a folder."""
    folder = os.environ.get("KEEPFAST_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


@contextlib.contextmanager
def zookeeper(hosts: str) -> Iterator[KazooClient]:
    """A stock client, for what the console has to show."""
    client = KazooClient(hosts, timeout=30)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def data_options(directories: Sequence[Path]) -> list[str]:
    """--data for each."""
    return [word for one in directories for word in ("--data", str(one))]
