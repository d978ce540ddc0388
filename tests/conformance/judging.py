"""Compare a directory as Keepfast reads it with what a real Apache server says about it.

Apache is asked in two ways. A stock client reads every znode: data, Stat and ACL as clients see
them. And a standalone server writes a snapshot of what it loaded right after its start, which
holds what clients cannot see: the stored Stats, the owners of containers and TTL znodes, the
sessions with their timeouts.

The size of the runs is set by KEEPFAST_CONFORMANCE_SCALE, a factor (1 unless set), their seeds by
KEEPFAST_CONFORMANCE_SEED, which is added to each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keepfast.storage import (
    Compression,
    DataDirectory,
    RealDisk,
    Recovery,
    data_directory,
    load_tree,
    recover,
    snapshot_name,
)
from keepfast.tree import CONFIG, ZOOKEEPER, Tree, wire_stat
from keepfast.wire import Stat as WireStat
from keepfast.wire import Zxid, decode
from tests.apache import AclEntry, ApacheServer, Identity, Stat, Znode

DISK = RealDisk()

_STATISTICS = "/zookeeper_stats"
_MISMATCH_IN_LOG = "Digests are not matching"
_DIFFERENCES_SHOWN = 5


def scaled(operations: int) -> int:
    """A number of operations, in a longer run more of them."""
    return int(operations * float(os.environ.get("KEEPFAST_CONFORMANCE_SCALE", "1")))


def seeded(seed: int) -> int:
    """A seed, in another run another one."""
    return seed + int(os.environ.get("KEEPFAST_CONFORMANCE_SEED", "0"))


def directory_of(path: Path, log_path: Path | None = None) -> DataDirectory:
    """The directories behind Apache's dataDir and dataLogDir."""
    return data_directory(DISK, str(path), None if log_path is None else str(log_path))


def recovered(path: Path, log_path: Path | None = None) -> Recovery:
    """What Keepfast reads from a data directory, which stays as it is."""
    return recover(DISK, directory_of(path, log_path), full=True)


def seen_by_clients(tree: Tree) -> dict[str, Znode]:
    """Every znode in the records of the judge."""
    znodes = {}
    for path in tree.paths():
        node = tree.find(path)
        assert node is not None
        stat = Stat(*decode(WireStat, wire_stat(node)))
        acl = tuple(AclEntry(one.perms, Identity(*one.id)) for one in tree.acl_of(node))
        znodes[path] = Znode(node.data, stat, acl)
    return znodes


def without_statistics(znodes: Mapping[str, Znode]) -> dict[str, Znode]:
    """The znodes with the counts of quotas left out.

    A live server has counted on since each quota was made, one that loaded a snapshot has counted
    all of them anew; where one quota lies below another the two ways differ, in Apache as well.
    """
    return {
        path: znode._replace(data=None, stat=znode.stat._replace(data_length=0))
        if path.endswith(_STATISTICS)
        else znode
        for path, znode in znodes.items()
    }


def without_config(znodes: Mapping[str, Znode]) -> dict[str, Znode]:
    """The znodes without the one that each member of an ensemble writes from its own clock."""
    return {path: znode for path, znode in znodes.items() if path != CONFIG}


def assert_equal(ours: Mapping[str, Znode], judged: Mapping[str, Znode]) -> None:
    """The znodes are the same; else the first few that are not are shown, one below the other."""
    unlike = [path for path in sorted({*ours, *judged}) if ours.get(path) != judged.get(path)]
    lines = [f"{len(unlike)} of {len(judged)} znodes differ"]
    for path in unlike[:_DIFFERENCES_SHOWN]:
        lines += [path, f"    ours   {ours.get(path)}", f"    judged {judged.get(path)}"]
    assert not unlike, "\n".join(lines)


def owned(tree: Tree) -> dict[int, set[str]]:
    """The sessions and their ephemerals, as Apache lists them."""
    return {session: tree.ephemerals.get(session, set()) for session in tree.sessions}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one Apache server said about one directory right after its start."""

    tree: dict[str, Znode]
    sessions: dict[int, set[str]]
    # What it loaded, in the snapshot that it wrote then.
    snapshot: Tree
    mismatches: int


def judge(path: Path, target: Path, properties: Mapping[str, str] | None = None) -> Verdict:
    """Start Apache on a copy of a directory, at `target`, and ask it about everything."""
    shutil.copytree(path, target)
    return ask_apache(ApacheServer(target, properties=properties))


def ask_apache(server: ApacheServer) -> Verdict:
    """Start a server on its directory, ask it about everything, and stop it."""
    with server:
        # First of all: sessions that are on disk expire when their time is up.
        sessions = server.sessions()
        loaded = Zxid(server.last_zxid())
        tree = server.read_tree()
        mismatches = digest_mismatches(server)
    snapshots = [server.version_dir / snapshot_name(loaded, one) for one in Compression]
    newest = max((one for one in snapshots if one.exists()), key=lambda one: one.stat().st_mtime)
    return Verdict(tree, sessions, load_tree(DISK, str(newest))[0], mismatches)


def digest_mismatches(server: ApacheServer) -> int:
    """How many digests a running server found wrong, by its metrics and by its log."""
    return server.digest_mismatches() + server.output().count(_MISMATCH_IN_LOG)


def assert_judged_equal(tree: Tree, verdict: Verdict, *, from_3_4: bool = False) -> None:
    """The tree that we have is the one that Apache loaded, in all that either can tell.

    Nothing is left out of the comparison. Apache deletes the ephemerals of sessions that it does
    not know; so there must be none.
    """
    ours = seen_by_clients(tree)
    assert set(tree.ephemerals) <= set(tree.sessions)
    if from_3_4 and CONFIG not in verdict.tree:
        # A standalone server adds this znode to no snapshot of 3.4. A member of an ensemble
        # does, and so do we.
        del ours[CONFIG]
        parent = ours[ZOOKEEPER]
        stat = parent.stat._replace(
            num_children=parent.stat.num_children - 1, cversion=parent.stat.cversion + 1
        )
        ours[ZOOKEEPER] = parent._replace(stat=stat)
    assert_equal(ours, verdict.tree)
    assert verdict.sessions == owned(tree)
    assert verdict.snapshot.sessions == tree.sessions
    assert verdict.snapshot.last_zxid == tree.last_zxid
    assert verdict.snapshot.digest == tree.digest
    assert verdict.snapshot.state_digest == tree.state_digest
    assert verdict.mismatches == 0


@dataclass(frozen=True, slots=True)
class Served:
    """What a live server served; quota counts are left out."""

    tree: dict[str, Znode]
    sessions: dict[int, set[str]]
    digest: int


def serve(server: ApacheServer) -> Served:
    """Ask a server that nobody writes to; its files hold the same from then on."""
    return Served(without_statistics(server.read_tree()), server.sessions(), server.tree_digest())


def assert_read_as_served(tree: Tree, served: Served) -> None:
    """The tree that we read is the one that a live server had."""
    assert_equal(without_statistics(seen_by_clients(tree)), served.tree)
    assert owned(tree) == served.sessions
    assert tree.digest == served.digest
