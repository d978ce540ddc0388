"""The tree as it was: at a zxid or a time, by one server's files or by those of all of them.

One server's files prove a state by replay: a snapshot that can be read in full and the records
after it, each following the one before, each digest (3.6 and later) that of the tree. What they
prove is a *prefix* of the history (`storage.prefix`), and it is this server's word alone.

With several servers each is asked, and the answers are compared: by zxid and content, without
/zookeeper/config, which members write by their own clocks. Servers whose files end earlier are
silent about that moment; they do not contradict. Where the others are of two minds, a quorum of the
voters (`electorate`) decides, and who is of another mind is said. Without one there is no state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from keepfast.pipeline.agreement.electorate import Electorate, Support, version_of
from keepfast.pipeline.agreement.server_log import ServerLog
from keepfast.pipeline.agreement.voters import config_in, electorate_by_files
from keepfast.pipeline.files.layout import EnsembleFiles, PlaceError, ServerFiles, discover
from keepfast.pipeline.files.staging import local_places
from keepfast.pipeline.replay.history import (
    EnsembleHistory,
    HistoryBroken,
    HistoryGone,
    is_exact,
)
from keepfast.storage import (
    DataDirectory,
    Disk,
    Frame,
    LogReader,
    RealDisk,
    disk_views,
    list_directory,
    load_manifest,
    prefix,
)
from keepfast.tree import Tree
from keepfast.wire import (
    KeepfastError,
    StorageError,
    Zxid,
    counter_of,
    format_zxid,
    parse_zxid,
)

_TIME = struct.Struct(">q")
_TIME_OFFSET = 20  # in an entry: after session id, cxid and zxid

# The last zxid of a state, and its two digests without what members do not share.
Fingerprint = tuple[int, int, int]


class StateUnknown(KeepfastError):  # noqa: N818 - it says what is the case, not that it is a fault
    """No state at the moment in question is proven; `str()` is one sentence on why."""


class ServersDisagree(StateUnknown):
    """The servers have different states at the moment in question, and no quorum has one."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a history: a zxid, a time in milliseconds since 1970, or neither: the head."""

    zxid: Zxid | None = None
    time_ms: int | None = None

    def __str__(self) -> str:
        if self.zxid is not None:
            return format_zxid(self.zxid)
        if self.time_ms is not None:
            return f"{datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat()}"
        return "the head"


HEAD = Moment()


def moment_of(at: Moment | int | str | datetime | None) -> Moment:
    """What people write for a moment: a zxid as a number or in hex, or a time (UTC if not said)."""
    if isinstance(at, Moment):
        return at
    if at is None:
        return HEAD
    if isinstance(at, int):
        return Moment(zxid=Zxid(at))
    if isinstance(at, str):
        try:
            return Moment(zxid=parse_zxid(at))
        except ValueError:
            at = datetime.fromisoformat(at)
    zoned = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return Moment(time_ms=round(zoned.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class ServerState:
    """What one server's files say about a moment."""

    server: str
    directory: DataDirectory
    prefix: prefix.Prefix
    # Whether nothing is missing between the state and the moment that was asked for.
    reaches: bool
    # Whether digests, or the form of the files, prove every step of the replay.
    is_proven: bool
    note: str = ""  # what has to be said about it
    # False if it rests on a snapshot that may be ahead of its zxid, and no digest excludes it.
    is_exact: bool = True

    @property
    def head(self) -> Zxid:
        """The last zxid that the state holds."""
        return self.prefix.head

    @property
    def tree(self) -> Tree:
        """The state."""
        return self.prefix.tree

    @property
    def fingerprint(self) -> Fingerprint:
        """Equal for servers that hold the same state, whatever their own clocks wrote."""
        return self.head, self.tree.digest, self.tree.shared_digest


@dataclass(frozen=True, slots=True)
class EnsembleState:
    """The state of an ensemble at a moment, by the files of all its servers."""

    ensemble: str
    chosen: ServerState
    agreeing: tuple[str, ...]  # servers with this very state
    # Servers whose files lead to another one. At the head something is wrong; in the past it may be
    # a record that was never committed, harmless below a later snapshot.
    differing: tuple[str, ...] = ()
    silent: dict[str, str] = field(default_factory=dict)  # servers without an answer, and why
    is_past: bool = False  # a zxid or a time was asked for, and not the head
    caution: str = ""  # who was not asked, if those who were are not a quorum

    @property
    def is_contradicted(self) -> bool:
        """Whether servers have different states now."""
        return bool(self.differing) and not self.is_past

    @property
    def tree(self) -> Tree:
        """The state."""
        return self.chosen.tree

    @property
    def head(self) -> Zxid:
        """The last zxid that the state holds."""
        return self.chosen.head


def read_only_disk() -> Disk:
    """The local disk, through which nothing can be changed."""
    return disk_views.ReadOnlyDisk(RealDisk())


def one_ensemble(places: Sequence[str]) -> EnsembleFiles:
    """The only ensemble at `places`; raises PlaceError if there are several, or none.

    What lies on another file system is copied to this machine first.
    """
    ensembles = discover(local_places(places))
    if len(ensembles) > 1:
        names = ", ".join(ensemble.name for ensemble in ensembles[:5])
        more = ", ..." if len(ensembles) > 5 else ""
        raise PlaceError(
            " ".join(places), f"holds {len(ensembles)} ensembles ({names}{more}); name one of them"
        )
    return ensembles[0]


# -- one server ------------------------------------------------------------------------------------


def server_state(disk: Disk, server: ServerFiles, moment: Moment = HEAD) -> ServerState:
    """The state at `moment` by one server's files; raises StateUnknown if they prove none."""
    directory = server.data_directory
    until = moment.zxid
    if moment.time_ms is not None:
        last = last_before(disk, directory, moment.time_ms)
        if last is not None and not last.is_followed:
            # The files end before that time: what they hold last is all they can show.
            until = None
        elif last is None:
            raise StateUnknown(
                f"the first record of {server.server} that is left is later than {moment}: "
                "nothing shows what the tree was then"
            )
        else:
            until = last.zxid
    try:
        found = prefix.prefix_of(disk, directory, prefix.NO_LIMIT if until is None else until)
    except OSError as error:
        place = error.filename or directory.snapshots
        raise StateUnknown(f"{place} cannot be read: {error.strerror}") from error
    except StorageError as error:
        found = error
    if not isinstance(found, prefix.Prefix):
        reason = "there is no snapshot to begin with" if found is None else str(found)
        raise StateUnknown(
            f"the files of {server.server} prove no state at or before {moment}: {reason}"
        )
    note, reaches, is_proven = _standing(disk, directory, found, until)
    if moment.time_ms is not None and until is None and reaches:
        note = note or f"no record is later than {moment}: this is the last state there is"
    # After the last record nothing can be ahead: a record is logged before it is applied.
    if until is None or is_exact(found.replay, found.base):
        return ServerState(server.server, directory, found, reaches, is_proven, note)
    note = note or f"{found.base_name} may hold effects of later records; no digest excludes it"
    return ServerState(server.server, directory, found, reaches, False, note, is_exact=False)


def _standing(
    disk: Disk, directory: DataDirectory, found: prefix.Prefix, until: Zxid | None
) -> tuple[str, bool, bool]:
    """What has to be said about a state; whether it reaches the moment; whether it is proven."""
    head = format_zxid(found.head)
    if found.stop is not None:
        return f"proven up to {head} only: {found.stop.reason}", False, True
    is_proven = not found.replay.unproven and found.replay.unsettled is None
    if until is not None and found.head != until:
        if not _is_last_before(disk, directory, found.head, until):
            note = f"the records end at {head}: nothing shows what came after it"
            return note, False, is_proven
        if is_proven:
            return f"{head} is the last record at or before {format_zxid(until)}", True, True
    if found.replay.unproven:
        first = format_zxid(found.replay.unproven[0].zxid)
        return f"from {first} on not proven: the records carry no digest", True, False
    return "" if is_proven else "not proven: the last digests do not show it", True, is_proven


def _is_last_before(disk: Disk, directory: DataDirectory, head: Zxid, until: Zxid) -> bool:
    """Whether the log continues from `head` with a record after `until`: nothing lies between.

    A later snapshot alone does not show it: it may hold records that this log never had.
    """
    log = ServerLog(disk, directory, "")
    log.start(head)
    log.poll(head)
    following = log.peek()
    return following is not None and following.zxid > until and log.before in (head, None)


@dataclass(frozen=True, slots=True)
class LastBefore:
    """The last record that is not later than a time, and whether a later one is there."""

    zxid: Zxid
    is_followed: bool


def last_before(disk: Disk, directory: DataDirectory, time_ms: int) -> LastBefore | None:
    """The last record made at or before a time, by the leaders' clocks; None if all are later.

    Ends at the first record that is later, so that a clock that was set back does not matter much.
    """
    last: Zxid | None = None
    for frame in _frames(disk, directory):
        if _TIME.unpack_from(frame.entry, _TIME_OFFSET)[0] > time_ms:
            return None if last is None else LastBefore(last, True)
        last = Zxid(frame.zxid)
    return None if last is None else LastBefore(last, False)


def _frames(disk: Disk, directory: DataDirectory) -> Iterator[Frame]:
    """The records of all logs that count, in the order of the files."""
    manifest = load_manifest(disk, directory)
    for name in list_directory(disk, directory).logs:
        if manifest is None or name in manifest.names():
            try:
                with disk.open_read(directory.in_logs(name)) as file:
                    yield from LogReader(file)
            except OSError:
                continue  # the replay will say so, if the file is needed


# -- all servers -----------------------------------------------------------------------------------


def ensemble_state(disk: Disk, ensemble: EnsembleFiles, moment: Moment = HEAD) -> EnsembleState:
    """The state at `moment` by the files of all servers; the head is what a quorum reaches.

    Raises StateUnknown if no server's files prove one, ServersDisagree if two states are proven and
    a quorum of the voters has neither.
    """
    wanted = _as_zxid(disk, ensemble, moment)
    answers = _Answers(disk, ensemble)
    electorate = electorate_by_files(disk, ensemble, answers.configs() if wanted == HEAD else None)
    found = _asked(answers, electorate.of_given(), wanted, moment)
    # A record may have changed who votes since the newest snapshot.
    after = electorate.changed(config_in(found.tree))
    return found if after is electorate else _asked(answers, after.of_given(), wanted, moment)


def _asked(
    answers: _Answers, electorate: Electorate, wanted: Moment, moment: Moment
) -> EnsembleState:
    votes = _Votes(answers, electorate)
    if wanted.zxid is not None:
        for server in answers.ensemble.servers:
            votes.ask(server, wanted)
    else:
        votes.ask_for_head()
    return votes.decide(moment)


class _Answers:
    """What each server says about a moment; heads are asked for twice, and computed once."""

    def __init__(self, disk: Disk, ensemble: EnsembleFiles) -> None:
        self.disk = disk
        self.ensemble = ensemble
        self._heads: dict[str, ServerState | StateUnknown] = {}

    def of(self, server: ServerFiles, moment: Moment = HEAD) -> ServerState:
        """As `server_state`."""
        if moment != HEAD:
            return server_state(self.disk, server, moment)
        if server.server not in self._heads:
            try:
                self._heads[server.server] = server_state(self.disk, server)
            except StateUnknown as error:
                self._heads[server.server] = error
        found = self._heads[server.server]
        if isinstance(found, StateUnknown):
            raise found
        return found

    def configs(self) -> dict[str, str]:
        """The text in /zookeeper/config of the newest snapshots, where the heads have it still."""
        found = {}
        for server in self.ensemble.servers:
            try:
                state = self.of(server)
            except StateUnknown:
                continue
            text = config_in(state.tree)
            # One that a record made is not known to be committed.
            if version_of(text) <= state.prefix.base.fuzzy_until:
                found[server.server] = text
        return found


class _Votes:
    """What the servers of an ensemble say about one moment."""

    def __init__(self, answers: _Answers, electorate: Electorate) -> None:
        self._answers = answers
        self._ensemble = answers.ensemble
        self._electorate = electorate
        self._servers: dict[Fingerprint, list[str]] = {}
        self._best: dict[Fingerprint, ServerState] = {}
        self._behind: ServerState | None = None  # the furthest of those that do not reach it
        self._inexact: list[ServerState] = []
        self._is_settled = False  # by the records that a majority holds
        self._silent: dict[str, str] = {}

    def ask(self, server: ServerFiles, moment: Moment) -> None:
        """Ask one server."""
        try:
            self._count(self._answers.of(server, moment))
        except StateUnknown as error:
            self._silent[server.server] = str(error)

    def _count(self, state: ServerState) -> None:
        if not state.reaches:
            self._silent[state.server] = state.note
            if self._behind is None or state.head > self._behind.head:
                self._behind = state
        elif not state.is_exact:
            self._inexact.append(state)
        else:
            self._add(state)

    def _add(self, state: ServerState) -> None:
        key = state.fingerprint
        self._servers.setdefault(key, []).append(state.server)
        known = self._best.get(key)
        if known is None or (state.is_proven and not known.is_proven):
            self._best[key] = state

    def ask_for_head(self) -> None:
        """Ask for the last zxid that a quorum reaches: what comes after it may not be committed."""
        heads: dict[str, ServerState] = {}
        for server in self._ensemble.servers:
            try:
                state = self._answers.of(server)
            except StateUnknown as error:
                self._silent[server.server] = str(error)
                continue
            if state.reaches:
                heads[server.server] = state
            else:
                self._count(state)
        if not heads:
            return
        known = {name: state.head for name, state in heads.items()}
        reached = self._electorate.reached(known)
        if reached is None:
            # Too few have an answer: what all of those have that vote.
            observers = self._electorate.observers
            voting = [zxid for name, zxid in known.items() if name not in observers]
            reached = min(voting or known.values())
        head = Zxid(reached)
        for server in self._ensemble.servers:
            state_there = heads.get(server.server)
            if state_there is None or state_there.head < head:
                continue
            if state_there.head == head:
                self._count(state_there)
            elif counter_of(state_there.head) != 0:
                self.ask(server, Moment(zxid=head))
        self._join_others(head, heads)

    def _join_others(self, head: Zxid, heads: dict[str, ServerState]) -> None:
        """Place the servers that are not at `head`: starts of epochs, and those that are behind."""
        for name, state in heads.items():
            if counter_of(state.head) == 0 and state.head > head:
                # The start of an epoch moves the zxid and nothing else.
                same = [key for key in self._servers if key[1:] == state.fingerprint[1:]]
                if same:
                    self._servers[same[0]].append(name)
                else:
                    self._count(state)
            elif state.head < head:
                if self._is_contradicted(state):
                    self._count(state)
                else:
                    self._silent[name] = f"its records end at {format_zxid(state.head)}"

    def _is_contradicted(self, state: ServerState) -> bool:
        """Whether all others with an answer had another state where this server ends.

        A record at its end that they never had is no contradiction: it was not committed, and goes
        when the server comes back. False too if no other has an answer.
        """
        told = [
            self._is_other(state, server)
            for server in self._ensemble.servers
            if server.server != state.server
        ]
        return True in told and False not in told

    def _is_other(self, state: ServerState, server: ServerFiles) -> bool | None:
        """Whether a server had another state where `state` ends; None if it has no answer."""
        own = next(one for one in self._ensemble.servers if one.server == state.server)
        try:
            then = self._answers.of(server, Moment(zxid=state.head))
            if then.reaches and then.head != state.head:
                state = self._answers.of(own, Moment(zxid=then.head))
        except StateUnknown:
            return None
        if not then.reaches or not state.reaches:
            return None
        return then.fingerprint != state.fingerprint

    def decide(self, moment: Moment) -> EnsembleState:
        """The state that the servers agree on, or that most of them have."""
        ensemble, silent = self._ensemble, self._silent
        is_known = bool(self._servers)
        for state in self._inexact:
            # It may only be ahead: that contradicts nobody who knows.
            if is_known and state.fingerprint not in self._servers:
                silent[state.server] = state.note
            else:
                self._add(state)
        if not self._servers:
            if self._behind is None:
                raise StateUnknown(_nothing_proven(ensemble, moment, silent))
            del silent[self._behind.server]
            alone = (self._behind.server,)
            is_past = moment != HEAD
            caution = self._electorate.caution
            return EnsembleState(ensemble.name, self._behind, alone, (), silent, is_past, caution)
        ranked = sorted(
            self._servers,
            key=lambda key: (self._support(key), self._best[key].is_proven),
            reverse=True,
        )
        if len(ranked) > 1 and not self._electorate.is_quorum(self._servers[ranked[0]]):
            ranked = self._by_agreed_history(ranked, moment)
        first = ranked[0]
        agreeing = tuple(self._servers[first])
        differing = tuple(name for key in ranked[1:] for name in self._servers[key])
        if differing and not self._is_settled and not self._electorate.is_quorum(agreeing):
            listed = "; ".join(
                f"{', '.join(self._servers[key])} at {format_zxid(key[0])}" for key in ranked
            )
            raise ServersDisagree(
                f"the servers of {ensemble.name} have different states at {moment} ({listed}), and "
                "no majority has one; keepfast audit shows which one to believe, or name one "
                "directory"
            )
        return EnsembleState(
            ensemble.name,
            self._best[first],
            agreeing,
            differing,
            silent,
            moment != HEAD,
            self._electorate.caution,
        )

    def _support(self, key: Fingerprint) -> Support:
        return self._electorate.support(self._servers[key])

    def _by_agreed_history(self, ranked: list[Fingerprint], moment: Moment) -> list[Fingerprint]:
        """The candidates, first the one to which the records lead that a quorum holds.

        For the past only: at the head, it is the end of those records that is in question.
        """
        if moment == HEAD:
            return ranked
        try:
            walk = EnsembleHistory(self._answers.disk, self._ensemble, electorate=self._electorate)
            for _ in walk.read(max(key[0] for key in ranked)):
                continue
        except (HistoryBroken, HistoryGone):
            return ranked
        if walk.tree is None:
            return ranked
        key = (walk.reached, walk.tree.digest, walk.tree.shared_digest)
        if key not in ranked:
            return ranked
        self._is_settled = True
        return [key, *(other for other in ranked if other != key)]


def _as_zxid(disk: Disk, ensemble: EnsembleFiles, moment: Moment) -> Moment:
    """A time as a zxid: the last record at or before it on a server that also has a later one."""
    if moment.time_ms is None:
        return moment
    found = [
        last
        for server in ensemble.servers
        if (last := last_before(disk, server.data_directory, moment.time_ms)) is not None
    ]
    followed = [last.zxid for last in found if last.is_followed]
    if followed:
        return Moment(zxid=max(followed))
    if found:
        return HEAD
    raise StateUnknown(
        f"every record that is left is later than {moment}: nothing shows what the tree was then"
    )


def _nothing_proven(ensemble: EnsembleFiles, moment: Moment, silent: dict[str, str]) -> str:
    if len(silent) == 1:
        return next(iter(silent.values()))
    first = next(iter(silent.values()), "there is no server")
    return (
        f"none of the {len(ensemble.servers)} servers of {ensemble.name} proves a state at or "
        f"before {moment}; {first}"
    )
