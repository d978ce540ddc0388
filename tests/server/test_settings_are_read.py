"""No setting lies: each one is read by what makes a server of a configuration.

A setting that is parsed, documented with consequences and read by nothing promises an operator
something that does not happen. What has no meaning here is listed as such in `settings.json`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

from keepfast.apache import ServerConfig
from keepfast.apache.config_prose import SETTING_PROSE
from keepfast.apache.config_server import group_settings
from keepfast.apache.config_settings import settings_of

SOURCE = Path(__file__).parents[2] / "src" / "keepfast"
# Where a configuration is turned into a server. The modules that declare, parse and check settings
# are not among them: a value that only its own checks look at does nothing.
READERS = (
    *sorted((SOURCE / "server").glob("*.py")),
    SOURCE / "cli" / "serve_command.py",
    *(SOURCE / "apache" / f"{name}.py" for name in ("key_stores", "jaas")),
)
DECLARATIONS = sorted((SOURCE / "apache").glob("config_*.py"))

# Read where the configuration is put together, for which others are read in its place.
RESOLVED_WHILE_LOADING = {
    "peerType": "it is compared with this server's own line, which decides",
    "keepfast.secretsFile": "the values in it are read in its place",
    "ssl.protocol": "it decides what ssl.enabledProtocols is",
    "ssl.quorum.protocol": "it decides what ssl.quorum.enabledProtocols is",
}


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Every attribute that is read below these nodes."""
    return {
        node.attr
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def fields_in_use() -> set[str]:
    """The attributes that the readers read, by themselves or by way of a property or method."""
    found = names_read(ast.parse(path.read_text()) for path in READERS)
    members = {
        (path.stem, method.name, method.lineno): method
        for path in DECLARATIONS
        for owner in ast.walk(ast.parse(path.read_text()))
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("__")
    }
    pending = True
    while pending:
        used = [key for key in members if key[1] in found and key[1] != "describe"]
        pending = bool(used)
        found |= names_read(members.pop(key) for key in used)
    return found


def unread_settings() -> list[str]:
    in_use = fields_in_use()
    return [
        key
        for _, name, key, _ in group_settings(ServerConfig())
        if name not in in_use and key not in RESOLVED_WHILE_LOADING
    ]


def test_every_setting__is_read_by_what_makes_a_server() -> None:
    assert unread_settings() == []


@pytest.mark.parametrize("key", RESOLVED_WHILE_LOADING)
def test_exceptions__are_settings_that_nothing_else_reads(key: str) -> None:
    in_use = fields_in_use()
    names = [name for _, name, full, _ in group_settings(ServerConfig()) if full == key]
    assert names
    assert not in_use.intersection(names)


def test_a_setting_that_nothing_reads__is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = [path for path in READERS if path.name != "throttle_options.py"]
    monkeypatch.setattr("tests.server.test_settings_are_read.READERS", readers)

    assert "connection_throttle_freeze_time" in unread_settings()


def test_fields__have_names_of_their_own() -> None:
    """One that shares its name with another would pass for read when that one is."""
    owners: dict[str, set[str]] = {}
    for group, name, _, _ in group_settings(ServerConfig()):
        owners.setdefault(name, set()).add(type(group).__name__)

    assert [name for name, classes in owners.items() if len(classes) > 1] == []


def test_prose__is_of_settings_that_exist() -> None:
    declared = {
        setting.key
        for item in fields(ServerConfig)
        if "prefix" in item.metadata
        for _, setting in settings_of(item.default)
    }
    assert set(SETTING_PROSE) == declared
