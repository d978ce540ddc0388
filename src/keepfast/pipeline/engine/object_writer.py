"""Parquet on object stores, written by the tasks: ``frame.write.format("keepfast_parquet")``.

Spark writes to S3 and its like through Hadoop connectors that PySpark does not bring.  PyArrow
does, and reads the input from there, so the same credentials serve both.  A file appears when it
is closed.  What belongs to the table is known when all tasks are done: whatever else lies in the
directory then, of an older table or of a task that was killed, is deleted.
"""

from __future__ import annotations

import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import fs, parquet
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from keepfast.pipeline.files.access import arrow_system

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "keepfast_parquet"
_SUCCESS = "_SUCCESS"


@dataclass
class WrittenParts(WriterCommitMessage):
    """What one task wrote: names of files."""

    names: list[str]


class ObjectSink(DataSource):
    """The format; its path is the address of a directory."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of one table, instead of what is there."""
        return ObjectWriter(self.options["path"])


class ObjectWriter(DataSourceArrowWriter):
    """Writes the rows of each task as one file for each ensemble."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        system, directory = arrow_system(self._address)
        file = f"part-{uuid.uuid4().hex}.parquet"
        writers: dict[str, Any] = {}
        for batch in iterator:
            for ensemble, rows in _by_ensemble(batch):
                name = f"ensemble={urllib.parse.quote(ensemble, safe='')}/{file}"
                if name not in writers:
                    path = f"{directory}/{name}"
                    system.create_dir(path.rpartition("/")[0], recursive=True)
                    writers[name] = parquet.ParquetWriter(
                        path, rows.schema, filesystem=system, compression="zstd"
                    )
                writers[name].write_batch(rows)
        for writer in writers.values():
            writer.close()
        return WrittenParts(sorted(writers))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make these files the table."""
        kept = {name for one in messages if isinstance(one, WrittenParts) for name in one.names}
        system, directory = arrow_system(self._address)
        self._delete_others(system, directory, kept)
        system.create_dir(directory, recursive=True)
        with system.open_output_stream(f"{directory}/{_SUCCESS}"):
            pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take back what was written before the job failed."""
        system, directory = arrow_system(self._address)
        for one in messages:
            for name in one.names if isinstance(one, WrittenParts) else ():
                system.delete_file(f"{directory}/{name}")

    @staticmethod
    def _delete_others(system: fs.FileSystem, directory: str, kept: set[str]) -> None:
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
        for info in system.get_file_info(selector):
            if info.is_file and info.path.removeprefix(f"{directory}/") not in kept:
                system.delete_file(info.path)


def _by_ensemble(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each ensemble, without the column that the directory's name gives."""
    names = batch.column("ensemble")
    rest = batch.drop_columns(["ensemble"])
    for ensemble in pc.unique(names).to_pylist():
        yield ensemble, rest.filter(pc.equal(names, ensemble))
