"""The options that a seed stands for: every field drawn, and some features left out of each run."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

import msgspec

from keepfast.quorum import ElectionOptions
from keepfast.replica import ReplicaOptions, SessionPasswords
from keepfast.sim.features import draw_features, with_features
from keepfast.sim.network import NetworkOptions
from keepfast.sim.options import (
    WALL_START_MS,
    DiskOptions,
    FaultOptions,
    SimOptions,
    WorkloadOptions,
)
from keepfast.storage import Compression, StoreOptions
from keepfast.tree import PrepareOptions

# Apart from the world's own generator: a change here must not be a change of every choice there.
_SALT: Final = 0x5EED
_SLICES_SALT: Final = 0x51CE
# Both forms in one run: sessions of servers that were started before this have Apache's passwords.
_PASSWORDS: Final = SessionPasswords(b"shared by all servers", WALL_START_MS + 5_000)

# What may go wrong, in families that are drawn together or left out together.
FAULT_FAMILIES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "divergence": (("diverge", 12),),
    "processes": (("kill", 6), ("stop", 2), ("pause", 4), ("slow", 2)),
    "power": (("power", 5), ("power-in-call", 5), ("all-power", 2)),
    "streams": (("reset", 5), ("lag", 2)),
    "partitions": (("isolate", 4), ("halves", 3), ("one-way", 3), ("bridge", 2)),
    "disks": (("full", 3), ("error", 4)),
    "rot": (
        ("flip", 3),
        ("zero", 2),
        ("shorten", 2),
        ("lose", 2),
        ("swap", 1),
        ("rot-snapshot", 5),
    ),
    "operations": (
        ("snapshot", 5),
        ("purge", 4),
        ("wipe", 2),
        ("backup", 3),
        ("restore", 2),
        ("rolling", 1),
        ("restore-file", 1),
        ("stale", 1),
        ("clock", 1),
    ),
}


MEMBERSHIP_FAULTS: Final = (("reconfig", 12),)


def draw_options(seed: int, features: tuple[str, ...] | None = None) -> SimOptions:
    """The options of a seed; with these features, instead of those that it draws."""
    names = draw_features(seed) if features is None else features
    return _with_slices(with_features(_draw_basics(seed), seed, names), seed)


def _with_slices(options: SimOptions, seed: int) -> SimOptions:
    """Have txns of more than one or a few operations take several turns, with some seeds."""
    size = random.Random(seed ^ _SLICES_SALT << 32).choice((1, 2, 250))
    prepare = msgspec.structs.replace(options.replica.prepare, slice_size=size)
    return replace(options, replica=replace(options.replica, prepare=prepare))


def _draw_basics(seed: int) -> SimOptions:
    rng = random.Random(seed ^ _SALT << 32)
    tick_ms = rng.choice((100, 200, 500))
    is_reconfig_enabled = rng.random() < 0.25
    servers = rng.choices((1, 3, 5, 7), (1, 14, 4, 1))[0]
    observers = 0 if servers == 1 else rng.choices((0, 1, 2), (6, 2, 1))[0]
    if is_reconfig_enabled:
        servers, observers = rng.choice(((3, 1), (3, 2), (4, 0), (5, 1)))
    return SimOptions(
        servers=servers,
        observers=observers,
        busy_ticks=rng.choice((8, 15, 15, 30, 60)),
        skew_ms=rng.choice((0, 0, 100, 60_000)),
        snapshot_every=rng.choice((0, 3, 10, 40)),
        retain=rng.choice((0, 1, 3)),
        init_limit=rng.choice((5, 10, 20)),
        sync_limit=rng.choice((2, 4, 8)),
        crash_check_chance=rng.choice((0.0, 0.05, 0.2)),
        election=ElectionOptions(
            min_interval_ms=tick_ms,
            max_interval_ms=rng.choice((4, 16)) * tick_ms,
            max_asking_interval_ms=rng.choice((2, 8)) * tick_ms,
            finalize_wait_ms=rng.choice((tick_ms // 4, tick_ms)),
        ),
        is_reconfig_enabled=is_reconfig_enabled,
        replica=_draw_replica(rng, tick_ms, is_reconfig_enabled),
        store=StoreOptions(
            grow_bytes=rng.choice((512, 4096, 16384)),
            segment_bytes=rng.choice((600, 4000, 100_000)),
            reserve_bytes=rng.choice((0, 2000, 20_000)),
            compression=rng.choice((Compression.NONE, Compression.NONE, *Compression)),
        ),
        network=_draw_network(rng),
        disk=DiskOptions(
            min_latency_us=50,
            max_latency_us=rng.choice((200, 2000, 20_000)),
            stall_chance=rng.choice((0.0, 0.0, 0.02)),
            stall_us=rng.choice((1, 5)) * tick_ms * 1000,
        ),
        workload=_draw_workload(rng, tick_ms),
        faults=_draw_faults(rng, tick_ms, servers, is_reconfig_enabled),
    )


def _draw_replica(rng: random.Random, tick_ms: int, is_open_to_all: bool) -> ReplicaOptions:
    return ReplicaOptions(
        tick_ms=tick_ms,
        min_session_timeout_ms=2 * tick_ms,
        max_session_timeout_ms=max(20 * tick_ms, 2000),
        outstanding_limit=rng.choice((1, 10, 1000)),
        max_queued_requests=rng.choice((10, 100_000)),
        passwords=_PASSWORDS,
        container_check_ms=rng.choice((10, 100)) * tick_ms,
        container_max_never_used_ms=rng.choice((0, 5 * tick_ms)),
        # Only the superuser may change the members, unless nobody looks.
        prepare=PrepareOptions(is_acl_skipped=is_open_to_all),
    )


def _draw_network(rng: random.Random) -> NetworkOptions:
    min_us = rng.choice((50, 200, 2000))
    return NetworkOptions(
        min_delay_us=min_us,
        max_delay_us=min_us * rng.choice((1, 3, 20)),
        spike_chance=rng.choice((0.0, 0.0, 0.01)),
        spike_us=rng.choice((20_000, 200_000)),
        split_chance=rng.choice((0.0, 0.2)),
    )


def _draw_workload(rng: random.Random, tick_ms: int) -> WorkloadOptions:
    defaults = WorkloadOptions()
    return WorkloadOptions(
        clients=rng.choice((1, 2, 3)),
        think_ms=rng.choice((1, 2, 6)) * tick_ms // 2,
        pipeline=rng.choice((1, 3, 8)),
        keys=rng.choice((1, 3, 6)),
        # Shorter than a few round trips and fsyncs, no session would ever live.
        session_timeout_ms=max(rng.choice((4, 8, 20)) * tick_ms, 2000),
        weights=tuple(
            (kind, weight if kind == "create" or rng.random() < 0.8 else 0)
            for kind, weight in defaults.weights
        ),
        watch_chance=rng.choice((0.0, 0.3, 0.8)),
    )


def _draw_faults(
    rng: random.Random, tick_ms: int, servers: int, is_reconfig_enabled: bool
) -> FaultOptions:
    weights: list[tuple[str, int]] = []
    if is_reconfig_enabled and servers > 1:
        weights.extend(MEMBERSHIP_FAULTS)
    for name, family in FAULT_FAMILIES.items():
        if rng.random() < (0.6 if name == "divergence" else 0.4) and not (
            servers == 1 and name in ("rot", "operations", "divergence")
        ):
            weights.extend(family)
    return FaultOptions(
        every_ms=rng.choice((1, 2, 4, 8)) * tick_ms,
        weights=tuple(weights),
        traps=0 if servers == 1 else rng.choice((0, 0, 1, 3, 6)),
    )
