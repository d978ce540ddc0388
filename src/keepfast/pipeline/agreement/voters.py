"""Who votes in an ensemble, read from its files by those who replay it here: state and history.

The audit collects the same texts on its executors (`stages`); both count by `electorate`.
"""

from __future__ import annotations

from collections.abc import Mapping

from keepfast.pipeline.agreement.electorate import (
    Electorate,
    Known,
    electorate_of,
    is_configuration,
    own_id,
    with_version_of_name,
)
from keepfast.pipeline.files.layout import EnsembleFiles, ServerFiles
from keepfast.storage import Disk, list_directory, load_manifest, load_tree
from keepfast.tree import CONFIG, Tree
from keepfast.wire import StorageError

# A configuration is a page of text; more than this is something else under its name.
_CONFIG_LIMIT_BYTES = 256 << 10


def config_text(disk: Disk, path: str) -> str:
    """The text of a configuration file; empty if it cannot be read."""
    try:
        with disk.open_read(path) as file:
            return file.read_at(0, _CONFIG_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def config_in(tree: Tree) -> str:
    """The text of /zookeeper/config; empty if there is none."""
    node = tree.find(CONFIG)
    return "" if node is None else (node.data or b"").decode("utf-8", "replace")


def electorate_by_files(
    disk: Disk, ensemble: EnsembleFiles, configs: Mapping[str, str] | None = None
) -> Electorate:
    """Who votes in an ensemble.

    `configs` has the text in the newest snapshot of each server whose snapshots the caller has read
    already.
    """
    configs = configs or {}
    servers: list[Known] = []
    texts: list[str] = []
    for server in ensemble.servers:
        own = None
        for entry in server.files:
            if entry.name == "myid":
                own = own_id(config_text(disk, entry.path))
            elif is_configuration(entry.name):
                texts.append(with_version_of_name(entry.name, config_text(disk, entry.path)))
        servers.append((server.server, own))
        known = configs.get(server.server)
        texts.append(_newest_config(disk, server) if known is None else known)
        texts.append(_in_manifest(disk, server))
    return electorate_of(servers, texts)


def _newest_config(disk: Disk, server: ServerFiles) -> str:
    """The text in the newest snapshot that can be read in full."""
    directory = server.data_directory
    try:
        names = list_directory(disk, directory).snapshots
    except (StorageError, OSError):
        return ""
    for name in reversed(names):
        try:
            tree, _, _ = load_tree(disk, directory.in_snapshots(name), is_fuzzy=True)
        except (StorageError, OSError):
            continue
        return config_in(tree)
    return ""


def _in_manifest(disk: Disk, server: ServerFiles) -> str:
    """The membership that a Keepfast server knew to be committed."""
    try:
        manifest = load_manifest(disk, server.data_directory)
    except (StorageError, OSError):
        return ""
    return "" if manifest is None else (manifest.membership or b"").decode("utf-8", "replace")
