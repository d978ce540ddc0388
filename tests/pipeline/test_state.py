"""The tree as it was, by the files of one server and of all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from keepfast.pipeline.files.layout import PlaceError
from keepfast.pipeline.replay.diff import differences
from keepfast.pipeline.replay.state import (
    HEAD,
    Moment,
    ServersDisagree,
    StateUnknown,
    ensemble_state,
    moment_of,
    one_ensemble,
    read_only_disk,
    server_state,
)
from keepfast.storage import LogReader
from keepfast.tree import Tree
from keepfast.wire import Zxid, decode_entry, make_zxid, parse_zxid
from tests.cases import CASES_DIR, as_truth_writes, case_names, load_case
from tests.pipeline.ensembles import Life

DISK = read_only_disk()
LIVES = int(os.environ.get("KEEPFAST_VIEW_LIVES", "25"))
# The servers that are wrong, by the truth files: the majority has what the others answered.
WRONG = {"snap-keeps-stale-log-3.4.14": "1", "trunc-misses-record-3.4.14": "2"}


def values_of(tree: Tree) -> dict[str, str]:
    return {
        path: as_truth_writes(node.data)
        for path in tree.paths()
        if path != "/" and not path.startswith("/zookeeper")
        if (node := tree.find(path)) is not None
    }


def answered(case: str, server: str) -> dict[str, str]:
    found: dict[str, str | None] = dict(load_case(case).values(server))
    return {path: value for path, value in found.items() if value is not None}


@pytest.mark.parametrize("name", case_names())
def test_head_of_a_case__is_what_the_majority_served(name: str) -> None:
    state = ensemble_state(DISK, one_ensemble([str(CASES_DIR / name)]))
    assert state.differing == ((WRONG[name],) if name in WRONG else ())
    for server in state.agreeing:
        assert values_of(state.tree) == answered(name, server)


def reference(life: Life, until: int) -> Tree:
    """The tree at a zxid by the generator's own history."""
    tree = Tree()
    for zxid, data in life.history:
        if zxid > until:
            break
        entry = decode_entry(data)
        tree.apply(entry.header, entry.body)
    return tree


@pytest.mark.parametrize("seed", range(LIVES))
def test_any_zxid_of_a_generated_ensemble__the_tree_is_that_of_its_history(
    seed: int, tmp_path: Path
) -> None:
    life = Life(seed)
    life.live()
    life.end()
    ensemble = one_ensemble([str(life.write_files(tmp_path / "e"))])
    head = ensemble_state(DISK, ensemble)
    assert (head.head, head.differing) == (life.zxid, ())
    assert not list(differences(head.tree, life.tree))
    zxids = [zxid for zxid, _ in life.history]
    for zxid in Random(seed).sample(zxids, min(4, len(zxids))):
        try:
            state = ensemble_state(DISK, ensemble, Moment(zxid=Zxid(zxid)))
        except StateUnknown:
            continue  # purged everywhere
        if state.chosen.reaches and state.chosen.is_exact:
            assert (state.head, state.is_contradicted) == (zxid, False)
            assert not list(differences(state.tree, reference(life, zxid)))


def test_time__is_that_of_the_last_record_before_it() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    state = ensemble_state(DISK, ensemble, moment_of("2026-11-15T10:49:30.675Z"))
    assert state.head == make_zxid(2, 3)
    assert state.agreeing == ("0", "1", "2")


def test_time_before_every_record__nothing_tells() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    with pytest.raises(StateUnknown, match="later than 2020"):
        ensemble_state(DISK, ensemble, moment_of("2020-01-01"))


def test_time_behind_every_record__is_the_head_and_says_so() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5" / "2")])
    state = server_state(DISK, ensemble.servers[0], moment_of("2030-01-01"))
    assert state.head == make_zxid(2, 0x40)
    assert "no record is later" in state.note


def test_zxid_between_two_epochs__is_the_last_record_of_the_first() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    state = ensemble_state(DISK, ensemble, Moment(zxid=parse_zxid("0x1ffffffff")))
    assert state.head == parse_zxid("0x1000001af")
    assert "is the last record" in state.chosen.note


def test_zxid_behind_the_end__is_not_reached() -> None:
    ensemble = one_ensemble([str(CASES_DIR / "healthy-plain-3.9.5")])
    state = ensemble_state(DISK, ensemble, Moment(zxid=make_zxid(2, 0x1000)))
    assert state.head == make_zxid(2, 0x40)
    assert not state.chosen.reaches
    assert "nothing shows" in state.chosen.note


def test_two_servers_of_two_minds__no_majority(tmp_path: Path) -> None:
    case = CASES_DIR / "trunc-misses-record-3.4.14"
    ensemble = one_ensemble([str(case / "0"), str(case / "2")])
    with pytest.raises(ServersDisagree, match="no majority"):
        ensemble_state(DISK, ensemble)


def test_server_that_is_behind__is_silent_and_contradicts_nobody(tmp_path: Path) -> None:
    for server in "012":
        shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / server, tmp_path / "e" / server)
    for name in ("log.200000036", "snapshot.200000034"):
        (tmp_path / "e" / "2" / "version-2" / name).unlink()
    state = ensemble_state(DISK, one_ensemble([str(tmp_path / "e")]))
    assert state.head == make_zxid(2, 0x40)
    assert (state.agreeing, state.differing) == (("0", "1"), ())
    assert "records end at 0x200000035" in state.silent["2"]


def test_last_record_on_one_server_alone__is_not_the_head(tmp_path: Path) -> None:
    """It may never have been committed."""
    for server in "012":
        shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / server, tmp_path / "e" / server)
    for server in "01":
        log = max((tmp_path / "e" / server / "version-2").glob("log.2*"))
        with DISK.open_read(str(log)) as file:
            *_, last = LogReader(file)
        log.write_bytes(log.read_bytes()[: last.offset] + bytes(1000))
    state = ensemble_state(DISK, one_ensemble([str(tmp_path / "e")]))
    assert state.head == make_zxid(2, 0x3F)
    assert state.agreeing == ("0", "1", "2")
    assert ensemble_state(DISK, one_ensemble([str(tmp_path / "e" / "2")])).head == make_zxid(
        2, 0x40
    )


def test_several_ensembles__one_has_to_be_named() -> None:
    places = [str(CASES_DIR / name) for name in ("healthy-plain-3.9.5", "healthy-plain-3.4.14")]
    with pytest.raises(PlaceError, match="2 ensembles"):
        one_ensemble(places)


def test_what_people_write_for_a_moment() -> None:
    assert moment_of(None) == HEAD
    assert moment_of("0x500000003") == moment_of(0x500000003) == Moment(zxid=Zxid(0x500000003))
    assert moment_of("1970-01-01T00:00:01") == moment_of("1970-01-01T01:00:01+01:00")
    with pytest.raises(ValueError, match="yesterday"):
        moment_of("yesterday")


# -- who votes -------------------------------------------------------------------------------------


def shortened(place: Path, servers: str) -> None:
    """Take the last record from the logs of some servers."""
    for server in servers:
        log = max((place / server / "version-2").glob("log.2*"))
        with DISK.open_read(str(log)) as file:
            *_, last = LogReader(file)
        log.write_bytes(log.read_bytes()[: last.offset] + bytes(1000))


def test_last_record_on_one_voter_and_two_observers__is_not_the_head(tmp_path: Path) -> None:
    """The files tell: `myid` beside a `zoo.cfg` that is newer than what the snapshots hold."""
    place = tmp_path / "e"
    for number, server in enumerate("01201"):
        shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / server, place / str(number))
        (place / str(number) / "myid").write_text(f"{number}\n")
    shortened(place, "12")
    lines = [f"server.{n}=h:1:2:{'observer' if n > 2 else 'participant'}" for n in range(5)]
    (place / "0" / "zoo.cfg.dynamic.1").write_text("\n".join(lines))
    state = ensemble_state(DISK, one_ensemble([str(place)]))
    assert (state.head, state.differing) == (make_zxid(2, 0x3F), ())
    all_vote = "\n".join(lines).replace("observer", "participant")
    (place / "0" / "zoo.cfg.dynamic.1").write_text(all_vote)
    assert ensemble_state(DISK, one_ensemble([str(place)])).head == make_zxid(2, 0x40)


def test_two_minds__the_one_that_is_a_quorum_by_weight_is_shown(tmp_path: Path) -> None:
    case = CASES_DIR / "trunc-misses-record-3.4.14"
    for server in "02":
        shutil.copytree(case / server, tmp_path / "e" / server)
    lines = ["server.0=h:1:2", "server.2=h:1:2", "group.1=0:2", "weight.0=2"]
    (tmp_path / "e" / "0" / "zoo.cfg").write_text("\n".join(lines))
    state = ensemble_state(DISK, one_ensemble([str(tmp_path / "e")]))
    assert (state.agreeing, state.differing, state.is_contradicted) == (("0",), ("2",), True)


def test_too_few_voters_given__their_word_and_that_is_said() -> None:
    case = CASES_DIR / "healthy-plain-3.9.5"
    alone = ensemble_state(DISK, one_ensemble([str(case / "2")]))
    assert "of the 3 voters the files of 1 were given" in alone.caution
    assert ensemble_state(DISK, one_ensemble([str(case / "0"), str(case / "2")])).caution == ""
