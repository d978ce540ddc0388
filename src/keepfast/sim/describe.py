"""The options of a world in one short line, for tables and traces."""

from __future__ import annotations

from keepfast.sim.options import SimOptions
from keepfast.sim.swarm import FAULT_FAMILIES


def describe(options: SimOptions) -> str:
    """As `3+1 servers, tick 100 ms, 2 clients, faults: power rot`."""
    observers = f"+{options.observers}" if options.observers else ""
    kinds = {kind for kind, weight in options.faults.weights if weight}
    families = [
        name for name, family in FAULT_FAMILIES.items() if any(kind in kinds for kind, _ in family)
    ]
    if options.faults.traps:
        families.append(f"{options.faults.traps} traps")
    with_features = f", with {' '.join(options.features)}" if options.features else ""
    return (
        f"{options.servers}{observers} servers, tick {options.replica.tick_ms} ms, "
        f"{options.workload.clients} clients, faults: {' '.join(families) or 'none'}{with_features}"
    )
