"""A generator of ensembles: lives of servers told by a seed, written as Apache would leave them.

The leader's tree is the only one.  Servers are files: what each logged, which snapshots it took,
what it lost sight of.  Everything that the audit must not be alarmed by happens here: elections,
DIFF, TRUNC and SNAP, fuzzy snapshots, purges, tails that were never committed, torn tails, servers
that stay behind, the formats of 3.4 to 3.9.  `planting` adds what it must find.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import cramjam

from keepfast.storage import frame
from keepfast.tree import CONFIG, Caller, PrepareOptions, Preparer, Tree, encode_node, make_node
from keepfast.wire import (
    CreateSessionTxn,
    ErrorTxn,
    KeeperError,
    LogEntry,
    MultiOp,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_entry,
    encode,
    encode_entry,
    make_zxid,
)
from tests.tree.wishes import Wisher

VERSIONS = ("3.4", "3.5", "3.6", "3.9")
LOG_HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
SNAPSHOT_HEADER = b"ZKSN" + struct.pack(">iq", 2, -1)
_SEAL = struct.Struct(">qi1s")
_MODERN_TYPES = {OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL}
_START_MS = 1_700_000_000_000
_START_S = 1_700_000_000


@dataclass(slots=True)
class LogFile:
    """One log: records and what lies behind them."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    is_padded: bool = True
    tail: bytes = b""
    mtime: int = 0
    name: int | None = None  # None: the zxid of its first record
    patches: list[tuple[int, bytes]] = field(default_factory=list)  # offset, bytes

    @property
    def zxid(self) -> int:
        return self.entries[0][0] if self.name is None else self.name

    def content(self) -> bytes:
        body = b"".join(frame(entry) for _, entry in self.entries)
        padding = b"" if not self.is_padded else bytes(2048)
        content = bytearray(LOG_HEADER + body + self.tail + padding)
        for offset, data in self.patches:
            content[offset : offset + len(data)] = data
        return bytes(content)

    def offset_of(self, index: int) -> int:
        """Where a record begins."""
        return len(LOG_HEADER) + sum(len(frame(entry)) for _, entry in self.entries[:index])


@dataclass(slots=True)
class SnapshotFile:
    """One snapshot in parts, so that one of them can be changed and all sealed anew."""

    zxid: int
    head: bytes
    nodes: list[tuple[str, bytes]]
    tails: list[bytes]
    mtime: int
    fuzzy_until: int

    @property
    def content(self) -> bytes:
        records = b"".join(record for _, record in self.nodes)
        return seal(self.head + records + struct.pack(">i", 1) + b"/", self.tails)


@dataclass(slots=True)
class Member:
    """One server."""

    name: str
    logs: list[LogFile] = field(default_factory=list)
    snapshots: dict[int, SnapshotFile] = field(default_factory=dict)
    epoch: int = 1
    position: int = 0  # the last zxid of the history that it has
    extra: list[int] = field(default_factory=list)  # zxids that were never committed, at its end
    is_up: bool = True
    is_open: bool = False  # its last log goes on
    packing: str = ""
    has_log_dir: bool = False
    accepted: str | None = ""  # text of acceptedEpoch; "": as it should be, None: no file
    current: str | None = ""
    config: str = ""
    has_digests: bool = True  # one server of an ensemble may be told to write none
    raw: dict[str, bytes] = field(default_factory=dict)  # files that are written as they are

    def append(self, zxid: int, entry: bytes, now: int) -> None:
        if not self.is_open:
            self.logs.append(LogFile())
            self.is_open = True
        self.logs[-1].entries.append((zxid, entry))
        self.logs[-1].mtime = now

    @property
    def base(self) -> int:
        """The zxid of the newest snapshot; -1 without one."""
        return max(self.snapshots, default=-1)

    def in_force(self) -> list[tuple[LogFile, int]]:
        """The records behind the newest snapshot: file and position in it."""
        return [
            (log, index)
            for log in self.logs
            for index, (zxid, _) in enumerate(log.entries)
            if zxid > self.base
        ]


class Life:
    """An ensemble and what happens to it."""

    def __init__(self, seed: int, version: str | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.version = version or self.random.choice(VERSIONS)
        size = self.random.choice((3, 3, 3, 5))
        self.members = [Member(str(number)) for number in range(1, size + 1)]
        self.leader = self.members[-1]
        self.history: list[tuple[int, bytes]] = []
        self.tree = Tree()
        self.epoch, self.counter, self.now, self.cxid = 1, 0, 0, 0
        self._options = PrepareOptions(is_ttl_enabled=self.is_modern)
        self._preparer = Preparer(self.tree, self._options)
        self._wisher = Wisher(self.random)
        self._sessions: list[SessionId] = []
        self._next_session = 0x1000000
        self._fuzzy: list[tuple[Member, SnapshotFile, list[str], int]] = []
        for member in self.members:
            member.packing = (
                self.random.choice(("", "", ".gz", ".snappy")) if self.has_digests else ""
            )
            member.has_log_dir = self.random.random() < 0.15
            member.config = self._config_text()
            member.has_digests = self.random.random() > 0.03
            if self.is_modern:
                self.snapshot(member)
        if not self.is_modern and self.random.random() < 0.5:
            self.store(self.leader, self.exact(self.leader, make_zxid(1, 0)))

    # -- what the version writes -----------------------------------------------------------------

    @property
    def is_modern(self) -> bool:
        return self.version != "3.4"

    @property
    def has_digests(self) -> bool:
        return self.version in ("3.6", "3.9")

    @property
    def quorum(self) -> int:
        return len(self.members) // 2 + 1

    @property
    def up(self) -> list[Member]:
        return [member for member in self.members if member.is_up]

    @property
    def zxid(self) -> int:
        return self.history[-1][0] if self.history else 0

    def _config_text(self) -> str:
        lines = [
            f"server.{m.name}=10.0.0.{m.name}:2888:3888:participant;0.0.0.0:2181"
            for m in self.members
        ]
        return "\n".join([*lines, "version=0"])

    # -- writes ----------------------------------------------------------------------------------

    def write(self, number: int) -> None:
        """Commit some txns; every server that is up logs them."""
        for _ in range(number):
            self.now += self.random.choice((1, 5, 20))
            self.counter += 1
            zxid = make_zxid(self.epoch, self.counter)
            entry = self._next_entry(zxid)
            self._preparer.apply(entry)
            if self.random.random() < 0.003 and entry.digest is not None:
                # A leader of Apache's does that when the root changes; all servers have it then.
                entry = entry._replace(digest=TxnDigest(2, entry.digest.tree_digest ^ 0x55))
            self._commit(zxid, entry)

    def request(self, type_: int, request: object, session: int | None = None) -> None:
        """Commit one request; it has to succeed."""
        session = self._sessions[-1] if session is None else session
        self.now += 1
        self.counter += 1
        zxid = make_zxid(self.epoch, self.counter)
        time_ms = _START_MS + self.now * 1000
        entry = self._prepared(SessionId(session), zxid, time_ms, type_, request)
        assert not isinstance(entry.body, ErrorTxn)
        self._preparer.apply(entry)
        self._commit(zxid, entry)

    def _commit(self, zxid: int, entry: LogEntry) -> None:
        raw = self._encoded(entry)
        other = self._other_form(entry)
        self.history.append((zxid, raw))
        for member in self.up:
            # A failed multi has two forms on the disks of healthy servers.
            form = other if other is not None and self.random.random() < 0.3 else raw
            if not member.has_digests:
                form = encode_entry(entry._replace(digest=None))
            member.append(zxid, form, self.now)
            member.position = zxid
        if self.random.random() < 0.01:
            self._log_unnumbered(zxid)
        self._finish_fuzzy(is_end=False)

    def _log_unnumbered(self, zxid: int) -> None:
        """A write that cannot be decoded is logged as an error under the zxid before."""
        header = TxnHeader(SessionId(7), 0, Zxid(zxid), _START_MS + self.now * 1000, OpCode.ERROR)
        entry = encode_entry(LogEntry(header, ErrorTxn(-5), None))
        for member in self.up:
            member.append(zxid, entry, self.now)

    def _encoded(self, entry: LogEntry) -> bytes:
        return encode_entry(entry if self.has_digests else entry._replace(digest=None))

    def _other_form(self, entry: LogEntry) -> bytes | None:
        body = entry.body
        if not isinstance(body, MultiTxn) or not any(
            t.type == OpCode.ERROR for t in body.txns or ()
        ):
            return None
        subs = tuple(SubTxn(OpCode.ERROR, sub.data) for sub in body.txns or ())
        return self._encoded(entry._replace(body=MultiTxn(subs)))

    def _next_entry(self, zxid: Zxid) -> LogEntry:
        self.cxid += 1
        time_ms = _START_MS + self.now * 1000
        if not self._sessions or self.random.random() < 0.06:
            session = SessionId(self._next_session + (self.epoch << 40))
            self._next_session += 1
            self._sessions.append(session)
            return self._prepared(
                session, zxid, time_ms, OpCode.CREATE_SESSION, CreateSessionTxn(6000)
            )
        session = self.random.choice(self._sessions)
        if len(self._sessions) > 2 and self.random.random() < 0.05:
            self._sessions.remove(session)
            entry = self._prepared(session, zxid, time_ms, OpCode.CLOSE_SESSION, None)
            return entry if self.has_digests else entry._replace(body=None)
        for attempt in count():
            wish = self._wisher.wish()
            types = {wish.type}
            if wish.type == OpCode.MULTI:
                types |= {op.type for op in wish.request if isinstance(op, MultiOp)}
            if wish.is_on_root or not (self.is_modern or types.isdisjoint(_MODERN_TYPES)):
                continue
            entry = self._prepared(session, zxid, time_ms, wish.type, wish.request)
            if not isinstance(entry.body, ErrorTxn) or attempt > 4:
                return entry
            self._preparer = Preparer(self.tree, self._options)
        raise AssertionError("never reached")

    def _prepared(
        self, session: SessionId, zxid: Zxid, time_ms: int, type_: int, request: object
    ) -> LogEntry:
        try:
            return self._preparer.prepare(Caller(session), self.cxid, zxid, time_ms, type_, request)
        except KeeperError as error:
            header = TxnHeader(session, self.cxid, zxid, time_ms, OpCode.ERROR)
            # The rejected request left the preparer as it was; Apache logs no digest change.
            return LogEntry(header, ErrorTxn(error.code), None)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self, member: Member) -> None:
        """Take a snapshot of the current state, fuzzy once in a while, and roll the log."""
        member.is_open = False
        if self.history and self.random.random() < 0.5:
            children = self._top()
            cut = self.random.randrange(len(children) + 1)
            early = self._nodes(member, "/", children[:cut])
            snapshot = SnapshotFile(self.zxid, self._head(), early, [], 0, 0)
            wait = self.random.randrange(1, 6)
            self._fuzzy.append((member, snapshot, children[cut:], wait))
            return
        self.store(member, self.exact(member, self.zxid))

    def _top(self) -> list[str]:
        root = self.tree.find("/")
        return sorted((root.children if root else None) or ())

    def exact(self, member: Member, zxid: int) -> SnapshotFile:
        """A snapshot of the current state under a zxid."""
        nodes = self._nodes(member, "/", self._top())
        return SnapshotFile(zxid, self._head(), nodes, self._tails(zxid), self.now, zxid)

    def store(self, member: Member, snapshot: SnapshotFile) -> None:
        member.snapshots[snapshot.zxid] = snapshot

    def _finish_fuzzy(self, *, is_end: bool) -> None:
        going = []
        for member, snapshot, rest, wait in self._fuzzy:
            if wait > 1 and not is_end:
                going.append((member, snapshot, rest, wait - 1))
                continue
            if not member.is_up:
                continue
            for path in rest:
                if self.tree.find(path) is not None:
                    snapshot.nodes += self._nodes(member, path, None)
            snapshot.tails = self._tails(snapshot.zxid)
            snapshot.mtime, snapshot.fuzzy_until = self.now, self.zxid
            self.store(member, snapshot)
        self._fuzzy = going

    def _head(self) -> bytes:
        sessions = self.tree.sessions
        acls = self.tree.acls.entries()
        parts = [SNAPSHOT_HEADER, struct.pack(">i", len(sessions))]
        parts += [struct.pack(">qi", *item) for item in sessions.items()]
        parts.append(struct.pack(">i", len(acls)))
        for key, acl in acls.items():
            parts.append(struct.pack(">qi", key, len(acl)) + b"".join(encode(one) for one in acl))
        return b"".join(parts)

    def _nodes(
        self, member: Member, path: str, children: list[str] | None
    ) -> list[tuple[str, bytes]]:
        node = self.tree.find(path)
        if node is None or (path == CONFIG and not self.is_modern):
            return []
        below = sorted(node.children or ()) if children is None else children
        if path == CONFIG:
            node = make_node(member.config.encode(), node.acl, node.stat)
        found = [(path, encode_node(path, node))]
        for child in below:
            found += self._nodes(member, child, None)
        return found

    def _tails(self, zxid: int) -> list[bytes]:
        if not self.has_digests:
            return [b""]
        last = self.zxid
        digest = struct.pack(">qiQ", last, 2, self.tree.digest if last else 0)
        if self.version == "3.6" and last == zxid and self.counter > 1 and self.counter % 3 == 0:
            # The zxid moves when a txn is applied, its digest a moment later.
            before = decode_entry(self.history[-2][1])
            if before.digest is not None:
                digest = struct.pack(">qiQ", before.header.zxid, 2, before.digest.tree_digest)
        return [digest, struct.pack(">q", zxid), b""] if self.version == "3.9" else [digest, b""]

    # -- servers come and go ---------------------------------------------------------------------

    def stop(self, member: Member) -> None:
        member.is_up = False
        member.is_open = False

    def start(self, member: Member) -> None:
        """Join the leader: catch up by DIFF, TRUNC or SNAP."""
        behind = [(z, e) for z, e in self.history if z > member.position]
        is_ahead = bool(member.extra)
        later = self.zxid > max(member.extra, default=0)
        if is_ahead and (not later or self.random.random() < 0.5) and self._truncate(member):
            is_ahead = False
        if is_ahead and not later:
            return  # it waits until there is something to be given
        if is_ahead or (len(behind) > 3 and self.random.random() < 0.4):
            self.install(member)
        elif behind:
            self._diff(member, behind)
        member.extra = []
        member.is_up = True
        member.is_open = False
        member.epoch = self.epoch
        member.position = self.zxid

    def install(self, member: Member) -> None:
        """SNAP: the leader's state, under the leader's zxid; the logs stay as they are."""
        self.store(member, self.exact(member, self.zxid))

    def _diff(self, member: Member, behind: list[tuple[int, bytes]]) -> None:
        if self.version == "3.4":
            # The txns of a DIFF are in a snapshot and in no log.
            self.install(member)
            return
        for zxid, entry in behind:
            member.append(zxid, entry, self.now)
        if self.random.random() < 0.5:
            self.store(member, self.exact(member, self.zxid))

    def _truncate(self, member: Member) -> bool:
        """TRUNC as it should be; False where it cannot be told from the bug."""
        log = member.logs[-1]
        kept = [item for item in log.entries if item[0] not in member.extra]
        if len(log.entries) - len(kept) != len(member.extra):
            return False
        if kept:
            log.entries, log.is_padded, log.tail, log.mtime = kept, False, b"", self.now
        else:
            member.logs.pop()
        return True

    def log_alone(self, member: Member, number: int = 1) -> None:
        """A leader logs what it cannot commit, and dies."""
        scratch = Random(self.random.random())
        for step in range(1, number + 1):
            zxid = make_zxid(self.epoch, self.counter + step)
            member.append(zxid, self.stray_entry(zxid, scratch), self.now)
            member.extra.append(zxid)
        self.stop(member)

    def stray_entry(self, zxid: int, random: Random, path: str | None = None) -> bytes:
        """A record that no majority ever has: it sets a znode that is there, if one is."""
        paths = [
            p for p in sorted(self.tree.paths()) if not p.startswith("/zookeeper") and p != "/"
        ]
        target = path or (random.choice(paths) if paths else "/")
        header = TxnHeader(
            SessionId(7), 1, Zxid(zxid), _START_MS + self.now * 1000, OpCode.SET_DATA
        )
        body = SetDataTxn(target, b"never committed %d" % random.randrange(1 << 30), 77)
        return self._encoded(LogEntry(header, body, None))

    def elect(self) -> None:
        """A new epoch, with a leader that has everything."""
        self._finish_fuzzy(is_end=True)
        whole = [m for m in self.up if m.position == self.zxid]
        self.leader = self.random.choice(whole)
        self.epoch += 1
        self.counter = 0
        for member in self.up:
            member.epoch = self.epoch
            if self.random.random() < 0.6:
                member.is_open = False
        self._preparer = Preparer(self.tree, self._options)

    def purge(self, member: Member) -> None:
        """Keep the newest three snapshots and the logs that they need."""
        for zxid in sorted(member.snapshots)[:-3]:
            del member.snapshots[zxid]
        oldest = min(member.snapshots, default=0)
        names = [log.zxid for log in member.logs]
        first = max((name for name in names if name <= oldest), default=0)
        member.logs = [log for log in member.logs if log.zxid >= first]

    def live(self, steps: int | None = None) -> None:
        """Let things happen."""
        self.write(self.random.randrange(3, 20))
        for _ in range(steps if steps is not None else self.random.randrange(4, 26)):
            self._step()
        self._finish_fuzzy(is_end=True)

    def _step(self) -> None:
        random = self.random
        match random.choice(
            ("write", "write", "snapshot", "snapshot", "crash", "start", "elect", "purge")
        ):
            case "write":
                self.write(random.randrange(1, 25))
            case "snapshot":
                self.snapshot(random.choice(self.up))
                self.write(random.randrange(0, 8))
            case "crash":
                self._crash()
            case "start":
                for member in self.members:
                    if not member.is_up and random.random() < 0.8:
                        self.start(member)
            case "elect":
                self.elect()
                self.write(random.choice((0, 1, 4)))
            case "purge":
                self.purge(random.choice(self.members))

    def _crash(self) -> None:
        if len(self.up) <= self.quorum:
            return
        if self.random.random() < 0.5:
            self.log_alone(self.leader, self.random.choice((1, 1, 2)))
            self.elect()
            self.write(self.random.choice((0, 1, 3)))
        else:
            victim = self.random.choice([m for m in self.up if m is not self.leader])
            self.stop(victim)

    def end(self) -> None:
        """Stop everything, in one of the ways in which things end."""
        self._finish_fuzzy(is_end=True)
        if self.random.random() < 0.4:
            self.start_all()
        if self.random.random() < 0.3 and len(self.up) > self.quorum:
            self.log_alone(self.leader)
        if self.random.random() < 0.3:
            self._tear(self.random.choice(self.members))

    def start_all(self) -> None:
        """Bring every server up that can be."""
        for member in self.members:
            if not member.is_up:
                self.start(member)

    def _tear(self, member: Member) -> None:
        if not member.logs:
            return
        log = member.logs[-1]
        whole = frame(self.stray_entry(log.entries[-1][0] + 1, self.random))
        log.tail = whole[: self.random.randrange(13, len(whole) - 1)]
        if self.random.random() < 0.5:
            log.is_padded = False

    # -- files -----------------------------------------------------------------------------------

    def write_files(self, root: Path) -> Path:
        """Write everything below `root`, one directory a server; gives `root`."""
        for member in self.members:
            write_member(self, member, root / member.name)
        return root


def seal(content: bytes, tails: list[bytes]) -> bytes:
    """A snapshot's content with its seals, one in front of each tail."""
    parts = [content]
    adler = zlib.adler32(content)
    for tail in tails:
        piece = _SEAL.pack(adler, 1, b"/") + tail
        adler = zlib.adler32(piece, adler)
        parts.append(piece)
    return b"".join(parts)


def packed(content: bytes, packing: str) -> bytes:
    if packing == ".gz":
        return gzip.compress(content, mtime=0)
    if packing == ".snappy":
        return snappy_stream(content)
    return content


def snappy_stream(content: bytes) -> bytes:
    """snappy-java's SnappyOutputStream."""
    block = bytes(cramjam.snappy.compress_raw(content))
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


def write_member(life: Life, member: Member, directory: Path) -> None:
    """The files of one server, with the times of their last writes."""
    data = directory / ("data/version-2" if member.has_log_dir else "version-2")
    logs = directory / ("datalog/version-2" if member.has_log_dir else "version-2")
    data.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    for log in member.logs:
        _put(logs / f"log.{log.zxid:x}", log.content(), log.mtime)
    for snapshot in member.snapshots.values():
        path = data / f"snapshot.{snapshot.zxid:x}{member.packing}"
        _put(path, packed(snapshot.content, member.packing), snapshot.mtime)
    for name, text in (("acceptedEpoch", member.accepted), ("currentEpoch", member.current)):
        if text is not None:
            _put(data / name, (text or str(member.epoch)).encode(), life.now)
    for name, content in member.raw.items():
        _put(data / name, content, life.now)


def _put(path: Path, content: bytes, mtime: int) -> None:
    path.write_bytes(content)
    os.utime(path, (_START_S + mtime, _START_S + mtime))


def healthy(seed: int) -> Life:
    """An ensemble with a long and honest life."""
    life = Life(seed)
    life.live()
    life.end()
    return life
