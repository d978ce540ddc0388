"""Who is told and in which order, and how the watches of those who are gone are forgotten."""

from __future__ import annotations

from random import Random

from keepfast.tree import Change, ChangeKind, WatchKind, WatchTable
from keepfast.tree.watches import MOST_FORGOTTEN
from keepfast.wire import OPEN_ACL


def table_of(watchers: str, count: int) -> WatchTable[str]:
    table: WatchTable[str] = WatchTable()
    for number in range(count):
        for watcher in watchers:
            for kind in WatchKind:
                table.add(kind, f"/{number}", watcher)
    return table


def told(table: WatchTable[str], path: str) -> list[set[str]]:
    alerts = table.trigger(Change(ChangeKind.DELETED, path, OPEN_ACL, OPEN_ACL))
    return [set(alert.watchers) for alert in alerts]


def test_many_watches__are_forgotten_in_bounded_pieces() -> None:
    count = MOST_FORGOTTEN
    table = table_of("ab", count)
    assert table.drop("a")
    turns = 0
    while True:
        before = table.count
        has_more = table.forget_some()
        turns += 1
        assert before - table.count <= MOST_FORGOTTEN
        if not has_more:
            break
    assert turns == len(WatchKind)
    assert table.count == count * len(WatchKind)
    assert [watcher for watcher, _ in table.watchers()] == ["b"]
    assert told(table, "/0") == [{"b"}]


def test_one_who_is_gone__is_told_of_nothing_and_reported_nowhere() -> None:
    table = table_of("ab", MOST_FORGOTTEN)
    table.add(WatchKind.CHILD, "/", "a")
    assert table.drop("a")
    for number in range(10):
        assert told(table, f"/{number}") == [{"b"}]
    assert [watcher for watcher, _ in table.watchers()] == ["b"]
    assert all(watchers == {"b"} for watchers in table.watched_paths().values())


def test_few_watches__are_forgotten_at_once() -> None:
    table = table_of("ab", 3)
    assert not table.drop("a")
    assert not table.drop("b")
    assert not table.drop("nobody")
    assert not table
    assert not table.forget_some()


def test_changes_while_watches_are_forgotten__leave_nothing_behind() -> None:
    random = Random(5)
    table = table_of("abc", MOST_FORGOTTEN)
    assert table.drop("a")
    assert table.drop("c")
    has_more = True
    while has_more:
        for _ in range(50):
            assert told(table, f"/{random.randrange(MOST_FORGOTTEN)}") == [{"b"}]
        has_more = table.forget_some()
    table.drop("b")
    while table.forget_some():
        pass
    assert table.count == 0
    assert not table


def test_watchers__are_told_in_the_order_in_which_their_watches_were_set() -> None:
    watchers = [object() for _ in range(50)]  # hashed by their addresses, as connections are
    Random(1).shuffle(watchers)
    table: WatchTable[object] = WatchTable()
    for watcher in watchers:
        for kind in (WatchKind.CHILD, WatchKind.PERSISTENT, WatchKind.RECURSIVE):
            table.add(kind, "/", watcher)
    alerts = table.trigger(Change(ChangeKind.CREATED, "/a", OPEN_ACL, OPEN_ACL))
    assert [list(alert.watchers) for alert in alerts] == [watchers, watchers]
