"""The verdict on every directory: exit code, text and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.storage import RealDisk, Severity, Standing, data_directory, recover
from tests.cases import CASES_DIR, case_names, load_case
from tests.cli.runs import call, run
from tests.storage.directories import Place, line, zxid
from tests.storage.fixture_table import FIXTURES
from tests.storage.workload import Server

# Servers whose files do not lead to a state; all others of 3.6 and later are whole.
DAMAGED = {
    *("diff-over-gap-3.6.3/3", "diff-over-gap-3.9.5/3"),
    *("disk-full-3.4.14/0", "disk-full-3.9.5-gz/0"),
    "snap-stale-log-served-3.9.5/4",
    "trunc-misses-record-short-3.9.5/2",
    *("unsynced-snapshot-3.4.14-trunc/2", "unsynced-snapshot-leader-3.9.5-delete/2"),
}
EXIT_CODES = {"whole": 0, "unproven": 3, "damaged": 1}
PROBLEM_FIELDS = {"code", "severity", "reason", "file", "offset", "zxid", "advice", "next"}


@pytest.mark.parametrize("name", case_names())
def test_every_server_of_a_case__verdict(capsys: pytest.CaptureFixture[str], name: str) -> None:
    case = load_case(name)
    for server_id in case.server_ids:
        place = case.server_dir(server_id)
        result = call(capsys, "verify", place, "--json")
        document = result.document
        assert result.err == ""
        if f"{name}/{server_id}" in DAMAGED:
            assert document["standing"] == "damaged"
        elif case.version.startswith("3.4"):
            assert document["standing"] in ("whole", "unproven")
        else:
            assert document["standing"] == "whole"
        assert result.code == document["exit_code"] == EXIT_CODES[document["standing"]]
        assert document["may_vote"] == (document["standing"] == "whole")
        for problem in document["problems"]:
            assert set(problem) == PROBLEM_FIELDS
            assert problem["next"].startswith("keepfast ")
        text = call(capsys, "verify", place)
        assert text.code == result.code
        assert text.out.startswith(f"{place}: {document['standing'].upper()} - ")


def test_whole_directory__documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    place = CASES_DIR / "healthy-plain-3.9.5" / "2"
    document = call(capsys, "verify", place, "--json").document
    found = recover(RealDisk(), data_directory(RealDisk(), str(place)), full=True)
    assert found.tree is not None
    assert document["schema"] == "keepfast.verify/1"
    assert document["head"] == {"zxid": "0x200000040", "epoch": 2, "counter": 0x40}
    assert document["tree"]["tree_digest"] == hex(found.tree.digest)
    assert document["tree"]["state_digest"] == hex(found.tree.state_digest)
    assert document["base"] == {"name": "snapshot.200000034", "zxid": "0x200000034"}
    assert document["records_replayed"] == 12
    assert document["epochs"] == {"accepted": 2, "current": 2}
    assert document["log"]["serves_peers_to"] == "0x200000040"
    assert (document["adopted"], document["held_by_a_server"]) == (True, False)
    paths = {entry["name"]: entry["path"] for entry in document["retention"]["snapshots"]}
    assert paths["snapshot.200000034"] == "proven"
    assert "snapshot.0" in document["retention"]["moved_aside_at_start"]


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture__stated_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    fixture = FIXTURES[name]
    place = Place(tmp_path / "data")
    fixture.write(place)
    result = call(capsys, "verify", tmp_path / "data", "--json")
    document = result.document
    assert document["standing"] == fixture.standing.value
    head = None if fixture.head is None else hex(zxid(fixture.head))
    assert (document["head"] or {"zxid": None})["zxid"] == head
    assert fixture.codes <= {problem["code"] for problem in document["problems"]}
    severities = {problem["severity"] for problem in document["problems"]}
    if fixture.standing is Standing.DAMAGED or Severity.DAMAGE.value in severities:
        assert result.code == 1
    elif fixture.standing is Standing.UNPROVEN or Severity.WARNING.value in severities:
        assert result.code == 3
    else:
        assert result.code == 0


def test_empty_directory__exit_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    result = call(capsys, "verify", tmp_path)
    assert result.code == 3
    assert "EMPTY - no history at all: new, or wiped" in result.out


def test_problem__says_where_why_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    place = CASES_DIR / "diff-over-gap-3.9.5" / "3"
    out = call(capsys, "verify", place).out
    log = place / "version-2" / "log.2000005e1"
    assert f"damage [history-broken] {log}, offset 16, zxid 0x2000005e1\n" in out
    assert "    hole in the history: 0x2000005e1 does not follow 0x200000002\n" in out
    assert f"    next: keepfast repair {place}\n" in out


def test_next_command__quotes_what_a_shell_would_split(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "my data"
    FIXTURES["FX5"].write(Place(place))
    assert f"next: keepfast repair '{place}'" in call(capsys, "verify", place).out


def server_directory(root: Path) -> Server:
    place = Place(root)
    server = Server(place.disk, place.directory)
    server.start()
    for _ in range(4):
        server.write(20, 20)
        server.snapshot()
        server.store.roll()
    return server


def test_running_server__is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    server = server_directory(tmp_path)
    # A process of its own, as an operator would run it.
    result = run("verify", tmp_path)
    assert result.code == 3
    assert "In use: " in result.out
    server.close()
    stopped = call(capsys, "verify", tmp_path)
    assert (stopped.code, "In use: " in stopped.out) == (0, False)


def test_purge__as_the_store_would_do_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = server_directory(tmp_path)
    server.close()
    document = call(capsys, "verify", tmp_path, "--retain", "2", "--json").document
    server.open()
    # Only what this store has read or written itself counts as proven for it.
    for entry in server.store.manifest.snapshots:
        server.store._proven.add(entry.name)
    assert document["retention"]["purge_deletes"] == list(server.store.purge(2))
    server.close()


def test_purge__deletes_nothing_on_a_degraded_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    FIXTURES["FX9"].write(Place(tmp_path / "data"))
    result = call(capsys, "verify", tmp_path / "data")
    assert result.code == 1
    assert "degraded" in result.out
    assert "deletes nothing" in result.out
    assert "snapshot.100000003.gz  0x100000003  none: it is damaged" in result.out


def test_logs_in_a_second_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history = line("1.1-1.3")
    Place(tmp_path / "data").snapshot("1.0", history.tree_at(zxid("1.0")))
    Place(tmp_path / "logs").log("1.1-1.3", history)
    result = call(
        capsys, "verify", tmp_path / "data", "--log-dir", tmp_path / "logs" / "version-2", "--json"
    )
    assert result.document["head"]["zxid"] == "0x100000003"
    assert call(capsys, "verify", tmp_path / "data", "--json").document["head"]["zxid"] == (
        "0x100000000"
    )
