"""Why the state of one server is another one, as its files and its peers' show: A2, A3, A6, A14."""

from __future__ import annotations

from keepfast.pipeline.agreement.committed import Agreement, Interval, IntervalStanding, Missing
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.advice import advice_of, cause_of
from keepfast.pipeline.findings.document import Finding
from keepfast.pipeline.findings.local import ERROR, others_of
from keepfast.pipeline.replay.plan import ServerOutcome, holes_below, refusal, trusts_empty
from keepfast.pipeline.scan.facts import LogFacts
from keepfast.wire import epoch_of, format_zxid


def range_of(first: int, last: int) -> str:
    return format_zxid(first) if first == last else f"{format_zxid(first)} to {format_zxid(last)}"


class Divergence:
    """Why the state of one server is another one, as its files and its peers' show."""

    def __init__(
        self,
        view: EnsembleView,
        agreement: Agreement,
        server: ServerView,
        outcome: ServerOutcome,
        wrong_bases: set[str],
    ) -> None:
        self.view = view
        self.agreement = agreement
        self.server = server
        self.outcome = outcome
        self.has_wrong_base = server.base is not None and server.base.path in wrong_bases
        self.serves = refusal(view, server) is None or trusts_empty(view, server, agreement)
        self.holes = [m for m in agreement.missing if m.server == server.name and m.is_in_force]
        # What it lacked when the wrong tree was written to its base.
        self.below = self._holes_below() if self.has_wrong_base and not self.holes else []
        self.stale = [
            interval
            for interval in agreement.intervals
            if interval.standing in (IntervalStanding.STALE, IntervalStanding.DOUBTFUL)
            and server.name in interval.holders
            and self._is_in_force(interval)
        ]
        self.conflicts = [
            c for c in agreement.conflicts if server.name in c.wrong and c.zxid > server.base_zxid
        ]

    def _holes_below(self) -> list[Missing]:
        """The holes below a wrong base whose records touch what differs."""
        found = holes_below(self.server, self.agreement)
        return [m for m in found if any(m.first <= z <= m.last for z in self.outcome.touching)]

    def _is_in_force(self, interval: Interval) -> bool:
        """Whether the records come back at a start, or are in the base already."""
        server = self.server
        told = (*self.outcome.writers, *self.outcome.touching)
        if any(interval.first <= zxid <= interval.last for zxid in told):
            return True
        return interval.last > server.base_zxid and not is_waiting(server, interval)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to say; that a server has no base at all is said by A8."""
        if self.server.base is None and not self.serves:
            return bool(self.conflicts or self.stale)
        return bool(self.outcome.paths or self.holes or self.stale or self.conflicts)

    def finding(self) -> Finding:
        """What happened to this server."""
        check, kind, evidence = self._kind()
        paths = self.outcome.paths
        first = self._first()
        holes = self.holes or self.below
        lasts = [m.last for m in holes] + [i.last for i in self.stale]
        lasts += [c.zxid for c in self.conflicts]
        if paths:
            noun = "znode differs" if len(paths) == 1 else "znodes differ"
            evidence += f"; {len(paths)} {noun} from the agreed state"
        file, offset = self.server.file_of(first) if first is not None else (None, None)
        if file is None and holes:
            file, offset = self.server.file_of(holes[0].after)
        if kind == "wrong-snapshot" and self.server.base is not None:
            file, offset = self.server.base.path, None
        doubtful = any(self._is_open(interval) for interval in self.stale)
        serves = self.serves and not self.server.is_managed
        return Finding(
            *(check, kind, ERROR, self.view.name, evidence),
            advice_of("doubtful" if doubtful else kind, self.server.name, self._believed()),
            cause_of(self._cause(kind)),
            server=self.server.name,
            file=file,
            offset=offset,
            first_zxid=first,
            last_zxid=max([*lasts, first], default=first) if first is not None else None,
            paths=paths,
            is_divergence=serves and bool(paths or self.stale or self.conflicts),
        )

    def _first(self) -> int | None:
        """The first zxid at which the history of this server is another one.

        Of what it lacks, the first that made a difference: sessions that came and went make none.
        """
        touching = self.outcome.first_divergent
        if touching is not None:
            found = [touching]
        else:
            found = [m.first for m in self.holes if m.is_known] or [m.first for m in self.holes]
        found += [i.first for i in self.stale] + [c.zxid for c in self.conflicts]
        return min(found, default=min(self.outcome.writers, default=None))

    def _believed(self) -> list[str]:
        bad = {m.server for m in self.agreement.missing if m.is_in_force}
        bad |= {n for i in self.agreement.of(IntervalStanding.STALE) for n in i.holders}
        others = others_of(self.view, self.server.name)
        return [name for name in others if name not in bad] or others

    def _kind(self) -> tuple[str, str, str]:
        """Check, kind and evidence."""
        if self.holes:
            return self._kind_of_hole(self.holes)
        if self.stale and not (self.conflicts and self.conflicts[0].zxid < self.stale[0].first):
            return "A3", *self._kind_of_stale()
        if self.below:
            check, kind, text = self._kind_of_hole(self.below)
            base = self.server.base
            return check, kind, f"{text}; {base.path if base else ''} was written of that state"
        if self.conflicts:
            zxid = self.conflicts[0].zxid
            text = f"its record {format_zxid(zxid)} is not the one that most servers have"
            if self.stale:
                first, last = self.stale[0].first, self.stale[-1].last
                text += f", and {range_of(first, last)} was never committed"
            return "A3", "different-records", text
        if self.has_wrong_base and self.server.base is not None:
            text = f"{self.server.base.path} is not what the records make"
            if self._stale_base():
                text = (
                    f"{self.server.base.path} is the tree at {format_zxid(self.server.base.zxid)}, "
                    "which was never committed, and its log does not hold"
                )
            return "A6", "wrong-snapshot", text
        if any(not bad.is_torn for log in self.server.logs for bad in log.bad):
            return "A6", "record-damaged", "damage in its logs hides records"
        return "A6", "state-differs", "its records agree with the others', its state does not"

    def _cause(self, kind: str) -> str:
        """Which of the ways to a kind of failure its files show, as a key of `CAUSES`."""
        if self._stale_base():
            return "snapshot-of-stale"
        if kind == "stale-record-after-trunc" and not self._is_cut_behind(self.stale[0]):
            return "trunc-lost"
        if kind == "lost-snapshot-gap":
            hole = (self.holes or self.below)[0]
            # A log is named by the record that it is begun for, before that is written.
            if any(log.zxid == hole.first < _first_of(log) for log in self.server.logs):
                return "record-refused"
            if hole.before == self.server.base_zxid and hole.after == self.server.first:
                return "logs-purged"
        return kind

    def _stale_base(self) -> bool:
        """Whether the snapshot is of a zxid that the others passed over, and nobody's log holds."""
        base = self.server.base
        told = self.holes or self.below or self.stale or self.conflicts
        if not self.has_wrong_base or base is None or told:
            return False
        agreed = self.agreement.agreed
        is_held = any(first <= base.zxid <= last for first, last in agreed)
        is_passed_over = any(
            last < base.zxid and epoch_of(last) == epoch_of(base.zxid) for _, last in agreed
        ) and any(epoch_of(first) > epoch_of(base.zxid) for first, _ in agreed)
        return is_passed_over and not is_held

    def _is_open(self, interval: Interval) -> bool:
        """Whether nothing decides if a record was committed: neither votes nor the states."""
        is_told_by_states = self.has_wrong_base and bool(self.outcome.paths)
        return interval.standing is IntervalStanding.DOUBTFUL and not is_told_by_states

    def _kind_of_hole(self, holes: list[Missing]) -> tuple[str, str, str]:
        hole = holes[0]
        lost = ", ".join(range_of(m.first, m.last) for m in holes[:4])
        if hole.before == 0 and (self.server.base is None or hole in self.below):
            text = f"the logs begin at {format_zxid(hole.after)}: {lost} are missing"
            if self.server.base is not None:
                text = f"no sound snapshot is older than {self.server.base.path}, and {text}"
            else:
                text = f"no snapshot can be read and {text}"
                if refusal(self.view, self.server) is not None:
                    text += "; it runs all the same, as snapshot.trust.empty lets it"
            return "A2", "missing-prefix", text
        is_one = len(holes) == 1 and hole.first == hole.last
        floor = -1 if hole in self.below else self.server.base_zxid
        begin = max(hole.before, floor) + 1
        if len(holes) == 1 and begin < hole.first and epoch_of(begin) == epoch_of(hole.after):
            # The first of them are on no server any more.
            lost, is_one = range_of(begin, hole.after - 1), False
        lost += " is" if is_one else " are"
        text = f"hole between {format_zxid(hole.before)} and {format_zxid(hole.after)}: {lost}"
        rotten = [s.path for s in self.server.snapshots if not s.is_valid and hole.first <= s.zxid]
        source = None if rotten else self._source_of(hole)
        if source is not None:
            # A latent one, below the base, came from elsewhere and did nothing.
            came_along = [i for i in self.stale if source in i.holders]
            if any(i.first <= hole.before <= i.last for i in came_along):
                text = (
                    f"{format_zxid(hole.before)} was never committed, and {lost} missing; "
                    f"server {source} has the same record and hole, harmless there under a snapshot"
                )
                return "A3", "stale-record-served-as-committed", text
            text += f" missing; server {source} has the same hole under a snapshot"
            return "A2", "gap-served-as-diff", text
        if any(not b.is_torn for log in self.server.logs for b in log.bad):
            return "A1", "record-damaged", f"{text} hidden by damage"
        if rotten:
            text += f" missing, and {rotten[0]} that held their effects cannot be read"
        else:
            text += f" missing, and no snapshot holds {'its' if is_one else 'their'} effects"
        return "A2", "lost-snapshot-gap", text

    def _source_of(self, hole: Missing) -> str | None:
        """The server whose logs lack the same up to the same record, made up for by a snapshot."""
        for other in self.agreement.missing:
            is_same = other.after == hole.after and other.last == hole.last
            is_same &= other.server != hole.server
            if is_same and other.first <= hole.first and not other.is_in_force:
                return other.server
        return None

    def _kind_of_stale(self) -> tuple[str, str]:
        interval = self.stale[0]
        text = f"{range_of(interval.first, interval.last)} was never committed"
        if self._is_open(interval):
            text = (
                f"server {', '.join(sorted(interval.holders))} has "
                f"{range_of(interval.first, interval.last)}, server "
                f"{', '.join(sorted(interval.skippers))} passes over it: one of them is wrong"
            )
        elif interval.skippers:
            text += f": {names_of(interval.skippers)} joined a later epoch without it"
        if self._is_cut_behind(interval):
            return "stale-record-after-trunc", f"{text}; the log was cut right after it"
        text += "; it is replayed at a start"
        if self._has_snapshot_before(interval):
            return "stale-record-after-snap", text
        return "stale-record-after-trunc", f"{text}, and no SNAP has left a snapshot in front of it"

    def _is_cut_behind(self, interval: Interval) -> bool:
        """Whether a log ends with an interval, without the zeros that are put after records."""
        return any(
            interval.last == run.last and run.end == log.end and not log.is_padded
            for run, log in self.server.runs
        )

    def _has_snapshot_before(self, interval: Interval) -> bool:
        """Whether a snapshot, even a rotten one, is of the last agreed zxid before an interval.

        A SNAP leaves one there, or the interval would not be replayed after it.
        """
        before = (last for _, last in self.agreement.agreed if last < interval.first)
        fork = max(before, default=0)
        return any(fork <= s.zxid < interval.first for s in self.server.snapshots)


def _first_of(log: LogFacts) -> int:
    return min((run.first for run in log.runs), default=0)


def names_of(servers: frozenset[str]) -> str:
    return ("server " if len(servers) == 1 else "servers ") + ", ".join(sorted(servers))


def is_waiting(server: ServerView, interval: Interval) -> bool:
    """Whether a server stopped right after an interval and has not been back since.

    What it holds too much is cut when it joins again.
    """
    newer = any(s.zxid > interval.last for s in server.snapshots)
    beyond = any(last > interval.last for _, last in server.spans)
    current = server.epochs.current
    rejoined = current is not None and current > epoch_of(interval.last)
    return not (newer or beyond or rejoined)
