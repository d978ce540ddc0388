"""docs/data-dictionary.md names the columns that the tables have, in their order and types."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from keepfast.pipeline.feeds.history_table import HISTORY_SCHEMA
from keepfast.pipeline.feeds.state_source import STATE_SCHEMA
from keepfast.pipeline.schemas import (
    FILE_SCHEMA,
    FINDING_SCHEMA,
    RECORD_SCHEMA,
    SESSION_SCHEMA,
    SUMMARY_SCHEMA,
    TXN_SCHEMA,
    ZNODE_SCHEMA,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "data-dictionary.md"
SCHEMAS = {
    "transactions": TXN_SCHEMA,
    "records": RECORD_SCHEMA,
    "changes": HISTORY_SCHEMA,
    "state": STATE_SCHEMA,
    "znodes": ZNODE_SCHEMA,
    "sessions": SESSION_SCHEMA,
    "files": FILE_SCHEMA,
    "summaries": SUMMARY_SCHEMA,
    "findings": FINDING_SCHEMA,
}
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| ", re.MULTILINE)


def words_of(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        inner = kind.value_type
        if not pa.types.is_struct(inner):
            return f"array of {words_of(inner)}"
        names = [field.name for field in inner]
        return "array of struct" if len(names) > 3 else f"array of (`{'`, `'.join(names)}`)"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {"int64": "long", "int32": "int", "bool": "boolean"}.get(str(kind), str(kind))


@pytest.mark.parametrize("name", SCHEMAS)
def test_table__has_the_columns_of_the_page(name: str) -> None:
    section = PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    expected = [(field.name, words_of(field.type)) for field in SCHEMAS[name]]
    assert _ROW.findall(section) == expected
