"""Apache's servers, and servers of both kinds in one ensemble, through the same page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.harness import ConsoleProcess, data_options, open_page, shoot, zookeeper
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedEnsemble]:
    root = tmp_path_factory.mktemp("apache")
    with MixedEnsemble(root, dict.fromkeys((1, 2, 3), APACHE)) as ensemble:
        yield ensemble.start()


def test_apache__overview_tree_sessions_and_feed_without_files(
    apache: MixedEnsemble, browser: Browser, tmp_path: Path
) -> None:
    with (
        zookeeper(apache.hosts) as client,
        ConsoleProcess(apache.hosts, log=tmp_path / "console.log") as console,
        open_page(browser, console.url) as page,
    ):
        client.create("/made", b"by kazoo")
        expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        expect(page.locator("article.server footer").first).to_contain_text("Apache 3.9.5")
        expect(page.locator("article.server .standing").first).to_contain_text(
            "an Apache server does not report it"
        )
        expect(page.locator(".role.leader")).to_have_count(1)
        # Without files there is no past, and the page does not pretend.
        expect(page.get_by_role("link", name="Proof")).to_have_count(0)
        shoot(page, "apache")
        page.goto(f"{console.url}/#tree/%2Fmade")
        expect(page.locator(".data-card pre")).to_have_text("by kazoo")
        expect(page.get_by_role("button", name="Edit")).to_have_count(0)
        page.get_by_role("searchbox", name="Search for").fill("by kazoo")
        page.get_by_role("combobox", name="Search by").select_option("value")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".found a")).to_have_text(["/made"])
        session = hex(client.client_id[0])
        page.goto(f"{console.url}/#sessions/{session}")
        expect(page.locator(f'[data-session="{session}"]')).to_contain_text("127.0.0.1:")
        page.goto(f"{console.url}/#feed")
        expect(
            page.get_by_role("status").filter(has_text="watching the whole tree")
        ).to_be_visible()
        client.set("/made", b"first")
        row = page.locator(".feed-row").filter(has_text="/made").first
        expect(row).to_contain_text("data set")
        client.set("/made", b"second")
        expect(page.locator(".feed-row").filter(has_text="/made")).to_have_count(2)
        row.locator("summary time").click()
        expect(row.locator(".side pre")).to_have_text(["first", "second"])


def test_apache__with_its_files_the_past_is_there(
    apache: MixedEnsemble, browser: Browser, tmp_path: Path
) -> None:
    with zookeeper(apache.hosts) as client:
        client.create("/past", b"one")
        then = client.exists("/past").czxid
        client.set("/past", b"two")
    data = data_options([server.data_dir for server in apache.servers.values()])
    with (
        ConsoleProcess(apache.hosts, *data, log=tmp_path / "console.log") as console,
        open_page(browser, f"{console.url}/#past/%2Fpast?at={then:#x}") as page,
    ):
        expect(page.locator(".data-card pre")).to_have_text("one")
        page.goto(f"{console.url}/#overview")
        expect(page.locator("article.server footer").first).to_contain_text("snapshot")


def test_mixed__each_kind_says_what_it_knows(browser: Browser, tmp_path: Path) -> None:
    kinds = {1: KEEPFAST, 2: APACHE, 3: KEEPFAST}
    with (
        MixedEnsemble(tmp_path / "mixed", kinds).start() as ensemble,
        ConsoleProcess(ensemble.hosts, log=tmp_path / "console.log") as console,
        open_page(browser, console.url) as page,
    ):
        expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        footers = page.locator("article.server footer")
        expect(footers.filter(has_text="Keepfast 3.9.5")).to_have_count(2)
        expect(footers.filter(has_text="Apache 3.9.5")).to_have_count(1)
        ensemble.servers[2].kill()
        expect(page.locator(".problem-card[data-kind=down] .command")).to_contain_text(
            "zkServer.sh start"
        )
        shoot(page, "mixed")
