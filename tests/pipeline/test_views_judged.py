"""States and restored directories, judged by servers that start on them: Apache's and ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.pipeline.replay.restore import restore_state
from keepfast.pipeline.replay.state import (
    Moment,
    ensemble_state,
    one_ensemble,
    read_only_disk,
    server_state,
)
from keepfast.storage import LogReader
from keepfast.testing import Server
from keepfast.wire import Zxid, parse_zxid
from tests.apache import ApacheServer, History, read_tree
from tests.cases import CASES_DIR
from tests.conformance.judging import (
    ask_apache,
    assert_equal,
    assert_judged_equal,
    judge,
    scaled,
    seeded,
    seen_by_clients,
    without_statistics,
)

pytestmark = pytest.mark.conformance
DISK = read_only_disk()


def served_by_keepfast(path: Path) -> dict[str, object]:
    with Server(str(path)) as server:
        return dict(without_statistics(read_tree(server.client())))


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("healthy-plain-3.9.5", None),
        ("healthy-plain-3.9.5", "200000020"),
        ("healthy-plain-3.9.5-gz", "100000100"),
        ("healthy-elections-3.6.2", "300000001"),
        ("diff-over-gap-3.9.5", "2000003a0"),
    ],
)
def test_restored_state__is_what_apache_and_keepfast_serve(
    name: str, at: str | None, tmp_path: Path
) -> None:
    moment = Moment() if at is None else Moment(zxid=parse_zxid(at))
    state = ensemble_state(DISK, one_ensemble([str(CASES_DIR / name)]), moment).chosen
    restore_state(state, str(tmp_path / "new"))
    verdict = judge(tmp_path / "new", tmp_path / "apache")
    assert_judged_equal(state.tree, verdict)
    ours = served_by_keepfast(Path(shutil.copytree(tmp_path / "new", tmp_path / "keepfast")))
    assert ours == without_statistics(seen_by_clients(state.tree))


def cut_off(source: Path, target: Path, zxid: int) -> Path:
    """A copy of a data directory as it was when `zxid` was its last record: logs from the start."""
    shutil.copytree(source, target)
    for snapshot in (target / "version-2").glob("snapshot.*"):
        if snapshot.name != "snapshot.0":
            snapshot.unlink()
    for log in (target / "version-2").glob("log.*"):
        with DISK.open_read(str(log)) as file:
            kept = [frame for frame in LogReader(file) if frame.zxid <= zxid]
        if kept:
            log.write_bytes(log.read_bytes()[: kept[-1].end])
        else:
            log.unlink()
    return target


@pytest.mark.slow
def test_random_history__state_at_any_zxid_is_what_a_server_cut_off_there_serves(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Apache writes a history; its files are cut at a zxid, and Apache starts on what is left."""
    server = ApacheServer(tmp_path / "live", properties={"zookeeper.snapCount": "400"})
    with server, History(server.hosts, seed=seeded(5)) as history:
        history.run(scaled(1500))
        server.kill()
    files = one_ensemble([str(tmp_path / "live")]).servers[0]
    head = server_state(DISK, files)
    for share in (0.35, 0.8):
        zxid = Zxid(int(head.head * share))
        state = server_state(DISK, files, Moment(zxid=zxid))
        assert (state.head, state.is_proven) == (zxid, True)
        cut = cut_off(tmp_path / "live", tmp_path / f"at-{zxid:x}", zxid)
        assert_judged_equal(state.tree, ask_apache(ApacheServer(cut)))
        tell(f"{state.tree.node_count} znodes at {zxid:#x} of {head.head:#x}")


def test_head__is_what_apache_serves_on_the_same_directory(tmp_path: Path) -> None:
    place = CASES_DIR / "healthy-elections-3.9.5" / "1"
    state = server_state(DISK, one_ensemble([str(place)]).servers[0])
    verdict = judge(place, tmp_path / "apache")
    assert_equal(without_statistics(seen_by_clients(state.tree)), without_statistics(verdict.tree))
