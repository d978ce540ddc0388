"""The documentation of settings: `settings.json`, which docs and messages are generated from.

settings          by key: what it is, what goes wrong if it is small (low) and large (high), its
                  default in words, and what an unsafe value endangers
without_meaning   keys of Apache's that are accepted and do nothing here, and why
refused           keys of Apache's that are refused, why, and with which values they ask for
                  nothing
misnamed          names from Apache's manual that its server never reads, and those it does read
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec


class SettingProse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The documentation of one setting."""

    what: str
    low: str = ""
    high: str = ""
    # How the unsafe value endangers data or access.
    danger: str = ""
    # What the default follows from, where that is another setting.
    derived: str = ""
    # The default in words, where it depends on other things.
    default_text: str = ""


class Unsupported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is refused: why, and with which values it asks for nothing."""

    why: str
    accepted: tuple[str, ...] = ("false",)


class _WithoutMeaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    keys: tuple[str, ...]
    # The values that Apache takes, where it is not any text.
    values: tuple[str, ...] = ()


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, SettingProse]
    without_meaning: tuple[_WithoutMeaning, ...]
    refused: dict[str, Unsupported]
    misnamed: dict[str, str]


_DOCUMENT: Final = msgspec.json.decode(
    Path(__file__).with_name("settings.json").read_bytes(), type=_Document
)
SETTING_PROSE: Final = _DOCUMENT.settings
UNSUPPORTED: Final = _DOCUMENT.refused
MISNAMED: Final = _DOCUMENT.misnamed
# Keys that are accepted and do nothing, and why.
WITHOUT_MEANING: Final = {key: one.why for one in _DOCUMENT.without_meaning for key in one.keys}
# Of these, the ones that Apache refuses with other values.
VALUES_WITHOUT_MEANING: Final = {
    key: one.values for one in _DOCUMENT.without_meaning for key in one.keys if one.values
}
