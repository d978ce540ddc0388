"""Parts of the product that a seed takes in or leaves out, on top of its basic options.

Drawn by a generator of their own, so that a new feature is not a change of every other choice.
Each is a change of the options: of the servers, of the clients, of what clients do and of what goes
wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replace_struct

from keepfast.replica import ReplicaOptions, SessionPasswords, ThrottleOptions
from keepfast.sim.agenda import MS
from keepfast.sim.options import ClientHabits, SimOptions
from keepfast.tree import PrepareOptions

_SALT: Final = 0xFEA7

Feature = Callable[[SimOptions, random.Random], SimOptions]


def _with_habits(
    options: SimOptions, change: Callable[[int, ClientHabits], ClientHabits]
) -> SimOptions:
    workload = options.workload
    habits = [workload.habits[n % len(workload.habits)] for n in range(workload.clients)]
    changed = tuple(change(number, each) for number, each in enumerate(habits))
    return replace(options, workload=replace(workload, habits=changed))


def _with_work(options: SimOptions, *weights: tuple[str, int]) -> SimOptions:
    workload = options.workload
    return replace(options, workload=replace(workload, weights=(*workload.weights, *weights)))


def _with_replica(
    options: SimOptions, change: Callable[[ReplicaOptions], ReplicaOptions]
) -> SimOptions:
    return replace(options, replica=change(options.replica))


def _with_prepare(
    options: SimOptions, change: Callable[[PrepareOptions], PrepareOptions]
) -> SimOptions:
    return _with_replica(options, lambda each: replace(each, prepare=change(each.prepare)))


def _kazoo(options: SimOptions, rng: random.Random) -> SimOptions:
    """Clients count from 1 on every connection, and come back in the middle of a write."""
    chances = [rng.random() < 0.8 for _ in range(options.workload.clients)]
    options = _with_habits(options, lambda n, habits: replace(habits, restarts_xids=chances[n]))
    return _with_work(options, ("hop", rng.choice((5, 20))))


def _one_address(options: SimOptions, rng: random.Random) -> SimOptions:
    """Some clients know one server only."""
    servers = options.servers + options.observers
    places = [
        rng.randrange(1, servers + 1) if rng.random() < 0.6 else None
        for _ in range(options.workload.clients)
    ]
    return _with_habits(options, lambda n, habits: replace(habits, only_server=places[n]))


def _sync_reads(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Clients read after a sync, as those do that have to see the newest state."""
    return _with_work(options, ("sync-read", 20))


def _local_sessions(options: SimOptions, rng: random.Random) -> SimOptions:
    """Sessions are known to their server alone until they create an ephemeral."""
    has_upgrades = rng.random() < 0.8
    if has_upgrades:
        options = _with_work(options, ("upgrade", 10))
    return _with_replica(
        options,
        lambda each: replace(each, has_local_sessions=True, has_session_upgrades=has_upgrades),
    )


def _read_only(options: SimOptions, rng: random.Random) -> SimOptions:
    """Servers without a leader serve read-only clients."""
    chances = [rng.random() < 0.7 for _ in range(options.workload.clients)]
    options = _with_habits(options, lambda n, habits: replace(habits, is_read_only=chances[n]))
    return replace(options, is_read_only_enabled=True)


def _short_lived(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Containers, and znodes with a TTL."""
    options = _with_prepare(options, lambda each: replace_struct(each, is_ttl_enabled=True))
    return _with_work(options, ("container", 15), ("ttl", 10))


def _quotas(options: SimOptions, rng: random.Random) -> SimOptions:
    """Limits on the number of znodes below a key."""
    is_enforced = rng.random() < 0.7
    options = _with_prepare(
        options, lambda each: replace_struct(each, is_quota_enforced=is_enforced)
    )
    return _with_work(options, ("quota", 5))


def _throttle(options: SimOptions, rng: random.Random) -> SimOptions:
    """Limits on connections and writes at once."""
    tick_ms = options.replica.tick_ms
    throttle = ThrottleOptions(
        connection_tokens=rng.choice((0, 2)),
        fill_ms=rng.choice((1, 5)) * tick_ms // 10,
        freeze_ms=rng.choice((-1, tick_ms)),
        max_requests=rng.choice((1, 4)),
        max_wait_ms=rng.choice((0, tick_ms // 2)),
    )
    return _with_replica(options, lambda each: replace(each, throttle=throttle))


def _with_faults(options: SimOptions, *weights: tuple[str, int]) -> SimOptions:
    if options.servers == 1:
        return options
    faults = options.faults
    return replace(options, faults=replace(faults, weights=(*faults.weights, *weights)))


def _sleeping_leaders(options: SimOptions, rng: random.Random) -> SimOptions:
    """Leaders sleep: until they are deposed, or only for longer than sessions live."""
    tick_ms = options.replica.tick_ms
    if rng.random() < 0.5:
        workload = replace(options.workload, clients=max(options.workload.clients, 2))
        workload = replace(workload, session_timeout_ms=20 * tick_ms)
        options = replace(options, workload=workload, sync_limit=rng.choice((2, 4)))
        options = _with_faults(options, ("depose", 10))
    else:
        timeout_ms = max(4 * tick_ms, 800)
        workload = replace(options.workload, session_timeout_ms=timeout_ms)
        sync_limit = 2 * timeout_ms // tick_ms + 4
        options = replace(options, workload=workload, sync_limit=sync_limit)
        options = _with_faults(options, ("doze", 10))
    return replace(options, busy_ticks=max(options.busy_ticks, 40))


def _hung_disks(options: SimOptions, _rng: random.Random) -> SimOptions:
    """A disk hangs for longer than the others' timeouts."""
    options = _with_faults(options, ("hang", 8))
    return replace(options, busy_ticks=max(options.busy_ticks, 100))


def _full_disks(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Disks are full at a start, and while a leader is elected."""
    return _with_faults(options, ("full-start", 4), ("full-election", 4))


def _tools(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Operators look at files, and repair what was damaged."""
    return _with_faults(options, ("verify", 3), ("repair", 6))


def _long(options: SimOptions, rng: random.Random) -> SimOptions:
    """Minutes of virtual time and a thousand txns and more; faults are rare."""
    busy_ms = 1000 * rng.choice((60, 120, 240))
    workload = replace(
        options.workload, think_ms=max(busy_ms * options.workload.clients // 3000, 5)
    )
    faults = replace(options.faults, every_ms=busy_ms // rng.choice((5, 20, 60)))
    return replace(
        options,
        busy_ticks=busy_ms // options.replica.tick_ms,
        workload=workload,
        faults=faults,
        crash_check_chance=options.crash_check_chance / 10,
    )


def _failing_calls(options: SimOptions, _rng: random.Random) -> SimOptions:
    """A disk call fails, at any place; most often the fsync of a quiet moment."""
    faults = options.faults
    workload = replace(options.workload, think_ms=max(options.workload.think_ms, 150))
    weights = (*faults.weights, ("error-at", 10), ("mishap", 3))
    return replace(options, workload=workload, faults=replace(faults, weights=weights))


def _lost_files(options: SimOptions, _rng: random.Random) -> SimOptions:
    """A server without peers loses files."""
    if options.servers > 1:
        return options
    faults = options.faults
    return replace(options, faults=replace(faults, weights=(*faults.weights, ("lose-alone", 6))))


def _restored(options: SimOptions, _rng: random.Random) -> SimOptions:
    """The world begins with a majority that was restored from a backup."""
    return replace(
        options,
        servers=max(options.servers, 3) | 1,
        # A server that may have what was given up.
        observers=max(options.observers, 1),
        is_reconfig_enabled=False,
        is_restored=True,
    )


def _stranded(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Servers that serve read-only are cut off, with writes under way."""
    if not options.is_read_only_enabled:
        return options
    options = _with_faults(options, ("strand", 12))
    return replace(options, busy_ticks=max(options.busy_ticks, 80))


def _rescues(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Operators look at what a rescue would accept."""
    return _with_faults(options, ("rescue", 6))


# Faults that damage data: an Apache server is emptied where that is told to help.
_DAMAGING: Final = frozenset(
    (
        *("flip", "zero", "shorten", "lose", "swap", "rot-snapshot", "wipe", "restore"),
        *("restore-file", "stale", "repair", "rescue", "reconfig"),
    )
)


def _apache(options: SimOptions, _rng: random.Random) -> SimOptions:
    """One voter is a server of Apache's."""
    if options.servers < 3 or options.is_restored:
        return options
    weights = tuple(pair for pair in options.faults.weights if pair[0] not in _DAMAGING)
    faults = replace(options.faults, weights=(*weights, ("apache-tail", 8)))
    return replace(
        options,
        faults=faults,
        # It knows no secret: ours must not give out passwords by one.
        replica=replace(options.replica, passwords=SessionPasswords()),
        apache=options.servers,
        is_reconfig_enabled=False,
        busy_ticks=max(options.busy_ticks, 80),
    )


def _first_term(options: SimOptions, _rng: random.Random) -> SimOptions:
    """The first leader of a new ensemble dies before anybody follows it."""
    if options.servers < 3 or options.is_restored:
        return options
    faults = replace(options.faults, has_first_term=True)
    return replace(options, faults=faults, busy_ticks=max(options.busy_ticks, 60))


def _slow_commits(options: SimOptions, rng: random.Random) -> SimOptions:
    """Nothing is committed for a moment, while clients leave and come back at once."""
    return _with_faults(_kazoo(options, rng), ("slow-commits", 15))


def _slow_readers(options: SimOptions, rng: random.Random) -> SimOptions:
    """Small buffers for clients: what they do not take soon holds them up, or cuts them off."""
    # Whoever finds no place goes elsewhere, if it can: all get in somewhere.
    is_free = options.servers > 1 and all(h.only_server is None for h in options.workload.habits)
    places = options.workload.clients - (1 if is_free else 0)
    replica = replace(
        options.replica,
        max_burst_bytes=rng.choice((100, 1000)),
        max_unsent_bytes=rng.choice((50, 500, 5000)),
        max_connections_per_address=max(places, 1),
        max_parked_bytes=rng.choice((600, 5000, 1 << 20)),
        uncounted_reply_bytes=rng.choice((20, 1024)),
    )
    faults = replace(options.faults, weights=(*options.faults.weights, ("deafen", 10)))
    return _with_work(replace(options, replica=replica, faults=faults), ("reads-between", 10))


def _fences(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Learners find that their tree is not the leader's."""
    return _with_faults(options, ("fence", 12))


def _slow_streams(options: SimOptions, rng: random.Random) -> SimOptions:
    """Learners take a piece of what they catch up with, and nothing more for a while."""
    # For less than they are patient with a leader: a stream that never ends is no use to anybody.
    stall_us = options.sync_limit * options.replica.tick_ms * MS // rng.choice((2, 8))
    return replace(options, network=replace(options.network, max_stall_us=stall_us))


def _small_pieces(options: SimOptions, rng: random.Random) -> SimOptions:
    """Learners catch up in many pieces, snapshots take many turns; ACLs are in both.

    Patience and disks are such that all of it fits into the time that a learner has.
    """
    store = replace(
        options.store, stream_bytes=rng.choice((1, 20, 100)), chunk_nodes=rng.choice((1, 3))
    )
    stall_us = options.sync_limit * options.replica.tick_ms * MS // 8
    network = replace(
        options.network,
        max_stall_us=options.network.max_stall_us or rng.choice((0, stall_us)),
        stall_chance=0.1,
        max_delay_us=2000,
        min_delay_us=200,
    )
    disk = replace(options.disk, max_latency_us=300)
    options = replace(options, store=store, network=network, disk=disk, init_limit=20)
    options = replace(options, snapshot_every=rng.choice((3, 10)))
    return _with_work(options, ("acl", 20))


def _small_txns(options: SimOptions, rng: random.Random) -> SimOptions:
    """What clients ask for is near the largest txn, which leaders do not have in common."""
    limit = rng.choice((220, 300))
    options = _with_prepare(options, lambda each: replace_struct(each, max_txn_bytes=limit))
    workload = replace(options.workload, large_bytes=limit * 5 // 4)
    options = replace(options, workload=workload, uneven_txn_bytes=rng.choice((0, 600)))
    options = replace(options, busy_ticks=max(options.busy_ticks, 60))
    return _with_work(options, ("large", 20), ("hoard", 100), ("end", 8))


def _shared_secret(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Servers agree on a secret for session passwords while clients come and move."""
    if options.servers == 1:
        return options
    return replace(
        options,
        is_secret_shared=True,
        replica=replace(options.replica, passwords=SessionPasswords()),
        busy_ticks=max(options.busy_ticks, 60),
    )


def _audited(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Servers audit all changes, so that every write takes the slow path."""
    return _with_replica(options, lambda each: replace(each, is_audited=True))


def _small_turns(options: SimOptions, rng: random.Random) -> SimOptions:
    """What a learner sends takes many turns."""
    return replace(options, learner_turn_bytes=rng.choice((5, 30, 200)))


def _lasting_watches(options: SimOptions, rng: random.Random) -> SimOptions:
    """Clients set watches that stay, and remove them."""
    return _with_work(options, ("watch", rng.choice((10, 40))))


def _surveys(options: SimOptions, rng: random.Random) -> SimOptions:
    """Clients read many znodes at once, and ask for ephemerals and for the size of trees."""
    return _with_work(options, ("survey", rng.choice((10, 40))))


def _small_limits(options: SimOptions, rng: random.Random) -> SimOptions:
    """A client may have a few watches and ephemerals, and ask for a few reads at once."""
    most = rng.choice((1, 3))
    options = _with_prepare(options, lambda each: replace_struct(each, max_ephemerals=most))
    watch_bytes, reads = rng.choice((900, 2100)), rng.choice((2, 4))
    options = _with_replica(
        options, lambda each: replace(each, max_watch_bytes=watch_bytes, max_multi_reads=reads)
    )
    chance = max(options.workload.watch_chance, 0.5)
    options = replace(options, workload=replace(options.workload, watch_chance=chance))
    return _with_work(options, ("survey", 10), ("crowd", 10))


def _busy_leaders(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Leaders serve no clients."""
    if options.servers == 1:
        return options
    options = _with_habits(options, lambda _n, habits: replace(habits, only_server=None))
    return _with_replica(options, lambda each: replace(each, is_leader_serving=False))


def _few_catch_ups(options: SimOptions, _rng: random.Random) -> SimOptions:
    """Of three observers, one may catch up at a time."""
    if options.servers == 1 or options.is_reconfig_enabled:
        return options
    return replace(options, observers=3, max_catch_ups=1)


# They are drawn and applied in this order; each in this fraction of the seeds.
FEATURES: Final[dict[str, tuple[float, Feature]]] = {
    "kazoo": (0.5, _kazoo),
    "one-address": (0.2, _one_address),
    "sync-reads": (0.3, _sync_reads),
    "local-sessions": (0.15, _local_sessions),
    "read-only": (0.2, _read_only),
    "short-lived": (0.2, _short_lived),
    "quotas": (0.15, _quotas),
    "throttle": (0.15, _throttle),
    "sleeping-leaders": (0.15, _sleeping_leaders),
    "hung-disks": (0.08, _hung_disks),
    "full-disks": (0.1, _full_disks),
    "tools": (0.1, _tools),
    "long": (0.01, _long),
    "failing-calls": (0.08, _failing_calls),
    "lost-files": (0.5, _lost_files),
    "restored": (0.05, _restored),
    "stranded": (0.5, _stranded),
    "rescues": (0.05, _rescues),
    "apache": (0.08, _apache),
    "first-term": (0.06, _first_term),
    "slow-commits": (0.06, _slow_commits),
    "slow-readers": (0.06, _slow_readers),
    "fences": (0.06, _fences),
    "slow-streams": (0.06, _slow_streams),
    "small-pieces": (0.08, _small_pieces),
    "small-txns": (0.08, _small_txns),
    "shared-secret": (0.08, _shared_secret),
    "audited": (0.05, _audited),
    "small-turns": (0.08, _small_turns),
    "lasting-watches": (0.2, _lasting_watches),
    "surveys": (0.15, _surveys),
    "small-limits": (0.08, _small_limits),
    "busy-leaders": (0.05, _busy_leaders),
    "few-catch-ups": (0.05, _few_catch_ups),
}
# Not drawn (or, for "expired" and "full-start", not checked): the product does not hold yet what
# they ask of it.
WAITING: Final[frozenset[str]] = frozenset()


def draw_features(seed: int) -> tuple[str, ...]:
    """The features of a seed."""
    rng = random.Random(seed ^ _SALT << 32)
    drawn = [name for name, (chance, _) in FEATURES.items() if rng.random() < chance]
    return tuple(name for name in drawn if name not in WAITING)


def with_features(options: SimOptions, seed: int, names: tuple[str, ...]) -> SimOptions:
    """The options with these features in them."""
    for name in FEATURES:
        if name in names:
            # Each of its own generator: leaving one out does not change the others.
            rng = random.Random(f"{seed} {name}")
            options = FEATURES[name][1](options, rng)
    return replace(options, features=names)
