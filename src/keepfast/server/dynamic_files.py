"""Maintains the membership files beside zoo.cfg; `apache` defines their contents.

They are for others: for Apache's server, should it take over, and for tools that read them. This
server relies on its manifest, which is written first; a file that could not be written is only a
warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from keepfast.apache import (
    BACKUP_SUFFIX,
    MAX_FILE_BYTES,
    NEXT_SUFFIX,
    MalformedProperties,
    dynamic_file_of,
    dynamic_text,
    holds_members,
    pointing_to,
    proposed_version,
)
from keepfast.quorum import Membership, Quorums
from keepfast.replica import proposed_membership
from keepfast.server.logs import EventLog
from keepfast.server.tasks import spawn
from keepfast.storage import Disk, RealDisk, read_file, replace_file, temporary_of
from keepfast.wire import MalformedRecord, ServerId, decode_entry, is_reconfig

_ENCODING: Final = "iso-8859-1"


def _with_permissions_of(model: str, path: str) -> None:
    """Create an empty file with the permissions of `model`: it may hold passwords."""
    found = os.stat(model)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # Only root can change its owner.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, found.st_uid, found.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
    finally:
        os.close(descriptor)


class DynamicFiles:
    """The files of one server. All methods block, and raise OSError or MalformedProperties.

    Whenever power is lost, zoo.cfg is whole and names a whole file, and what the operator wrote is
    there: in zoo.cfg, or in its backup.
    """

    def __init__(
        self,
        config_file: str,
        server_id: ServerId,
        version: int,
        disk: Disk | None = None,
        *,
        prepare: Callable[[str, str], None] = _with_permissions_of,
    ) -> None:
        """`version`: of the members as `config_file` has them; 0: they were never committed.

        `prepare(model, path)` makes an empty file with the permissions of another.
        """
        self._path = config_file
        self._server_id = server_id
        self._version = version
        self._disk = disk or RealDisk()
        self._prepare = prepare
        self._has_proposed = False

    def bring_up_to(self, committed: Membership | None, proposed: Membership | None) -> None:
        """Write what is committed, if it is given, and what is proposed, if anything is."""
        text = self._read()
        self._back_up(text)
        if committed is not None:
            self._write_committed(text, committed)
        if proposed is not None:
            self._replace(self._path + NEXT_SUFFIX, dynamic_text(proposed, has_version=True))
            self._has_proposed = True
        elif self._has_proposed or self._is_proposal_decided():
            # Decided: the server was stopped before it could remove it.
            self._has_proposed = False
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._path + NEXT_SUFFIX)
                self._disk.fsync_directory(os.path.dirname(self._path))

    def _read(self) -> str:
        return read_file(self._disk, self._path, MAX_FILE_BYTES).decode(_ENCODING)

    def _back_up(self, text: str) -> None:
        """Keep zoo.cfg as the operator wrote it, with the members in it."""
        if not holds_members(text):
            return
        backup = self._path + BACKUP_SUFFIX
        with contextlib.suppress(OSError):
            if read_file(self._disk, backup, MAX_FILE_BYTES).decode(_ENCODING) == text:
                return
        self._replace(backup, text, has_secrets=True)

    def _write_committed(self, text: str, committed: Membership) -> None:
        dynamic = dynamic_file_of(self._path, committed.version)
        # In this order: zoo.cfg must not name a file that a power loss took back.
        self._replace(dynamic, dynamic_text(committed, has_version=False))
        me = committed.find(self._server_id)
        try:
            edited = pointing_to(text, os.path.realpath(dynamic), me)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error), self._path) from None
        if edited != text:
            self._replace(self._path, edited, has_secrets=True)
        self._version = committed.version

    def _is_proposal_decided(self) -> bool:
        """Whether there is a proposed change that is not newer than the committed one."""
        try:
            text = read_file(self._disk, self._path + NEXT_SUFFIX, MAX_FILE_BYTES)
            return proposed_version(text) <= self._version
        except (OSError, MalformedProperties, ValueError):
            return False

    def _replace(self, path: str, text: str, *, has_secrets: bool = False) -> None:
        if has_secrets:
            self._prepare(self._path, temporary_of(path))
        replace_file(self._disk, path, text.encode(_ENCODING))


class DynamicFileKeeper:
    """Keeps the files in step with what a server knows about the membership, on a thread."""

    def __init__(
        self, files: DynamicFiles, server_id: ServerId, configured: Membership, log: EventLog
    ) -> None:
        self._files = files
        self._server_id = server_id
        self._log = log
        # The version of the file that zoo.cfg names; 0: written by hand.
        self._version = configured.version
        self._committed: Membership | None = None
        self._proposed: Membership | None = None
        self._is_behind = False
        self._work: asyncio.Task[None] | None = None
        self._logged: int | None = None

    def start(self, committed: Membership) -> None:
        """Keep a copy of the operator's file; retry what an earlier run could not write."""
        self._is_behind = True
        self.use(committed)

    def use(self, committed: Membership) -> None:
        """This membership was committed, and this server has stored it."""
        is_news = committed.version > self._version
        # Apache's files of a server that joins lose its own line as soon as it hears of the
        # ensemble, and until it is made a member it cannot be started again.
        if is_news and (self._version or committed.find(self._server_id) is not None):
            self._committed, self._version, self._is_behind = committed, committed.version, True
        if self._proposed is not None and self._proposed.version <= committed.version:
            self._proposed, self._is_behind = None, True
        self._continue_work()

    def follow(self, quorums: Quorums) -> None:
        """The membership in force has changed."""
        proposed = self._proposed
        if quorums.next is not None:
            self._propose(quorums.next)
        elif proposed is not None and quorums.current.version < proposed.version:
            self._propose(None)  # it was undone; one that was committed waits for `use`

    def note_proposals(self, entries: Iterable[bytes]) -> None:
        """These are being logged. A restart with a change at the log's end needs both quorums."""
        for entry in entries:
            if is_reconfig(entry):
                with contextlib.suppress(MalformedRecord):
                    self._propose(proposed_membership(decode_entry(entry)))

    def _propose(self, proposed: Membership | None) -> None:
        if proposed != self._proposed:
            self._proposed, self._is_behind = proposed, True
            self._continue_work()

    async def stop(self) -> None:
        """Finish; what could not be written is tried once more, for the next server."""
        self._continue_work()
        if self._work is not None:
            await self._work

    def _continue_work(self) -> None:
        if self._is_behind and (self._work is None or self._work.done()):
            self._work = spawn(self._write())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._is_behind:
            self._is_behind = False
            committed, proposed = self._committed, self._proposed
            try:
                await loop.run_in_executor(None, self._files.bring_up_to, committed, proposed)
            except (OSError, MalformedProperties) as error:
                self._is_behind = True
                self._log_failure(error)
                if committed is self._committed and proposed is self._proposed:
                    return  # until there is something else to write, or the server stops
                continue
            self._logged = None
            if committed is not None:
                self._committed = None if self._committed is committed else self._committed
                self._log.info("membership-files", version=f"{committed.version:x}")

    def _log_failure(self, error: OSError | MalformedProperties) -> None:
        """Log each problem once, however often it occurs."""
        number = error.errno or 0 if isinstance(error, OSError) else errno.EINVAL
        if number != self._logged:
            self._logged = number
            advice = "the data directory has the membership; see to the files before Apache starts"
            self._log.warning("membership-files-not-written", reason=error, advice=advice)
