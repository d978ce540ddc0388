"""Every view can be used without eyes and without a mouse, in both themes, on both sizes of screen.

axe-core judges names, roles, contrast, order of headings and what can be reached by keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from keepfast.testing import Server
from tests.console.harness import ConsoleProcess, open_page, zookeeper

DESKTOP, PHONE = (1360, 860), (390, 844)
# Each view, with what is in it once it is complete.
VIEWS = {
    "overview": "article.server",
    "tree/%2Fknown": ".data-card pre",
    "sessions": ".session",
    "feed": ".feed-row",
    "past/%2Fknown": ".data-card pre",
    "proof": ".audits h2",
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    data, logs = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("logs")
    with Server(str(data)) as server, zookeeper(server.hosts) as client:
        client.create("/known", b'{"a": 1}')
        client.create("/known/below", b"2")
        client.set("/known", b'{"a": 2}')
        arguments = ("--data", str(data), "--allow-writes")
        with ConsoleProcess(server.hosts, *arguments, log=logs / "console.log") as found:
            yield found


@pytest.mark.parametrize(
    ("theme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light-desktop", "dark-phone"]
)
def test_views__pass_axe(
    console: ConsoleProcess, browser: Browser, theme: str, size: tuple[int, int]
) -> None:
    options = {
        "viewport": {"width": size[0], "height": size[1]},
        "color_scheme": theme,
        # The policy of the page keeps the judge out, too.
        "bypass_csp": True,
    }
    with open_page(browser, console.url, **options) as page:
        for view in VIEWS:
            show(page, console, view)
            results = Axe().run(page)
            assert results.violations_count == 0, f"{view}: {results.generate_report()}"


def show(page: Page, console: ConsoleProcess, view: str) -> None:
    page.goto(f"{console.url}/#{view}")
    expect(page.locator(VIEWS[view]).first).to_be_visible()


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))


def test_views__every_control_is_reached_by_tab(console: ConsoleProcess, browser: Browser) -> None:
    with open_page(browser, console.url) as page:
        for view in VIEWS:
            show(page, console, view)
            wanted = page.locator("main button:visible, main input:visible, main select:visible")
            expected = {
                str(one.evaluate("(node) => node.outerHTML.slice(0, 200)"))
                for one in wanted.all()
                # Of a list that is walked by arrows only the list itself is reached.
                if one.is_enabled() and one.get_attribute("tabindex") != "-1"
            }
            reached: set[str] = set()
            for _ in range(200):
                page.keyboard.press("Tab")
                here = _focused(page)
                if here in reached:
                    break
                reached.add(here)
            assert expected <= reached, (view, expected - reached)
