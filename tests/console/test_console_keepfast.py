"""Three Keepfast servers, seen through the console while things happen to them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from keepfast.harness import EnsembleLayout, Ports, ServerProcess, write_configurations
from keepfast.lab import LabError
from keepfast.lab.small_disk import SmallDisk
from tests.apache.server import free_ports
from tests.console.harness import ConsoleProcess, data_options, open_page, shoot, zookeeper
from tests.mixed.servers import KEEPFAST, MixedEnsemble

_SMALL_DISK_BYTES = 64 << 20


@dataclass(frozen=True)
class Place:
    """An ensemble with a console that looks at it."""

    root: Path
    ensemble: MixedEnsemble
    console: ConsoleProcess

    @property
    def follower(self) -> int:
        """A server that does not lead."""
        leader = self.ensemble.wait_leader()
        return max(id for id in self.ensemble.servers if id != leader)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("console")
    with MixedEnsemble(root, dict.fromkeys((1, 2, 3), KEEPFAST)) as ensemble:
        ensemble.start()
        directories = [server.data_dir for server in ensemble.servers.values()]
        arguments = ("--allow-writes", "--audit-log", str(root / "changes.log"))
        # A master, as a cluster would be named.
        data = (*data_options(directories), "--master", "local[2]")
        with ConsoleProcess(ensemble.hosts, *data, *arguments, log=root / "console.log") as console:
            yield Place(root, ensemble, console)


def card(page: Page, server: int) -> Locator:
    return page.locator("article.server").filter(
        has=page.get_by_role("heading", name=f"Server {server}", exact=True)
    )


def all_is_well(page: Page) -> None:
    expect(page.get_by_role("heading", name="All is well")).to_be_visible()


def value(page: Page) -> Locator:
    return page.locator(".data-card pre")


# -- overview --------------------------------------------------------------------------------------


def test_overview__a_kill_is_seen_as_it_happens(place: Place, browser: Browser) -> None:
    with open_page(browser, place.console.url) as page:
        all_is_well(page)
        expect(page.locator("article.server")).to_have_count(3)
        expect(page.locator("article.server .standing b")).to_have_text(["whole"] * 3)
        expect(page.locator("article.server .spark")).to_have_count(9)
        leader = place.ensemble.wait_leader()
        expect(card(page, leader).locator(".role")).to_have_text("leads")
        expect(card(page, leader).locator("footer")).to_contain_text("free")
        victim = place.follower
        place.ensemble.servers[victim].kill()
        # Nothing is loaded again: the page is told.
        expect(page.get_by_role("heading", name="Something is wrong")).to_be_visible()
        problem = page.locator(".problem-card[data-kind=down]")
        expect(problem).to_contain_text("cannot be reached")
        expect(problem.locator(".command")).to_contain_text("keepfast serve")
        expect(page.locator(".banner")).to_contain_text("no further one may fail")
        shoot(page, "overview-killed")
        place.ensemble.start(victim)
        all_is_well(page)


def test_wiped_disk__its_standing_is_told_until_it_has_caught_up(
    place: Place, browser: Browser
) -> None:
    victim = place.follower
    server = place.ensemble.servers[victim]
    with open_page(browser, place.console.url) as page:
        all_is_well(page)
        server.kill()
        shutil.rmtree(server.version_dir)
        others = [one for id, one in place.ensemble.servers.items() if id != victim]
        for one in others:
            one.pause()
        try:
            server.launch()
            # Nobody speaks to it: it has no data, and says what that means.
            expect(card(page, victim).locator(".standing b")).to_have_text("empty")
            expect(card(page, victim).locator(".standing")).to_contain_text("has no data")
            expect(page.locator(".problem-card[data-kind=not-serving] .command")).to_contain_text(
                "keepfast verify"
            )
            shoot(page, "overview-wiped")
        finally:
            for one in others:
                one.resume()
        place.ensemble.wait_serving()
        all_is_well(page)
        expect(card(page, victim).locator("footer")).to_contain_text("last catch-up")


def test_full_disk__reads_go_on_and_the_page_says_what_to_do(
    place: Place, browser: Browser
) -> None:
    victim = place.follower
    server = place.ensemble.servers[victim]
    server.kill()
    try:
        disk = SmallDisk(server.data_dir, _SMALL_DISK_BYTES)
    except LabError as error:
        place.ensemble.start(victim)
        pytest.skip(str(error))
    try:
        place.ensemble.start(victim)
        with open_page(browser, place.console.url) as page:
            all_is_well_or_low(page)
            with contextlib.suppress(OSError):
                disk.fill(0)
            problem = page.locator(".problem-card[data-kind=disk-full]")
            expect(problem).to_contain_text("takes no writes: its disk is full")
            expect(problem.locator(".command")).to_contain_text("df -h")
            expect(card(page, victim).locator(".standing b")).to_have_text("disk full")
            shoot(page, "overview-full")
            disk.free()
            expect(problem).to_have_count(0)
    finally:
        server.kill()
        disk.close()
        place.ensemble.start(victim)


def all_is_well_or_low(page: Page) -> None:
    """A disk of some megabytes is nearly full from the start, and the page says so."""
    expect(page.locator("article.server .standing b")).to_have_text(["whole"] * 3)


# -- tree ------------------------------------------------------------------------------------------


def test_key_before_the_tree_is_there__waits_for_the_znode_of_the_link(
    place: Place, browser: Browser
) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/early/child", b"", makepath=True)
    with open_page(browser, place.console.url) as page:
        held: list[Route] = []
        page.route("**/api/children*", lambda route: held.append(route), times=1)
        page.evaluate("location.hash = '#tree/%2Fearly'")
        page.get_by_role("tree").focus()
        page.keyboard.press("ArrowRight")
        while not held:  # the request is under way; the driver tells of it while the page waits
            page.wait_for_timeout(10)
        held.pop().continue_()
        expect(page.get_by_role("treeitem", name="child")).to_be_visible()
        assert page.url.endswith("#tree/%2Fearly")


def test_tree__opens_by_keys_filters_searches_and_links(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/tree/config", b'{"limit": 250}', makepath=True)
        client.create("/tree/plain", b"needle in a haystack")
        client.create("/tree/owned", b"", ephemeral=True)
        session = hex(client.client_id[0])
        with open_page(browser, f"{place.console.url}/#tree/%2Ftree") as page:
            expect(page.locator(".treerow.selected")).to_contain_text("tree")
            page.get_by_role("tree").focus()
            page.keyboard.press("ArrowRight")
            expect(page.get_by_role("treeitem", name="config")).to_be_visible()
            page.keyboard.press("ArrowDown")
            expect(value(page)).to_have_text('{\n  "limit": 250\n}')
            assert page.url.endswith("#tree/%2Ftree%2Fconfig")
            page.get_by_role("button", name="Hex").click()
            expect(value(page)).to_contain_text("7b 22 6c 69 6d 69 74 22")
            page.get_by_role("button", name="Text").click()
            expect(value(page)).to_have_text('{"limit": 250}')
            # Filtered by the server, and searched by path and by value.
            page.get_by_role("treeitem", name="tree").first.click()
            page.get_by_role("searchbox", name="Filter the children").fill("PLA")
            expect(page.locator(".tree-status")).to_contain_text("1 child of 3")
            page.get_by_role("searchbox", name="Search for").fill("/tree/pl")
            page.get_by_role("button", name="Search").click()
            expect(page.locator(".found a")).to_have_text(["/tree/plain"])
            page.get_by_role("searchbox", name="Search for").fill("needle")
            page.get_by_role("combobox", name="Search by").select_option("value")
            page.get_by_role("button", name="Search").click()
            expect(page.locator(".found a")).to_have_text(["/tree/plain"])
            page.locator(".found a").click()
            expect(value(page)).to_have_text("needle in a haystack")
            shoot(page, "tree")
        with open_page(browser, f"{place.console.url}/#tree/%2Ftree%2Fowned") as page:
            page.get_by_role("link", name=f"session {session}").click()
            expect(page.locator(f'[data-session="{session}"]')).to_contain_text("/tree/owned")


def test_value__is_shown_anew_when_somebody_changes_it(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/changing", b"one")
        with open_page(browser, f"{place.console.url}/#tree/%2Fchanging") as page:
            expect(value(page)).to_have_text("one")
            client.set("/changing", b"two")
            expect(value(page)).to_have_text("two")
            client.delete("/changing")
            expect(page.locator(".empty-state")).to_contain_text("There is no such znode now")
            expect(page.locator(".empty-state .command")).to_contain_text("keepfast undelete")


@pytest.mark.parametrize(("width", "cells"), [(390, 8), (1360, 16)])
def test_hex__has_rows_that_fit_the_screen(
    place: Place, browser: Browser, width: int, cells: int
) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.ensure_path("/bytes")
        client.set("/bytes", bytes(range(256)) * 120)
        options = {"viewport": {"width": width, "height": 844}}
        with open_page(browser, f"{place.console.url}/#tree/%2Fbytes", **options) as page:
            expect(value(page)).to_contain_text(f"{cells:06x}  {cells:02x}")
            fits = "box => box.scrollWidth <= box.clientWidth"
            assert value(page).evaluate(fits)
            # What is laid out on its own are whole rows.
            pieces = page.locator(".data-card pre .piece")
            assert pieces.count() > 1
            ends = "all => all.slice(0, -1).every(one => one.textContent.endsWith('\\n'))"
            assert pieces.evaluate_all(ends)
        client.delete("/bytes")


def test_quota_and_count__are_told(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/limited", b"")
        client.create("/limited/a", b"12345")
        quota = "/zookeeper/quota/limited"
        client.create(f"{quota}/zookeeper_limits", b"count=10,bytes=1000", makepath=True)
        client.create(f"{quota}/zookeeper_stats", b"count=2,bytes=5")
    with open_page(browser, f"{place.console.url}/#tree/%2Flimited") as page:
        expect(page.locator(".quota").first).to_contain_text("znodes: 2 of 10")
        page.get_by_role("button", name="count all below").click()
        expect(page.locator(".facts").first).to_contain_text("1 znode below")


# -- sessions and feed -----------------------------------------------------------------------------


def test_sessions__with_address_ephemerals_and_watches(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/worker", b"", ephemeral=True)
        client.get("/worker", watch=lambda _: None)
        session = hex(client.client_id[0])
        with open_page(browser, f"{place.console.url}/#sessions/{session}") as page:
            found = page.locator(f'[data-session="{session}"]')
            expect(found).to_contain_text("127.0.0.1:")
            expect(found).to_contain_text("1 ephemeral")
            expect(found).to_contain_text("1 watch")
            expect(found.get_by_role("link", name="/worker").first).to_be_visible()
            expect(found).to_contain_text("connected since")
            expect(found.locator(".seen")).to_contain_text("seen")
            shoot(page, "sessions")


def test_feed__tells_who_changed_what_with_both_values(place: Place, browser: Browser) -> None:
    with (
        zookeeper(place.ensemble.hosts) as client,
        open_page(browser, f"{place.console.url}/#feed?path=/fed") as page,
    ):
        expect(page.get_by_role("status").filter(has_text="following the logs")).to_be_visible()
        client.create("/fed", b"before")
        client.set("/fed", b"after")
        session = hex(client.client_id[0])
        row = page.locator(".feed-row").filter(has_text="data set")
        expect(row).to_contain_text(session)
        row.locator("summary time").click()
        expect(row.locator(".side pre")).to_have_text(["before", "after"])
        page.get_by_role("button", name="Pause").click()
        client.set("/fed", b"later")
        expect(page.get_by_role("status").filter(has_text="1 change waiting")).to_be_visible()
        expect(page.locator(".feed-row")).to_have_count(2)
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".feed-row")).to_have_count(3)
        page.get_by_role("combobox", name="Only this kind").select_option("created")
        expect(page.locator(".feed-row")).to_have_count(1)
        shoot(page, "feed")


# -- changes ---------------------------------------------------------------------------------------


def test_changes__create_edit_undo_and_delete_with_a_preview(
    place: Place, browser: Browser
) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/edited", b"")
    with open_page(browser, f"{place.console.url}/#tree/%2Fedited") as page:
        page.get_by_role("button", name="Create a child").click()
        page.get_by_label("Name").fill("child")
        page.get_by_role("textbox", name="Value").fill("first")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.locator(".message")).to_contain_text("Created /edited/child")
        expect(value(page)).to_have_text("first")
        page.get_by_role("button", name="Edit", exact=True).click()
        page.get_by_role("textbox", name="Value").fill("second")
        shoot(page, "edit")
        page.get_by_role("button", name="Save").click()
        expect(value(page)).to_have_text("second")
        page.locator(".message").filter(has_text="Set /edited").get_by_role(
            "button", name="Undo"
        ).click()
        expect(value(page)).to_have_text("first")
        page.goto(f"{place.console.url}/#tree/%2Fedited")
        expect(page.get_by_role("heading", name="edited", exact=True)).to_be_visible()
        page.get_by_role("button", name="Delete").click()
        expect(page.locator(".preview li")).to_have_text(["/edited", "/edited/child"])
        page.get_by_role("button", name="Delete all 2").click()
        deleted = page.locator(".message").filter(has_text="Deleted /edited and 1 below it")
        deleted.get_by_role("button", name="Undo").click()
        expect(page.locator(".message").filter(has_text="Took back: deleted")).to_be_visible()
    with zookeeper(place.ensemble.hosts) as client:
        assert client.get("/edited/child")[0] == b"first"
    told = (place.root / "changes.log").read_text()
    assert "operation=create\tznode=/edited/child\tresult=success" in told
    assert "operation=delete\tznode=/edited\tresult=success" in told
    assert told.count("user=console:") == len(told.splitlines())


def test_conflict__shows_both_and_overwrites_nothing(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/contested", b"read by both")
        with open_page(browser, f"{place.console.url}/#tree/%2Fcontested") as page:
            page.get_by_role("button", name="Edit", exact=True).click()
            area = page.get_by_role("textbox", name="Value")
            expect(area).to_have_value("read by both")
            client.set("/contested", b"theirs")
            area.fill("ours")
            page.get_by_role("button", name="Save").click()
            expect(page.get_by_role("alert")).to_contain_text("somebody else changed")
            expect(page.locator(".conflict .side pre")).to_have_text(["theirs", "ours"])
            assert client.get("/contested")[0] == b"theirs"
            shoot(page, "conflict")
            page.get_by_role("button", name="Save over theirs").click()
            expect(value(page)).to_have_text("ours")
        assert client.get("/contested")[0] == b"ours"


def test_acl__is_edited_and_keeps_passwords_to_itself(place: Place, browser: Browser) -> None:
    from kazoo.security import make_acl, make_digest_acl

    with zookeeper(place.ensemble.hosts) as client:
        secret = make_digest_acl("alice", "secret", read=True)
        client.create("/guarded", b"", acl=[make_acl("world", "anyone", all=True), secret])
        with open_page(browser, f"{place.console.url}/#tree/%2Fguarded") as page:
            expect(page.locator(".acl")).to_contain_text("digest:alice:••••")
            page.get_by_role("button", name="Edit the ACL").click()
            row = page.locator(".acl-row").nth(1)
            row.get_by_label("write").check()
            page.get_by_role("button", name="Save").click()
            expect(page.locator(".message")).to_contain_text("Set the ACL")
        found = client.get_acls("/guarded")[0]
    # The hash came through, though no page ever saw it.
    assert [(one.perms, one.id.id) for one in found][1] == (3, secret.id.id)


# -- past and proof --------------------------------------------------------------------------------


def test_past__the_tree_at_a_zxid_differences_and_a_history(place: Place, browser: Browser) -> None:
    with zookeeper(place.ensemble.hosts) as client:
        client.create("/aged", b"young")
        then = client.exists("/aged").czxid
        client.set("/aged", b"old")
        client.create("/later", b"")
        now = client.exists("/later").czxid
    with open_page(browser, f"{place.console.url}/#past/%2Faged?at={then:#x}") as page:
        expect(value(page)).to_have_text("young")
        expect(page.get_by_role("status").filter(has_text="prove")).to_be_visible()
        expect(page.locator(".treerow").filter(has_text="later")).to_have_count(0)
        commands = page.locator(".commands .command")
        expect(commands.first).to_contain_text(f"--at {then:#x} --to restored")
        expect(commands.nth(1)).to_contain_text("keepfast undelete")
        shoot(page, "past")
        page.get_by_role("button", name="Differences").click()
        page.get_by_role("textbox", name="Compare with").fill(f"{now:#x}")
        page.get_by_role("textbox", name="Compare with").press("Enter")
        rows = page.locator(".differences .feed-row")
        expect(rows.filter(has_text="/later")).to_contain_text("created")
        changed = rows.filter(has_text="/aged")
        changed.locator("summary .chip").click()
        expect(changed.locator(".side pre")).to_have_text(["young", "old"])
        # The slider leads to another moment.
        page.get_by_role("button", name="Tree").click()
        page.get_by_role("slider", name="Moment").focus()
        page.keyboard.press("End")
        expect(value(page)).to_have_text("old")
    with open_page(browser, f"{place.console.url}/#tree/%2Faged") as page:
        page.get_by_role("button", name="Show its history").click()
        expect(page.locator(".timeline li")).to_have_count(2)
        expect(page.locator(".timeline li").first.locator(".side pre")).to_have_text(
            ["young", "old"]
        )
        page.get_by_role("button", name="Set back to before").click()
        page.get_by_role("button", name="Save").click()
        expect(value(page)).to_have_text("young")


@pytest.mark.slow
@pytest.mark.spark
def test_proof__an_audit_runs_in_the_background_and_is_kept(place: Place, browser: Browser) -> None:
    with open_page(browser, f"{place.console.url}/#proof") as page:
        expect(page.locator(".audit")).to_contain_text("No audit was run here yet")
        page.get_by_role("button", name="Run the audit").click()
        expect(page.get_by_role("progressbar")).to_be_visible()
        # A busy machine starts a JVM and reads files slowly.
        expect(page.get_by_role("heading", name="Consistent")).to_be_visible(timeout=240_000)
        lanes = page.locator(".lanes .picture svg")
        expect(lanes.locator("text.dim")).to_have_count(3)
        assert lanes.locator("rect.span.run").count() >= 3
        expect(page.locator(".audits")).to_contain_text("consistent")
        shoot(page, "proof")
        # The lanes are the report's own: they zoom by keys, too.
        page.get_by_role("application").focus()
        page.keyboard.press("+")
        page.keyboard.press("Enter")
        # What is under the cursor depends on what the tests before wrote.
        expect(page.locator(".lanes .details")).to_contain_text(re.compile("At 0x|Between"))
    kept = list((place.root / "keepfast-audits").iterdir())
    assert len(kept) == 1
    assert json.loads((kept[0] / "findings.json").read_text())["verdict"] == "consistent"


# -- the end of everything -------------------------------------------------------------------------


def test_loss_of_every_server__is_survived(place: Place, browser: Browser) -> None:
    with open_page(browser, place.console.url) as page:
        all_is_well(page)
        for server in place.ensemble.servers.values():
            server.kill()
        expect(page.locator("article.server .role")).to_have_text(["down"] * 3)
        expect(page.locator(".banner")).to_contain_text("0 of 3 voters serve")
        page.goto(f"{place.console.url}/#tree")
        expect(page.locator(".tree-pane")).to_contain_text("no server answers")
        place.ensemble.start()
        # By itself, on every page that is open.
        expect(page.get_by_role("treeitem", name="zookeeper")).to_be_visible()
        page.goto(f"{place.console.url}/#overview")
        all_is_well(page)


def test_one_address__the_other_servers_are_found(browser: Browser, tmp_path: Path) -> None:
    numbers = iter(free_ports(12))
    layout = EnsembleLayout(
        tmp_path, {id: Ports(*(next(numbers) for _ in range(4))) for id in (1, 2, 3)}
    )
    write_configurations(layout)
    with contextlib.ExitStack() as running:
        for id in layout.ports:
            server = ServerProcess(layout, id)
            server.start()
            running.callback(server.kill)
        only = layout.connect_string.partition(",")[0]
        console = running.enter_context(ConsoleProcess(only, log=tmp_path / "console.log"))
        with open_page(browser, console.url) as page:
            expect(page.locator("article.server")).to_have_count(3)
            all_is_well(page)
