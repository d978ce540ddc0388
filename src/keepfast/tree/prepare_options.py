"""What a leader allows when it makes txns of requests."""

from __future__ import annotations

from typing import Final

import msgspec

from keepfast.wire import DEFAULT_MAX_FIELD, DEFAULT_MAX_FRAME

# Schemes that Apache knows without configuration; "world" and "auth" are always there.
DEFAULT_SCHEMES: Final = frozenset(("digest", "ip"))


class PrepareOptions(msgspec.Struct, frozen=True):
    """What a leader allows. Only the leader reads them: txns carry the results."""

    # Whether clients may create znodes with a TTL (zookeeper.extendedTypesEnabled). Off: -6. On,
    # an Apache server without the same setting takes such znodes for ephemerals of a strange
    # session.
    is_ttl_enabled: bool = False
    # Whether hard limits of quotas refuse writes (-125). Off: they are only counted.
    is_quota_enforced: bool = False
    # Whether no permission is ever checked. On, every client may do everything.
    is_acl_skipped: bool = False
    # Schemes whose ids may stand in an ACL, besides world and auth. One that no connection can
    # authenticate with locks its znodes up.
    schemes: frozenset[str] = DEFAULT_SCHEMES
    # The largest txn (R13): what every server that has to read it back takes. Smaller than a
    # request may be: large requests are refused (-5). Larger: a server with Apache's default stops
    # at such a record.
    max_txn_bytes: int = DEFAULT_MAX_FIELD
    # The longest path that may be created. Small: long names are refused (-8). Large: few of them
    # fill a reply or a txn.
    max_path_bytes: int = DEFAULT_MAX_FRAME // 8
    # Entries of an ACL, those that `auth` becomes included; all different or long ones of a multi
    # together.
    # Small: such requests are refused (-114, -5). Large: others wait while one is checked.
    max_acl_entries: int = 2048
    # Bytes of the paths of a session's ephemerals, which one txn names when it ends; 0: as much as
    # fits into one. More are refused (-125).
    max_ephemeral_bytes: int = 0
    # How many ephemerals a session may have. Small: sessions with many are refused more (-125).
    # Large: others wait for a moment while very many go at once.
    max_ephemerals: int = 20_000
    # Operations of one txn that are computed in one turn of the loop, on all servers: 2 ms. A txn
    # with no more is computed at once. Small: longer ones take many turns, and all writes wait.
    # Large: everybody waits.
    slice_size: int = 250
