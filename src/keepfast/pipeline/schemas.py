"""The schemas of everything that the pipeline reads and writes, as Arrow; docs/data-dictionary.md.

Zxids, session ids and digests are 64-bit integers as in the files: signed, digests wrapped to
signed. `problem` is null in a sound row; where it is not, the row says which bytes are not a
record, and columns that could not be read are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TIME = pa.timestamp("us", "UTC")


def _list_of(element: pa.DataType) -> pa.DataType:
    """A list whose elements have the name that Spark gives them."""
    return pa.list_(pa.field("element", element))


TEXTS = _list_of(pa.string())
ACL_LIST = _list_of(
    pa.struct([("perms", pa.int32()), ("scheme", pa.string()), ("id", pa.string())])
)

# What a txn, or one operation of a multi, may hold.
_OPERATION = [
    ("type", pa.int32()),
    ("op", pa.string()),
    ("path", pa.string()),
    ("data", pa.binary()),
    ("acl", ACL_LIST),
    ("version", pa.int32()),
    ("ephemeral", pa.bool_()),
    ("parent_cversion", pa.int32()),
    ("ttl_ms", pa.int64()),
    ("error", pa.int32()),
]
OPERATION = pa.struct(_OPERATION)
OPERATIONS = _list_of(OPERATION)

# Which file a row comes from.
SOURCE = [("ensemble", pa.string()), ("server", pa.string()), ("file", pa.string())]

TXN_SCHEMA = pa.schema(
    [
        *SOURCE,
        ("offset", pa.int64()),
        ("size", pa.int32()),
        ("checksum", pa.int64()),
        ("zxid", pa.int64()),
        ("epoch", pa.int32()),
        ("session_id", pa.int64()),
        ("cxid", pa.int32()),
        ("time", TIME),
        *_OPERATION,
        ("timeout_ms", pa.int32()),
        ("paths", TEXTS),
        ("ops", OPERATIONS),
        ("digest_version", pa.int32()),
        ("digest", pa.int64()),
        ("problem", pa.string()),
    ]
)

# Of a znode, wherever one is shown.
STAT = (
    ("czxid", pa.int64()),
    ("mzxid", pa.int64()),
    ("pzxid", pa.int64()),
    ("ctime", TIME),
    ("mtime", TIME),
    ("version", pa.int32()),
    ("cversion", pa.int32()),
    ("aversion", pa.int32()),
)

ZNODE_SCHEMA = pa.schema(
    [
        *SOURCE,
        ("snapshot_zxid", pa.int64()),
        ("offset", pa.int64()),
        ("path", pa.string()),
        ("data", pa.binary()),
        ("acl_key", pa.int64()),
        ("acl", ACL_LIST),
        *STAT,
        ("ephemeral_owner", pa.int64()),
        ("problem", pa.string()),
    ]
)

SESSION_SCHEMA = pa.schema(
    [
        *SOURCE,
        ("snapshot_zxid", pa.int64()),
        ("session_id", pa.int64()),
        ("timeout_ms", pa.int32()),
        ("problem", pa.string()),
    ]
)

FILE_SCHEMA = pa.schema(
    [
        *SOURCE,
        ("kind", pa.string()),
        ("name_zxid", pa.int64()),
        ("size", pa.int64()),
        ("modified", TIME),
        ("records", pa.int64()),
        ("first_zxid", pa.int64()),
        ("last_zxid", pa.int64()),
        ("used_bytes", pa.int64()),
        ("sessions", pa.int64()),
        ("digest_zxid", pa.int64()),
        ("digest", pa.int64()),
        ("last_processed_zxid", pa.int64()),
        ("problem", pa.string()),
    ]
)

SUMMARY_SCHEMA = pa.schema(
    [
        *SOURCE,
        # "run": records each directly after the one before, inside one bucket of zxids.
        # "damage": bytes that are not a record.  "end": the plain end of the records.
        ("kind", pa.string()),
        ("bucket", pa.int64()),
        ("first_zxid", pa.int64()),
        ("last_zxid", pa.int64()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("records", pa.int64()),
        ("unnumbered", pa.int64()),
        ("content_hash", pa.int64()),
        ("digests", pa.int64()),
        ("digest_hash", pa.int64()),
        ("first_time", TIME),
        ("last_time", TIME),
        ("problem", pa.string()),
        ("is_torn", pa.bool_()),
        ("is_unmarked", pa.bool_()),
        ("valid_after", pa.int64()),
    ]
)

FINDING_SCHEMA = pa.schema(
    [
        ("ensemble", pa.string()),
        ("check", pa.string()),
        ("kind", pa.string()),
        ("severity", pa.string()),
        ("server", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("first_zxid", pa.int64()),
        ("last_zxid", pa.int64()),
        ("paths", TEXTS),
        ("evidence", pa.string()),
        ("advice", pa.string()),
        ("cause", pa.string()),
        ("first_time", TIME),
        ("last_time", TIME),
        ("op", pa.string()),
        ("session_id", pa.int64()),
        ("user", pa.string()),
        ("address", pa.string()),
    ]
)

# The transactions of the tables: each record once, whoever holds it.
RECORD_SCHEMA = pa.schema(
    [
        ("ensemble", pa.string()),
        ("servers", TEXTS),
        ("standing", pa.string()),
        *[field for field in TXN_SCHEMA if field.name not in ("ensemble", "server", "problem")],
    ]
)

# zxids whose upper bits are equal are summed up together; see pipeline.scan.
BUCKET_BITS = 12


def spark_schema(schema: pa.Schema) -> StructType:
    """The same schema in Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    converted: StructType = from_arrow_schema(schema)
    return converted


def pruned(schema: pa.Schema, names: list[str]) -> pa.Schema:
    """The columns of `schema` named, in that order; raises KeyError for one that it lacks."""
    return pa.schema([schema.field(name) for name in names])
