"""Columns that people ask tables for every day, beside those of the files."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def for_daily_use(frame: DataFrame, audit_time: datetime | None = None) -> DataFrame:
    """A table with hexadecimal zxids and sessions beside the numbers, and parent and depth.

    `zxid_hex` and its like print as everything else prints zxids; `parent` is null for the root,
    whose `depth` is 0.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    columns: list[Column] = []
    for name in frame.columns:
        columns.append(F.col(name))
        if name.endswith("zxid") or name == "session_id":
            number = F.concat(F.lit("0x"), F.lower(F.hex(F.col(name))))
            columns.append(number.alias(f"{name.removesuffix('_id')}_hex"))
        elif name == "path":
            path = F.col("path")
            above = F.regexp_replace(path, "/[^/]*$", "")
            parent = F.when(path == "/", F.lit(None)).otherwise(
                F.when(above == "", F.lit("/")).otherwise(above)
            )
            slashes = F.length(path) - F.length(F.replace(path, F.lit("/"), F.lit("")))
            depth = F.when(path == "/", F.lit(0)).otherwise(slashes)
            columns += [parent.alias("parent"), depth.cast("int").alias("depth")]
    if audit_time is not None:
        columns.append(F.lit(audit_time).alias("audit_time"))
    return frame.select(*columns)
