"""One look at all ensembles: the steps of an audit, with what is known of the looks before.

Facts, comparison, agreement and conclusion are the audit's own.  Its replay is too, but its sums
are carried on (`running`): records after the last look, and snapshots that are new.  Where a sum
is off, or the files do not lead on from what is known, the audit's replay says what that means; it
is asked again only when something about the question changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from keepfast.pipeline.agreement.committed import Agreement, judge
from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.agreement.view import EnsembleView
from keepfast.pipeline.engine.stages import (
    PlacesDisk,
    compared_of,
    conclude,
    run_here,
    views_of,
    with_new_voters,
    with_records,
)
from keepfast.pipeline.files.layout import EnsembleFiles, discover
from keepfast.pipeline.findings.document import EnsembleResult, Finding
from keepfast.pipeline.replay.plan import (
    ReplayOutcome,
    ReplayPlan,
    ServerPlan,
    SnapshotPlan,
    plan_replay,
)
from keepfast.pipeline.replay.proof import (
    ChainProof,
    ReplayChain,
    chain_plans,
    chains_of,
    proofs_of,
    until_of,
)
from keepfast.pipeline.replay.relational import sums_here
from keepfast.pipeline.replay.serving import replay_ensemble
from keepfast.pipeline.watch.checkpoint import Checkpoint
from keepfast.pipeline.watch.running import Position, RunningState, StateLost
from keepfast.pipeline.watch.tracked import TrackedFiles
from keepfast.wire import CorruptSnapshot

_KIND = "ensemble"
# What is computed again costs at most this part of the time, however often it is asked for.
_MAX_SHARE = 0.05


class Proven(msgspec.Struct):
    """What is known about the snapshots and digests of one ensemble."""

    position: Position | None = None
    good: dict[str, tuple[int, int]] = {}  # path to zxid and size of a snapshot that is right
    bad: dict[str, tuple[int, int]] = {}
    trouble: list[tuple[int, int]] = []  # ranges of zxids in which a sum is off
    has_unknown_digests: bool = False
    config: tuple[int, str] | None = None


@dataclass(slots=True)
class EnsembleLooks:
    """One ensemble from look to look."""

    name: str
    files: TrackedFiles
    checkpoint: Checkpoint
    proven: Proven
    _question: object = None
    _outcome: ReplayOutcome | None = None
    # Until when the work that was done last is not done again.
    _resting: dict[str, float] = field(default_factory=dict)
    # Snapshots that are not right yet, while records that they may show are still to come.
    _waiting: dict[str, int] = field(default_factory=dict)

    def look(self, listed: EnsembleFiles) -> EnsembleResult:
        """Look at the files as they are now."""
        view = views_of(self.files, [listed], can_cut=False)[0]
        compared = compared_of(self.files, [view])[0]
        agreement, outcome = self._judged(view, compared)
        fresh = with_new_voters(view, outcome)
        if fresh != view:
            view = fresh
            agreement, outcome = self._judged(view, compared)
        result = conclude(listed, view, compared, agreement, outcome)
        judged = [(agreement, outcome)]
        (result,) = with_records(run_here, [view], judged, [result], is_brief=True)
        self.checkpoint.put_text(_KIND, self.name, msgspec.msgpack.encode(self.proven))
        return result

    def _judged(self, view: EnsembleView, compared: Compared) -> tuple[Agreement, ReplayOutcome]:
        agreement = judge(view, compared)
        plan = plan_replay(view, agreement)
        self._prove(plan, agreement)
        return agreement, self._replayed(plan, agreement)

    # -- sums --------------------------------------------------------------------------------------

    def _prove(self, plan: ReplayPlan, agreement: Agreement) -> None:
        """Bring what is proven up to date."""
        chains = chains_of(plan)
        present = {snapshot.path for snapshot in plan.snapshots}
        proven = self.proven
        proven.good = {path: one for path, one in proven.good.items() if path in present}
        proven.bad = {path: one for path, one in proven.bad.items() if path in present}
        first = min((chain.pieces[0].first for chain in chains), default=0)
        proven.trouble = [(low, high) for low, high in proven.trouble if high >= first]
        if not chains:
            return
        try:
            self._follow(plan, chains[-1], agreement)
        except (StateLost, CorruptSnapshot, OSError):
            if self._may("sums"):
                started = time.monotonic()
                self._begin(plan, chains, agreement)
                self._rest("sums", started)

    def _follow(self, plan: ReplayPlan, chain: ReplayChain, agreement: Agreement) -> None:
        position = self.proven.position
        committed = agreement.committed
        if position is None or committed is None:
            raise StateLost("nothing is known yet")
        leads = chain.pieces[0].first - 1 <= position.zxid <= chain.pieces[-1].last
        if not leads or committed < position.zxid:
            raise StateLost("the records do not lead on")
        state = RunningState(self.checkpoint, self.name, position)
        self._advance(state, plan, chain, committed)
        waiting = []
        for snapshot in plan.snapshots:
            if self._is_judged(snapshot):
                continue
            if not state.knows(snapshot):
                raise StateLost("a snapshot is older than what is known")
            if not self._judge_snapshot(state, snapshot):
                waiting.append(snapshot.zxid)
        state.forget_changes(min(waiting, default=position.zxid))

    def _advance(
        self, state: RunningState, plan: ReplayPlan, chain: ReplayChain, committed: int
    ) -> None:
        last = min(committed, chain.pieces[-1].last)
        if state.position.zxid < last:
            self.proven.trouble += state.advance(
                chain.pieces, last, plan.lists_ephemerals, self.files.start_of
            )
        self.proven.has_unknown_digests |= state.position.has_unknown_digests
        config = state.position.config
        if config is not None:
            self.proven.config = config[0], config[1].decode("utf-8", "replace")

    def _judge_snapshot(self, state: RunningState, snapshot: SnapshotPlan) -> bool:
        """Hold a new snapshot against the state; False if records have to come first."""
        position = state.position.zxid
        if position < snapshot.fuzzy_until:
            return False
        if state.is_right(snapshot):
            self.proven.good[snapshot.path] = _identity(snapshot)
        elif position < until_of(snapshot) and self._waiting.get(snapshot.path) != position:
            # What was being applied when it was closed may be in it. Nothing more came since.
            self._waiting[snapshot.path] = position
            return False
        else:
            self.proven.bad[snapshot.path] = _identity(snapshot)
            self.proven.trouble.append((snapshot.zxid, until_of(snapshot)))
        self._waiting.pop(snapshot.path, None)
        return True

    def _is_judged(self, snapshot: SnapshotPlan) -> bool:
        known = self.proven.good.get(snapshot.path) or self.proven.bad.get(snapshot.path)
        return known == _identity(snapshot)

    def _begin(self, plan: ReplayPlan, chains: list[ReplayChain], agreement: Agreement) -> None:
        """Prove all that is there, as an audit does, and keep the state at the end of it."""
        proofs = proofs_of(plan, [sums_here(chain) for chain in chain_plans(plan)])
        good = {snapshot for proof in proofs for snapshot in proof.good}
        self.proven = Proven(
            None,
            {snapshot.path: _identity(snapshot) for snapshot in good},
            {one.path: _identity(one) for proof in proofs for one in proof.seen},
            [span for proof in proofs for span in proof.trouble],
            any(proof.has_unknown_digests for proof in proofs),
            max((proof.config for proof in proofs if proof.config), default=None),
        )
        for snapshot in plan.snapshots:
            if not self._is_judged(snapshot):
                # Nothing leads to it or from it, which the replay says.
                self.proven.bad[snapshot.path] = _identity(snapshot)
        committed = agreement.committed
        if committed is None:
            return
        chain = chains[-1]
        bases = [s for s in chain.snapshots if s in good and s.fuzzy_until <= committed]
        if not bases and chain.base is not None:
            return
        base = max(bases, key=lambda s: (s.zxid, s.path), default=None)
        # What lies before was summed up already.
        trouble = list(self.proven.trouble)
        try:
            state = RunningState.begin(self.checkpoint, self.name, base)
            self._advance(state, plan, chain, committed)
        except (StateLost, CorruptSnapshot, OSError):
            # Purged since it was listed: the next look begins with what is there then.
            return
        finally:
            self.proven.trouble = trouble
        self.proven.position = state.position

    # -- what it means -----------------------------------------------------------------------------

    def _replayed(self, plan: ReplayPlan, agreement: Agreement) -> ReplayOutcome:
        """The audit's replay of what is not proven; the last one, if it would be the same."""
        question = _question(plan, agreement, self.proven)
        is_same = question == self._question
        if self._outcome is not None and (is_same or not self._may("replay")):
            return self._outcome
        started = time.monotonic()
        self._outcome = replay_ensemble(PlacesDisk(), plan, self._proofs(plan))
        # What went while it was read is looked for again.
        self._question = question if not self._outcome.unchecked else None
        if any(server.paths for server in self._outcome.servers) or self._question is None:
            self._rest("replay", started)
        return self._outcome

    def _proofs(self, plan: ReplayPlan) -> tuple[ChainProof, ...]:
        proven = self.proven
        return tuple(
            ChainProof(
                chain.pieces[0].first,
                chain.pieces[-1].last,
                chain.base,
                tuple(s for s in chain.snapshots if s is chain.base or s.path in proven.good),
                tuple(
                    sorted(
                        (low, high)
                        for low, high in set(proven.trouble)
                        if chain.pieces[0].first <= high and low <= chain.pieces[-1].last
                    )
                ),
                sum(piece.last - piece.first + 1 for piece in chain.pieces),
                proven.has_unknown_digests,
                proven.config,
                seen=tuple(s for s in chain.snapshots if s.path not in proven.good),
            )
            for chain in chains_of(plan)
        )

    def doubt(self) -> None:
        """Work out everything again in the next look, as an audit would."""
        self.proven.position = None
        self._outcome = self._question = None
        self._resting.clear()

    def _may(self, what: str) -> bool:
        return time.monotonic() >= self._resting.get(what, 0.0)

    def _rest(self, what: str, started: float) -> None:
        now = time.monotonic()
        self._resting[what] = now + (now - started) / _MAX_SHARE


def _identity(snapshot: SnapshotPlan) -> tuple[int, int]:
    return snapshot.zxid, snapshot.state or 0


def _question(plan: ReplayPlan, agreement: Agreement, proven: Proven) -> object:
    """What the answer of a replay depends on; records that all agree on do not change it."""
    return (
        tuple(sorted(proven.trouble)),
        tuple(sorted(proven.bad)),
        proven.has_unknown_digests,
        proven.config,
        tuple(_of_server(server) for server in plan.servers),
        agreement.conflicts,
        plan.buried,
        plan.joins,
        plan.lone_joins,
        plan.electorate,
    )


def _of_server(server: ServerPlan) -> object:
    path, config = ("", "") if server.base is None else (server.base.path, server.base.config)
    is_suspect = (path, server.missing, server.extra, server.latent) if server.is_suspect else None
    return server.name, server.serves, server.head >= 0, config, is_suspect


@dataclass(slots=True)
class PlacesLooks:
    """All ensembles at some places."""

    places: tuple[str, ...]
    checkpoint: Checkpoint
    files: TrackedFiles
    _ensembles: dict[str, EnsembleLooks] = field(default_factory=dict)
    _listed: Sequence[EnsembleFiles] = ()

    def look(self) -> list[EnsembleResult]:
        """One look; raises PlaceError. What it learns is in the checkpoint when it returns."""
        listed = self._listed = discover(list(self.places))
        with self.checkpoint.changing():
            self.files.begin()
            stored = {} if self._ensembles else self.checkpoint.texts(_KIND)
            results = []
            for one in listed:
                watch = self._ensembles.get(one.name)
                if watch is None:
                    known = stored.get(one.name)
                    proven = msgspec.msgpack.decode(known, type=Proven) if known else Proven()
                    watch = EnsembleLooks(one.name, self.files, self.checkpoint, proven)
                    self._ensembles[one.name] = watch
                results.append(watch.look(one))
            self.files.forget_others()
        return results

    def doubt(self, findings: Sequence[Finding], young_s: float) -> None:
        """Read again what findings are about, and what was written in the last seconds.

        A file that is read while it is written may show a later write without an earlier one.
        """
        since = time.time() - young_s
        named = {finding.file for finding in findings}
        with self.checkpoint.changing():
            for files in self._listed:
                if files.name not in {finding.ensemble for finding in findings}:
                    continue
                self._ensembles[files.name].doubt()
                for server in files.servers:
                    for entry in server.files:
                        if entry.path in named or entry.mtime >= since:
                            self.files.forget(entry.path)
