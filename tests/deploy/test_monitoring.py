"""Alert rules, dashboard and metrics: they name the same things, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest

from keepfast.harness import HeldPorts
from tests.apache.words import serving_mode, wait_until
from tests.cases import load_case
from tests.chaos.processes import RealEnsemble
from tests.cli.runs import run
from tests.deploy.kit import DEPLOY, PROJECT, find_tool, run_tool

RULES = DEPLOY / "prometheus" / "keepfast.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "keepfast.json"
_WORDS = {"by", "on", "and", "or", "unless", "group_right", "group_left", "ignoring", "without"}


@pytest.fixture(scope="module")
def of_servers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a leader of three and its followers expose."""
    held = HeldPorts(6)
    texts: list[str] = []
    with RealEnsemble(tmp_path_factory.mktemp("servers")) as ensemble:
        for id, server in ensemble.servers.items():
            admin, metrics = held.numbers[2 * id - 2 : 2 * id]
            config = server.directory / "zoo.cfg"
            provider = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
            config.write_text(
                config.read_text().replace("admin.enableServer=false", "admin.enableServer=true")
                + f"\nadmin.serverPort={admin}\nmetricsProvider.className={provider}\n"
                + f"metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort={metrics}\n"
            )
            server.start()
        for id, server in ensemble.servers.items():
            port = server.ports.client
            wait_until(lambda port=port: serving_mode(port) is not None, f"server {id} serves")  # type: ignore[misc]
            url = f"http://127.0.0.1:{held.numbers[2 * id - 1]}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                texts.append(answer.read().decode())
    held.close()
    # A leader says more than a follower.
    return max(texts, key=len)


@pytest.fixture(scope="module")
def of_commands(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the last audit and the last backup left for the textfile collector."""
    folder = tmp_path_factory.mktemp("metrics")
    case = load_case("healthy-plain-3.9.5").server_dir("0")
    audited = run("audit", case, "--engine", "local", "--metrics", folder / "audit.prom")
    assert audited.code in (0, 3), audited.err
    metrics = ("--metrics", folder / "backup.prom")
    done = run("backup", case, "--to", tmp_path_factory.mktemp("backups") / "zk", *metrics)
    assert done.code == 0, done.err
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    return "".join((folder / name).read_text() for name in ("audit.prom", "backup.prom"))


def names_in(expression: str) -> Iterator[str]:
    """The metrics that an expression of Prometheus names."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", " ", expression)
    bare = re.sub(r"\b(by|on|ignoring|without|group_right|group_left) *\([^)]*\)", " ", bare)
    for match in re.finditer(r"[a-z_][a-z_0-9]*\b(?! *\()", bare):
        if match[0] not in _WORDS:
            yield match[0]


def expressions() -> list[str]:
    rules = re.findall(r"^ *expr: (.*)$", RULES.read_text(), re.MULTILINE)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = rules + [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(found) > 40
    return found


def test_rules_and_dashboard__name_metrics_that_exist(of_servers: str, of_commands: str) -> None:
    known = {"up", *re.findall(r"^([a-z_0-9]+)[ {]", of_servers + of_commands, re.MULTILINE)}
    named = {name for expression in expressions() for name in names_in(expression)}
    assert named - known == set()


def test_metrics_of_our_own__pass_promtool(of_servers: str, of_commands: str) -> None:
    promtool = find_tool("promtool", "Debian's prometheus")
    lines = (of_servers + of_commands).splitlines(keepends=True)
    own = [line for line in lines if re.match(r"(# (HELP|TYPE) )?keepfast_", line)]
    assert len(own) > 30
    assert run_tool(promtool, "check", "metrics", text="".join(own)) == ""


def test_rules__are_sound_and_each_was_seen_to_fire() -> None:
    promtool = find_tool("promtool", "Debian's prometheus")
    run_tool(promtool, "check", "rules", RULES)
    tests = RULES.with_name("keepfast.rules.test.yml")
    run_tool(promtool, "test", "rules", tests.name, cwd=RULES.parent)
    alerts = re.findall(r"- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
    assert [name for name in alerts if name not in tests.read_text()] == []


def test_configuration__is_sound() -> None:
    promtool = find_tool("promtool", "Debian's prometheus")
    run_tool(promtool, "check", "config", RULES.with_name("prometheus.yml"))


def test_jobs__go_into_a_configuration_that_has_debians_own() -> None:
    """Prometheus refuses two jobs of one name, and Debian's file comes with these."""
    text = RULES.with_name("prometheus.yml").read_text()
    jobs = re.findall(r"job_name: ([\w-]+)$", text, re.MULTILINE)
    assert len(jobs) == 2
    assert not {"prometheus", "node"} & set(jobs)


def test_runbooks__are_headings_of_the_page_that_they_name() -> None:
    anchors = re.findall(r"runbook_url: .*/docs/troubleshoot.md#(\S+)$", RULES.read_text(), re.M)
    page = (PROJECT / "docs" / "troubleshoot.md").read_text()
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    }
    assert len(anchors) > 20
    assert set(anchors) - headings == set()


def test_dashboard__panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
