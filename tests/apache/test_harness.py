"""The judge itself: are its servers what they claim to be, and does it read them in full?"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl

from tests.apache import (
    ApacheDidNotStartError,
    ApacheEnsemble,
    ApacheServer,
    History,
    Identity,
    Znode,
    bundled_java,
    run_tool,
    wait_until,
)
from tests.apache.java import java_major_version
from tests.apache.reader import SUPER_CREDENTIAL, SUPER_DIGEST
from tests.cases import as_truth_writes, load_case

pytestmark = pytest.mark.conformance

EMPTY_TREE_DIGEST = 1371985504


def test_standalone_server__serves_and_is_read_in_full(tmp_path: Path) -> None:
    with ApacheServer(tmp_path / "data") as server, server.connect() as client:
        assert server.ask("ruok") == "imok"
        assert server.mode() == "standalone"
        assert "version: 3.9.5-" in server.ask("srvr")
        client.create("/a", b"one")
        client.create("/a/null", None)
        client.create("/a/own", b"", ephemeral=True)
        client.set("/a", b"two")
        tree = server.read_tree()
        session = client.client_id[0]
        assert server.sessions() == {session: {"/a/own"}}
        assert server.monitor()["znode_count"] == "8"

    assert set(tree) == {
        *("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"),
        *("/a", "/a/null", "/a/own"),
    }
    assert tree["/a"].data == b"two"
    assert tree["/a"].stat.version == 1
    assert tree["/a"].stat.num_children == 2
    assert tree["/a"].acl == ((31, ("world", "anyone")),)
    assert tree["/a/null"].data is None
    assert tree["/a/own"].stat.ephemeral_owner == session
    assert tree["/zookeeper/config"].acl == ((1, ("world", "anyone")),)


def test_bundled_java__runs_the_server_on_a_machine_without_java(tmp_path: Path) -> None:
    assert java_major_version(bundled_java()) >= 17
    with ApacheServer(tmp_path / "data", java=bundled_java()) as server:
        assert server.tree_digest() == EMPTY_TREE_DIGEST
        assert server.digest_mismatches() == 0


def test_super_user__reads_what_nobody_else_may(tmp_path: Path) -> None:
    user, password = SUPER_CREDENTIAL.split(":")
    digest = base64.b64encode(hashlib.sha1(SUPER_CREDENTIAL.encode()).digest()).decode()
    assert f"{user}:{digest}" == SUPER_DIGEST
    assert password

    with ApacheServer(tmp_path / "data") as server:
        with server.connect(credential=None) as client:
            client.create("/secret", b"s", acl=[make_digest_acl("owner", "key", all=True)])
        tree = server.read_tree()

    assert tree["/secret"].data == b"s"
    ((perms, identity),) = tree["/secret"].acl
    assert perms == 31
    assert identity == Identity("digest", make_digest_acl("owner", "key").id.id)


def test_directory_that_apache_refuses__the_error_carries_exit_code_and_reason(
    tmp_path: Path,
) -> None:
    data_dir = load_case("healthy-plain-3.9.5").copy_server("0", tmp_path / "data")
    for snapshot in (data_dir / "version-2").glob("snapshot.*"):
        snapshot.unlink()

    with pytest.raises(ApacheDidNotStartError) as refused:
        ApacheServer(data_dir).start()

    assert refused.value.exit_code == 1
    assert "No snapshot found, but there are log entries" in refused.value.output


@pytest.mark.parametrize(("method", "suffix"), [("", ""), ("gz", ".gz"), ("snappy", ".snappy")])
def test_snapshot_compression__is_a_property_away(tmp_path: Path, method: str, suffix: str) -> None:
    properties = {"zookeeper.snapshot.compression.method": method, "zookeeper.snapCount": "100"}
    with ApacheServer(tmp_path / "data", properties=properties) as server:
        with History(server.hosts, seed=3, sessions=2) as history:
            history.run(1_000)
            # A server that is busy leaves some out.
            while len(_snapshots(server)) < 3:
                history.run(200)
        snapshots = _snapshots(server)
        logs = list(server.version_dir.glob("log.*"))

    assert all(name.count(".") == 1 + bool(suffix) and name.endswith(suffix) for name in snapshots)
    assert all(log.stat().st_size < 1 << 20 for log in logs), "preallocation is not small"


def _snapshots(server: ApacheServer) -> list[str]:
    return [path.name for path in server.version_dir.glob("snapshot.*")]


def test_killed_server__keeps_tree_digest_and_sessions_for_the_next_one(tmp_path: Path) -> None:
    first = ApacheServer(tmp_path / "data", properties={"zookeeper.snapCount": "1000"})
    with History(first.start().hosts, seed=5) as history:
        history.run(3_000)
        before = first.read_tree()
        digest = first.tree_digest()
        sessions = first.sessions()
        assert sorted(sessions) == sorted(history.session_ids)
        first.kill()
    assert not first.is_running

    with ApacheServer(tmp_path / "data") as second:
        assert second.sessions() == sessions
        assert second.read_tree() == before
        assert second.tree_digest() == digest
        assert second.digest_mismatches() == 0
    assert any(znode.stat.ephemeral_owner for znode in before.values())


@pytest.mark.parametrize("seed", [1])
def test_history__twenty_thousand_operations_of_every_kind(
    tmp_path: Path, seed: int, tell: Callable[[str], None]
) -> None:
    # The cleaner is awake here: its removals of containers and TTL znodes are a kind of their own.
    properties = {"znode.container.checkIntervalMs": "300", "zookeeper.snapCount": "200000"}
    with ApacheServer(tmp_path / "data", properties=properties) as server:
        with History(server.hosts, seed=seed) as history:
            summary = history.run(20_000)
        assert server.digest_mismatches() == 0
        server.stop()
        (log,) = server.version_dir.glob("log.*")

    tell(f"{summary.operations} operations in {summary.seconds:.1f} s, {dict(summary.outcomes)}")
    assert summary.operations >= 20_000
    assert min(summary.kinds.values()) > 50
    assert summary.outcomes["ok"] > 12_000
    assert summary.sessions_closed > 5
    assert set(summary.outcomes) >= {
        "multi failed",
        "NoNodeError",
        "NodeExistsError",
        "NotEmptyError",
        "BadVersionError",
        "BadArgumentsError",
        "InvalidACLError",
        "NoAuthError",
        "NoChildrenForEphemeralsError",
    }
    listing = run_tool("org.apache.zookeeper.server.persistence.TxnLogToolkit", str(log)).stdout
    for kind in (
        *("createSession", "closeSession", "create", "create2", "createContainer", "createTTL"),
        *("delete", "deleteContainer", "setData", "setACL", "multi", "error"),
    ):
        assert f" {kind} " in listing, kind


def test_ensemble__three_servers_agree_and_outlive_their_leader(tmp_path: Path) -> None:
    with ApacheEnsemble(tmp_path) as ensemble:
        with History(ensemble.hosts, seed=9, sessions=3) as history:
            history.run(2_000)
        old_leader = ensemble.wait_for_leader()
        trees = _trees(ensemble)
        assert trees[1] == trees[2] == trees[3]
        assert len(trees[1]) > 100

        ensemble.servers[old_leader].kill()
        wait_until(lambda: ensemble.leader() not in (None, old_leader), "another leader")
        ensemble.start()
        assert _trees(ensemble) == trees
        assert {server.digest_mismatches() for server in ensemble.servers.values()} == {0}


def _trees(ensemble: ApacheEnsemble) -> dict[int, dict[str, Znode]]:
    ensemble.settle()
    trees = {id: server.read_tree() for id, server in ensemble.servers.items()}
    for tree in trees.values():
        # Each member writes this one itself, at every start, with the time of its own clock.
        del tree["/zookeeper/config"]
    return trees


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("healthy-plain-3.9.5", {}),
        ("healthy-plain-3.9.5-gz", {}),
        ("healthy-elections-3.6.2", {}),
        # 3.4 wrote no initial snapshot.
        ("healthy-plain-3.4.14", {"zookeeper.snapshot.trust.empty": "true"}),
    ],
)
def test_case_directory__apache_reads_what_the_truth_file_states(
    tmp_path: Path, name: str, properties: dict[str, str]
) -> None:
    case = load_case(name)
    data_dir = case.copy_server("0", tmp_path / "data")
    with ApacheServer(data_dir, properties=properties) as server:
        tree = server.read_tree()

    values = {
        path: as_truth_writes(znode.data)
        for path, znode in tree.items()
        if path != "/" and not path.startswith("/zookeeper")
    }
    assert values == {path: value for path, value in case.values("0").items() if path != "/"}
