"""Run scripts on both servers and compare.

python -m tests.differential.campaign --operations 200000 --first-seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from keepfast.storage import RealDisk, Store, StoreOptions, data_directory
from tests.apache import ApacheServer, words
from tests.differential import requests as wire
from tests.differential.requests import Op, Request
from tests.differential.scripts import SUPER_CLIENT, Batch, Connect, Drop, Script, Step
from tests.differential.sides import CLOSED, Frame, Side
from tests.keepfast_server import KeepfastServer

CLIENTS = 5
_CREATES = (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL)
# Short ticks, so that a session that falls silent ends soon.
CONFIGURATION = {"tickTime": "100", "minSessionTimeout": "200", "maxSessionTimeout": "600000"}
_DIGEST_INTERVAL = 128
_HISTORY = 12
# A busy machine starts a Java server slowly.
_START_SECONDS = 240


@dataclass(slots=True)
class Report:
    """What was compared."""

    operations: int = 0
    replies: int = 0
    events: int = 0
    sessions: int = 0
    expired: int = 0
    closed: int = 0
    znodes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        for name in ("operations", "replies", "events", "sessions", "expired", "closed", "znodes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds.update(other.kinds)
        self.errors.update(other.errors)

    def __str__(self) -> str:
        return (
            f"{self.operations:,} operations of {len(self.kinds)} kinds on both servers: "
            f"{self.replies:,} replies with {len(self.errors)} different codes, "
            f"{self.events:,} events, {self.sessions:,} sessions, {self.expired:,} expired, "
            f"{self.closed:,} connections closed, {self.znodes:,} znodes at the ends; no difference"
        )


class DifferenceError(AssertionError):
    """The two servers answered differently; the text says what, and what came before."""


class Comparison:
    """One script on two servers."""

    def __init__(self, script: Script, apache_port: int, our_port: int) -> None:
        self._script = script
        self._apache, self._ours = Side(apache_port, CLIENTS), Side(our_port, CLIENTS)
        self._sides = (self._apache, self._ours)
        self._next_xid = [0] * CLIENTS
        self._past: list[str] = []
        self._ending: set[int] = set()
        self.zxid = 0
        self.report = Report()

    def run(self, operations: int) -> Report:
        """Do this many operations, then compare the whole trees."""
        for step in self._script.steps():
            self._do(step)
            if self.report.operations >= operations:
                break
        self._compare_trees()
        return self.report

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def _do(self, step: Step) -> None:
        client = step.client
        if isinstance(step, Batch):
            self.ask(client, step.requests)
        elif isinstance(step, Connect):
            self._connect(step)
        elif isinstance(step, Drop):
            for side in self._sides:
                side.drop(client)
            self._script.closed(client)
        else:
            self._compare(step, *(side.until_closed(client) for side in self._sides))
            self._script.closed(client)
            self.report.expired += 1
            self._ending.add(self.zxid + 1)

    def _connect(self, step: Connect) -> None:
        zxid = self.zxid + 1000 if step.is_ahead else 0
        found = [
            side.connect(step.client, step.timeout_ms, zxid, step.how, step.flag)
            for side in self._sides
        ]
        self._compare(step, *found)
        if len(found[0]) == 1 and found[0][0] != CLOSED:
            self._script.connected(step.client)
            self.report.sessions += 1
            if step.how == "new":
                self.zxid += 1

    def ask(self, client: int, asked: Sequence[Request]) -> list[Frame]:
        """Send requests to both; gives what came back."""
        requests: list[tuple[int, Request]] = []
        for request in asked:
            self._next_xid[client] += 1
            xid = self._next_xid[client] if request.xid is None else request.xid
            requests.append((xid, request))
            self.report.kinds[_name(request.op)] += 1
        self.report.operations += len(requests)
        for side in self._sides:
            side.send(client, requests)
        frames = [side.answers(client) for side in self._sides]
        if any(request.op == Op.CLOSE_SESSION for request in asked):
            self._ending.add(self.zxid + 1)
        self._compare(Batch(client, asked), *frames)
        self._learn(client, asked, frames[0])
        return frames[0]

    def _learn(self, client: int, asked: Sequence[Request], frames: Sequence[Frame]) -> None:
        if frames and frames[-1] == CLOSED:
            self._script.closed(client)
            self.report.closed += 1
        place = 0
        for frame in frames:
            if frame[0] != "reply":
                continue
            self.zxid = max(self.zxid, frame[2])
            op = asked[place].op if place < len(asked) else 0
            place += 1
            path = None
            if op in _CREATES and frame[3] == 0:
                created = frame[4] if op == Op.CREATE else frame[4][0]
                path = created.decode("utf-8", "replace")
            self._script.learn(frame[2], path)

    def _compare(self, step: Step, apache: Sequence[Frame], ours: Sequence[Frame]) -> None:
        for frame in apache:
            self.report.events += frame[0] == "event"
            self.report.replies += frame[0] == "reply"
            if frame[0] == "reply":
                self.report.errors[frame[3]] += 1
        line = _told(step)
        if self._ordered(apache) == self._ordered(ours):
            self._past.append(line)
            del self._past[:-_HISTORY]
            return
        place = next(
            (i for i, pair in enumerate(zip(apache, ours, strict=False)) if pair[0] != pair[1]),
            min(len(apache), len(ours)),
        )
        raise DifferenceError(
            "\n".join(
                [
                    *("earlier: " + line for line in self._past),
                    f"step:    {line}",
                    f"frame {place} of {len(apache)} and {len(ours)}",
                    *(f"apache:  {frame}" for frame in apache[place : place + 3]),
                    *(f"ours:    {frame}" for frame in ours[place : place + 3]),
                ]
            )
        )

    def _ordered(self, frames: Sequence[Frame]) -> list[Frame]:
        """The frames; events of the end of a session, which walks over a set, sorted."""
        found: list[Frame] = []
        group: list[Frame] = []
        for frame in frames:
            if frame[0] == "event" and frame[1] in self._ending:
                group.append(frame)
                continue
            found += sorted(group)
            group = []
            found.append(frame)
        return found + sorted(group)

    def _compare_trees(self) -> None:
        """Read all that a client can read, as the superuser."""
        client = SUPER_CLIENT
        self._connect(Connect(client, "new"))
        self.ask(client, [Request(Op.AUTH, wire.auth("digest", b"super:test"))])
        paths = ["/"]
        while paths:
            self.report.znodes += len(paths)
            following: list[str] = []
            for start in range(0, len(paths), 100):
                some = paths[start : start + 100]
                asked = [Request(Op.GET_CHILDREN2, wire.with_flag(path, False)) for path in some]
                asked += [Request(Op.GET_DATA, wire.with_flag(path, False)) for path in some]
                asked += [Request(Op.GET_ACL, wire.text(path)) for path in some]
                answers = [frame for frame in self.ask(client, asked) if frame[0] == "reply"]
                for path, answer in zip(some, answers, strict=False):
                    base = "" if path == "/" else path
                    following += [f"{base}/{name.decode()}" for name in answer[4][0]]
            paths = following
        # Both remember the digest behind every 128th txn.
        missing = Request(Op.DELETE, wire.with_version("/no-such-znode", -1))
        while self.zxid % _DIGEST_INTERVAL:
            self.ask(client, [missing])


def _name(op: int) -> str:
    return Op(op).name if op in Op._value2member_map_ else "unknown"


def _told(step: Step) -> str:
    if isinstance(step, Batch):
        return f"client {step.client}: " + "; ".join(
            str(request)[:300] for request in step.requests
        )
    return str(step)


@contextmanager
def both(
    place: Path, properties: dict[str, str] | None = None
) -> Iterator[tuple[ApacheServer, KeepfastServer]]:
    """The two servers, fresh, with the same settings."""
    quick = {"zookeeper.forceSync": "no", **(properties or {})}
    apache = ApacheServer(place / "theirs", properties=quick, configuration=CONFIGURATION)
    ours = KeepfastServer(place / "ours", properties=properties, configuration=CONFIGURATION)
    with ExitStack() as stack:
        for server in (apache, ours):
            stack.enter_context(server.start(timeout=_START_SECONDS))
        yield apache, ours


def compare(place: Path, seed: int, operations: int) -> Report:
    """One seed on fresh servers. Odd seeds count hard quotas, one request at a time."""
    is_pipelined = seed % 2 == 0
    properties = {} if is_pipelined else {"zookeeper.enforceQuota": "true"}
    with both(place, properties) as (apache, ours):
        script = Script(seed, CLIENTS, is_pipelined=is_pipelined)
        comparison = Comparison(script, apache.port, ours.port)
        try:
            report = comparison.run(operations)
        finally:
            comparison.close()
        zxid = comparison.zxid
        theirs = words.history_of_digests(apache.port)[zxid]
        mine = words.history_of_digests(ours.port)[zxid]
        mismatches = apache.digest_mismatches()
        ours.stop()
        apache.stop()
    _check_digests(place, zxid, theirs, mine, mismatches)
    return report


def _check_digests(place: Path, zxid: int, theirs: int, mine: int, mismatches: int) -> None:
    """Each server has to find, on the other's files, the digest that the other had.

    The two differ: times and session ids are part of them.
    """
    if mismatches:
        raise DifferenceError(f"Apache found {mismatches} digests that it did not expect")
    disk = RealDisk()
    store, recovery = Store.open(
        disk, data_directory(disk, str(place / "theirs")), StoreOptions(reserve_bytes=0)
    )
    store.close()
    tree = recovery.tree
    assert tree is not None, recovery.problems
    if recovery.problems or tree.digest != theirs:
        raise DifferenceError(f"Apache's digest {theirs:#x}, ours of its files {tree.digest:#x}")
    with ApacheServer(place / "ours", configuration=CONFIGURATION) as judge:
        found = judge.digest_mismatches()
        if found:
            raise DifferenceError(f"Apache finds {found} wrong digests in our files")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--per-seed", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args(arguments)
    total = Report()
    started = time.monotonic()
    seed = options.first_seed
    while total.operations < options.operations:
        with tempfile.TemporaryDirectory() as name:
            try:
                report = compare(Path(name), seed, options.per_seed)
            except DifferenceError as error:
                print(f"seed {seed}, behind {total.operations:,} operations:\n{error}")
                return 1
        total.add(report)
        print(f"seed {seed}: {report.operations:,} operations, {time.monotonic() - started:.0f} s")
        seed += 1
    print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
