"""The change feed as a Spark data source, "zkhistory": at rest, and followed while servers write.

    spark.read.format("zkhistory").option("paths", '["zk1", "zk2", "zk3"]').load()
    spark.readStream.format("zkhistory").option(...).load()

One task per ensemble: a history is a chain, and each row needs the tree before it. Tasks keep
the tree between micro-batches, in the memory of their Python process; one that does not have it
makes it again from the newest snapshot that leads there.

An offset of the stream is a zxid for each ensemble: what a quorum of its voters holds. It does
not depend on files, so that logs may roll, be purged, and servers come and go; the same two offsets
always give the same rows, which is what makes a restart repeat nothing and lose nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.agreement.voters import electorate_by_files
from keepfast.pipeline.feeds.history_table import HISTORY_SCHEMA, batches
from keepfast.pipeline.files.layout import EnsembleFiles, ServerFiles, discover
from keepfast.pipeline.replay.changes import ZnodeChange
from keepfast.pipeline.replay.history import (
    BROKEN,
    EnsembleHistory,
    HistoryBroken,
    HistoryGone,
    saying,
)
from keepfast.pipeline.replay.state import read_only_disk
from keepfast.pipeline.schemas import spark_schema
from keepfast.wire import KeepfastError, format_zxid, parse_zxid

FORMAT = "zkhistory"
# Transactions a micro-batch, unless the option `maxTransactions` says otherwise. Fewer: a long
# history takes many batches; more: the first rows take longer to appear.
_MAX_TRANSACTIONS = 100_000

# Readers of this process by ensemble, for tasks that continue where the last one ended.
_kept: dict[tuple[str, str], EnsembleHistory] = {}


class HistoryBehind(KeepfastError):  # noqa: N818 - it says what is the case
    """Records that were there a moment ago cannot be read now; a later attempt may find them."""


class HistoryPartition(InputPartition):
    """The rows of one ensemble after one zxid, up to another."""

    def __init__(self, ensemble: str, after: int | None, until: int | None) -> None:
        super().__init__(ensemble)
        self.ensemble = ensemble
        self.after = after
        self.until = until


class _Settings:
    """The options of the source.

    The servers are looked for once, when a query starts: one whose directory is gone for a moment
    still counts, or a minority would pass for a majority. A stream also looks once who votes;
    records that change the members count as they come.
    """

    def __init__(self, options: Any) -> None:
        places = json.loads(options.get("paths") or json.dumps([options.get("path", "")]))
        found = [EnsembleFiles(one.name, _bare(one.servers)) for one in discover(places)]
        self.ensembles = {ensemble.name: ensemble for ensemble in found}
        self.quorum = int(options["quorum"]) if options.get("quorum") else None
        self._electorates: dict[str, Electorate] = {}
        self.limit = int(options.get("maxTransactions") or _MAX_TRANSACTIONS)

    def electorate(self, name: str) -> Electorate:
        """Who decides on the history of an ensemble."""
        if name not in self._electorates:
            self._electorates[name] = electorate_for(self.ensembles[name], self.quorum)
        return self._electorates[name]

    def fixed(self) -> _Settings:
        """With all that is read from files once: the driver and the tasks must count alike."""
        for name in self.ensembles:
            self.electorate(name)
        return self

    def history(self, name: str, after: int | None, with_values: bool = True) -> EnsembleHistory:
        """The history of an ensemble after a zxid, or from its beginning."""
        return EnsembleHistory(
            read_only_disk(),
            self.ensembles[name],
            electorate=self.electorate(name),
            after=after,
            with_values=with_values,
        )

    def read(self, partition: HistoryPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        name = partition.ensemble
        key = (repr(self.ensembles[name]), repr(self.electorate(name)))
        history = _kept.pop(key, None)
        if history is None or history.reached != partition.after:
            try:
                history = self.history(partition.ensemble, partition.after)
            except HistoryGone as error:
                if partition.until is not None:
                    raise
                row = saying(BROKEN, 0, str(error))
                yield from batches(partition.ensemble, [[row]])
                return
        if partition.until is None:
            yield from batches(partition.ensemble, _until_broken(history))
            return
        yield from batches(partition.ensemble, history.read(partition.until))
        if history.reached != partition.until:
            # The offset says that a majority had these records. To end here would lose them.
            raise HistoryBehind(
                f"{partition.ensemble}: the records up to {format_zxid(partition.until)} were "
                f"there, and now end at {format_zxid(history.reached)}: {history.stop.text}"
            )
        _kept[key] = history


def electorate_for(ensemble: EnsembleFiles, quorum: int | None) -> Electorate:
    """Who decides on the history of an ensemble: its voters, or as many as a person asks for."""
    found = electorate_by_files(read_only_disk(), ensemble)
    return found.of_given() if quorum is None else found.by_heads(quorum)


def _until_broken(history: EnsembleHistory) -> Iterator[list[ZnodeChange]]:
    """The rows of a history; one that breaks ends with a row that says so.

    One of a thousand ensembles must not take the feed of the others with it.
    """
    try:
        yield from history.read()
    except HistoryBroken as error:
        yield [saying(BROKEN, history.reached, str(error))]


def _bare(servers: tuple[ServerFiles, ...]) -> tuple[ServerFiles, ...]:
    """Without logs and snapshots: which there are is looked up when they are read."""
    return tuple(
        replace(server, files=tuple(entry for entry in server.files if entry.kind == "config"))
        for server in servers
    )


class HistorySource(DataSource):
    """`format("zkhistory")`: every change of every znode, at rest or followed."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns; see docs/data-dictionary.md."""
        return spark_schema(HISTORY_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """All that is there now."""
        return HistoryReader(_Settings(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """All that is there now, and what comes."""
        return HistoryStreamReader(_Settings(self.options).fixed())


class HistoryReader(DataSourceReader):
    """Everything that the servers agree on."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """One an ensemble."""
        return [HistoryPartition(name, None, None) for name in self._settings.ensembles]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one ensemble."""
        if isinstance(partition, HistoryPartition):
            yield from self._settings.read(partition)


class HistoryStreamReader(DataSourceStreamReader):
    """The same, and on."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._walks: dict[str, EnsembleHistory] = {}

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """The oldest point of each ensemble."""
        for name in self._settings.ensembles:
            self._walks[name] = self._settings.history(name, None, with_values=False)
        return {name: format_zxid(walk.reached) for name, walk in self._walks.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many transactions per batch."""
        return ReadMaxRows(self._settings.limit)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """How far a quorum of each ensemble has come."""
        most = None if isinstance(limit, ReadAllAvailable) else self._settings.limit
        end = {}
        for name, reached in start.items():
            after = parse_zxid(reached)
            walk = self._walks.get(name)
            if walk is None or walk.reached != after:
                walk = self._settings.history(name, after, with_values=False)
                self._walks[name] = walk
            for count, _ in enumerate(walk.read(), 1):
                if count == most:
                    break
            end[name] = format_zxid(walk.reached)
        return end

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One an ensemble that has something new."""
        return [
            HistoryPartition(name, parse_zxid(start[name]), parse_zxid(until))
            for name, until in end.items()
            if start[name] != until
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows between two offsets."""
        if isinstance(partition, HistoryPartition):
            yield from self._settings.read(partition)
