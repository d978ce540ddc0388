"""Who is told and in which order, and how the watches of those who are gone are forgotten."""

from __future__ import annotations

from random import Random

import pytest

from keepfast.tree import Change, ChangeKind, WatchKind, WatchTable
from keepfast.tree.watches import MAX_FORGOTTEN, MAX_LEVELS
from keepfast.wire import OPEN_ACL, KeeperError


def table_of(watchers: str, count: int) -> WatchTable[str]:
    table: WatchTable[str] = WatchTable(1 << 30)
    for number in range(count):
        for watcher in watchers:
            for kind in WatchKind:
                table.add(kind, f"/{number}", watcher)
    return table


def told(table: WatchTable[str], path: str) -> list[set[str]]:
    alerts = table.trigger(Change(ChangeKind.DELETED, path, OPEN_ACL, OPEN_ACL))
    return [set(alert.watchers) for alert in alerts]


def test_many_watches__are_forgotten_in_bounded_pieces() -> None:
    count = MAX_FORGOTTEN
    table = table_of("ab", count)
    assert table.drop("a")
    turns = 0
    while True:
        before = table.count
        has_more = table.forget_some()
        turns += 1
        assert before - table.count <= MAX_FORGOTTEN
        if not has_more:
            break
    assert turns == len(WatchKind)
    assert table.count == count * len(WatchKind)
    assert [watcher for watcher, _ in table.watchers()] == ["b"]
    assert told(table, "/0") == [{"b"}]


def test_one_who_is_gone__is_told_of_nothing_and_reported_nowhere() -> None:
    table = table_of("ab", MAX_FORGOTTEN)
    table.add(WatchKind.CHILD, "/", "a")
    assert table.drop("a")
    for number in range(10):
        assert told(table, f"/{number}") == [{"b"}]
    assert [watcher for watcher, _ in table.watchers()] == ["b"]
    assert all(watchers == {"b"} for watchers in table.data_watches().by_path().values())


def test_few_watches__are_forgotten_at_once() -> None:
    table = table_of("ab", 3)
    assert not table.drop("a")
    assert not table.drop("b")
    assert not table.drop("nobody")
    assert not table
    assert not table.forget_some()


def test_changes_while_watches_are_forgotten__leave_nothing_behind() -> None:
    random = Random(5)
    table = table_of("abc", MAX_FORGOTTEN)
    assert table.drop("a")
    assert table.drop("c")
    has_more = True
    while has_more:
        for _ in range(50):
            assert told(table, f"/{random.randrange(MAX_FORGOTTEN)}") == [{"b"}]
        has_more = table.forget_some()
    table.drop("b")
    while table.forget_some():
        pass
    assert table.count == 0
    assert not table


def test_watchers__are_told_in_the_order_in_which_their_watches_were_set() -> None:
    watchers = [object() for _ in range(50)]  # hashed by their addresses, as connections are
    Random(1).shuffle(watchers)
    table: WatchTable[object] = WatchTable(1 << 30)
    for watcher in watchers:
        for kind in (WatchKind.CHILD, WatchKind.PERSISTENT, WatchKind.RECURSIVE):
            table.add(kind, "/", watcher)
    alerts = table.trigger(Change(ChangeKind.CREATED, "/a", OPEN_ACL, OPEN_ACL))
    assert [list(alert.watchers) for alert in alerts] == [watchers, watchers]


def test_watches_of_paths_that_nobody_has__are_bounded() -> None:
    """What one watcher may have is used up by bytes, and free again when they are gone."""
    table: WatchTable[str] = WatchTable(10_000)
    for number in range(3):
        table.add(WatchKind.DATA, f"/{'x' * 2500}{number}", "a")
    with pytest.raises(KeeperError):
        table.add(WatchKind.CHILD, f"/{'x' * 2500}", "a")
    table.add(WatchKind.DATA, f"/{'x' * 2500}0", "a")  # it has that one
    table.add(WatchKind.DATA, f"/{'x' * 2500}", "b")
    assert table.count == 4
    assert told(table, f"/{'x' * 2500}0") == [{"a"}]
    table.add(WatchKind.CHILD, f"/{'x' * 2500}", "a")
    assert table.remove(WatchKind.CHILD, f"/{'x' * 2500}", "a")
    table.add(WatchKind.CHILD, f"/{'x' * 2500}", "a")
    # A character may take four bytes.
    with pytest.raises(KeeperError):
        table.add(WatchKind.DATA, "/" + "\N{LINEAR B SYLLABLE B008 A}" * 400, "a")
    table.add(WatchKind.DATA, "/" + "x" * 400, "a")
    assert not table.drop("a")
    table.add(WatchKind.DATA, f"/{'x' * 9000}", "a")


def test_recursive_watch_of_a_very_deep_path__is_refused() -> None:
    table: WatchTable[str] = WatchTable(1 << 20)
    table.add(WatchKind.RECURSIVE, "/a" * MAX_LEVELS, "a")
    with pytest.raises(KeeperError):
        table.add(WatchKind.RECURSIVE, "/a" * (MAX_LEVELS + 1), "a")
    table.add(WatchKind.PERSISTENT, "/a" * (MAX_LEVELS + 1), "a")
    assert told(table, "/a" * MAX_LEVELS) == [{"a"}]
    assert told(table, "/a" * 1000) == [{"a"}]
    assert told(table, "/a" * (MAX_LEVELS - 1)) == []


@pytest.mark.parametrize("seed", range(5))
def test_recursive_watches__are_told_of_what_is_below_the_lowest_first(seed: int) -> None:
    """As if every level above a change were asked for."""
    rng = Random(seed)
    table: WatchTable[str] = WatchTable(1 << 20)
    names = ["", *(f"/{a}" for a in "xy"), *(f"/{a}/{b}" for a in "xy" for b in "xyz")]
    paths = [f"{name}{end}" for name in names for end in ("/x", "/xy", "/q/x")] + ["/"]
    watched: dict[str, dict[str, None]] = {}
    for _ in range(500):
        path, watcher = rng.choice(paths), rng.choice("abc")
        if rng.random() < 0.3:
            table.add(WatchKind.RECURSIVE, path, watcher)
            watched.setdefault(path, {})[watcher] = None
        elif rng.random() < 0.4:
            was_there = watched.get(path, {}).pop(watcher, 0) is None
            assert table.remove(WatchKind.RECURSIVE, path, watcher) == was_there
        expected: dict[str, None] = {}
        changed = above = rng.choice(paths)
        while True:
            expected |= watched.get(above, {})
            if above == "/":
                break
            above = above[: above.rfind("/")] or "/"
        alerts = table.trigger(Change(ChangeKind.DATA, changed, OPEN_ACL))
        assert [list(alert.watchers) for alert in alerts] == [list(expected)] * bool(expected)


def test_reported_count__counts_as_two_tables_do() -> None:
    table = table_of("ab", 2)
    # Of each path and watcher: one in the table of data watches, one in that of child watches.
    assert table.count == 16
    assert table.reported_count() == 8
    table.add(WatchKind.RECURSIVE, "/r", "a")
    table.add(WatchKind.PERSISTENT, "/p", "a")
    table.add(WatchKind.CHILD, "/c", "a")
    assert table.reported_count() == 8 + 1 + 2 + 1
