"""Two digests of a tree, both sums over its znodes, so that a change costs the znodes it touches.

The first is Apache's, version 2, as 3.6+ writes it after each txn: the sum of

    CRC32( utf8(path) ++ data ++ czxid mzxid pzxid ctime mtime version cversion aversion owner )

over all znodes that are not below /zookeeper; the root counts with the path "". It does not cover
ACLs, sessions and what is below /zookeeper.

The second is ours and covers them. Each znode adds (crc + 1) * weight(ACL), each session 8 bytes of
BLAKE2b. A product, so that two znodes swapping their ACLs changes the digest; an odd weight, so
that the product loses nothing; the + 1, so that a znode with the CRC 0 still counts. Data of quota
statistics is left out: servers rewrite it by themselves, without a txn.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from struct import Struct
from typing import Final
from zlib import crc32

from keepfast.tree.paths import RESERVED_PREFIX, is_quota_stats
from keepfast.wire import AclList, encode

MASK: Final = (1 << 64) - 1
DIGEST_VERSION: Final = 2

_SESSION: Final = Struct(">qi")


def node_crc(path: str, data: bytes | None, stat: bytes) -> int:
    """The digest of one znode, wherever it lies. The root's path is "/" here."""
    # Apache hashes pzxid after mzxid, and not where it lies in the stored form.
    return crc32(
        b"".join(
            (
                path.encode() if path != "/" else b"",
                data or b"",
                stat[:16],
                stat[52:],
                stat[16:52],
            )
        )
    )


def counted_crc(path: str, data: bytes | None, stat: bytes) -> int:
    """The CRC of a znode as our digest counts it: without the data of quota statistics."""
    if path.startswith(RESERVED_PREFIX) and is_quota_stats(path):
        data = None
    return node_crc(path, data, stat)


def acl_weight(acl: AclList) -> int:
    """An odd 64-bit number that represents an ACL list."""
    digest = sha256()
    for entry in acl:
        digest.update(encode(entry))
    return int.from_bytes(digest.digest()[:8], "big") | 1


def session_digest(session_id: int, timeout_ms: int) -> int:
    """What one session adds to our digest."""
    packed = _SESSION.pack(session_id, timeout_ms)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "big")
