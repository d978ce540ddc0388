"""What the four-letter words of an ensemble's members say: of three real servers, and of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apache import words
from tests.apache.server import ApacheServer
from tests.mixed.servers import APACHE, KEEPFAST, PATIENCE_SECONDS, MixedEnsemble

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

_LOCAL = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
# Apache's metrics of each learner's queue, and what the extras of ours begin with.
_LEFT_OUT = re.compile(r"zk_(\w+_)?\d_learner_handler|zk_keepfast|zk_\w+_per_namespace")


def _sessions(server: ApacheServer) -> list[str]:
    """The first part of `dump`, without ids, times and how they are grouped."""
    text = server.ask("dump").split("ephemeral nodes dump:")[0]
    text = re.sub(r"0x[0-9a-f]+", "ID", text)
    text = re.sub(r"Sets \(\d+\)/", "Sets (N)/", text)
    return [line for line in text.splitlines() if " expire at " not in line]


def _names(server: ApacheServer) -> set[str]:
    names = {line.split("\t")[0] for line in server.ask("mntr").splitlines()}
    return {name for name in names if not _LEFT_OUT.match(name)}


def _proposals(server: ApacheServer) -> tuple[str, ...]:
    """What the leader says of the sizes of its proposals, in each word."""
    asked = [server.ask(word) for word in ("srvr", "stat")]
    lines = [line for text in asked for line in text.splitlines() if "Proposal" in line]
    facts = dict(line.split("\t") for line in server.ask("mntr").splitlines())
    shown = (f"zk_{one}_proposal_size" for one in ("last", "min", "max"))
    return (*lines, *(facts[name] for name in shown), facts["zk_proposal_count"])


def _said(root: Path, kind: str, configuration: dict[str, str]) -> dict[str, object]:
    """What a leader, a follower and an observer say, with two sessions and one of them local."""
    said: dict[str, object] = {}
    kinds = dict.fromkeys((1, 2, 3), kind)
    with MixedEnsemble(root, kinds, observers=(3,), configuration=configuration) as ensemble:
        leader = ensemble.start().wait_leader()
        follower = 3 - leader
        with (
            ensemble.servers[follower].connect() as first,
            ensemble.servers[3].connect() as second,
        ):
            first.create("/a", b"x" * 100, ephemeral=True)
            second.sync("/a")
            words.wait_until(
                lambda: first.exists("/a") is not None, "it is there", timeout=PATIENCE_SECONDS
            )
            for role, id in (("leader", leader), ("follower", follower), ("observer", 3)):
                server = ensemble.servers[id]
                said[f"sessions of {role}"] = _sessions(server)
                said[f"names of {role}"] = _names(server) - {"zk_observer_master_id"}
            said["proposals"] = _proposals(ensemble.servers[leader])
    return said


@pytest.mark.parametrize("configuration", [{}, _LOCAL], ids=["global", "local"])
def test_words_of_leader_follower_and_observer__the_same(
    tmp_path: Path, configuration: dict[str, str]
) -> None:
    expected = _said(tmp_path / "theirs", APACHE, configuration)
    found = _said(tmp_path / "ours", KEEPFAST, configuration)
    assert found == expected
