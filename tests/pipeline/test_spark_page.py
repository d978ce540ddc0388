"""The examples of docs/spark.md run as they are, in a session that is not ours."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import CASES_DIR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_examples__run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in CASES_DIR.iterdir():
        (tmp_path / case.name).symlink_to(case)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ.get("PYSPARK_PYTHON", ""))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["spark"] is spark
    formats = set(re.findall(r'format\("(\w+)"\)', "".join(blocks)))
    assert formats == {
        *("zktxnlog", "zksnapshot", "zksession", "zksummary", "zkfile", "zkhistory", "zkstate"),
    }
