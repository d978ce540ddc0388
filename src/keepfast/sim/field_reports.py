"""The five field reports, replayed literally, step by step.

The reports name their servers 0, 1, 2 or A, B, C or H1, H2, H3; here they are 1, 2, 3 in the same
order. "Async write, then shut down" is played as it was reproduced on real servers: the others are
paused, the write is sent, its record reaches the log of the one, and all are killed.

Each function gives the script at its end, with every server up and equal; whatever goes wrong on
the way raises `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from keepfast.sim.ledger import Violation
from keepfast.sim.options import SimOptions
from keepfast.sim.script import Script, quiet_options
from keepfast.wire import ServerId

_KEYS: Final = 5


def key(number: int) -> str:
    """The znodes of the two reports on divergence."""
    return f"/testDivergenceResync{number}"


def _three_with_keys(options: SimOptions | None, seed: int) -> Script:
    script = Script(options, seed)
    script.start(1, 2, 3)
    script.connect(script.leader)
    for number in range(_KEYS):
        script.create(key(number), b"%d" % number)
    return script


def diverge(script: Script, server: int, number: int, value: int) -> None:
    """One server alone logs a write, then all servers are down.

    A server that does not lead cannot log anything; then the write is lost, as in the report.
    """
    script.connect(server)
    leads = script.leader == server
    script.pause(*(other for other in script.world.hosts if other != server))
    shadow = script.world.checkers.ledger.shadow_of(ServerId(server))
    before = len(shadow.records)
    script.set_async(key(number), b"%d" % value)
    if leads:
        script.wait_logged(server, before + 1)
    else:
        script.pass_ticks(1)
    script.kill(*script.world.hosts)


def _finish(script: Script) -> Script:
    """All are up, and whoever asks for a write gets it."""
    script.start(*script.world.hosts)
    script.connect(script.leader)
    script.create("/after", b"")
    script.wait(lambda: script.are_current(script.world.hosts), "all servers to be current")
    script.check_equal()
    return script


def trunc_misses_record(options: SimOptions | None = None, seed: int = 0) -> Script:
    """TRUNC to a zxid that the log does not contain must not keep the record after it."""
    script = _three_with_keys(options, seed)
    diverge(script, 3, 0, 1000)
    script.start(1, 2)
    diverge(script, 2, 1, 1001)
    script.start(1, 2, 3)
    diverge(script, 3, 2, 1002)
    script.start(1, 3)
    diverge(script, 3, 3, 1003)
    script.start(1, 2)
    diverge(script, 2, 4, 1004)
    script.start(1, 3)
    script.start(2)
    return _finish(script)


def snap_keeps_stale_log(options: SimOptions | None = None, seed: int = 0) -> Script:
    """A record that was never committed must not come back after its server was given a tree."""
    script = _three_with_keys(options, seed)
    diverge(script, 3, 0, 1000)
    script.start(1, 2)
    diverge(script, 2, 1, 1001)
    script.start(1, 2)
    diverge(script, 2, 2, 1002)
    script.start(1, 3)
    diverge(script, 1, 3, 1003)
    script.start(2, 3)
    diverge(script, 3, 4, 1004)
    script.start(2, 3)
    script.start(1)
    return _finish(script)


def unsynced_snapshot(
    options: SimOptions | None = None, seed: int = 0, *, by_tree: bool = False
) -> Script:
    """What a server was sent while it caught up must survive a power cut: records, or a tree."""
    script = Script(options, seed)
    script.start(1, 2, 3)
    script.connect(2)
    script.create("/test0", b"")
    for each in script.world.hosts:
        _snapshot(script, each)
    script.kill(1)
    script.connect(2)
    script.create("/test1", b"")
    if by_tree:
        for server in (2, 3):
            _snapshot(script, server)
            _purge(script, server)
    script.start(1)
    if script.value(1, "/test1") is None:
        raise Violation("report", "/test1 is not there after the catch-up")
    script.create("/test2", b"")
    script.wait(lambda: script.value(1, "/test2") is not None, "/test2 on s1")
    script.cut_power(1)
    script.start(1)
    if script.value(1, "/test1") is None:
        raise Violation("report", "/test1 is gone after the power cut")
    return _finish(script)


def trunc_misses_record_short(options: SimOptions | None = None, seed: int = 0) -> Script:
    """The same without a write in the new epoch: the zxid is known from a snapshot alone."""
    script = _three_with_keys(options, seed)
    _snapshot(script, 3)
    _purge(script, 3)
    diverge(script, 3, 0, 1000)
    script.start(1, 2)
    script.kill(1, 2)
    script.start(1, 2)
    script.start(3)
    return _finish(script)


def disk_full(options: SimOptions | None = None, seed: int = 0) -> Script:
    """A full disk while snapshots are written leaves no half of one, and costs nothing else."""
    base = options or quiet_options()
    script = Script(replace(base, retain=3), seed)
    script.start(1, 2, 3)
    script.connect(2)
    for name in ("/foo", "/bar", "/baz"):
        script.create(name, name.encode() * 1500)
        _snapshot(script, 1)
    host = script.world.hosts[ServerId(1)]
    for number in range(4):
        # Room for the small files, none for another tree.
        host.disk.capacity = host.disk.used_bytes() + 6000
        _snapshot(script, 1, may_fail=True)
        script.set("/baz", b"%d" % number)
        _purge(script, 1)
        script.kill(1)
        host.start()
        script.pass_ticks(20)
    host.disk.capacity = None
    script.start(1)
    if script.value(1, "/bar") is None:
        raise Violation("report", "s1 serves a part of the data")
    return _finish(script)


def diff_over_gap(options: SimOptions | None = None, seed: int = 0) -> Script:
    """A leader that was itself given a tree must not serve records across the hole in its log."""
    script = Script(options or quiet_options(servers=5), seed)
    script.start(1, 2, 3, 4, 5)
    first = script.leader
    script.connect(first)
    for number in range(3):
        script.create(f"/early{number}", b"")
    behind, gapped = [s for s in script.world.hosts if s != first][-2:]
    script.kill(behind, gapped)
    for number in range(4):
        script.create(f"/missed{number}", b"")
    for server in script.world.hosts:
        if server not in (behind, gapped):
            _snapshot(script, server)
            _purge(script, server)
    script.start(gapped)
    script.create("/late", b"")
    script.wait(lambda: script.value(gapped, "/late") is not None, "/late")
    others = [s for s in script.world.hosts if s not in (behind, gapped, first)]
    script.kill(first, *others)
    # The one with the hole leads, with one that is as far, and one that is behind them.
    script.kill(gapped)
    for server in (gapped, others[0], behind):
        script.world.hosts[ServerId(server)].start()
    script.wait(lambda: script.are_current((gapped, others[0], behind)), "three servers to serve")
    if script.value(behind, "/missed0") is None:
        raise Violation("report", f"s{behind} has a hole in its history")
    return _finish(script)


def _snapshot(script: Script, server: int, *, may_fail: bool = False) -> None:
    """Have a server take a snapshot, and begin a new segment."""
    process = script.world.hosts[ServerId(server)].process
    if process is None:
        raise Violation("script", f"s{server} is down")
    tree = process.replica.tree
    names = {entry.name for entry in process.store.manifest.snapshots}
    process.run(lambda: process.loop.snapshots.begin(tree))
    if may_fail:
        script.pass_ticks(2)
        return
    script.wait(
        lambda: (
            not names.issuperset(entry.name for entry in process.store.manifest.snapshots)
            or f"snapshot.{tree.last_zxid:x}" in names
        ),
        f"a snapshot of s{server}",
    )


def _purge(script: Script, server: int) -> None:
    process = script.world.hosts[ServerId(server)].process
    if process is not None:
        process.run(lambda: process.loop.ask_for_purge(1))
        script.pass_ticks(0.5)


REPORTS: Final[dict[str, Callable[[], Script]]] = {
    "disk-full": disk_full,
    "snap-keeps-stale-log": snap_keeps_stale_log,
    "unsynced-snapshot": unsynced_snapshot,
    "unsynced-snapshot by tree": lambda: unsynced_snapshot(by_tree=True),
    "trunc-misses-record": trunc_misses_record,
    "trunc-misses-record short": trunc_misses_record_short,
    "diff-over-gap": diff_over_gap,
}
