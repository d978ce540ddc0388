"""What the files of a changed membership say: zoo.cfg, and the dynamic file that it points to.

    zoo.cfg                     points to the dynamic file, and holds no members any more
    zoo.cfg.bak                 as the operator wrote it, when it still held the members
    zoo.cfg.dynamic.100000000   the members as of that version, one such file for each version
    zoo.cfg.dynamic.next        a change that was proposed and is not committed, while there is one

Apache writes zoo.cfg again, in no order and without comments. Here all other lines stay as they
are.
"""

from __future__ import annotations

from typing import Final

from keepfast.apache.config_ensemble import MEMBER_PREFIXES
from keepfast.apache.config_sources import trim
from keepfast.apache.properties import format_property, parse_properties, without_properties
from keepfast.quorum import Membership, MemberSpec
from keepfast.wire import Zxid

BACKUP_SUFFIX: Final = ".bak"
NEXT_SUFFIX: Final = ".dynamic.next"
_DYNAMIC_INFIX: Final = ".dynamic."
_POINTER: Final = "dynamicConfigFile"
# The members say it, once they stand in a file of their own.
_MOVED: Final = (_POINTER, "peerType")
_CLIENT: Final = ("clientPort", "clientPortAddress")
_SECURE_CLIENT: Final = ("secureClientPort", "secureClientPortAddress")
_VERSION: Final = "version"


def dynamic_file_of(config_file: str, version: Zxid) -> str:
    """The path of the file with the members as of a version."""
    return f"{config_file}{_DYNAMIC_INFIX}{version:x}"


def holds_members(text: str) -> bool:
    """Whether a zoo.cfg says itself who the members are; raises MalformedProperties."""
    keys = {trim(key) for key, _, _ in parse_properties(text)}
    return _POINTER not in keys and any(key.startswith(MEMBER_PREFIXES) for key in keys)


def pointing_to(text: str, dynamic_file: str, me: MemberSpec | None) -> str:
    """A zoo.cfg without what its dynamic file says, and with the path to it.

    `me` is the own line there. Raises ValueError for a file that cannot be edited by lines, such as
    one whose last line is joined by a backslash to what follows, and MalformedProperties.
    """
    moved = set(_MOVED)
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
    edited += format_property(_POINTER, dynamic_file) + end
    stay = [(key, value) for key, value, _ in parse_properties(text) if not is_moved(key)]
    if [(key, value) for key, value, _ in parse_properties(edited)] != [
        *stay,
        (_POINTER, dynamic_file),
    ]:
        raise ValueError("cannot be edited by lines")
    return edited


def proposed_version(text: bytes) -> int:
    """The version that a file of a proposed change has; ValueError, MalformedProperties if none."""
    versions = [trim(value) for key, value, _ in parse_properties(text) if key == _VERSION]
    if not versions:
        raise ValueError("it has no version")
    return int(versions[-1], 16)


def dynamic_text(membership: Membership, *, has_version: bool) -> str:
    """The content of a dynamic file: sorted as text, no line end after the last one."""
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
