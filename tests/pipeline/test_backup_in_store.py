"""Backups in an object store: continued, expired, restored; never half of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import fs

from keepfast.cli.app import run
from keepfast.client import Client, parse_target
from keepfast.pipeline import (
    BackupOptions,
    BackupRefused,
    BackupTaken,
    back_up_files,
    list_chains,
    one_ensemble,
    read_chain,
)
from keepfast.pipeline.backup.object_store import ObjectStore
from keepfast.storage import RealDisk
from keepfast.testing import Server
from tests.apache.server import free_ports
from tests.apache.words import wait_until
from tests.pipeline.store_process import Store, running_store

NOW = datetime(2026, 11, 17, 3, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def running() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture
def store(running: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store, which this process finds."""
    for name, value in running.variables.items():
        monkeypatch.setenv(name, value)
    running.changes_left = running.garbled = None
    return running


@pytest.fixture
def place(store: Store) -> str:
    """An address in a bucket that has nothing else."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    system, _ = fs.FileSystem.from_uri(f"s3://{bucket}?allow_bucket_creation=true")
    system.create_dir(bucket)
    return f"s3://{bucket}/backups/zk"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(str(tmp_path / "data")) as running:
        yield running


def write(server: Server, first: int, last: int) -> None:
    with Client(parse_target(server.hosts)) as client:
        for number in range(first, last):
            client.create(f"/n{number}", b"%d" % number)


def back_up(
    server: Server,
    place: str,
    now: datetime = NOW,
    *,
    keep_seconds: float = 0.0,
    cache: Path | None = None,
) -> BackupTaken:
    options = BackupOptions(keep_seconds=keep_seconds, cache=None if cache is None else str(cache))
    return back_up_files(RealDisk(), one_ensemble([server.data_dir]), place, options, now)


def count_of(place: str, number: int = -1) -> int:
    """How many of the test's znodes a chain of a place has, proven."""
    tree = read_chain(list_chains(place)[number]).tree
    assert tree is not None
    return sum(path.startswith("/n") for path in tree.paths())


def objects(place: str) -> dict[str, int]:
    system, inner = fs.FileSystem.from_uri(place)
    infos = system.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
    return {info.path[len(inner) + 1 :]: info.size for info in infos if info.is_file}


def test_second_backup__sends_only_what_is_new(server: Server, place: str) -> None:
    write(server, 0, 20)
    first = back_up(server, place)
    assert (first.new_because, first.chain.path) == (
        "it is the first",
        f"{place}/{first.chain.name}",
    )
    assert count_of(place) == 20
    before = objects(place)
    write(server, 20, 50)
    second = back_up(server, place, NOW + DAY)
    assert (second.new_because, second.chain) == (None, first.chain)
    assert second.records >= 30
    assert count_of(place) == 50
    after = objects(place)
    changed = {name.rpartition("/")[2] for name in after if after[name] != before.get(name)}
    assert "keepfast.manifest" in changed
    assert all(name.startswith(("log.", "keepfast.manifest")) for name in changed)


def test_nothing_new__nothing_is_listed_anew(server: Server, place: str, store: Store) -> None:
    write(server, 0, 5)
    first = back_up(server, place)
    second = back_up(server, place, NOW + DAY)
    assert (second.records, second.head) == (0, first.head)
    assert count_of(place) == 5


def test_restore_from_a_store__any_moment_of_any_chain(
    server: Server, place: str, tmp_path: Path
) -> None:
    write(server, 0, 10)
    first = back_up(server, place)
    write(server, 10, 20)
    back_up(server, place, NOW + DAY)
    write(server, 20, 30)
    assert back_up(server, place, NOW + 8 * DAY).new_because == "the last one is old enough"
    for at, expected in (([], 30), (["--at", hex(first.head)], 10)):
        target = tmp_path / f"restored{expected}"
        assert run(["restore", place, "--to", str(target), *at]) == 0
        with Server(str(target)) as restored, Client(parse_target(restored.hosts)) as client:
            names = [name for name in client.get_children("/") if name != "zookeeper"]
            assert len(names) == expected


def test_store_refuses_after_any_number_of_changes__the_last_backup_stays_the_last(
    server: Server, place: str, store: Store
) -> None:
    """Every cut of a first upload, of a second one, and of the deletion of an old chain."""
    held = 0
    for days, last in ((0, 10), (1, 20), (30, 30), (31, 40)):
        now = NOW + days * DAY
        write(server, last - 10, last)
        for allowed in range(100):
            store.changes_left = allowed
            try:
                back_up(server, place, now, keep_seconds=1.0)
            except BackupRefused as error:
                assert "refuses these credentials" in str(error)  # noqa: PT017
                store.changes_left = None
                # The new chain may be there already, with what is old left to delete.
                assert (count_of(place) if list_chains(place) else 0) in (held, last)
                assert all(count_of(place, n) for n in range(len(list_chains(place))))
            else:
                break
        store.changes_left = None
        assert allowed >= 2
        held = count_of(place)
        assert held == last
    # What the cuts left is gone with the old chain.
    (chain,) = list_chains(place)
    assert {name.partition("/")[0] for name in objects(place)} == {chain.name}


def test_deletion_that_was_cut_off__leaves_no_backup_and_is_finished_by_the_next(
    server: Server, place: str, store: Store
) -> None:
    write(server, 0, 5)
    old = back_up(server, place).chain
    new = back_up(server, place, NOW + 30 * DAY).chain
    store.changes_left = 1
    with pytest.raises(BackupRefused):
        ObjectStore(place).delete(old)
    store.changes_left = None
    assert list_chains(place) == [new]
    assert any(name.startswith(old.name) for name in objects(place))
    back_up(server, place, NOW + 31 * DAY, keep_seconds=1.0)
    assert {name.partition("/")[0] for name in objects(place)} == {new.name}


def test_object_that_reads_back_otherwise__refused_and_not_listed(
    server: Server, place: str, store: Store
) -> None:
    write(server, 0, 5)
    store.garbled = "snapshot."
    with pytest.raises(BackupRefused, match=r"snapshot\.\w+ reads back as other bytes than sent"):
        back_up(server, place)
    assert list_chains(place) == []


def test_damaged_object__refused_by_its_address_with_what_to_do(
    server: Server, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(server, 0, 5)
    chain = back_up(server, place).chain
    system, inner = fs.FileSystem.from_uri(chain.path)
    (name,) = (name for name in objects(chain.path) if "snapshot." in name)
    content = bytearray(system.open_input_file(f"{inner}/{name}").read())
    content[len(content) // 2] ^= 0xFF
    with system.open_output_stream(f"{inner}/{name}") as stream:
        stream.write(bytes(content))
    with pytest.raises(BackupRefused, match=rf"{chain.path} is not whole: .*move it away"):
        back_up(server, place, NOW + DAY)
    assert run(["backup", "list", place]) == 1
    assert "not whole" in capsys.readouterr().out


def test_with_a_cache__only_the_manifest_and_what_is_new_is_downloaded(
    server: Server, place: str, store: Store, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    write(server, 0, 20)
    back_up(server, place, cache=cache)
    write(server, 20, 40)
    store.read.clear()
    back_up(server, place, NOW + DAY, cache=cache)
    read = {path.rpartition("/")[2] for path in store.read}
    assert not any(name.startswith("snapshot.") for name in read)
    assert count_of(place) == 40
    # A copy that is damaged is downloaded again; one of another chain goes away.
    (snapshot,) = cache.glob("*/version-2/snapshot.*")
    content = bytearray(snapshot.read_bytes())
    content[len(content) // 2] ^= 0xFF
    os.chmod(snapshot, 0o600)
    snapshot.write_bytes(content)
    write(server, 40, 50)
    back_up(server, place, NOW + 2 * DAY, cache=cache)
    assert count_of(place) == 50
    write(server, 50, 55)
    newest = back_up(server, place, NOW + 9 * DAY, cache=cache)
    assert os.listdir(cache) == [newest.chain.name]
    assert count_of(place) == 55
    # A place without backups is not continued by a copy of another one, or of itself before.
    first = back_up(server, f"{place}2", NOW + 10 * DAY, cache=cache)
    assert first.new_because == "it is the first"
    assert os.listdir(cache) == [first.chain.name]
    assert count_of(f"{place}2") == 55


def test_changed_by_somebody_else_meanwhile__nothing_is_overwritten(
    server: Server, place: str, tmp_path: Path
) -> None:
    write(server, 0, 5)
    chain = back_up(server, place).chain
    store = ObjectStore(place)
    copy, manifest = store.fetch(chain, str(tmp_path))
    write(server, 5, 10)
    back_up(server, place, NOW + DAY)
    for known in (manifest, None):
        with pytest.raises(BackupRefused, match="changed by somebody else"):
            store.send(copy, known)
    assert count_of(place) == 10


def test_command__as_a_user_types_it(
    server: Server, place: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    write(server, 0, 5)
    assert run(["backup", server.data_dir, "--to", place, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["chain"].startswith(f"{place}/")
    assert run(["backup", server.data_dir, "--to", f"{place}/"]) == 0
    assert "(continued)" in capsys.readouterr().out
    assert run(["backup", "list", place, "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["backups"]
    assert (listed["standing"], f"{place}/{listed['backup']}") == ("whole", document["chain"])


def test_running_server_by_its_address__a_chain_each_time(
    with_admin: tuple[int, int], place: str
) -> None:
    port, admin_port = with_admin
    command = ["backup", f"127.0.0.1:{port}", "--admin-port", str(admin_port), "--to", place]
    with Client(parse_target(f"127.0.0.1:{port}")) as client:
        for number in range(7):
            client.create(f"/n{number}", b"")
    assert run(command) == 0
    assert count_of(place) == 7
    (first,) = list_chains(place)
    wait_until(lambda: datetime.now(UTC) - first.began > timedelta(seconds=1), "the next second")
    assert run(command) == 0
    assert [count_of(place, number) for number in (0, 1)] == [7, 7]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["s3://no-such-bucket/zk"], "there is no such bucket"),
        (["hdfs://host/zk"], "backups go to a directory, or to an address that begins with s3://"),
    ],
)
def test_bad_place__one_sentence(
    words: list[str],
    sentence: str,
    server: Server,
    store: Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["backup", server.data_dir, "--to", *words]) == 4
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert len(complaint.splitlines()) == 1


def test_cache_for_a_directory__one_sentence(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--to", str(tmp_path / "place"), "--cache", str(tmp_path / "cache")]
    assert run(["backup", server.data_dir, *words]) == 2
    assert "--cache is for backups in an object store" in capsys.readouterr().err


def test_wrong_credentials__one_sentence(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_store(checks_credentials=True) as strict:
        for name, value in strict.variables.items():
            monkeypatch.setenv(name, value)
        assert run(["backup", server.data_dir, "--to", "s3://bucket/zk"]) == 4
    complaint = capsys.readouterr().err
    assert "the store refuses these credentials (INVALID_ACCESS_KEY_ID)" in complaint
    assert len(complaint.splitlines()) == 1


def test_no_store__one_sentence(
    server: Server,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert run(["backup", server.data_dir, "--to", "s3://bucket/zk"]) == 4
    complaint = capsys.readouterr().err
    assert "the store cannot be reached; is AWS_ENDPOINT_URL right?" in complaint
    assert len(complaint.splitlines()) == 1


def test_without_its_packages__the_extra_is_named(server: Server) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from keepfast.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    words = ["backup", server.data_dir, "--to", "s3://bucket/zk"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "pip install 'keepfast[object-store]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
