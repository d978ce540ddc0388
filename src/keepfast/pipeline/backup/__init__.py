"""Backups of an ensemble: proven chains of one snapshot and the records after it.

What may live here: how backups lie in their place, how one is taken from the files of servers or
from a running server, retention, and copies in object stores. Each chain is an ordinary data
directory, so that every command that reads one reads a backup.
"""

from keepfast.pipeline.backup.backup_place import chain_at, chain_here, list_chains, read_chain
from keepfast.pipeline.backup.chains import BackupChain, BackupOptions, BackupRefused, BackupTaken
from keepfast.pipeline.backup.object_store import is_object_store
from keepfast.pipeline.backup.streamed import SnapshotRequest, back_up_server
from keepfast.pipeline.backup.taking import back_up_files

__all__ = [
    "BackupChain",
    "BackupOptions",
    "BackupRefused",
    "BackupTaken",
    "SnapshotRequest",
    "back_up_files",
    "back_up_server",
    "chain_at",
    "chain_here",
    "is_object_store",
    "list_chains",
    "read_chain",
]
