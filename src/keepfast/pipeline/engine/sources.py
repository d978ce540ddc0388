"""The Spark data sources: ``spark.read.format("zktxnlog").load("/var/lib/zookeeper")``.

    zktxnlog     the records of logs                        TXN_SCHEMA      batch and stream
    zksnapshot   the znodes of snapshots                    ZNODE_SCHEMA    batch and stream
    zksession    the sessions in snapshots                  SESSION_SCHEMA
    zksummary    logs, verified and summed up (scan.py)     SUMMARY_SCHEMA
    zkfile       one row per file                           FILE_SCHEMA

What to load: a directory of a server, a root of several, ``DIR:LOGDIR``, or a single file; or the
option ``paths``, a JSON list of such. Further options:

    cores        how many tasks may run at once (default: processors of the driver)
    listing      JSON of the files: for places that only Spark can list

Columns: a schema given by the caller (``.schema("zxid long, path string")``) is what is decoded,
nothing else; that is how columns are pruned, since Spark does not pass its choice to a Python
source. Filters on zxid, ensemble, server and file leave out whole files, where the session allows
it (ours does).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from keepfast.pipeline.engine.source_files import FilesPartition, files_of
from keepfast.pipeline.engine.streams import LogStream, SnapshotStream
from keepfast.pipeline.engine.tables import TABLES, TXNS, ZNODES, Table
from keepfast.pipeline.files.parts import Bounds, packed, parts_of
from keepfast.pipeline.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the data sources known to a session."""
    takes_filters = spark.conf.get(_PUSHDOWN, "false") == "true"
    for plain, filtering in _SOURCES.items():
        # Spark refuses a reader that takes filters while they are switched off.
        spark.dataSource.register(filtering if takes_filters else plain)


class FilesSource(DataSource):
    """A table as a source; the subclasses name the table."""

    table: Table

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.table.name

    def schema(self) -> StructType:
        """All columns; see docs/data-dictionary.md."""
        return spark_schema(self.table.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`."""
        return FilesReader(self.table, dict(self.options), checked_columns(self.table, schema))


def checked_columns(table: Table, schema: StructType) -> list[str]:
    """The names in a schema that a caller gave; raises ValueError for what the table has not."""
    known = {field.name: field.dataType for field in spark_schema(table.schema).fields}
    for field in schema.fields:
        if field.name not in known:
            raise ValueError(f"{table.name} has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            kind = known[field.name].simpleString()
            raise ValueError(f"column {field.name} of {table.name} is a {kind}")
    return list(schema.names)


class FilesReader(DataSourceReader):
    """Reads the files that are there when the query is planned."""

    def __init__(self, table: Table, options: dict[str, str], columns: list[str]) -> None:
        self._table = table
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    def take_filters(self, filters: Iterable[Filter]) -> None:
        """Note what files and records a query can do without."""
        bounds = self._bounds
        for one in filters:
            bounds = _narrowed(bounds, one)
        self._bounds = bounds

    def partitions(self) -> list[InputPartition]:
        """One a task."""
        files = files_of(self._options)
        bounds = (
            self._bounds
            if self._table is TXNS
            else replace(self._bounds, first_zxid=None, last_zxid=None)
        )
        parts = parts_of(files, self._table.kinds, bounds, can_cut=self._table.can_cut)
        cores = int(self._options.get("cores") or os.cpu_count() or 1)
        # At least one: Spark takes an empty list for a source that cannot be cut at all.
        return [FilesPartition(bundle) for bundle in packed(parts, cores)] or [FilesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, FilesPartition):
            yield from self._table.rows(partition.parts, self._columns, self._bounds)


class FilteringReader(FilesReader):
    """The same where filters are switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take note of the filters; all of them stay Spark's to apply."""
        self.take_filters(filters)
        return filters


def _narrowed(bounds: Bounds, one: Filter) -> Bounds:
    """`bounds` and a filter; a filter that says nothing about files leaves them as they are."""
    column: tuple[str, ...] = getattr(one, "attribute", ())
    if len(column) != 1:
        return bounds
    if column[0] == "zxid":
        return _narrowed_zxids(bounds, one)
    values = {getattr(one, "value", None)} if isinstance(one, EqualTo) else None
    if isinstance(one, In):
        values = set(one.value)
    if values is None:
        return bounds
    wanted = frozenset(value for value in values if isinstance(value, str))
    if column[0] == "ensemble":
        return replace(bounds, ensembles=_common(bounds.ensembles, wanted))
    if column[0] == "server":
        return replace(bounds, servers=_common(bounds.servers, wanted))
    if column[0] == "file":
        return replace(bounds, files=_common(bounds.files, wanted))
    return bounds


def _common(known: frozenset[str] | None, wanted: frozenset[str]) -> frozenset[str]:
    return wanted if known is None else known & wanted


def _narrowed_zxids(bounds: Bounds, one: Filter) -> Bounds:
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        return bounds
    low, high = bounds.zxids or (-(1 << 63), (1 << 63) - 1)
    if isinstance(one, EqualTo):
        low, high = max(low, value), min(high, value)
    elif isinstance(one, GreaterThan):
        low = max(low, value + 1)
    elif isinstance(one, GreaterThanOrEqual):
        low = max(low, value)
    elif isinstance(one, LessThan):
        high = min(high, value - 1)
    elif isinstance(one, LessThanOrEqual):
        high = min(high, value)
    else:
        return bounds
    return replace(bounds, first_zxid=low, last_zxid=high)


class TxnLogSource(FilesSource):
    """``zktxnlog``."""

    table = TXNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The records that are there, and those that come."""
        return LogStream(dict(self.options), checked_columns(TXNS, schema))


class SnapshotSource(FilesSource):
    """``zksnapshot``."""

    table = ZNODES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The snapshots that are there, and those that come."""
        return SnapshotStream(dict(self.options), checked_columns(ZNODES, schema))


class SessionSource(FilesSource):
    """``zksession``."""

    table = TABLES["zksession"]


class SummarySource(FilesSource):
    """``zksummary``."""

    table = TABLES["zksummary"]


class FileSource(FilesSource):
    """``zkfile``."""

    table = TABLES["zkfile"]


class _TakesFilters(FilesSource):
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader that takes filters."""
        columns = checked_columns(self.table, schema)
        return FilteringReader(self.table, dict(self.options), columns)


class FilteringTxnLogSource(_TakesFilters, TxnLogSource):
    """``zktxnlog``, where filters are switched on."""


class FilteringSnapshotSource(_TakesFilters, SnapshotSource):
    """``zksnapshot``, where filters are switched on."""


class FilteringSessionSource(_TakesFilters, SessionSource):
    """``zksession``, where filters are switched on."""


class FilteringSummarySource(_TakesFilters, SummarySource):
    """``zksummary``, where filters are switched on."""


class FilteringFileSource(_TakesFilters, FileSource):
    """``zkfile``, where filters are switched on."""


_SOURCES: dict[type[FilesSource], type[FilesSource]] = {
    TxnLogSource: FilteringTxnLogSource,
    SnapshotSource: FilteringSnapshotSource,
    SessionSource: FilteringSessionSource,
    SummarySource: FilteringSummarySource,
    FileSource: FilteringFileSource,
}
