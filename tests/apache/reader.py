"""Read the whole tree of a live server through a stock client.

The records here are the judge's view and know nothing of the package under test. They are plain
tuples in the field order of the wire records, so that `judged == ours` compares every field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.apache import words

# The super user may read everything, whatever the ACLs say. Digest as `user:base64(sha1(...))`.
SUPER_CREDENTIAL = "super:test"
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

# Requests in flight: enough to hide the round trip, few enough to keep the memory flat.
_WINDOW = 600
# Kazoo waits forever for a server that is gone.
_MAX_WAIT_S = 120
# Apache remembers the tree digest after every zxid that is a multiple of this.
_DIGEST_INTERVAL = 128
_MISSING_PATH = "/no-such-znode-of-the-harness"


class Stat(NamedTuple):
    """The eleven fields of a Stat as clients see them, in wire order."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Identity(NamedTuple):
    """Whom an ACL entry is about."""

    scheme: str
    id: str


class AclEntry(NamedTuple):
    """One entry of an ACL list."""

    perms: int
    id: Identity


class Znode(NamedTuple):
    """All that a client can learn about one znode."""

    data: bytes | None
    stat: Stat
    acl: tuple[AclEntry, ...]


@contextmanager
def connect(
    hosts: str, *, credential: str | None = SUPER_CREDENTIAL, timeout: float = 60
) -> Iterator[Any]:
    """A connected kazoo client, the super user unless told otherwise; its session ends at exit."""
    client = KazooClient(hosts=hosts, timeout=timeout, randomize_hosts=False)
    client.start(timeout=_MAX_WAIT_S)
    try:
        if credential is not None:
            client.add_auth_async("digest", credential).get(timeout=_MAX_WAIT_S)
        yield client
    finally:
        client.stop()
        client.close()


def read_tree(client: Any, root: str = "/") -> dict[str, Znode]:
    """Every znode at and below `root`, /zookeeper included, by full path.

    Not one point in time if someone writes meanwhile; a znode deleted under way is left out.
    """
    tree: dict[str, Znode] = {}
    level = [root]
    while level:
        next_level: list[str] = []
        for start in range(0, len(level), _WINDOW):
            _read_some(client, level[start : start + _WINDOW], tree, next_level)
        level = next_level
    return tree


def _read_some(
    client: Any, paths: Sequence[str], tree: dict[str, Znode], children: list[str]
) -> None:
    answers = [
        (path, client.get_async(path), client.get_acls_async(path), client.get_children_async(path))
        for path in paths
    ]
    for path, data_answer, acl_answer, children_answer in answers:
        try:
            data, stat = data_answer.get(timeout=_MAX_WAIT_S)
            acl, _ = acl_answer.get(timeout=_MAX_WAIT_S)
            names = children_answer.get(timeout=_MAX_WAIT_S)
        except NoNodeError:
            continue
        entries = tuple(AclEntry(one.perms, Identity(one.id.scheme, one.id.id)) for one in acl)
        tree[path] = Znode(data, Stat(*stat), entries)
        base = "" if path == "/" else path
        children.extend(f"{base}/{name}" for name in names)


def tree_digest(client: Any, port: int) -> int:
    """The server's own tree digest now, unsigned.

    Asks for deletions of a znode that does not exist, at most 127 of them, until the zxid is one
    whose digest Apache remembers: failed writes use up a zxid and change nothing else.
    """
    zxid = words.last_zxid(port)
    answers = [client.delete_async(_MISSING_PATH) for _ in range(-zxid % _DIGEST_INTERVAL)]
    for answer in answers:
        try:
            answer.get(timeout=_MAX_WAIT_S)
        except NoNodeError:
            continue
    zxid += len(answers)
    digests = words.history_of_digests(port)
    if zxid not in digests:
        raise words.NotReadyError(f"the server has no digest of {zxid:#x}: is someone writing?")
    return digests[zxid]
