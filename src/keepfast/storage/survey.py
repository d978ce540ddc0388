"""A survey of logs that no manifest describes: which runs of records each file holds."""

from collections.abc import Callable, Iterator

import msgspec

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import Ending, Frame, LogReader
from keepfast.wire import CorruptLog, Zxid, follows_in_epoch

# Called with the bytes that were read, so that a person can be shown how far a long scan is.
Progress = Callable[[int], None]


_TYPE_OFFSET = 28
_ERROR_TYPE = b"\xff\xff\xff\xff"
_ERROR_ENTRY_SIZE = 36


def no_progress(_: int) -> None:
    """A progress callback that does nothing."""


class SurveyedRun(msgspec.Struct, frozen=True):
    """Records of one file, back to back, each directly following the one before in its epoch."""

    name: str
    first: Zxid
    last: Zxid
    start: int  # offset of the first record
    end: int  # offset after the last one


class LogSurvey(msgspec.Struct, frozen=True):
    """What one log file holds."""

    name: str
    runs: tuple[SurveyedRun, ...]
    ending: Ending

    @property
    def last(self) -> Zxid | None:
        """The zxid of the last sound record."""
        return self.runs[-1].last if self.runs else None

    @property
    def is_damaged(self) -> bool:
        """Whether it ends in bytes that neither a crash nor the end of its writer explains."""
        ending = self.ending
        is_explained = ending.torn or ending.unmarked
        return not ending.is_plain and (not is_explained or ending.valid_after is not None)


def survey_log(
    disk: Disk, directory: DataDirectory, name: str, progress: Progress = no_progress
) -> LogSurvey:
    """Read one log in full, without decoding its records."""
    path = directory.in_logs(name)
    runs: list[SurveyedRun] = []
    try:
        with disk.open_read(path) as file:
            reader = LogReader(file)
            collector = _RunCollector(name)
            reported = 0
            for frame in reader:
                collector.add(frame)
                if frame.offset - reported > 1 << 20:
                    progress(frame.offset - reported)
                    reported = frame.offset
            runs = collector.finish()
            progress(reader.ending.offset - reported)
            return LogSurvey(name, tuple(runs), reader.ending)
    except OSError as error:
        ending = Ending(0, f"cannot be read: {error.strerror}")
        return LogSurvey(name, tuple(runs), ending)


def is_unnumbered(entry: bytes) -> bool:
    """Whether Apache may have logged this under the zxid of the record before it.

    It does so with a write that it cannot decode: an error, without a digest, that changes nothing.
    """
    return len(entry) == _ERROR_ENTRY_SIZE and entry.startswith(_ERROR_TYPE, _TYPE_OFFSET)


class _RunCollector:
    """Cuts a sequence of records where one does not directly follow the one before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._runs: list[SurveyedRun] = []
        self._first: Frame | None = None
        self._last: Frame | None = None

    def add(self, frame: Frame) -> None:
        last = self._last
        if last is None or not (
            follows_in_epoch(frame.zxid, last.zxid)
            or (frame.zxid == last.zxid and is_unnumbered(frame.entry))
        ):
            self._close()
            self._first = frame
        self._last = frame

    def finish(self) -> list[SurveyedRun]:
        self._close()
        return self._runs

    def _close(self) -> None:
        first, last = self._first, self._last
        if first is not None and last is not None:
            run = SurveyedRun(self._name, Zxid(first.zxid), Zxid(last.zxid), first.offset, last.end)
            self._runs.append(run)


def read_run(disk: Disk, directory: DataDirectory, run: SurveyedRun) -> Iterator[Frame]:
    """The records of a run again; raises CorruptLog if they are no longer what they were."""
    path = directory.in_logs(run.name)
    try:
        with disk.open_read(path) as file:
            reader = LogReader(file, run.start, run.end)
            yield from reader
            if reader.ending.offset != run.end:
                raise CorruptLog("changed while it was read", path, reader.ending.offset)
    except OSError as error:
        raise CorruptLog(f"cannot be read: {error.strerror}", path) from error
