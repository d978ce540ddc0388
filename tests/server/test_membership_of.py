"""The configuration's members become those of the quorum protocols, with the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.server.config import load_config
from keepfast.server.membership_of import membership_of

LINES = {
    "plain": "server.1=a:1:2\nserver.2=b:1:2;2181\nserver.3=[1:2:3:4:5:6:7:8]:1:2:observer;c:5\n",
    "groups": "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\ngroup.1=1:2\ngroup.2=3\nweight.2=3",
    "several": "multiAddress.enabled=true\nserver.1=b:1:2|a:3:4\nserver.2=a:1:2\n",
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES.keys())
def test_members__say_the_same_in_both_forms(tmp_path: Path, lines: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "myid").write_text("1\n")
    path = tmp_path / "zoo.cfg"
    path.write_text(
        f"dataDir={tmp_path / 'data'}\nclientPort=2181\ninitLimit=5\nsyncLimit=2\n{lines}"
    )
    config = load_config(str(path)).ensemble.membership

    membership = membership_of(config)

    assert membership.text().decode() == config.text()
    assert membership.voters == {member.id for member in config.voters}
    assert all(membership.weight(member.id) == member.weight for member in config.voters)
