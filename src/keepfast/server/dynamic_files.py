"""The membership in the files beside zoo.cfg, as Apache's servers keep it there.

    zoo.cfg                     points to the dynamic file, and holds no members any more
    zoo.cfg.bak                 as the operator wrote it, when it still held the members
    zoo.cfg.dynamic.100000000   the members as of that version, one such file for each version
    zoo.cfg.dynamic.next        a change that was proposed and is not agreed on, while there is one

They are for others: for Apache's server, should it take over, and for tools that read them. This
server goes by its manifest, which is written first; that a file could not be written is a warning
and nothing more.

Apache writes zoo.cfg anew, in no order and without comments. Here all other lines stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from keepfast.quorum import Membership, Quorums
from keepfast.replica import proposed_membership
from keepfast.server.config_ensemble import MEMBER_PREFIXES
from keepfast.server.config_sources import LONGEST_FILE_BYTES, trim
from keepfast.server.logs import EventLog
from keepfast.server.properties import (
    MalformedProperties,
    format_property,
    parse_properties,
    without_properties,
)
from keepfast.storage import Disk, RealDisk, read_file, replace_file, temporary_of
from keepfast.wire import MalformedRecord, ServerId, decode_entry, is_reconfig

BACKUP_SUFFIX: Final = ".bak"
NEXT_SUFFIX: Final = ".dynamic.next"
_DYNAMIC_INFIX: Final = ".dynamic."
_POINTER: Final = "dynamicConfigFile"
# The members say it, once they stand in a file of their own.
_MOVED: Final = (_POINTER, "peerType")
_CLIENT: Final = ("clientPort", "clientPortAddress")
_SECURE_CLIENT: Final = ("secureClientPort", "secureClientPortAddress")
_VERSION: Final = "version"
_ENCODING: Final = "iso-8859-1"


def _with_permissions_of(model: str, path: str) -> None:
    """Make an empty file that no one may read who may not read `model`: it may hold passwords."""
    found = os.stat(model)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # To its owner it can be given by root alone.
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
        """`version`: of the members as `config_file` has them; 0: they were never agreed on.

        `prepare(model, path)` makes an empty file with the permissions of another.
        """
        self._path = config_file
        self._server_id = server_id
        self._version = version
        self._disk = disk or RealDisk()
        self._prepare = prepare
        self._has_proposed = False

    def bring_up_to(self, agreed: Membership | None, proposed: Membership | None) -> None:
        """Write what is agreed on, if it is given, and what is proposed, if anything is."""
        text = self._read()
        self._back_up(text)
        if agreed is not None:
            self._agree(text, agreed)
        if proposed is not None:
            self._replace(self._path + NEXT_SUFFIX, _lines(proposed, has_version=True))
            self._has_proposed = True
        elif self._has_proposed or self._is_proposal_settled():
            # Settled: whoever wrote it was stopped before it could remove it.
            self._has_proposed = False
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._path + NEXT_SUFFIX)
                self._disk.fsync_directory(os.path.dirname(self._path))

    def _read(self) -> str:
        return read_file(self._disk, self._path, LONGEST_FILE_BYTES).decode(_ENCODING)

    def _back_up(self, text: str) -> None:
        """Keep zoo.cfg as the operator wrote it, with the members in it."""
        keys = {trim(key) for key, _, _ in parse_properties(text)}
        if _POINTER in keys or not any(key.startswith(MEMBER_PREFIXES) for key in keys):
            return
        backup = self._path + BACKUP_SUFFIX
        with contextlib.suppress(OSError):
            if read_file(self._disk, backup, LONGEST_FILE_BYTES).decode(_ENCODING) == text:
                return
        self._replace(backup, text, has_secrets=True)

    def _agree(self, text: str, agreed: Membership) -> None:
        dynamic = f"{self._path}{_DYNAMIC_INFIX}{agreed.version:x}"
        # In this order: zoo.cfg must not name a file that a loss of power took back.
        self._replace(dynamic, _lines(agreed, has_version=False))
        edited = self._pointing_to(text, os.path.realpath(dynamic), agreed)
        if edited != text:
            self._replace(self._path, edited, has_secrets=True)
        self._version = agreed.version

    def _pointing_to(self, text: str, dynamic: str, agreed: Membership) -> str:
        """zoo.cfg without what the dynamic file says, and with the path to it."""
        moved = set(_MOVED)
        me = agreed.find(self._server_id)
        if me is not None and me.client is not None:
            # A line of the old address would contradict the new one at the next start.
            moved.update(_CLIENT)
        if me is not None and me.secure_client is not None:
            moved.update(_SECURE_CLIENT)

        def is_moved(key: str) -> bool:
            return trim(key) in moved or trim(key).startswith(MEMBER_PREFIXES)

        end = "\r\n" if "\r\n" in text else "\n"
        edited = without_properties(text, is_moved)
        if edited and not edited.endswith(("\n", "\r")):
            edited += end
        edited += format_property(_POINTER, dynamic) + end
        stay = [(key, value) for key, value, _ in parse_properties(text) if not is_moved(key)]
        if [(key, value) for key, value, _ in parse_properties(edited)] != [
            *stay,
            (_POINTER, dynamic),
        ]:
            # Such as a last line that a backslash joins to what follows.
            raise OSError(errno.EINVAL, "cannot be edited by lines", self._path)
        return edited

    def _is_proposal_settled(self) -> bool:
        """Whether there is a proposed change that is not newer than what is agreed on."""
        try:
            text = read_file(self._disk, self._path + NEXT_SUFFIX, LONGEST_FILE_BYTES)
            versions = [value for key, value, _ in parse_properties(text) if key == _VERSION]
            return int(trim(versions[-1]), 16) <= self._version
        except (OSError, MalformedProperties, ValueError, IndexError):
            return False

    def _replace(self, path: str, text: str, *, has_secrets: bool = False) -> None:
        if has_secrets:
            self._prepare(self._path, temporary_of(path))
        replace_file(self._disk, path, text.encode(_ENCODING))


class DynamicFileKeeper:
    """Has the files follow what a server knows of the membership, on a thread."""

    def __init__(
        self, files: DynamicFiles, server_id: ServerId, configured: Membership, log: EventLog
    ) -> None:
        self._files = files
        self._server_id = server_id
        self._log = log
        # As of which version the file is that zoo.cfg names; 0: as somebody wrote it by hand.
        self._version = configured.version
        self._agreed: Membership | None = None
        self._proposed: Membership | None = None
        self._is_behind = False
        self._work: asyncio.Task[None] | None = None
        self._told: int | None = None

    def start(self, agreed: Membership) -> None:
        """Keep a copy of the operator's file; write anew what an earlier run could not."""
        self._is_behind = True
        self.use(agreed)

    def use(self, agreed: Membership) -> None:
        """This membership was agreed on, and this server has stored it."""
        is_news = agreed.version > self._version
        # Apache's files of a server that joins lose its own line as soon as it hears of the
        # ensemble, and until it is made a member it cannot be started again.
        if is_news and (self._version or agreed.find(self._server_id) is not None):
            self._agreed, self._version, self._is_behind = agreed, agreed.version, True
        if self._proposed is not None and self._proposed.version <= agreed.version:
            self._proposed, self._is_behind = None, True
        self._go_on()

    def follow(self, quorums: Quorums) -> None:
        """What decides has changed."""
        proposed = self._proposed
        if quorums.next is not None:
            self._propose(quorums.next)
        elif proposed is not None and quorums.current.version < proposed.version:
            self._propose(None)  # it was taken back; one that was agreed on waits for `use`

    def note_proposals(self, entries: Iterable[bytes]) -> None:
        """These go to the log. Whoever restarts with a change at its end lets both sides decide."""
        for entry in entries:
            if is_reconfig(entry):
                with contextlib.suppress(MalformedRecord):
                    self._propose(proposed_membership(decode_entry(entry)))

    def _propose(self, proposed: Membership | None) -> None:
        if proposed != self._proposed:
            self._proposed, self._is_behind = proposed, True
            self._go_on()

    async def stop(self) -> None:
        """Finish; what could not be written is tried once more, for whoever takes over."""
        self._go_on()
        if self._work is not None:
            await self._work

    def _go_on(self) -> None:
        if self._is_behind and (self._work is None or self._work.done()):
            self._work = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._is_behind:
            self._is_behind = False
            agreed, proposed = self._agreed, self._proposed
            try:
                await loop.run_in_executor(None, self._files.bring_up_to, agreed, proposed)
            except (OSError, MalformedProperties) as error:
                self._is_behind = True
                self._tell(error)
                if agreed is self._agreed and proposed is self._proposed:
                    return  # until there is something else to write, or the server stops
                continue
            self._told = None
            if agreed is not None:
                self._agreed = None if self._agreed is agreed else self._agreed
                self._log.info("membership-files", version=f"{agreed.version:x}")

    def _tell(self, error: OSError | MalformedProperties) -> None:
        """One line for one trouble, however often it is met."""
        number = error.errno or 0 if isinstance(error, OSError) else errno.EINVAL
        if number != self._told:
            self._told = number
            advice = "the data directory has the membership; see to the files before Apache starts"
            self._log.warning("membership-files-not-written", reason=error, advice=advice)


def _lines(membership: Membership, *, has_version: bool) -> str:
    """The content of a dynamic file: sorted as text, no line end behind the last one."""
    lines = sorted(membership.text().decode().split("\n"))
    return "\n".join(
        "".join(map(_readable_by_java, line))
        for line in lines
        if has_version or not line.startswith(f"{_VERSION}=")
    )


def _readable_by_java(character: str) -> str:
    """A character as it may stand in a file of properties, which is not read as UTF-8."""
    if character.isascii():
        return character
    halves = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{halves[at : at + 4]}" for at in range(0, len(halves), 4))
