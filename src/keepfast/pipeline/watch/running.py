"""The state of an ensemble that follows its records: the relational replay, some records at a time.

The znodes after the last record are kept as the rows that a snapshot would have, so that the next
records are one more chain with those as its base: the same events, states and sums as in an audit
(`replay.path_states`).  Only rows of paths that records touch are read and written.  What all rows
add up to is kept beside them, for Apache's digest and for ours; and so is what each change of late
added, from which the state at the zxid of a new snapshot is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from keepfast.pipeline.decode.events import Happening, Rows, builtin_rows, znode_sums
from keepfast.pipeline.decode.gather import Ints
from keepfast.pipeline.replay.digest_sums import LogSum, chain_trouble, span_paths, span_sum
from keepfast.pipeline.replay.path_states import (
    WINDOW,
    StateChain,
    States,
    change_of,
    closed_ephemerals,
    digest_changes,
    last_states,
    path_states,
    sums_of,
)
from keepfast.pipeline.replay.plan import Piece, SnapshotPlan
from keepfast.pipeline.replay.proof import until_of
from keepfast.pipeline.replay.relational import (
    ChainPlan,
    LogPart,
    about_sessions,
    check_window,
    read_part,
    snapshot_rows,
)
from keepfast.pipeline.watch.checkpoint import CHANGE, Checkpoint
from keepfast.wire import KeepfastError

_MASK = (1 << 64) - 1
# How much is kept of changes: 32 bytes each, some for each record.
_MAX_CHANGES_BYTES = 32 << 20
# Records that are applied together: what they touch is held in memory.
_AT_ONCE = 100_000

StartOf = Callable[[str, int], int | None]


class StateLost(KeepfastError):  # noqa: N818 - an ordinary turn
    """The records do not lead on from the state: it has to be rebuilt."""


class Position(msgspec.Struct):
    """Where the state is, and what its rows add up to."""

    zxid: int
    exact_from: int  # before this a fuzzy base may be ahead
    digest: int = 0  # Apache's
    state: int = 0  # ours
    stated: int | None = None  # what the digests in the records say it is here
    known_from: int = 0  # changes after this are kept
    records: int = 0
    config: tuple[int, bytes] | None = (
        None  # the members, as the last record said that changed them
    )
    has_unknown_digests: bool = False  # some record states one that cannot be computed


@dataclass(slots=True)
class RunningState:
    """The state of one ensemble, in the checkpoint."""

    checkpoint: Checkpoint
    ensemble: str
    position: Position

    # -- making it ---------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, checkpoint: Checkpoint, ensemble: str, base: SnapshotPlan | None
    ) -> RunningState:
        """The state at a snapshot that was proven, or the empty tree; raises CorruptSnapshot."""
        checkpoint.drop_znodes(ensemble)
        checkpoint.drop_changes(ensemble)
        zxid = 0 if base is None else base.zxid
        exact = zxid + 1 if base is None or base.fuzzy_until == zxid else until_of(base)
        position = Position(zxid, exact, known_from=exact)
        for rows in [builtin_rows()] if base is None else snapshot_rows(base.path):
            checkpoint.put_znodes(ensemble, rows)
            state, digest = znode_sums(rows)
            position.digest += digest
            position.state += state
        position.digest &= _MASK
        position.state &= _MASK
        return cls(checkpoint, ensemble, position)

    # -- following records -------------------------------------------------------------------------

    def advance(
        self, pieces: Sequence[Piece], up_to: int, lists_ephemerals: bool, start_of: StartOf
    ) -> list[tuple[int, int]]:
        """Apply the records after the state up to a zxid; returns the ranges that are not right.

        Raises StateLost if they do not lead on from it, or can no longer be read.
        """
        trouble: list[tuple[int, int]] = []
        while self.position.zxid < up_to:
            low = self.position.zxid + 1
            parts: list[LogPart] = []
            room = _AT_ONCE
            high = low - 1
            for piece in pieces:
                first, last = max(piece.first, low), min(piece.last, up_to)
                if first > last or room <= 0:
                    continue
                last = min(last, first + room - 1)
                start = start_of(piece.path, first - 1)
                inside = start is not None and piece.start <= start <= piece.end
                begin = start if inside and start is not None else piece.start
                parts.append(LogPart(piece.path, begin, piece.end, first, last))
                room -= last - first + 1
                high = last
            if not parts:
                raise StateLost("no records lead on")
            trouble += self._apply(parts, high, lists_ephemerals)
        return trouble

    def _apply(
        self, parts: list[LogPart], high: int, lists_ephemerals: bool
    ) -> list[tuple[int, int]]:
        position = self.position
        exact = max(position.exact_from, position.zxid)
        plan = ChainPlan(
            tuple(parts), None, position.zxid, exact, (), closes_lists=lists_ephemerals
        )
        found = [read_part(plan, index) for index in range(len(parts))]
        logs = [summed for _, summed in found]
        if any(log.problem for log in logs) or max(log.reach for log in logs) < high:
            raise StateLost("records can no longer be read")
        rows = [events.rows() for events, _ in found]
        events, numbers = (
            np.concatenate(rows),
            np.repeat(np.arange(len(rows)), list(map(len, rows))),
        )
        events, numbers, bare = self._with_closed(events, numbers, lists_ephemerals)
        touched = np.unique(events["path"])
        base = self.checkpoint.znodes(self.ensemble, touched)
        states = path_states(base, events, numbers)
        trouble = self._trouble(states, logs, plan, bare)
        self._write(states, touched, high)
        position.records += sum(log.records for log in logs)
        configs = [log.config for log in logs if log.config is not None]
        position.config = max(configs, default=position.config)
        return trouble

    def _with_closed(
        self, events: Rows, numbers: Ints, lists_ephemerals: bool
    ) -> tuple[Rows, Ints, int]:
        """The events with the deletions that the ends of sessions do not list, where none do."""
        ends = events["kind"] == Happening.SESSION_GONE
        if lists_ephemerals or not ends.any():
            return events[~ends], numbers[~ends], int(ends.sum())
        owned = self.checkpoint.owned_by(self.ensemble, events["owner"][ends])
        wanted = about_sessions(events)
        closed, of_parts = closed_ephemerals(owned, events[wanted], numbers[wanted])
        rows = np.concatenate([events[~ends], closed])
        parts = np.concatenate([numbers[~ends], of_parts])
        order = np.argsort(rows["zxid"], kind="stable")
        return rows[order], parts[order], 0

    def _trouble(
        self, states: States, logs: list[LogSum], plan: ChainPlan, bare: int
    ) -> list[tuple[int, int]]:
        position = self.position
        sums = sums_of(states, StateChain(plan.first, plan.exact_from), (), len(logs))
        # Rows that no record touches are in the sum of all of them.
        known = int(digest_changes(states)[states.is_base].sum(dtype=np.uint64))
        before = (position.digest - known + sums.before) & _MASK
        span = span_sum(0, logs, [span_paths(sums, 0, len(logs))])
        position.has_unknown_digests |= span.has_unknown_digests
        found = chain_trouble([span], before if position.stated is None else position.stated)
        if sums.odd + bare or span.is_undecodable:
            found.append((min(sums.first_odd, plan.parts[0].first), plan.parts[-1].last))
        if span.last_digest is not None:
            position.stated = (span.last_digest + span.carried) & _MASK
        elif position.stated is not None:
            position.stated = (position.stated + span.carried) & _MASK
        return found

    def _write(self, states: States, touched: Rows, high: int) -> None:
        position = self.position
        is_event = ~states.is_base
        moved = change_of(states.state, states.is_first)
        rows = np.zeros(int(is_event.sum()), CHANGE)
        rows["zxid"], rows["path"] = states.zxid[is_event], states.rows["path"][is_event]
        rows["after"] = states.state[is_event]
        rows["before"] = (states.state - moved)[is_event]
        # In the order of the records; of one record's changes of a path the last one counts last.
        rows = rows[np.argsort(rows["zxid"], kind="stable")]
        changed = int(digest_changes(states)[is_event].sum(dtype=np.uint64))
        position.digest = (position.digest + changed) & _MASK
        position.state = (position.state + int(moved[is_event].sum(dtype=np.uint64))) & _MASK
        position.zxid = high
        there = last_states(states)
        self.checkpoint.put_znodes(self.ensemble, there)
        gone = np.setdiff1d(touched, there["path"]).astype(np.int64)
        self.checkpoint.drop_znodes(self.ensemble, gone.tolist())
        self.checkpoint.add_changes(self.ensemble, high, rows)

    def forget_changes(self, needed_from: int) -> None:
        """Let go of old changes, but not of those after a snapshot that has to be looked at."""
        last = self.checkpoint.first_change(self.ensemble, _MAX_CHANGES_BYTES)
        if last is not None and last <= needed_from:
            self.checkpoint.drop_changes(self.ensemble, last)
            self.position.known_from = max(self.position.known_from, last)

    # -- snapshots ---------------------------------------------------------------------------------

    def knows(self, snapshot: SnapshotPlan) -> bool:
        """Whether the state at the zxid of a snapshot, and all that it may show, is known."""
        return self.position.known_from <= snapshot.zxid

    def is_right(self, snapshot: SnapshotPlan) -> bool:
        """Whether a snapshot is what the records make; see `replay.proof`."""
        changes = self.checkpoint.changes_after(self.ensemble, snapshot.zxid)
        moved = int((changes["after"] - changes["before"]).sum(dtype=np.uint64))
        expected = (self.position.state - moved) & _MASK
        if snapshot.state == expected:
            return True
        inside = changes[changes["zxid"] <= until_of(snapshot)]
        if snapshot.state is None or not len(inside):
            return False
        _, first = np.unique(inside["path"], return_index=True)
        window = np.zeros(len(inside) + len(first), WINDOW)
        window["path"] = np.concatenate([inside["path"], inside["path"][first]])
        window["state"] = np.concatenate([inside["after"], inside["before"][first]])
        found = check_window(snapshot.path, window)
        touched = int(inside["before"][first].sum(dtype=np.uint64))
        is_rest = (snapshot.state - found.total - expected + touched) & _MASK == 0
        return not found.is_strange and is_rest
