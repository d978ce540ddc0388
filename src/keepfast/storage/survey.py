"""A survey of logs that no manifest describes: which runs of records each file holds."""

from collections.abc import Iterable, Iterator

import msgspec

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import Ending, Frame, LogReader
from keepfast.wire import CorruptLog, Zxid, follows_in_epoch

_TYPE_OFFSET = 28
_ERROR_TYPE = b"\xff\xff\xff\xff"
_ERROR_ENTRY_SIZE = 36


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


def survey_log(disk: Disk, directory: DataDirectory, name: str) -> LogSurvey:
    """Read one log in full, without decoding its records."""
    try:
        with disk.open_read(directory.in_logs(name)) as file:
            reader = LogReader(file)
            return LogSurvey(name, tuple(runs_of(name, reader)), reader.ending)
    except OSError as error:
        return LogSurvey(name, (), Ending(0, f"cannot be read: {error.strerror}"))


def is_unnumbered(entry: bytes) -> bool:
    """Whether Apache may have logged this under the zxid of the record before it.

    It does so with a write that it cannot decode: an error, without a digest, that changes nothing.
    """
    return len(entry) == _ERROR_ENTRY_SIZE and entry.startswith(_ERROR_TYPE, _TYPE_OFFSET)


def runs_of(name: str, frames: Iterable[Frame]) -> Iterator[SurveyedRun]:
    """The records of a file as runs: cut where one does not directly follow the one before."""
    first: Frame | None = None
    last: Frame | None = None
    for frame in frames:
        if first is None or last is None:
            first = frame
        elif not follows_in_epoch(frame.zxid, last.zxid) and not (
            frame.zxid == last.zxid and is_unnumbered(frame.entry)
        ):
            yield _run(name, first, last)
            first = frame
        last = frame
    if first is not None and last is not None:
        yield _run(name, first, last)


def _run(name: str, first: Frame, last: Frame) -> SurveyedRun:
    return SurveyedRun(name, Zxid(first.zxid), Zxid(last.zxid), first.offset, last.end)


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
