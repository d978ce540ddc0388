"""What a planted damage is, and where in a life one can be planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from keepfast.pipeline.findings.document import EnsembleResult, Finding, FindingSeverity
from keepfast.wire import make_zxid
from tests.pipeline.ensembles import Life, LogFile, Member, SnapshotFile


@dataclass(frozen=True, slots=True)
class Planted:
    """What was done, to whom, and how it may be told."""

    check: str  # the check that this is meant for
    server: str
    checks: frozenset[str]  # the checks one of which must name the server above a note
    kind: str = ""  # the kind that must be named, where only one is right
    zxid: int | None = None  # the first divergent zxid, where only one is right

    def found_in(self, result: EnsembleResult) -> list[Finding]:
        """The findings that tell this damage."""
        return [
            finding
            for finding in result.findings
            if finding.severity is not FindingSeverity.NOTE
            and finding.server == self.server
            and finding.check in self.checks
            and (not self.kind or finding.kind == self.kind)
            and (self.zxid is None or finding.first_zxid == self.zxid)
        ]


Planter = Callable[[Life], Planted | None]


def planted_by(
    check: str, member: Member, also: str = "", kind: str = "", zxid: int | None = None
) -> Planted:
    return Planted(check, member.name, frozenset([check, *also.split()]), kind, zxid)


# -- choosing --------------------------------------------------------------------------------------


def others_holding(life: Life, member: Member, zxid: int) -> int:
    return sum(
        any(z == zxid for log in other.logs for z, _ in log.entries)
        for other in life.members
        if other is not member
    )


def records_of(life: Life, *, is_inner: bool = False) -> list[tuple[Member, LogFile, int]]:
    """Agreed records behind the newest snapshot of a server that two others hold as well."""
    known = dict(life.history)
    found = []
    for member in life.members:
        in_force = member.in_force()
        for position, (log, index) in enumerate(in_force):
            zxid, raw = log.entries[index]
            if known.get(zxid) != raw or others_holding(life, member, zxid) < life.quorum:
                continue
            if is_inner and not 0 < position < len(in_force) - 1:
                continue
            if member.snapshots and member.snapshots[member.base].fuzzy_until >= zxid:
                continue
            found.append((member, log, index))
    return found


def pick(life: Life, *, is_inner: bool = False) -> tuple[Member, LogFile, int] | None:
    found = records_of(life, is_inner=is_inner)
    return life.random.choice(found) if found else None


def with_base(life: Life) -> Member | None:
    found = [m for m in life.members if m.base > 0]
    return life.random.choice(found) if found else None


def whole_servers(life: Life) -> list[Member]:
    """Servers that are up and have everything."""
    return [m for m in life.up if m.position == life.zxid and not m.extra]


def corroborated(life: Life, member: Member, snapshot: SnapshotFile) -> bool:
    """Whether two others, or the whole history, can say what the snapshot should hold."""
    others = [m for m in life.members if m is not member]
    begins = [m for m in others if m.logs and m.logs[0].zxid == make_zxid(1, 1)]
    reach = [m for m in others if m.position >= snapshot.fuzzy_until]
    return bool(begins) and len(reach) >= life.quorum
