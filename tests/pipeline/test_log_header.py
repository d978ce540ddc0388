"""Logs without a header: what Apache 3.9.5 does not start on (tried) is no pass; others are."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_here
from keepfast.pipeline.findings.document import Verdict
from tests.pipeline.ensembles import healthy


@pytest.mark.parametrize("size", [0, 2, 15, 4096])
@pytest.mark.parametrize("is_newest", [True, False], ids=["newest", "below the base"])
def test_log_without_header__is_warned_of_if_a_start_opens_it(
    tmp_path: Path, size: int, is_newest: bool
) -> None:
    life = healthy(40)
    member = next(one for one in life.members if one.base > 0 and len(one.logs) > 1)
    oldest = min(log.zxid for log in member.logs)
    zxid = life.zxid + 16 if is_newest else oldest - 1
    life.write_files(tmp_path)
    log = next((tmp_path / member.name).rglob("log.*")).parent / f"log.{zxid:x}"
    log.write_bytes(bytes(size))
    (result,) = audit_here([str(tmp_path)]).ensembles
    warned = [one for one in result.findings if one.kind == "log-without-header"]
    if size and is_newest:
        assert [(one.server, one.file) for one in warned] == [(member.name, str(log))]
        assert result.verdict is Verdict.AT_RISK
    else:
        assert not warned
        assert result.verdict is Verdict.CONSISTENT
