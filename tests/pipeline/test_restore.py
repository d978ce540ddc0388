"""A state as a new data directory: proven before it is announced, and nothing left if not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepfast.pipeline.findings.document import FindingSeverity, Verdict
from keepfast.pipeline.replay import restore as restore_module
from keepfast.pipeline.replay.diff import differences
from keepfast.pipeline.replay.restore import RestoreRefused, restore_state
from keepfast.pipeline.replay.state import (
    Moment,
    ServerState,
    ensemble_state,
    one_ensemble,
    read_only_disk,
)
from keepfast.storage import RealDisk, Standing, data_directory, recover
from keepfast.wire import make_zxid
from tests.cases import CASES_DIR, case_names
from tests.cli.runs import fingerprint
from tests.pipeline.test_audit_cases import audited

DISK = read_only_disk()


def state_of(name: str, moment: Moment | None = None) -> ServerState:
    ensemble = one_ensemble([str(CASES_DIR / name)])
    return ensemble_state(DISK, ensemble, moment or Moment()).chosen


@pytest.mark.parametrize("name", case_names())
def test_restored_head_of_a_case__is_whole_and_the_same(name: str, tmp_path: Path) -> None:
    before = fingerprint(CASES_DIR / name)
    state = state_of(name)
    done = restore_state(state, str(tmp_path / "new"))
    disk = RealDisk()
    found = recover(disk, data_directory(disk, done.path), full=True)
    assert found.standing is Standing.WHOLE
    assert found.problems == ()
    assert found.tree is not None
    assert (found.head, found.tree.digest) == (state.head, state.tree.digest)
    assert not list(differences(found.tree, state.tree))
    assert fingerprint(CASES_DIR / name) == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("name", case_names())
def test_ensemble_restored_from_a_case__its_audit_is_clean(name: str, tmp_path: Path) -> None:
    """The repair that the audit asks for, whatever was wrong before."""
    for server in "123":
        restore_state(state_of(name), str(tmp_path / "e" / server))
    result = audited(tmp_path / "e")
    grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
    assert (result.verdict, grave) == (Verdict.CONSISTENT, [])
    assert result.committed_zxid == state_of(name).head


def test_restored_past__is_the_state_of_that_moment(tmp_path: Path) -> None:
    state = state_of("healthy-plain-3.9.5", Moment(zxid=make_zxid(2, 0x20)))
    restore_state(state, str(tmp_path / "new"))
    again = ensemble_state(DISK, one_ensemble([str(tmp_path / "new")]))
    assert again.head == make_zxid(2, 0x20)
    assert not list(differences(again.tree, state.tree))
    names = {path.name for path in (tmp_path / "new" / "version-2").iterdir()}
    assert {"snapshot.200000020", "acceptedEpoch", "currentEpoch"} <= names
    assert not any(name.startswith("log.") for name in names)


def test_standalone_server__has_no_epochs_and_gets_none(tmp_path: Path) -> None:
    source = shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / "2", tmp_path / "source")
    for name in ("acceptedEpoch", "currentEpoch"):
        (Path(source) / "version-2" / name).unlink()
    state = ensemble_state(DISK, one_ensemble([str(source)])).chosen
    assert restore_state(state, str(tmp_path / "new")).epoch is None
    assert not (tmp_path / "new" / "version-2" / "currentEpoch").exists()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("full", "not empty"),
        ("file", "is a file"),
        ("source", "is read"),
        ("source/inside", "is read"),
        ("source/version-2", "is read"),
        ("missing/new", "No such file"),
    ],
)
def test_target_that_must_not_be_written__is_refused(
    tmp_path: Path, place: str, words: str
) -> None:
    shutil.copytree(CASES_DIR / "healthy-plain-3.9.5" / "2", tmp_path / "source")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    (tmp_path / "file").touch()
    before = fingerprint(tmp_path)
    state = ensemble_state(DISK, one_ensemble([str(tmp_path / "source")])).chosen
    if place == "missing/new":
        (tmp_path / "missing").touch()
        (tmp_path / "missing").chmod(0o400)
        before = fingerprint(tmp_path)
        words = "Not a directory"
    with pytest.raises(RestoreRefused, match=words):
        restore_state(state, str(tmp_path / place))
    assert fingerprint(tmp_path) == before


def test_what_reads_back_as_another_state__is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that lies: what was written is not what is read."""
    state = state_of("healthy-plain-3.9.5")
    other = state_of("healthy-plain-3.9.5", Moment(zxid=make_zxid(2, 0x20)))
    real = restore_module._write
    monkeypatch.setattr(restore_module, "_write", lambda _state, path: real(other, path))
    with pytest.raises(RestoreRefused, match="another state"):
        restore_state(state, str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


def test_empty_directory__is_taken(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    restore_state(state_of("healthy-plain-3.9.5"), str(tmp_path / "new"))
    assert (tmp_path / "new" / "version-2" / "snapshot.200000040").exists()


def test_rest_of_a_restore_that_was_cut_short__is_named(tmp_path: Path) -> None:
    (tmp_path / "new.keepfast-restore").mkdir()
    with pytest.raises(RestoreRefused, match="cut short"):
        restore_state(state_of("healthy-plain-3.9.5"), str(tmp_path / "new"))
    assert (tmp_path / "new.keepfast-restore").exists()
