"""From named places to ensembles, servers and files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.pipeline.files.layout import (
    Directory,
    EnsembleFiles,
    PlaceError,
    discover,
    list_entries,
    list_local,
    split_place,
)
from tests.cases import CASES_DIR, case_names


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.write_bytes(b"x")
    return root


def names(ensembles: list[EnsembleFiles]) -> dict[str, list[str]]:
    return {one.name: [server.server for server in one.servers] for one in ensembles}


def test_a_root_of_ensembles() -> None:
    found = discover([str(CASES_DIR)])
    assert [one.name for one in found] == case_names()
    for one in found:
        for server in one.servers:
            assert server.logs_dir == server.snapshots_dir
            assert server.logs
            assert all(entry.kind != "other" for entry in server.files)


def test_one_ensemble__by_its_root_or_server_by_server() -> None:
    root = CASES_DIR / "healthy-plain-3.9.5"
    whole = discover([str(root)])
    single = discover([f"{root}/0", f"{root}/1/version-2", f"{root}/2/"])
    assert names(whole) == names(single) == {"healthy-plain-3.9.5": ["0", "1", "2"]}
    assert [s.files for s in whole[0].servers] == [s.files for s in single[0].servers]


def test_servers_on_several_disks__are_told_apart(tmp_path: Path) -> None:
    make(tmp_path, "h1/zookeeper/version-2/log.1", "h2/zookeeper/version-2/log.1")
    found = discover([f"{tmp_path}/h1/zookeeper", f"{tmp_path}/h2/zookeeper"])
    assert [server.server for server in found[0].servers] == ["h1", "h2"]
    make(tmp_path, "a/s/version-2/log.1", "b/s/version-2/log.1")
    found = discover([f"{tmp_path}/a/s", f"{tmp_path}/b/s"])
    assert [server.server for server in found[0].servers] == ["a/s", "b/s"]


@pytest.mark.parametrize(
    "files",
    [
        ("1/data/version-2/snapshot.0", "1/datalog/version-2/log.1"),
        ("1/version-2/snapshot.0", "1/logs/version-2/log.1"),
        ("1/snap/snapshot.0", "1/snap/currentEpoch", "1/txnlog/log.1"),
    ],
)
def test_logs_in_a_second_directory_below_the_server(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    make(tmp_path, *files, "2/version-2/log.1", "2/version-2/snapshot.0")
    (found,) = discover([str(tmp_path)])
    assert [server.server for server in found.servers] == ["1", "2"]
    first = found.servers[0]
    assert first.logs_dir != first.snapshots_dir
    assert [entry.name for entry in first.files][:2] == ["log.1", "snapshot.0"]


def test_logs_in_a_second_directory__named(tmp_path: Path) -> None:
    make(tmp_path, "data/1/version-2/snapshot.0", "data/2/version-2/snapshot.0", "logs/1/log.1")
    one = discover([f"{tmp_path}/data/1:{tmp_path}/logs/1"])[0].servers[0]
    assert (one.logs_dir, len(one.logs), len(one.snapshots)) == (f"{tmp_path}/logs/1", 1, 1)
    with pytest.raises(PlaceError, match="no data/2"):
        discover([f"{tmp_path}/data:{tmp_path}/logs"])
    make(tmp_path, "logs/2/version-2/log.7")
    both = discover([f"{tmp_path}/data:{tmp_path}/logs"])[0].servers
    assert [server.logs[0].zxid for server in both] == [1, 7]


def test_two_servers_of_which_one_lost_its_snapshots__are_two_servers(tmp_path: Path) -> None:
    make(tmp_path, "e/1/version-2/log.1", "e/2/version-2/snapshot.0")
    assert names(discover([f"{tmp_path}/e"])) == {"e": ["1", "2"]}


def test_directories_named_data_below_each_server(tmp_path: Path) -> None:
    make(tmp_path, *(f"zk{n}/data/version-2/log.1" for n in (1, 2, 10)), "zk1/data/myid")
    assert names(discover([str(tmp_path)])) == {tmp_path.name: ["zk1", "zk2", "zk10"]}


def test_kinds_of_files(tmp_path: Path) -> None:
    make(
        tmp_path,
        *("s/myid", "s/zoo.cfg.dynamic.1", "s/version-2/log.a", "s/version-2/snapshot.5.gz"),
        *(
            "s/version-2/acceptedEpoch",
            "s/version-2/currentEpoch.tmp",
            "s/version-2/snapshot.5.tmp",
        ),
        *("s/version-2/keepfast.manifest", "s/version-2/keepfast.aside/g1/log.1", "s/unrelated"),
    )
    files = discover([f"{tmp_path}/s"])[0].servers[0].files
    assert [(entry.name, entry.kind, entry.zxid) for entry in files] == [
        ("log.a", "log", 10),
        ("snapshot.5.gz", "snapshot", 5),
        ("acceptedEpoch", "epoch", None),
        ("currentEpoch.tmp", "epoch", None),
        ("myid", "config", None),
        ("zoo.cfg.dynamic.1", "config", None),
        ("keepfast.manifest", "other", None),
        ("snapshot.5.tmp", "other", None),
    ]


def test_what_is_no_place__is_said_in_a_sentence(tmp_path: Path) -> None:
    make(tmp_path, "empty/", "photos/a.jpg", "file")
    for name, words in (
        ("missing", "no such directory"),
        ("empty", "is empty"),
        ("photos", "holds no ZooKeeper data"),
        ("file", "is a file"),
    ):
        with pytest.raises(PlaceError, match=words):
            discover([str(tmp_path / name)])


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_directory_that_may_not_be_read__is_named(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1", "2/version-2/log.1")
    closed = tmp_path / "2" / "version-2"
    closed.chmod(0)
    try:
        servers = discover([str(tmp_path)])[0].servers
    finally:
        closed.chmod(0o700)
    assert "cannot be listed" in servers[1].unreadable[0]


def closed(path: Path) -> Directory:
    """What the listing of a directory gives that may not be entered."""
    return Directory(str(path), error=f"{path} cannot be listed: Permission denied")


def test_a_server_that_may_not_be_entered__is_one_of_the_servers(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1", "2/version-2/log.1")

    def lister(place: str) -> Directory:
        root = list_local(place)
        return replace(root, directories=root.directories | {"2": closed(tmp_path / "2")})

    (found,) = discover([str(tmp_path)], lister)
    assert [(s.server, len(s.unreadable)) for s in found.servers] == [("1", 0), ("2", 1)]


def test_an_ensemble_that_may_not_be_entered__is_one_of_the_ensembles(tmp_path: Path) -> None:
    make(tmp_path, "a/1/version-2/log.1", "b/1/version-2/log.1")

    def lister(place: str) -> Directory:
        root = list_local(place)
        return replace(root, directories=root.directories | {"b": closed(tmp_path / "b")})

    found = discover([str(tmp_path)], lister)
    assert names(found) == {"a": ["1"], "b": ["b"]}
    assert "cannot be listed" in found[1].servers[0].unreadable[0]


def test_an_empty_directory_named_as_the_servers_are__is_a_server(tmp_path: Path) -> None:
    make(tmp_path, "zk1/version-2/log.1", "zk2/version-2/log.1", "zk10/", "lost+found/", "notes/")
    assert names(discover([str(tmp_path)])) == {tmp_path.name: ["zk1", "zk2", "zk10"]}
    make(tmp_path, "zk3/data/", "zk4/todo.txt")
    assert names(discover([str(tmp_path)])) == {tmp_path.name: ["zk1", "zk2", "zk3", "zk10"]}


@pytest.mark.parametrize("second", ["1", "1/version-2", "link"])
def test_one_directory_under_two_names__is_refused(tmp_path: Path, second: str) -> None:
    make(tmp_path, "e/1/version-2/log.1", "e/2/version-2/log.1")
    (tmp_path / "link").symlink_to(tmp_path / "e" / "1")
    other = tmp_path / "link" if second == "link" else tmp_path / "e" / second
    with pytest.raises(PlaceError, match="name each server once"):
        discover([f"{tmp_path}/e/1", str(other)])


def test_a_file_that_is_a_link_to_nothing__is_said(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1")
    (tmp_path / "1" / "version-2" / "log.5").symlink_to(tmp_path / "unmounted" / "log.5")
    (tmp_path / "1" / "version-2" / "notes").symlink_to(tmp_path / "nowhere")
    (server,) = discover([str(tmp_path / "1")])[0].servers
    assert server.unreadable == (f"{tmp_path}/1/version-2/log.5 is a link to nothing",)


def test_a_server_that_is_a_link_to_nothing__is_a_server_without_files(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1", "2/version-2/log.1")
    (tmp_path / "3").symlink_to(tmp_path / "unmounted")
    (tmp_path / "notes").symlink_to(tmp_path / "nowhere")
    assert names(discover([str(tmp_path)])) == {tmp_path.name: ["1", "2", "3"]}


def test_a_link_that_leads_in_a_circle__does_not_hide_what_is_beside_it(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1", "2/version-2/log.1")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "1" / "version-2" / "log.5").symlink_to("log.5")
    found = discover([str(tmp_path)])
    assert names(found) == {tmp_path.name: ["1", "2", "loop"]}
    assert ["Too many levels" in "".join(one.unreadable) for one in found[0].servers] == [
        *(True, False, True),
    ]


def test_a_link_to_a_directory_above_it__is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "1/version-2/log.1", "2/version-2/log.1")
    (tmp_path / "all").symlink_to(".")
    (tmp_path / "1" / "up").symlink_to(tmp_path.parent)
    assert names(discover([str(tmp_path)])) == {tmp_path.name: ["1", "2"]}


def test_a_flat_listing__reads_like_a_directory() -> None:
    root = CASES_DIR / "healthy-plain-3.9.5"
    entries = [
        (f"s3://bucket/x{path.as_posix().removeprefix(str(root))}", path.stat().st_size, 1.0)
        for path in root.rglob("*")
        if path.is_file()
    ]
    (remote,) = discover(["s3://bucket/x"], lambda place: list_entries(place, entries))
    (local,) = discover([str(root)], list_local)
    assert [s.server for s in remote.servers] == [s.server for s in local.servers]
    for one, other in zip(remote.servers, local.servers, strict=True):
        assert [(e.name, e.kind, e.size) for e in one.files] == [
            (e.name, e.kind, e.size) for e in other.files
        ]
        assert one.logs[0].path.startswith("s3://bucket/x/")


def test_splitting_of_places() -> None:
    assert split_place("/a:/b") == ("/a", "/b")
    assert split_place("/a") == ("/a", None)
    assert split_place("hdfs://h:9000/a") == ("hdfs://h:9000/a", None)
    assert split_place("hdfs://h:9000/a:hdfs://h:9000/b") == ("hdfs://h:9000/a", "hdfs://h:9000/b")
    assert split_place("file:/a") == ("file:/a", None)
