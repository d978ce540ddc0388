"""`keepfast history` at rest, as it is typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyarrow import parquet

from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.replay.state import HEAD, ensemble_state, read_only_disk
from tests.cases import CASES_DIR
from tests.cli.runs import call, fingerprint

HEALTHY = CASES_DIR / "healthy-plain-3.9.5"
WRONG = CASES_DIR / "trunc-misses-record-3.4.14"

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_batch__writes_every_transaction_and_says_how_many(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = fingerprint(HEALTHY)
    out = tmp_path / "feed"
    result = call(capsys, "history", HEALTHY, "--out", out, "--json")
    assert (result.code, result.err) == (0, "")
    document = result.document
    assert (document["schema"], document["exit_code"]) == ("keepfast.history/1", 0)
    (ensemble,) = document["ensembles"]
    rows = parquet.read_table(out / "changes").to_pylist()
    assert ensemble["rows"] == len(rows)
    assert ensemble["transactions"] == len({row["zxid"] for row in rows})
    assert (ensemble["gaps"], ensemble["broken"]) == ([], "")
    (files,) = discover([str(HEALTHY)])
    head = ensemble_state(read_only_disk(), files, HEAD).head
    assert int(ensemble["last_zxid"], 16) == max(row["zxid"] for row in rows) == head
    assert fingerprint(HEALTHY) == before


def test_batch__for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = call(capsys, "history", HEALTHY, "--out", tmp_path / "feed")
    assert result.code == 0
    assert "transactions" in result.out
    assert f"Written to {tmp_path / 'feed'}/changes" in result.out


def test_batch_of_two_servers_that_part__exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    places = (WRONG / "0", WRONG / "2")
    document = call(capsys, "history", *places, "--out", tmp_path / "feed", "--json").document
    assert document["exit_code"] == 1
    assert document["ensembles"][0]["end"]["kind"] == "conflict"


def test_bad_input__one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call(capsys, "history", tmp_path / "none", "--out", tmp_path / "feed").check_sentence("no such")
    shutil.copytree(HEALTHY, tmp_path / "e")
    inside = call(capsys, "history", tmp_path / "e", "--out", tmp_path / "e" / "feed")
    inside.check_sentence("name a directory outside")
    assert not (tmp_path / "e" / "feed").exists()
