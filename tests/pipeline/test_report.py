"""The report: complete, escaped, small; drawn by a real browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from keepfast.pipeline.findings.document import FindingSeverity
from keepfast.pipeline.report import Axis, ReportFacts, render_report
from keepfast.pipeline.report.targets import write_file
from keepfast.pipeline.report.words import steps_of
from keepfast.wire import make_zxid
from tests.pipeline.report_samples import HOSTILE, SAMPLES, broken, many_findings, many_servers

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """The elements of a page; fails where they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def drawings(text: str) -> list[dict[str, Any]]:
    found = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return [json.loads(one) for one in found]


@pytest.mark.parametrize("name", SAMPLES)
def test_page__is_well_formed_and_needs_nothing_else(name: str) -> None:
    text = render_report(SAMPLES[name]())
    page = Page(text)
    assert page.count("h1") == 1
    for tag, attributes in page.tags:
        # Nothing is fetched: no address of any kind, but for links inside the page.
        assert "src" not in attributes
        assert not any(key.startswith("on") or key == "style" for key in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert len(text) < 3_000_000


def test_verdict_comes_first__with_server_zxid_and_paths() -> None:
    text = Page(render_report(broken())).text
    assert text.index("Diverged") < text.index("What to do") < text.index("Evidence")
    assert "Server 3 differs from 0x200000003 on: 2 znodes (/between and /z2)." in text
    assert "Believe servers 0, 1, 2 and 4" in text


def test_hostile_text__stays_text() -> None:
    text = render_report(SAMPLES["hostile"]())
    page = Page(text)
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert " ".join(shown.split()) in page.text
    assert page.count("img") == 0
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert [one.get("type") for one in scripts] == ["application/json"] * 2 + [None]
    assert "\x1b" not in text
    assert "\u202e" not in text
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert "unsafe" not in (policy or "")
    # The data that the script reads is what it was, though it looked like markup.
    assert drawings(text)[0]["lanes"][0]["name"] == HOSTILE


def test_every_finding_and_every_server_is_there() -> None:
    text = render_report(many_findings(1000))
    assert text.count('<tr data-severity="') == 1000
    assert len(drawings(render_report(many_servers(50)))[0]["lanes"]) == 50


def test_advice_and_cause__are_said_once_and_linked_from_each_finding() -> None:
    text = render_report(many_findings(1000))
    assert text.count("Refill") == 2  # as a step, and in the first of the notes
    assert text.count('href="#step-0-1"') > 600
    steps = [
        attributes for tag, attributes in Page(text).tags if tag == "li" and "id" in attributes
    ]
    assert [attributes["id"] for attributes in steps] == ["step-0-1"]
    shown = Page(text).text
    assert "On servers 0, 1, 2, 3 and 4, one at a time: Refill the server." in shown


def test_step_that_another_one_says_as_well__is_left_out() -> None:
    finding = replace(broken().ensembles[0].findings[0], severity=FindingSeverity.ERROR)
    findings = (
        replace(finding, server="3", kind="gap", advice="Refill server 3. Then server 4."),
        replace(finding, server="3", kind="lacks", advice="Refill server 3."),
        replace(finding, server="1", kind="other", advice="Delete the file."),
    )
    steps = steps_of(replace(broken().ensembles[0], findings=findings))
    assert [step.text for step in steps] == ["Refill server 3. Then server 4.", "Delete the file."]
    assert steps[0].advices == ("Refill server 3. Then server 4.", "Refill server 3.")


def test_what_was_not_checked__is_said_and_does_not_read_as_a_pass() -> None:
    text = Page(render_report(SAMPLES["nothing"]())).text
    assert "Unreadable" in text
    assert "Not checked one server only: nothing can be compared" in text


def test_file__is_complete_or_not_there(tmp_path: Path) -> None:
    page = render_report(broken(), ReportFacts("keepfast audit x", "0.1.0"))
    write_file(str(tmp_path), "report.html", page)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "keepfast audit x" in (tmp_path / "report.html").read_text()


def test_axis__orders_zxids_and_folds_what_nobody_holds() -> None:
    axis = Axis.over(
        [
            (make_zxid(1, 1), make_zxid(1, 1000)),
            (make_zxid(1, 500_000), make_zxid(1, 500_010)),
            (make_zxid(2, 1), make_zxid(2, 2)),
            (make_zxid(1, 990), make_zxid(2, 2)),  # from one epoch into the next
        ]
    )
    zxids = [make_zxid(1, c) for c in (1, 2, 1000, 1001, 500_000)] + [make_zxid(2, 1)]
    points = [axis.left(zxid) for zxid in zxids]
    assert points == sorted(points)
    assert len(axis.stretches) == 3
    assert axis.left(make_zxid(1, 1)) == 0
    assert axis.right(make_zxid(2, 2)) == axis.width
    # An epoch with two records is as easy to see as one with a thousand.
    widths = [stretch.right - stretch.left for stretch in axis.stretches]
    assert max(widths) < 6 * min(widths)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["broken", "many-servers", "hostile"])
def test_in_a_browser__the_lanes_are_drawn_and_nothing_else_runs(name: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = SAMPLES[name]()
    write_file(str(path.parent), path.name, render_report(result))
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "<title>diverged - Keepfast audit</title>" in done.stdout
    picture = done.stdout.split('class="picture"')[1].split("</svg>")[0]
    lanes = result.ensembles[0].lanes
    assert picture.count('class="span run"') >= len(lanes)
    assert picture.count("current epoch") == len(lanes)
