"""What servers delete on their own, and what they refuse: containers, TTLs, quotas.

The rules are stated here independently of the code under test.
"""

from __future__ import annotations

from typing import Any, Final

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.tree import QUOTA, Kind, kind_of_owner
from keepfast.wire import (
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    OpCode,
    ServerId,
    Stat,
    Zxid,
    codec_of,
    format_zxid,
)

_STAT: Final = codec_of(Stat)
_TTL_BITS: Final = (1 << 40) - 1
_LIMITS: Final = "/zookeeper_limits"
_STATS: Final = "/zookeeper_stats"
_HARD_LIMIT: Final = "countHardLimit="


class CleaningChecker(Checker):
    """A server deletes only containers that are empty again and znodes whose time is over."""

    name = "cleaning"

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        entry = self.ledger.decoded[zxid]
        if entry.header.type != OpCode.DELETE_CONTAINER or not isinstance(entry.body, DeleteTxn):
            return
        path = entry.body.path
        state = self.ledger.state_at(path, zxid - 1)
        if state.stat is None:
            return  # exact replay complains
        if state.children:
            self._complain(path, zxid, "it has children")
        kind = kind_of_owner(state.owner)
        stat = _STAT.decode(state.stat)
        if kind is Kind.TTL:
            age_ms = entry.header.time_ms - stat.mtime
            ttl_ms = state.owner & _TTL_BITS
            if age_ms < ttl_ms:
                self._complain(path, zxid, f"it is {age_ms} ms old, of {ttl_ms}")
        elif kind is not Kind.CONTAINER:
            self._complain(path, zxid, "it is neither a container nor has it a TTL")

    def _complain(self, path: str, zxid: Zxid, why: str) -> None:
        raise Violation(
            self.name, f"{path} is deleted by a server at {format_zxid(zxid)}, and {why}"
        )


class QuotaChecker(Checker):
    """No znode is made beyond a hard limit, where limits are enforced.

    As with Apache, what is under way is not counted: so many may come on top. Nor is what changes
    while there are no limits, if the statistics stay: they are counted when they are made and when
    a server loads a snapshot, and limits that are made again do not have them recounted.
    """

    name = "quota"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.is_enforced = False
        self.under_way = 0

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        if not self.is_enforced:
            return
        body: Any = self.ledger.decoded[zxid].body
        if not isinstance(body, CreateTxn | CreateTTLTxn | CreateContainerTxn):
            return
        subject = "/" + body.path.split("/")[1]
        limits = self.ledger.state_at(f"{QUOTA}{subject}{_LIMITS}", zxid - 1)
        text = (limits.data or b"").decode()
        stats = self.ledger.state_at(f"{QUOTA}{subject}{_STATS}", zxid - 1)
        if _HARD_LIMIT not in text or stats.stat is None:
            return  # nobody counts
        limit = int(text.partition(_HARD_LIMIT)[2].partition(";")[0])
        count = self._count(subject, zxid)
        if count > limit + self.under_way and count > (
            limit + self.under_way + self._not_counted(subject, zxid, _STAT.decode(stats.stat))
        ):
            raise Violation(
                self.name,
                f"{body.path} is made at {format_zxid(zxid)}: {count} znodes, and {limit} are "
                f"allowed below {subject}",
            )

    def _count(self, subject: str, zxid: int) -> int:
        below, ledger = f"{subject}/", self.ledger
        return sum(
            (path == subject or path.startswith(below))
            and ledger.state_at(path, zxid).stat is not None
            for path in ledger.states
        )

    def _not_counted(self, subject: str, zxid: int, stats: Stat) -> int:
        """The most znodes below a path that a server may not have counted, for lack of limits.

        It has counted all when it loaded a snapshot with limits in it, whenever that was.
        """
        most, off_since = 0, 0
        for state in self.ledger.states.get(f"{QUOTA}{subject}{_LIMITS}", ()):
            if state.zxid > zxid:
                break
            if state.stat is None:
                off_since = state.zxid
            elif off_since >= 0:
                since = max(off_since, stats.czxid)
                if since < state.zxid:
                    grown = self._count(subject, state.zxid) - self._count(subject, since)
                    most = max(0, most + grown)
                off_since = -1
        return most
