"""The console on a large tree: time to the first view and to a large znode, memory, latency.

    python -m benchmarks.bench_console [--znodes 1000000] [--children 100000] [--seconds 10]

Three Keepfast servers and the console are processes, the page is in Debian's Chromium. The servers'
latency is measured alternately without and with the page open, in one run: seconds depend on the
machine, ratios hardly. `--rounds` then sends the page this many rounds of news, as many as in an
hour at the usual rate, and compares its memory before and after. `--minutes` only leaves four pages
open for that long, at the usual rate, while znodes change.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page

from keepfast.client import Client
from keepfast.wire import OPEN_ACL, CreateMode, CreateRequest, MultiOp, OpCode
from tests.console.harness import ConsoleProcess, open_browser
from tests.mixed.servers import KEEPFAST, MixedEnsemble

_AT_ONCE = 1000
_PARENTS = 1000
_PATIENCE_MS = 300_000
_TURNS = 3
_SOAK_INTERVAL_S = 0.1
_ROW_PIXELS = 30
_PAGES = ("overview", "feed", "tree", "sessions")
_CHANGES_PER_SECOND = 5


def fill(hosts: str, znodes: int, children: int) -> None:
    """Create `/large` with this many children, and the others below `/spread`."""
    with Client(hosts) as client:
        client.create("/large")
        _create(client, [f"/large/child-{number:07d}" for number in range(children)])
        client.create("/spread")
        each = max((znodes - children) // _PARENTS, 1)
        _create(client, [f"/spread/{parent:04d}" for parent in range(_PARENTS)])
        for parent in range(_PARENTS):
            _create(client, [f"/spread/{parent:04d}/{number:04d}" for number in range(each)])


def _create(client: Client, paths: list[str]) -> None:
    for first in range(0, len(paths), _AT_ONCE):
        client.multi(
            [
                MultiOp(
                    OpCode.CREATE, CreateRequest(path, b"x" * 100, OPEN_ACL, CreateMode.PERSISTENT)
                )
                for path in paths[first : first + _AT_ONCE]
            ]
        )


def resident_mib(pid: int) -> float:
    """The resident memory of a process now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def heap_mib(page: Page) -> float:
    """What the page's script holds, after a garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return float(used) / (1 << 20)


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def views(browser: Browser, url: str, children: int) -> Page:
    """Open the page, then the large znode; print how long each takes."""
    page = browser.new_context(viewport={"width": 1360, "height": 860}).new_page()
    page.set_default_timeout(_PATIENCE_MS)
    first = timed(lambda: (page.goto(url), page.wait_for_selector("article.server")))
    tree = timed(
        lambda: (page.goto(f"{url}/#tree"), page.wait_for_selector(".treerow:has-text('large')"))
    )
    row = page.locator(".treerow", has_text="large").locator(".twisty")
    began = time.monotonic()
    row.click()
    page.wait_for_selector(".treerow:has-text('child-')")
    opened = time.monotonic() - began
    middle = children // 2
    began = time.monotonic()
    page.locator(".treelist").evaluate(f"(one) => {{ one.scrollTop = {middle * _ROW_PIXELS}; }}")
    page.wait_for_selector(f".treerow:has-text('child-{middle:07d}')")
    scrolled = time.monotonic() - began
    print(f"first view of the overview     {first:7.2f} s")
    print(f"first view of the tree         {tree:7.2f} s")
    print(f"open the large znode           {opened:7.2f} s")
    print(f"jump into its middle           {scrolled:7.2f} s")
    page.goto(f"{url}/#overview")
    page.wait_for_selector("article.server")
    return page


def latencies(hosts: str, seconds: float) -> list[float]:
    """Alternate reads and writes, one at a time; returns their times in ms."""
    found = []
    with Client(hosts) as client:
        if client.exists("/measured") is None:
            client.create("/measured", b"x" * 100)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            client.set_data("/measured", b"y" * 100)
            client.get_data("/measured")
            found.append((time.perf_counter() - began) * 500)
    return sorted(found)


def percentile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return values[min(int(len(values) * share), len(values) - 1)]


def compare(browser: Browser, hosts: str, url: str, seconds: float) -> None:
    """Measure the servers' latency alternately without and with a page, and print both."""
    without: list[float] = []
    beside: list[float] = []
    for _ in range(_TURNS):
        without += latencies(hosts, seconds)
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("article.server")
        beside += latencies(hosts, seconds)
        context.close()
    for name, values in (("without a page", sorted(without)), ("with the page", sorted(beside))):
        p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
        print(f"{name:<30} p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, {len(values):,} pairs")


def soak(browser: Browser, hosts: str, folder: Path, rounds: int) -> None:
    """Send a page many rounds of news; print its memory before and after."""
    log = folder / "soak.log"
    with ConsoleProcess(hosts, "--interval", str(_SOAK_INTERVAL_S), log=log) as console:
        page = browser.new_context().new_page()
        page.goto(console.url)
        page.wait_for_selector("article.server")
        page.evaluate(
            "window.rounds = 0; const events = new EventSource('/api/events');"
            "events.addEventListener('overview', () => { window.rounds += 1; });"
        )
        marks = [rounds // 10, rounds // 2, rounds]
        for mark in marks:
            while page.evaluate("window.rounds") < mark:
                page.wait_for_timeout(_SOAK_INTERVAL_S * 1000)
            page_mib, server_mib = heap_mib(page), resident_mib(console.pid)
            memory = f"page {page_mib:6.1f} MiB, console {server_mib:6.1f} MiB"
            print(f"after {mark:>6,} rounds           {memory}", flush=True)


def left_open(browser: Browser, hosts: str, folder: Path, minutes: float) -> None:
    """Leave four pages open while znodes change; print their memory at intervals."""
    with ConsoleProcess(hosts, log=folder / "open.log") as console, Client(hosts) as client:
        pages = [browser.new_context().new_page() for _ in _PAGES]
        for name, page in zip(_PAGES, pages, strict=True):
            page.goto(f"{console.url}/#{name}")
        client.create("/changing")
        began = time.monotonic()
        for quarter in range(5):
            while time.monotonic() - began < minutes * 60 * quarter / 4:
                client.set_data("/changing", str(time.monotonic()).encode())
                pages[0].wait_for_timeout(1000 / _CHANGES_PER_SECOND)
            heaps = ", ".join(f"{heap_mib(page):.1f}" for page in pages)
            passed = (time.monotonic() - began) / 60
            memory = f"pages {heaps} MiB, console {resident_mib(console.pid):.1f} MiB"
            print(f"after {passed:5.1f} minutes            {memory}", flush=True)


def main() -> None:
    """Fill, look, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--znodes", type=int, default=1_000_000)
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=1800)
    parser.add_argument("--minutes", type=float)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as place,
        MixedEnsemble(Path(place).resolve(), dict.fromkeys((1, 2, 3), KEEPFAST)) as ensemble,
        open_browser() as browser,
    ):
        folder = Path(place)
        hosts = ensemble.start().hosts
        if given.minutes is not None:
            left_open(browser, hosts, folder, given.minutes)
            return
        took = timed(lambda: fill(hosts, given.znodes, given.children))
        print(f"{given.znodes:,} znodes, {given.children:,} in one, made in {took:.0f} s")
        with ConsoleProcess(hosts, log=folder / "console.log") as console:
            page = views(browser, console.url, given.children)
            print(f"memory of the console          {resident_mib(console.pid):7.0f} MiB")
            print(f"memory of the page's script    {heap_mib(page):7.1f} MiB")
            page.context.close()
            compare(browser, hosts, console.url, given.seconds)
        soak(browser, hosts, folder, given.rounds)


if __name__ == "__main__":
    main()
