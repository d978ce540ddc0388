"""The eighteen directories give the stated verdict, in memory and on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.storage import (
    LogReader,
    Recovery,
    Severity,
    Standing,
    Store,
    list_directory,
    recover,
)
from keepfast.wire import Zxid
from tests.storage.directories import Place, short, zxid
from tests.storage.fixture_table import FIXTURES, GHOST_SESSION, Fixture
from tests.storage.workload import OPTIONS


def place_of(name: str) -> Place:
    place = Place()
    FIXTURES[name].write(place)
    return place


def check_verdict(fixture: Fixture, place: Place, full: bool = False) -> Recovery:
    found = recover(place.disk, place.directory, full=full)
    head = None if found.tree is None else short(found.head)
    codes = {problem.code for problem in found.problems}
    assert (found.standing, head) == (fixture.standing, fixture.head), found.problems
    assert fixture.codes <= codes, found.problems
    assert found.may_vote == (fixture.standing is Standing.WHOLE)
    if fixture.standing is Standing.DAMAGED:
        assert any(problem.severity is Severity.DAMAGE for problem in found.problems)
    return found


def live_zxids(place: Place) -> set[str]:
    """Every record under a live name, whatever the manifest says: what Apache would see."""
    found = set()
    for name in list_directory(place.disk, place.directory).logs:
        with place.disk.open_read(place.directory.in_logs(name)) as file:
            found |= {short(frame.zxid) for frame in LogReader(file)}
    return found


def live_snapshots(place: Place) -> set[str]:
    return set(list_directory(place.disk, place.directory).snapshots)


def served(place: Place, peer: str) -> list[str] | None:
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    records = store.history.records_after(zxid(peer))
    return None if records is None else [short(found.zxid) for found in records]


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture__verdict(name: str) -> None:
    place = place_of(name)
    before = place.memory.fingerprint()
    check_verdict(FIXTURES[name], place)
    check_verdict(FIXTURES[name], place, full=True)
    assert place.memory.fingerprint() == before


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture_on_a_real_disk__same_verdict(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    FIXTURES[name].write(place)
    check_verdict(FIXTURES[name], place)


@pytest.mark.parametrize(
    "name", [name for name, fixture in FIXTURES.items() if fixture.standing is not Standing.DAMAGED]
)
def test_restart_on_a_fixture__verdict_is_not_forgotten(name: str) -> None:
    place = place_of(name)
    first = recover(place.disk, place.directory)
    for _ in range(3):
        store, found = Store.open(place.disk, place.directory, OPTIONS)
        assert (found.standing, found.head) == (first.standing, first.head), found.problems
        assert found.tree is not None
        assert first.tree is not None
        assert found.tree.state_digest == first.tree.state_digest
        store.close()


@pytest.mark.parametrize(
    "name", [name for name, fixture in FIXTURES.items() if fixture.standing is Standing.DAMAGED]
)
def test_open_on_a_damaged_fixture__nothing_is_changed(name: str) -> None:
    place = place_of(name)
    before = place.memory.fingerprint()
    store, found = Store.open(place.disk, place.directory, OPTIONS)
    assert found.tree is None
    store.close()
    assert place.memory.fingerprint() == before


# -- what operations make of them ----------------------------------------------------------------


def check_fx1() -> None:
    place = place_of("FX1")
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    found = store.truncate(zxid("2.1"))
    assert (found.standing, short(found.head)) == (Standing.WHOLE, "2.1")
    assert "4.1" not in live_zxids(place)
    store.close()
    again = recover(place.disk, place.directory)
    assert (again.standing, short(again.head)) == (Standing.WHOLE, "2.1")


def check_fx2() -> None:
    place = place_of("FX2")
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    found = store.truncate(zxid("1.2"))
    assert (found.standing, short(found.head)) == (Standing.WHOLE, "1.2")
    assert live_snapshots(place) == {"snapshot.0"}
    assert live_zxids(place) == {"1.1", "1.2"}
    store.close()
    again = recover(place.disk, place.directory)
    assert (again.standing, short(again.head)) == (Standing.WHOLE, "1.2")


def check_fx9() -> None:
    place = place_of("FX9")
    for _ in range(2):
        # Degraded the first time, and whole again with one snapshot the second time.
        store, _ = Store.open(place.disk, place.directory, OPTIONS)
        store.purge(3)
        assert "snapshot.100000000" in live_snapshots(place)
        store.close()
        again = recover(place.disk, place.directory)
        assert (again.standing, short(again.head)) == (Standing.WHOLE, "1.5")


def test_fx1__truncated_to_a_snapshot_the_later_epoch_is_gone() -> None:
    check_fx1()


def test_fx2__truncated_the_later_snapshot_is_gone_too() -> None:
    check_fx2()


@pytest.mark.parametrize("name", ["FX3-without-digests", "FX3-with-digests"])
def test_fx3__the_unproven_record_is_named(name: str) -> None:
    place = place_of(name)
    found = recover(place.disk, place.directory)
    assert any(problem.zxid == zxid("3.1") for problem in found.problems)


def test_fx9__purge_keeps_the_only_good_snapshot() -> None:
    check_fx9()


def test_fx10__peer_before_the_hole_is_not_served_from_the_log() -> None:
    assert served(place_of("FX10"), "1.3") is None
    assert served(place_of("FX10"), "1.11") == ["1.12", "1.13", "1.14"]
    assert served(place_of("FX10"), "1.10") == ["1.11", "1.12", "1.13", "1.14"]


def test_fx11__peer_before_the_stale_record_is_not_served_from_the_log() -> None:
    for peer in ("1.1", "1.2", "2.1"):
        assert served(place_of("FX11"), peer) is None
    assert served(place_of("FX11"), "3.4") == ["3.5", "3.6"]


@pytest.mark.parametrize("name", ["FX12", "FX12-with-log"])
def test_fx12__no_trace_of_the_session(name: str) -> None:
    place = place_of(name)
    found = recover(place.disk, place.directory)
    assert found.tree is None or GHOST_SESSION not in found.tree.sessions


@pytest.mark.parametrize("name", ["FX15", "FX15-keepfast"])
def test_fx15__server_starts_and_goes_on(name: str) -> None:
    place = place_of(name)
    store, found = Store.open(place.disk, place.directory, OPTIONS)
    assert found.may_vote
    following = Zxid(found.head + 1)
    store.append(following, bytes(12) + following.to_bytes(8, "big") + bytes(12))
    assert store.sync() == following


@pytest.mark.parametrize("name", ["FX16", "FX16-both"])
def test_fx16__a_lost_history_is_not_begun_anew(name: str) -> None:
    place = place_of(name)
    found = recover(place.disk, place.directory)
    # Only an empty directory may be initialised.
    assert found.standing is not Standing.EMPTY
