"""A deleted subtree, brought back by `keepfast shell` from what `keepfast undelete` prints."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from keepfast.pipeline.replay.state import StateUnknown, one_ensemble, read_only_disk
from keepfast.pipeline.replay.undelete import undelete_subtree
from keepfast.testing import Server
from keepfast.tree import Kind
from tests.cases import CASES_DIR
from tests.cli.runs import KEEPFAST, run

DISK = read_only_disk()
# What a line of the shell cannot hold as it is, among what it can.
VALUES = {
    "plain": b"value",
    "empty": b"",
    "blanks": b"two words and a 'quote'",
    "double": b'say "hello"',
    "both": b"both ' and \"",
    "lines": b"one\ntwo",
    "binary": bytes(range(256)),
    "flag": b"-e",
    "umlaut": "gr\u00fc\u00dfe \u6f22\u5b57".encode(),
    "large": b"x" * 60_000,
}


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(str(tmp_path / "data"))


def snapshot_of(client: Any, top: str) -> dict[str, tuple[bytes, list[str]]]:
    found = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        data, _ = client.get(path)
        acl, _ = client.get_acls(path)
        found[path] = (data, sorted(map(str, acl)))
        waiting += [f"{path}/{name}" for name in client.get_children(path)]
    return found


def apply(hosts: str, commands: str) -> None:
    done = subprocess.run(
        [*KEEPFAST, "shell", hosts, "--auth", "digest:me:secret"],
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_deleted_subtree__comes_back_with_data_and_acls(server: Server, tmp_path: Path) -> None:
    with server:
        client = server.client()
        client.add_auth("digest", "me:secret")
        client.create("/keep", b"k")
        client.create("/app", b"top")
        for name, value in VALUES.items():
            client.create(f"/app/{name}", value)
        client.create("/app/deep/er path", b"d", makepath=True)
        client.create("/app/mine", b"secret", acl=[make_digest_acl("me", "secret", all=True)])
        client.create("/app/mine/child", b"c")
        client.create("/app/gone-with-me", b"e", ephemeral=True)
        client.delete("/app/gone-with-me")
        before = snapshot_of(client, "/app")
        client.delete("/app", recursive=True)
        client.create("/after", b"a")
        server.restart()  # so that the files hold all of it

        result = run("undelete", server.data_dir, "--path", "/app")
        assert result.code == 0, result.err
        assert f"# {len(before)} znodes to create" in result.out
        apply(server.hosts, result.out)

        client = server.client()
        client.add_auth("digest", "me:secret")
        assert snapshot_of(client, "/app") == before


def test_part_of_a_subtree__only_what_is_missing_is_created(server: Server) -> None:
    with server:
        client = server.client()
        client.create("/app/a", b"1", makepath=True)
        client.create("/app/b", b"2")
        zxid = client.get("/app/b")[1].mzxid
        client.delete("/app/b")
        client.set("/app/a", b"newer")
        server.restart()
        result = run("undelete", server.data_dir, "--path", "/app", "--at", hex(zxid))
        assert result.code == 0
        lines = [line for line in result.out.splitlines() if not line.startswith("#")]
        assert lines == ["create -- /app/b 2"]
        assert "left as they are: 2 znodes" in result.out


def test_deletion_of_a_case__is_found_with_who_did_it() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    found = undelete_subtree(DISK, ensemble, "/c/n04")
    assert found.deletion is not None
    assert (found.deletion.first_zxid, found.deletion.session) == (0x200000032, 0x6599C60000)
    assert [one.path for one in found.creations] == ["/c/n04"]


def test_ephemeral__is_left_out_and_named() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    found = undelete_subtree(DISK, ensemble, "/c/visitor")
    assert found.creations == ()
    assert found.ephemerals == ("/c/visitor",)


def test_container_and_ttl__keep_their_kind(server: Server) -> None:
    with server:
        run("shell", server.hosts, "create", "/box", "b")
        run("shell", server.hosts, "create", "-c", "/box/inner", "i")
        run("shell", server.hosts, "create", "/box/inner/one", "1")
        run("shell", server.hosts, "deleteall", "/box")
        server.restart()
        found = undelete_subtree(DISK, one_ensemble([server.data_dir]), "/box")
        kinds = {one.path: one.kind for one in found.creations}
        assert kinds["/box/inner"] is Kind.CONTAINER
        assert "create -c -- /box/inner i" in run("undelete", server.data_dir, "--path", "/box").out


def test_znode_that_was_never_deleted__says_so() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    with pytest.raises(StateUnknown, match="was not deleted"):
        undelete_subtree(DISK, ensemble, "/c/n02")
