"""The files of a followed feed: few of them, and never half a batch for who reads.

    OUT/changes -> _generations/<g>                    what readers open
    OUT/_generations/<g>/batch=<n>/part-*.parquet      a micro-batch, or small ones up to it

A batch is written under a name that readers pass over, and renamed when it is whole.  A feed with a
batch every second would have a file for each: where many small ones have come together, they are
written again as one, into a new generation that shares all other files, and the link is moved there
in one step.  Readers that have listed the previous generation continue with its files: it is
deleted when the next but one is made.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
from pyarrow import dataset, parquet

CHANGES = "changes"
_GENERATIONS = "_generations"
_BATCH = "batch="
# So many small batches become one; a file of this size is not small any more.
MAX_SMALL_BATCHES = 64
_SMALL_BYTES = 64 << 20


class FeedFiles:
    """The directory of a followed feed; one process writes."""

    def __init__(self, out: str, max_small: int = MAX_SMALL_BATCHES) -> None:
        self._link = Path(out) / CHANGES
        self._generations = Path(out) / _GENERATIONS
        self._max_small = max_small

    def open(self) -> None:
        """Make what is not there; clear away what a compaction that was cut short has left."""
        self._generations.mkdir(parents=True, exist_ok=True)
        if self._link.is_dir() and not self._link.is_symlink():
            # Of a version that knew no generations.
            os.rename(self._link, self._generations / "0")
            self._point_to(0)
        elif not self._link.is_symlink():
            (self._generations / "0").mkdir(exist_ok=True)
            self._point_to(0)
        current = self._current()
        for one in self._generations.iterdir():
            if not one.name.isdigit() or int(one.name) not in (current, current - 1):
                shutil.rmtree(one)

    def pending(self, number: int) -> str:
        """Where a batch is to be written."""
        return str(self._link / f"_{_BATCH}{number}")

    def publish(self, number: int) -> str:
        """Show a batch that was written to readers; returns its directory."""
        final = self._link / f"{_BATCH}{number}"
        old = self._link / f"_old-{number}"
        if final.exists():
            # It is run again, and is the last one: without it the feed is a moment older.
            os.rename(final, old)
        os.rename(self.pending(number), final)
        shutil.rmtree(old, ignore_errors=True)
        return str(final)

    def compact(self, before: int) -> None:
        """Put small batches together, if there are many, of those before a number.

        These are done for good. The batch of that number may be there and be run again: it has to
        stay a directory of its own.
        """
        done = [one for one in self._batches() if _number_of(one) < before]
        small = [one for one in done if _size_of(one) < _SMALL_BYTES]
        if len(small) < self._max_small:
            return
        current = self._current()
        fresh = self._generations / str(current + 1)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for one in self._batches():
            if one not in small:
                (fresh / one.name).mkdir()
                for file in one.iterdir():
                    os.link(file, fresh / one.name / file.name)
        target = fresh / small[-1].name
        target.mkdir()
        _merge(small, target / "part-merged.zstd.parquet")
        self._point_to(current + 1)
        shutil.rmtree(self._generations / str(current - 1), ignore_errors=True)

    def _batches(self) -> list[Path]:
        found = [one for one in self._link.iterdir() if one.name.startswith(_BATCH)]
        return sorted(found, key=_number_of)

    def _current(self) -> int:
        return int(Path(os.readlink(self._link)).name)

    def _point_to(self, generation: int) -> None:
        fresh = self._link.with_name("_changes.tmp")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(f"{_GENERATIONS}/{generation}")
        os.replace(fresh, self._link)


def _number_of(batch: Path) -> int:
    return int(batch.name.removeprefix(_BATCH))


def _files_of(batch: Path) -> list[str]:
    return sorted(str(file) for file in batch.iterdir() if file.suffix == ".parquet")


def _size_of(batch: Path) -> int:
    return sum(os.stat(file).st_size for file in _files_of(batch))


def _merge(batches: list[Path], target: Path) -> None:
    """Write the rows of batches as one file, some at a time, and make it durable."""
    files = [file for batch in batches for file in _files_of(batch)]
    schema: pa.Schema | None = parquet.read_schema(files[0]) if files else None
    if schema is None:
        return
    with parquet.ParquetWriter(str(target), schema, compression="zstd") as writer:
        for file in files:
            for rows in dataset.dataset(file, schema=schema).to_batches():
                writer.write_batch(rows)
    with target.open("rb") as file_:
        os.fsync(file_.fileno())
