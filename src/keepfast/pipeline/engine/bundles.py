"""Items of work in bundles, one per task: packed by the driver, done by a worker.

Without PySpark: the start of a worker is little else than imports.  Items are packed by weight: a
task costs its start anyhow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.engine.stages import (
    CompareItem,
    EnsembleItem,
    EvidenceItem,
    FactsItem,
    FileFacts,
    Item,
    ReplayItem,
    Value,
    run_item,
)
from keepfast.pipeline.engine.task_process import exempt_imports
from keepfast.pipeline.findings.document import EnsembleResult
from keepfast.pipeline.findings.evidence import Evidence
from keepfast.pipeline.replay.plan import ReplayOutcome
from keepfast.pipeline.scan.summaries import ScanSummary

_TASKS_A_CORE = 4
# What an item costs beside its bytes, in bytes.
_ITEM_WEIGHT = 64 << 10
_RECORD_WEIGHT = 2 << 10
# Of logs most bytes are only compared with those of other servers; snapshots are decoded. Without
# this the tasks of snapshots are the last and the longest, and a core waits for them.
_SNAPSHOT_FACTOR = 8
_MIN_TASK_WEIGHT = 8 << 20
# Smaller tasks than this only if cores would be left without one: a task finds what it has read
# already in the logs of other servers (decode/known.py), but not what others read.
_GOOD_TASK_WEIGHT = 96 << 20

# Kind of an item -> its type and that of its value.
_KINDS: dict[str, tuple[type[Any], Any]] = {
    "facts": (FactsItem, FileFacts),
    "compare": (CompareItem, Compared),
    "replay": (ReplayItem, ReplayOutcome),
    "evidence": (EvidenceItem, Evidence),
    "ensemble": (EnsembleItem, EnsembleResult),
}
_KIND_OF = {item: kind for kind, (item, _) in _KINDS.items()}


def do_bundle(bundle: bytes) -> bytes:
    """Do the items of a bundle, in the process of a task; returns their values by number."""
    exempt_imports()
    known: Known[ScanSummary] = Known()
    values: dict[int, bytes] = {}
    for number, kind, body in msgspec.msgpack.decode(bundle, type=list[tuple[int, str, bytes]]):
        item = msgspec.json.decode(body, type=_KINDS[kind][0])
        values[number] = msgspec.json.encode(run_item(item, known))
    return msgspec.msgpack.encode(values)


def values_of(items: Sequence[Item], done: Sequence[bytes]) -> list[Value]:
    """The values of items, in their order, from what came of their bundles."""
    values: dict[int, bytes] = {}
    for one in done:
        values.update(msgspec.msgpack.decode(one, type=dict[int, bytes]))
    return [
        msgspec.json.decode(values[number], type=_KINDS[_KIND_OF[type(item)]][1])
        for number, item in enumerate(items)
    ]


def weight_of(item: Item) -> int:
    """About what an item costs, in bytes of logs to read."""
    if isinstance(item, FactsItem):
        factor = _SNAPSHOT_FACTOR if item.part.kind == "snapshot" else 1
        return factor * item.part.weight + _ITEM_WEIGHT
    if isinstance(item, CompareItem):
        return sum(one.end - one.start for one in item.sources) + _ITEM_WEIGHT
    if isinstance(item, ReplayItem):
        is_summed = item.proofs is not None and not any(one.trouble for one in item.proofs)
        return (0 if is_summed else item.plan.records * _RECORD_WEIGHT) + _ITEM_WEIGHT
    if isinstance(item, EvidenceItem):
        ranges = [*item.plan.records, *(p for one in item.plan.lacked for p in one.pieces)]
        return sum(piece.end - piece.start for piece in ranges) + _ITEM_WEIGHT
    files = [entry for server in item.files.servers for entry in server.files]
    # Mostly padding: a small log takes 64 MB on a disk that knows holes, and a few KB to read.
    return sum(min(entry.size, _ITEM_WEIGHT) for entry in files) + _ITEM_WEIGHT


def bundled(items: Sequence[Item], cores: int) -> list[bytes]:
    """The items in bundles, one per task: about equally heavy, in the order of the items."""
    weights = [weight_of(item) for item in items]
    total = sum(weights)
    # So that no core is left over in the last round.
    rounds = min(_TASKS_A_CORE, max(1, total // (cores * _GOOD_TASK_WEIGHT)))
    count = min(cores * rounds, -(-total // _MIN_TASK_WEIGHT))
    bundles: list[list[tuple[int, str, bytes]]] = [[] for _ in range(count)]
    before = 0
    for number, (item, weight) in enumerate(zip(items, weights, strict=True)):
        # Where the middle of the item is. Bundles that are filled up to a limit leave a rest,
        # and a core waits for that.
        place = (2 * before + weight) * count // (2 * total)
        bundles[place].append((number, _KIND_OF[type(item)], msgspec.json.encode(item)))
        before += weight
    return [msgspec.msgpack.encode(bundle) for bundle in bundles if bundle]
