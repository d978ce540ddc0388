"""The records of ensembles, each once, as a data source: what an audit knows of who holds them.

The option ``parts`` is a list of `RecordPart` in JSON; a task reads one bundle of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from keepfast.pipeline.decode import FileOrigin, decode_log, open_file
from keepfast.pipeline.findings.records_named import RecordSource
from keepfast.pipeline.schemas import RECORD_SCHEMA, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "zkrecord"
_TASK_BYTES = 32 << 20
_OF_SOURCE = ("ensemble", "servers", "standing")
_DECODED = [name for name in RECORD_SCHEMA.names if name not in _OF_SOURCE]


@dataclass(frozen=True, slots=True)
class RecordPart:
    """Bytes of a log, and which of the records that begin there are wanted."""

    ensemble: str
    source: RecordSource
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Bundle(InputPartition):
    parts: tuple[RecordPart, ...]


def records_frame(spark: SparkSession, parts: Sequence[RecordPart]) -> DataFrame:
    """The rows of RECORD_SCHEMA of some parts."""
    spark.dataSource.register(RecordsOnce)
    text = msgspec.json.encode(parts).decode()
    return spark.read.format(FORMAT).option("parts", text).load()


def parts_of_source(ensemble: str, source: RecordSource) -> list[RecordPart]:
    """A source in parts that tasks can share."""
    starts = range(source.start, max(source.end, source.start + 1), _TASK_BYTES)
    return [
        RecordPart(ensemble, source, start, min(start + _TASK_BYTES, source.end))
        for start in starts
    ]


class RecordsOnce(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns; see docs/data-dictionary.md."""
        return spark_schema(RECORD_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all columns."""
        return RecordsReader(self.options["parts"])


class RecordsReader(DataSourceReader):
    """Reads logs where they lie."""

    def __init__(self, text: str) -> None:
        self._text = text

    def partitions(self) -> list[InputPartition]:
        """Bundles of about the same size."""
        bundles: list[list[RecordPart]] = [[]]
        size = 0
        for part in msgspec.json.decode(self._text, type=list[RecordPart]):
            if bundles[-1] and size + part.stop - part.start > _TASK_BYTES:
                bundles.append([])
                size = 0
            bundles[-1].append(part)
            size += part.stop - part.start
        return [_Bundle(tuple(bundle)) for bundle in bundles]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, _Bundle):
            for part in partition.parts:
                yield from rows_of(part)


def rows_of(part: RecordPart) -> Iterator[pa.RecordBatch]:
    """The records of one part."""
    one = part.source
    origin = FileOrigin(part.ensemble, one.servers[0], one.file)
    with open_file(one.file) as file:
        bounds, zxids = (part.start, part.stop), (one.first, one.last)
        for batch in decode_log(file, origin, _DECODED, bounds, zxids):
            count = batch.num_rows
            names = {
                "ensemble": pa.array([part.ensemble] * count, pa.string()),
                "servers": pa.array([one.servers] * count, RECORD_SCHEMA.field("servers").type),
                "standing": pa.array([one.standing] * count, pa.string()),
            }
            columns = [
                names[name] if name in names else batch.column(name) for name in RECORD_SCHEMA.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
