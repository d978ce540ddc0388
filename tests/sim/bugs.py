"""Bugs of the family that the simulator is there for, which tests can switch on one at a time.

A bug is a change of the program's own text: a piece of a function, and what stands there in the
buggy program. It is compiled anew from the changed source and put in place for a while. If the
piece is no longer there the switch fails loudly: then the bug has to be planted in another way.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One piece of text that is replaced in one function."""

    module: str
    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: what somebody might have written instead."""

    name: str
    changes: tuple[Change, ...]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Run with a bug in the program."""
    undone: list[tuple[Any, Any, Any]] = []
    try:
        for place in dict.fromkeys((change.module, change.function) for change in bug.changes):
            owner, name, original = _find(*place)
            changes = [c for c in bug.changes if (c.module, c.function) == place]
            changed = _changed(original, changes)
            undone.append((owner, name, original))
            setattr(owner, name, changed)
            undone.extend(_replace_references(original, changed))
        yield
    finally:
        for owner, name, original in reversed(undone):
            if isinstance(owner, dict):
                owner[name] = original
            else:
                setattr(owner, name, original)


def _find(module: str, function: str) -> tuple[Any, str, Any]:
    owner: Any = importlib.import_module(module)
    *parents, name = function.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name, inspect.getattr_static(owner, name)


def _replace_references(original: Any, changed: Any) -> list[tuple[Any, Any, Any]]:
    """Put a changed function also where others have imported it, and into tables of handlers."""
    found: list[tuple[Any, Any, Any]] = []
    for module in [m for n, m in sys.modules.items() if n.startswith("keepfast.")]:
        for name, value in list(vars(module).items()):
            if value is original:
                found.append((module, name, original))
                setattr(module, name, changed)
            elif isinstance(value, dict) and not name.startswith("__"):
                for key in [key for key, entry in value.items() if entry is original]:
                    found.append((value, key, original))
                    value[key] = changed
    return found


def _changed(original: Any, changes: list[Change]) -> Any:
    function: Any = original.fget if isinstance(original, property) else original
    function = getattr(function, "__func__", function)  # of a class method
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if source.count(change.old) != 1:
            where = f"{change.module}.{change.function}"
            raise LookupError(f"{where} does not have once: {change.old!r}")
        source = source.replace(change.old, change.new)
    namespace: dict[str, Any] = {}
    code = compile(source, f"<bug in {function.__qualname__}>", "exec")
    exec(code, function.__globals__, namespace)
    return namespace[function.__name__]


BUGS = (
    Bug(
        "ack before fsync",
        (
            Change(
                "keepfast.quorum.learner",
                "Learner._acknowledge",
                "unacked, durable = self._unacked, self.durable",
                "unacked, durable = self._unacked, self.last_received",
            ),
            Change(
                "keepfast.quorum.learner",
                "Learner._on_proposal",
                "    self._take(packet.zxid, packet.data)",
                "    self._take(packet.zxid, packet.data)\n"
                "    if self.stage in (Stage.ACKED, Stage.ACTIVE):\n"
                "        self._acknowledge()",
            ),
        ),
    ),
    Bug(
        "no directory fsync",
        (
            Change(
                "keepfast.sim.memory_disk",
                "MemoryDisk.fsync_directory",
                'if "fsync_directory" not in self.ignored:',
                "if False:",
            ),
        ),
    ),
    Bug(
        "snapshot renamed before fsync",
        (
            Change(
                "keepfast.storage.snapshot_writer",
                "SnapshotWriter.complete",
                "self._file.fsync()",
                "pass",
            ),
        ),
    ),
    Bug(
        "TRUNC keeps later snapshots",
        (
            Change(
                "keepfast.storage.store",
                "Store._truncate",
                "snapshots = tuple(s for s in sealed.snapshots if s.zxid <= zxid)",
                "snapshots = sealed.snapshots",
            ),
            Change(
                # As Apache does: what the log holds at a start is not all committed.
                "keepfast.sim.process",
                "Process.start",
                "self.run(self.loop.start)",
                "self.run(self.loop.start)\n"
                "    tree = self.loop.core.tree\n"
                "    if tree is not None:\n"
                "        self.run(lambda: self.loop.snapshots.begin(tree))",
            ),
        ),
    ),
    Bug(
        "TRUNC cuts behind the next record",
        (
            Change(
                "keepfast.storage.truncation",
                "_cut",
                "if frame.zxid == zxid:",
                "if frame.zxid > zxid:",
            ),
        ),
    ),
    Bug(
        "SNAP keeps the old log",
        (
            Change(
                "keepfast.storage.store",
                "Store._install",
                "segments=(),",
                "segments=self._sealed_segments(),",
            ),
            Change(
                "keepfast.storage.store",
                "Store._install",
                "old = {*listing.snapshots, *listing.logs} - {entry.name}",
                "old = {*listing.snapshots} - {entry.name}",
            ),
        ),
    ),
    Bug(
        "DIFF over a hole",
        (
            Change(
                "keepfast.quorum.planner",
                "_meeting_point",
                "return last_common(chain, learner.chain)",
                "return min(chain.head, learner.chain.head)",
            ),
            Change(
                "keepfast.storage.history",
                "History.serves_after",
                "return zxid == self.head or",
                "return True or zxid == self.head or",
            ),
            Change(
                "keepfast.storage.history",
                "History.records_after",
                "if not self._in_log(zxid):\n        return None",
                "if False:\n        return None",
            ),
            Change(
                "keepfast.storage.history",
                "History._frames",
                "if not is_next and joins.get(following) != reached:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "first DIFF record unchecked",
        (
            Change(
                "keepfast.quorum.planner",
                "_meeting_point",
                "return last_common(chain, learner.chain)",
                "return min(chain.head, learner.chain.head)",
            ),
            Change(
                "keepfast.storage.history",
                "History.serves_after",
                "return zxid == self.head or",
                "return True or zxid == self.head or",
            ),
            Change(
                "keepfast.storage.history",
                "History.records_after",
                "if not self._in_log(zxid):\n        return None",
                "if False:\n        return None",
            ),
            Change(
                "keepfast.storage.history",
                "History._frames",
                "if not is_next and joins.get(following) != reached:",
                "if False:",
            ),
            Change(
                "keepfast.quorum.learner",
                "Learner._take",
                "is_next = follows_in_epoch(zxid, last)",
                "is_next = self.stage is Stage.SYNCING or follows_in_epoch(zxid, last)",
            ),
            Change(
                "keepfast.storage.store",
                "Store.append_all",
                "if zxid != head + 1 or not zxid & MAX_COUNTER:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "purge by count",
        (
            Change(
                "keepfast.storage.retention",
                "plan_retention",
                "good = [s for s in manifest.snapshots if s.name in proven "
                "and has_path(manifest, s, head)]",
                "good = list(manifest.snapshots)",
            ),
            Change(
                "keepfast.storage.store",
                "Store._purge",
                "if self.degraded or self.standing is not Standing.WHOLE:",
                "if self.standing is not Standing.WHOLE:",
            ),
            # With the damaged ones put aside, there would be nothing to count wrongly.
            Change(
                "keepfast.storage.recovery_listed",
                "recover_listed",
                "if damaged and result.standing is Standing.WHOLE:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "epoch written before history",
        (
            Change(
                "keepfast.quorum.learner",
                "Learner.finish",
                "if self.durable >= self.last_received:",
                "if True:\n        self._acknowledge_epoch()",
            ),
        ),
    ),
    Bug(
        "memory kept over a role change",
        (
            Change(
                "keepfast.replica.member_state",
                "MemberState.hold",
                "= tree, False\n",
                "= self.tree or tree, False\n",
            ),
        ),
    ),
    Bug(
        "wiped server votes",
        (
            Change(
                "keepfast.quorum.election",
                "Election.may_initialise",
                "and not self.waiting_for",
                "",
            ),
        ),
    ),
    Bug(
        "damaged server votes",
        (
            Change(
                "keepfast.storage.recovery_listed",
                "_replay_open",
                "acknowledged = acknowledged_end(entry, watermark)",
                "acknowledged = entry.start",
            ),
            Change(
                "keepfast.storage.recovered",
                "doubted",
                "standing=Standing.UNPROVEN,",
                "standing=Standing.WHOLE,",
            ),
        ),
    ),
    Bug(
        "digest mismatch ignored",
        (
            Change(
                "keepfast.replica.following",
                "Following._applied",
                "    state, guard = self._state, self._guard\n",
                "    state, guard = self._state, self._guard\n"
                "    zxid = 1 if entry is None else entry.header.zxid\n"
                "    if state.server_id == 2 and zxid % 4 == 0:\n"
                "        state.tree.digest ^= 1  # a bit of its memory has turned over\n",
            ),
            Change(
                "keepfast.replica.digest_guard",
                "DigestGuard.agrees",
                "if fit is DigestFit.UNKNOWN:",
                "if True:",
            ),
        ),
    ),
    Bug(
        "session end without its paths",
        (
            Change(
                "keepfast.tree.pending",
                "PendingChanges.ephemerals_in_slices",
                "candidates = self._candidates(session_id)",
                "candidates: list[str] = []",
            ),
        ),
    ),
    Bug(
        "replies before the events of a long txn",
        (
            Change(
                "keepfast.replica.event_gate",
                "EventGate.holds",
                "self.held[connection] = None",
                "return False",
            ),
        ),
    ),
    Bug(
        "missing epoch guessed",
        (
            Change(
                "keepfast.replica.member_state",
                "MemberState.__init__",
                "self.accepted_epoch = started if facts.accepted_epoch is None "
                "else facts.accepted_epoch",
                "self.accepted_epoch = started",
            ),
            Change(
                "keepfast.replica.member_state",
                "MemberState.__init__",
                "self.current_epoch = started if facts.current_epoch is None "
                "else facts.current_epoch",
                "self.current_epoch = started",
            ),
            Change(
                "keepfast.storage.store",
                "Store._set_epochs",
                "old is None or (new is not None and new >= old)",
                "True",
            ),
        ),
    ),
    Bug(
        "partial multi",
        (
            Change(
                "keepfast.tree.strict",
                "_multi",
                "    if failure is not None:\n        return failure",
                "    if failure is not None:\n"
                "        ops = tuple(op for op in ops if op.type != OpCode.ERROR)\n"
                "        if not ops:\n"
                "            return failure",
            ),
        ),
    ),
    Bug(
        "read served by a deposed leader",
        (
            Change(
                "keepfast.replica.handshake",
                "Handshake._connect",
                "if request.last_zxid_seen > service.last_zxid:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "commit counted from a non-voter",
        (
            Change(
                "keepfast.quorum.leader",
                "Leader._is_voting",
                "return learner.is_follower and learner.server_id in self.quorums.voters",
                "return learner.is_follower",
            ),
            Change(
                "keepfast.quorum.membership",
                "Membership.is_quorum",
                "voters = self.voters.intersection(ids)",
                "voters = frozenset(ids)",
            ),
            Change(
                "keepfast.quorum.learner",
                "Learner.on_connected",
                "        facts.has_voice,",
                "        True,",
            ),
            Change(
                "keepfast.quorum.learner",
                "Learner._acknowledge",
                "if not self.facts.has_voice:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "commit by the leader alone",
        (
            Change(
                "keepfast.quorum.acknowledged",
                "agreed_point",
                "if quorums.is_quorum([id for id, acked in acks.items() if acked >= zxid]):",
                "if True:",
            ),
        ),
    ),
    Bug(
        "reconfig without joint quorum",
        (
            Change(
                "keepfast.quorum.quorums",
                "Quorums.is_quorum",
                "return self.current.is_quorum(ids) and "
                "(self.next is None or self.next.is_quorum(ids))",
                "return self.current.is_quorum(ids)",
            ),
        ),
    ),
    Bug(
        "applied before it is committed",
        (
            Change(
                "keepfast.quorum.learner",
                "Learner._due_up_to",
                "return min(self.committed, self.durable)",
                "return self.durable",
            ),
        ),
    ),
    Bug(
        "answers matched by session and xid",
        (
            Change(
                "keepfast.replica.forwarder",
                "Forwarder.take",
                "queue = self._forwarded.get(session_id)",
                "open_ones = [\n"
                "        one\n"
                "        for one in self._forwarded.get(session_id, ())\n"
                "        if one.connection.is_open and one.waiting.reply is None\n"
                "    ]\n"
                "    queue = deque(open_ones) or None",
            ),
            Change(
                "keepfast.replica.forwarder",
                "Forwarder.take",
                "or zxid <= found.connection.moved_at",
                "or False",
            ),
            Change(
                "keepfast.replica.forwarder",
                "Forwarder.take",
                "    if not queue:\n        del self._forwarded[session_id]",
                "    pass",
            ),
        ),
    ),
    Bug(
        "unknown session told that it expired",
        (
            Change(
                "keepfast.replica.handshake",
                "Handshake._reconnect",
                "elif self.proposer is not None:",
                "elif session_id not in service.sessions:\n"
                "        self.found(connection, is_valid=False)\n"
                "    elif self.proposer is not None:",
            ),
        ),
    ),
    Bug(
        "no pause after a failed term",
        (
            Change(
                "keepfast.replica.back_off",
                "BackOff.pause_ms",
                "if self._failures <= _QUICK_FAILURES:",
                "if True:",
            ),
        ),
    ),
    Bug(
        "sessions ended without asking for touches",
        (
            Change(
                "keepfast.replica.proposer",
                "Proposer.tick",
                "self.sessions.expired(now_ms, MAX_EXPIRED, is_silent)",
                "self.sessions.expired(now_ms, MAX_EXPIRED)",
            ),
            Change(
                "keepfast.replica.replica",
                "Replica.tick",
                "if is_late:",
                "if False:",
            ),
        ),
    ),
)
