"""The znode state machine: txns are prepared from requests and applied to a tree.

What may live here: znodes, their ACLs, sessions, quotas and digests, and what a txn does to them.
What may not: how a txn is stored, sent or committed; time, randomness and disk are
arguments. Other packages import from here, not from the modules.
"""

from keepfast.tree.acl import OPEN_KEY, AclTable
from keepfast.tree.builder import TreeBuilder
from keepfast.tree.caller import Caller
from keepfast.tree.container_quirk import ContainerQuirk, DigestFit
from keepfast.tree.digest import (
    DIGEST_VERSION,
    acl_weight,
    counted_crc,
    node_crc,
    session_digest,
)
from keepfast.tree.errors import ReplayConflict, TreeError
from keepfast.tree.frozen import CHUNK_NODES, FrozenTree, encode_node
from keepfast.tree.long_records import is_long, read_long
from keepfast.tree.long_txns import LIGHT, LongTxn
from keepfast.tree.node import Node, make_node, persisted
from keepfast.tree.node_bytes import (
    CONTAINER_OWNER,
    MAX_CVERSION,
    MAX_TTL_MS,
    NEW_STAT,
    STAT_SIZE,
    TAIL_SIZE,
    Kind,
    cversion_of,
    kind_of,
    kind_of_owner,
    mtime_of,
    mzxid_of,
    owner_of,
    pzxid_of,
    ttl_of,
    ttl_owner,
    with_owner,
)
from keepfast.tree.outcome import NOTHING, Change, ChangeKind, OpResult, Outcome
from keepfast.tree.paths import (
    CONFIG,
    QUOTA,
    ROOT,
    SPECIAL_PATHS,
    ZOOKEEPER,
    is_quota_stats,
    name_of,
    parent_of,
    path_problem,
)
from keepfast.tree.pending import sorted_in_slices
from keepfast.tree.permissions import fixed_acl, is_allowed
from keepfast.tree.plain_sets import PlainSet, PlainSets, apply_plain_set
from keepfast.tree.prepare import Preparer
from keepfast.tree.prepare_options import DEFAULT_SCHEMES, PrepareOptions
from keepfast.tree.quota_uses import QuotaUse, quota_uses
from keepfast.tree.tree import Tree
from keepfast.tree.watches import Alert, DataWatches, WatchKind, WatchTable
from keepfast.tree.wire_stat import wire_stat

__all__ = [
    "CHUNK_NODES",
    "CONFIG",
    "CONTAINER_OWNER",
    "DEFAULT_SCHEMES",
    "DIGEST_VERSION",
    "LIGHT",
    "MAX_CVERSION",
    "MAX_TTL_MS",
    "NEW_STAT",
    "NOTHING",
    "OPEN_KEY",
    "QUOTA",
    "ROOT",
    "SPECIAL_PATHS",
    "STAT_SIZE",
    "TAIL_SIZE",
    "ZOOKEEPER",
    "AclTable",
    "Alert",
    "Caller",
    "Change",
    "ChangeKind",
    "ContainerQuirk",
    "DataWatches",
    "DigestFit",
    "FrozenTree",
    "Kind",
    "LongTxn",
    "Node",
    "OpResult",
    "Outcome",
    "PlainSet",
    "PlainSets",
    "PrepareOptions",
    "Preparer",
    "QuotaUse",
    "ReplayConflict",
    "Tree",
    "TreeBuilder",
    "TreeError",
    "WatchKind",
    "WatchTable",
    "acl_weight",
    "apply_plain_set",
    "counted_crc",
    "cversion_of",
    "encode_node",
    "fixed_acl",
    "is_allowed",
    "is_long",
    "is_quota_stats",
    "kind_of",
    "kind_of_owner",
    "make_node",
    "mtime_of",
    "mzxid_of",
    "name_of",
    "node_crc",
    "owner_of",
    "parent_of",
    "path_problem",
    "persisted",
    "pzxid_of",
    "quota_uses",
    "read_long",
    "session_digest",
    "sorted_in_slices",
    "ttl_of",
    "ttl_owner",
    "wire_stat",
    "with_owner",
]
